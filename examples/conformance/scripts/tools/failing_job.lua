return tool {
  "Fail, and tell the model why.",
  task = "required",
  function() return nil, "This job fails on purpose." end,
}
