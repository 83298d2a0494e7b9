--- Change which prompts there are, so that whoever listens is told.
return function()
  local switch = enabled("prompt", "test_extra_prompt") and disable or enable
  switch("prompt", "test_extra_prompt")
  return "The prompts have changed."
end
