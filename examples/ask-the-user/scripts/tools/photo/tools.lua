-- Photos by "photo:<year>:<title>".
local function before(year)
  local found = {}
  for _, key in ipairs(store.list "photo:") do
    local photo = store.get(key)
    if photo and photo.year < year then found[#found + 1] = { key = key, name = ("%s (%d)"):format(photo.title, photo.year) } end
  end
  return json.array(found)
end

return {
  add = tool {
    "Add a photo.",
    input = { title = t.string { "What it shows", min = 1, max = 100 }, year = t.integer { "When it was taken", min = 1826, max = 2100 } },
    function(args)
      try(store.set(("photo:%d:%s"):format(args.year, args.title), args))
      return "added"
    end,
  },

  clear = tool {
    "Delete the photos taken before a year, if the user agrees.",
    input = { before = t.integer { "The first year to keep", min = 1826, max = 2100 } }, destructive = true,
    function(args, call)
      local found = call:once("found", function() return before(args.before) end)
      if #found == 0 then return "there are none" end
      local names = {}
      for i, photo in ipairs(found) do names[i] = photo.name end
      local answer, why = call:elicit("sure", "Delete " .. table.concat(names, ", ") .. "?", { confirm = t.boolean "Yes, for good" })
      if why == "unsupported" then return nil, "the client cannot ask its user: nothing is deleted" end
      if not (answer and answer.confirm) then return nil, why or "left as they are" end
      for _, photo in ipairs(found) do store.delete(photo.key) end
      return #found .. " deleted"
    end,
  },
}
