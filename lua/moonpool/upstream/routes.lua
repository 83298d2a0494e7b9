-- The quick way of calls to upstreams: what C needs to forward plain calls of federated tools without Lua
-- (core/lib/shortcut/forward.h). A call that took the general way teaches C the tool's route and the key of its
-- channel, so nothing is decided twice. docs/dev/call-plans.md says which calls stay here.

local era = require "moonpool.protocol.era"
local host = require "moonpool.host"
local json = require "moonpool.json"
local message = require "moonpool.upstream.message"

local routes = {}

-- The audit line of a forwarded call is written by Lua, and specs of scripts replace upstreams.
local is_on = not host.config.audit and not host.script.has_specs

--- True if plain calls of a tool may take the quick way: nothing of Lua decides about them, and the token that they
--- send does not end.
local function is_plain(record, tool)
  if record.auth then return false end
  return not (tool.has_policies or tool.scopes or tool.visible or tool.mirror or tool.requires or tool.resolve or tool.is_variant or record.pass[1])
end

--- Teaches C how to forward further calls of `tool`, whose own name is `original`, by the client of `call`, on the
--- channel of `key`. `may_be_task`: the upstream can run the tool as an MCP task; calls of clients that can have one
--- stay here (`can_have_task`).
function routes.learn(record, call, tool, original, key, may_be_task, can_have_task)
  if not (is_on and tool.metrics and is_plain(record, tool)) then return end
  local header = message.headers("tools/call", { name = original })[2]
  host.forward.learn(call, tool, record.name, json.encode(original), header, key, may_be_task, can_have_task)
end

--- All calls take the general way while `is_waiting`: the things of a new catalogue are being made.
function routes.suspend(is_waiting) host.forward.suspend(is_waiting) end

--- Lets C serve calls of upstreams' tools. `take_over` continues a call that C began.
function routes.begin(take_over)
  if not is_on then return end
  local server, steps = host.config.server, {}
  for _, date in ipairs(era.dates) do steps[date] = era.facts(date).result_step end
  host.forward.set(take_over, { client = json.encode(message.client_info), server = json.encode { name = server.name, version = server.version } }, steps)
end

return routes
