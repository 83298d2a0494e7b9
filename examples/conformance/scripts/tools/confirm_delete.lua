return tool {
  "Delete a file that is not there, if the user agrees.",
  input = { filename = t.string "Which" },
  task = "optional",
  function(args, call)
    local answer, why = call:elicit("confirm", "Delete " .. args.filename .. "?", { confirm = t.boolean })
    if not (answer and answer.confirm) then return nil, why or "left as it was" end
    return "Deleted " .. args.filename
  end,
}
