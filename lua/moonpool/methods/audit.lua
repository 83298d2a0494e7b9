-- The audit: for every request of a client, the facts that C lacks for its line, and the outcome. log.audit_arguments
-- controls how arguments are written; results are never written.

local lazy = require "moonpool.runtime.lazy"
local arguments = require "moonpool.things.arguments"
local federated = lazy "moonpool.federation.federated"
local forward = lazy "moonpool.upstream.forward"
local host = require "moonpool.host"
local json = require "moonpool.json"
local policy = require "moonpool.things.policy"
local principal = require "moonpool.access.principal"
local redact = require "moonpool.runtime.redact"
local registry = require "moonpool.registry.registry"
local secret_schema = require "moonpool.runtime.secret_schema"
local uris = require "moonpool.runtime.uris"
local upstreams = require "moonpool.upstream.config"

local audit = {}

local lists = { ["tools/call"] = "tools", ["prompts/get"] = "prompts", ["resources/read"] = "resources" }

local MAX_TEXT_BYTES = 256         -- limit of the bytes of one text in redacted arguments
local MAX_MEMBERS = 64             -- limits of redacted arguments: members of one table; levels of tables
local MAX_DEPTH = 6
local MAX_ARGUMENTS_BYTES = 64 << 10 -- limit of the bytes of JSON for the arguments of one line

local quiet = { ping = true }

-- -- arguments ----------------------------------------------------------------------------------------------------------

local is_secret = redact.is_secret

local function cut(text)
  if #text <= MAX_TEXT_BYTES then return text end
  return text:sub(1, (utf8.offset(text, 0, MAX_TEXT_BYTES + 1) or MAX_TEXT_BYTES + 1) - 1) .. "…"
end

-- `at`: the place of the value in its schema, if that has secrets.
local function redacted(value, at, depth)
  if at and at.is_secret and value ~= json.null then return "***" end
  if type(value) == "string" then return cut(value) end
  if type(value) ~= "table" then return value end
  if depth > MAX_DEPTH then return "…" end
  local made, count = {}, 0
  for name, part in pairs(value) do
    count = count + 1
    if count > MAX_MEMBERS then
      if type(name) == "string" then made["…"] = true end
      break
    end
    if type(name) == "string" then
      made[cut(name)] = is_secret(name) and "***" or redacted(part, at and secret_schema.member(at, name), depth + 1)
    else
      made[name] = redacted(part, at and secret_schema.item(at, name), depth + 1)
    end
  end
  return setmetatable(made, debug.getmetatable(value))
end

local function names_of(args)
  local names = json.array {}
  for name in pairs(args) do
    if #names == MAX_MEMBERS then break end
    names[#names + 1] = cut(tostring(name))
  end
  table.sort(names)
  return names
end

local arguments_as = {
  none = function() return nil end,
  names = names_of,
  redacted = function(args, schema) return redacted(args, secret_schema.of(schema), 1) end,
  full = function(args) return args end,
}

-- The arguments for the audit line, as JSON. Encoded before the call runs, since the handler may change them.
local function arguments_json(args, schema)
  local what = arguments_as[host.config.audit](args, schema)
  if what == nil then return nil end
  local ok, text = pcall(json.encode, what)
  if not ok then return json.encode "…" end
  return #text <= MAX_ARGUMENTS_BYTES and text or json.encode("… " .. #text .. " bytes")
end

-- -- the line, which C writes (core/lib/shortcut/audit_line.h) ---------------------------------------------------------------

-- The description of the client: from the params of `initialize` if there is no session yet, otherwise from the
-- session.
local function client_of(call, params)
  local said = call.client
  if type(said) ~= "table" and type(params) == "table" then said = params.clientInfo end
  return type(said) == "table" and said or {}
end

-- True for the text that a client gets for an error in a script: "internal error" and the id of the log line.
local function is_fault(text) return type(text) == "string" and text:find "^internal error %x%x%x%x$" ~= nil end

-- The reason in the audit line. Of wrong arguments it has no values, unless lines have the arguments in full.
local function why_of(call, text)
  local why = host.config.audit ~= "full" and arguments.recorded(call) or text
  return type(why) == "string" and why or nil
end

-- Returns outcome, error code, reason and policy for the audit line.
local function outcome_of(call, result, err)
  local at, has_reached = policy.trail(call)
  local denied = not has_reached and at or nil
  if err then return denied and "denied" or is_fault(err.message) and "fault" or "error", err.code, why_of(call, err.message), denied or at end
  if type(result) == "table" and result.isError then
    local first = type(result.content) == "table" and result.content[1]
    return denied and "denied" or is_fault(first and first.text) and "fault" or "failed", nil, why_of(call, first and first.text), denied
  end
  return "ok", nil, nil, denied
end

-- The tool, prompt or resource that a call names; nil if there is none, or if a template's handler reads the resource.
local function thing_of(call, params)
  if type(params) ~= "table" then return nil end
  if call.method == "tools/call" then return registry.thing("tools", params.name) end
  if call.method == "prompts/get" then return registry.thing("prompts", params.name) end
  if call.method == "resources/read" and type(params.uri) == "string" then return (registry.resource(params.uri)) end
end

-- The facts that are known before the call runs. When a call is cancelled, no later fact can be added.
local function facts_of(call, params, thing)
  local args, meta, who, client = params and params.arguments, call.meta, principal.facts(call.principal), client_of(call, params)
  local list, key = lists[call.method], params and (params.name or type(params.uri) == "string" and uris.normal(params.uri))
  local definition, approved
  if upstreams.has_any and list and type(key) == "string" then definition, approved = federated.hashes(list, key, call) end
  return {
    principal = who.id, issuer = who.issuer, client = client.name, version = client.version, name = key,
    arguments = type(args) == "table" and arguments_json(args, thing and thing.input) or nil,
    upstream = thing and thing.upstream, upstream_name = thing and thing.original,
    trace = type(meta) == "table" and meta.traceparent or nil, definition = definition, approved = approved,
  }
end

-- Ends the line of a call. `sent`: how its request was sent to an upstream, or nil.
local function finish(call, sent, result, err)
  local outcome, code, why, row = outcome_of(call, result, err)
  host.call.audit_end(call, outcome, code, why, row, sent and sent.channel, sent and sent.times - 1)
  return result, err
end

local function answered(call, thing, ...) return finish(call, thing and thing.upstream and forward.sent(call), ...) end

--- Wraps dispatch so that each call writes a line; C writes that of a call that is cancelled.
function audit.wrap(dispatch)
  if not host.config.audit then return dispatch end
  return function(call, params, revision, method)
    if quiet[method] or select(2, host.call.operator(call)) then return dispatch(call, params, revision, method) end
    local thing = thing_of(call, params)
    host.call.audit_begin(call, facts_of(call, params, thing))
    return answered(call, thing, dispatch(call, params, revision, method))
  end
end

--- Wraps dispatch.finish for calls that C has begun, by plans or routes: ends the line that C has begun, too. Nil without
--- an audit.
function audit.wrap_finish(end_planned)
  if not host.config.audit then return nil end
  return function(tool, revision, call, ...) return answered(call, tool, end_planned(tool, revision, call, ...)) end
end

return audit
