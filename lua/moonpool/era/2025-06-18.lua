-- No icons; arguments that do not fit are an error (T-5).

local function without_icons(member)
  return function(result)
    for _, entry in ipairs(result[member]) do entry.icons = nil end
  end
end

return {
  date = "2025-06-18", newer = "2025-11-25",
  invalid_arguments = "error",
  result_down = {
    ["tools/list"] = without_icons "tools",
    ["resources/list"] = without_icons "resources",
    ["resources/templates/list"] = without_icons "resourceTemplates",
    ["prompts/list"] = without_icons "prompts",
  },
}
