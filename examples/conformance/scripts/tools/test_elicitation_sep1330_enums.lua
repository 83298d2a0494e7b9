-- The five forms of a choice. `t.one_of` makes the first form; the other forms have titles or several values.
local function titled(names)
  local choices = json.array {}
  for i, name in ipairs(names) do choices[i] = { const = "value" .. i, title = name } end
  return choices
end
local three = titled { "First Option", "Second Option", "Third Option" }

return tool {
  "Ask for choices in all the forms there are.",
  function(_, call)
    local user, why = call:elicit("choices", "What do you choose?", {
      untitledSingle = t.one_of { "option1", "option2", "option3" },
      titledSingle = t.schema { type = "string", oneOf = three },
      legacyEnum = t.schema { type = "string", enum = json.array { "opt1", "opt2", "opt3" }, enumNames = json.array { "One", "Two", "Three" } },
      untitledMulti = t.schema { type = "array", items = { type = "string", enum = json.array { "option1", "option2", "option3" } } },
      titledMulti = t.schema { type = "array", items = { anyOf = three } },
    })
    return "Elicitation completed: " .. (user and json.encode(user) or why)
  end,
}
