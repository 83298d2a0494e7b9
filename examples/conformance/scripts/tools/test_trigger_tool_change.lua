--- Change which tools there are, so that whoever listens is told.
return function()
  local switch = enabled("tool", "test_extra_tool") and disable or enable
  switch("tool", "test_extra_tool")
  return "The tools have changed."
end
