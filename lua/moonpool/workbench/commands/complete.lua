-- moonpool complete: prints a server's completions of a prompt's argument, or of a variable of a URI template.

local connect = require "moonpool.workbench.client.connect"
local pairs_of = require "moonpool.workbench.format.key_values"
local stderr = require "moonpool.workbench.format.stderr"

local function show(result)
  for _, text in ipairs(result.completion and result.completion.values or {}) do print(text) end
end

return function(args)
  local given, order, hint = pairs_of(args, 2)
  if not given then return stderr.misuse(order, hint) end
  if not args[1] or not order[1] then
    return stderr.misuse("complete takes a prompt or a URI template, and an argument with the beginning of its value",
      "as in moonpool complete review tone=fr, or moonpool complete 'orders://{id}' id=1")
  end
  local name = order[1]
  local value = given[name]
  given[name] = nil
  local ref = args[1]:find "^%a[%w+.-]*:" and { type = "ref/resource", uri = args[1] } or { type = "ref/prompt", name = args[1] }
  return connect.run(args, nil, function(s)
    local context = next(given) and s.facts.has_completion_context and { arguments = given } or nil
    return connect.print(args, show, s:request("completion/complete", { ref = ref, argument = { name = name, value = value }, context = context }))
  end)
end
