return tool {
  "Comes and goes: test_trigger_tool_change switches it.",
  enabled = false,
  function() return "Here for now." end,
}
