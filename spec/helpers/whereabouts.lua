-- Tools by which a spec sees as which client a gateway takes it, and calls of them over single requests of 2026-07-28.
local wire = require "spec.helpers.wire"

local whereabouts = {}

whereabouts.scripts = {
  ["tools/where.lua"] = [[return tool { "Where the client is.", function(_, call) return call.address end }]],
  ["tools/twice.lua"] = [[return tool { "Twice an hour.", function() return "ran" end }]],
  ["policy/twice.lua"] = [[return limit { tools = { "twice" }, rate = 2, per = 1 * hours, by = "address" }]],
}

--- The body of a call of this tool, "where" by default.
function whereabouts.body(tool) return wire.message(1, "tools/call", { name = tool or "where", arguments = {}, _meta = wire.meta() }) end

--- A call of this tool as { method, path, headers, body }. `given`: further headers, by name, or a list of { name,
--- value } in this order.
function whereabouts.request(tool, given)
  local body = whereabouts.body(tool)
  local headers = { { "Accept", wire.both } }
  for name, value in pairs(wire.mirrored(body)) do headers[#headers + 1] = { name, value } end
  for name, value in pairs(given or {}) do headers[#headers + 1] = type(name) == "number" and value or { name, value } end
  return { method = "POST", path = "/mcp", headers = headers, body = body }
end

--- What the tool says in its answer.
function whereabouts.text_of(response) return response:json().result.content[1].text end

return whereabouts
