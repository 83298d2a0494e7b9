-- No icons; arguments that do not fit are an error (T-5).

return {
  date = "2025-06-18", newer = "2025-11-25",
  invalid_arguments = "error",
  result_down = {
    ["tools/list"] = function(result)
      for _, tool in ipairs(result.tools) do tool.icons = nil end
    end,
  },
}
