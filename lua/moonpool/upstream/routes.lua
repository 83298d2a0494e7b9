-- The quick way of calls to upstreams: what C needs to forward plain calls of federated tools without Lua
-- (core/lib/shortcut/forward.h). A call that took the general way teaches C the tool's route, the key of its
-- channel and what its client can do, so nothing is decided twice. docs/dev/call-plans.md says which calls stay here.

local access = require "moonpool.access.access"
local call_library = require "moonpool.protocol.call"
local class = require "moonpool.upstream.class"
local era = require "moonpool.protocol.era"
local federated = require "moonpool.runtime.lazy" "moonpool.federation.federated"
local host = require "moonpool.host"
local json = require "moonpool.json"
local message = require "moonpool.upstream.message"
local redact = require "moonpool.runtime.redact"

local routes = {}

-- Specs of scripts replace upstreams.
local is_on = not redact.audits_values() and not host.script.has_specs

local MAX_PASSED <const> = 16            -- headers that C copies: MP_FORWARD_PASS

--- True if plain calls of a tool may take the quick way: nothing of Lua decides about them but policies, and the token
--- that they send does not end.
local function is_plain(record, tool)
  if record.auth or #record.pass > MAX_PASSED then return false end
  return not (tool.visible or tool.mirror or tool.requires or tool.resolve or tool.is_variant)
end

-- What a stateless upstream is told of a client of this class, as JSON; `waits`: the gateway waits for tasks.
local function able_text(class_text, waits)
  local able = class.capabilities(class_text)
  if waits then
    able.extensions = able.extensions or {}
    able.extensions[call_library.tasks_extension] = json.object {}
  end
  return json.encode(able)
end

--- Teaches C how to forward further calls of `tool`, whose own name is `original`, by the client of `call`. `sent`: how
--- this call was sent, { channel = the key, class = of the request, takes_questions, may_be_task, can_have_task }: calls
--- of clients that can have a task of the tool stay here.
function routes.learn(record, call, tool, original, sent)
  if not (is_on and tool.metrics and is_plain(record, tool)) then return end
  local scopes, generation = access.bits_of(tool.scopes)
  if not scopes then return end
  local definition, approved
  if host.config.audit then definition, approved = federated.hashes("tools", tool.name, call) end
  host.forward.learn(call, tool, {
    generation = generation, name = tool.name, upstream = record.name, original = original, json_name = json.encode(original),
    header = message.headers("tools/call", { name = original })[2], definition = definition, approved = approved, scopes = scopes,
    may_be_task = sent.may_be_task, has_policies = tool.has_policies or nil, pass = record.pass,
  }, {
    key = sent.channel, able = able_text(sent.class, false), able_to_wait = able_text(sent.class, true),
    can_have_task = sent.can_have_task, takes_questions = sent.takes_questions, can_ask = class.can_ask(class.of(call)),
  })
end

--- All calls take the general way while `is_waiting`: the things of a new catalogue are being made.
function routes.suspend(is_waiting) host.forward.suspend(is_waiting) end

--- Lets C serve calls of upstreams' tools. `take_over` continues a call that C began; `run_policies` serves one of a tool
--- that has policies.
function routes.begin(take_over, run_policies)
  if not is_on then return end
  local server, steps = host.config.server, {}
  for _, date in ipairs(era.dates) do steps[date] = era.facts(date).result_step end
  local names = { client = json.encode(message.client_info), server = json.encode { name = server.name, version = server.version } }
  host.forward.set(take_over, run_policies, names, steps)
end

return routes
