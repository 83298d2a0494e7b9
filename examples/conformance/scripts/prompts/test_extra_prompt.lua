return prompt { "Comes and goes: test_trigger_prompt_change switches it.", enabled = false, "Here for now." }
