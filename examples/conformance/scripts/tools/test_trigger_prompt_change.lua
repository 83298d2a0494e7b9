--- Change the list of prompts, so that subscribers are notified.
return function()
  local switch = enabled("prompt", "test_extra_prompt") and disable or enable
  switch("prompt", "test_extra_prompt")
  return "The prompts have changed."
end
