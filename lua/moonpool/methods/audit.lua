-- The audit: one line of JSON for every request of a client, with its principal, method, address and outcome. log.audit_arguments says
-- how arguments are written; results are never written.

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
local MAX_LINE_BYTES = 256 << 10 -- limit of the bytes of JSON for one line

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
  if not ok then return "…" end
  return #text <= MAX_ARGUMENTS_BYTES and json.raw(text) or "… " .. #text .. " bytes"
end

-- -- the line ------------------------------------------------------------------------------------------------------------

local order = { __order = {
  "event", "id", "principal", "issuer", "client", "caller", "address", "session", "revision", "method", "name", "upstream", "upstream_name", "channel",
  "retries", "outcome", "code", "why", "policy", "ms", "arguments", "trace", "definition", "approved",
} }

local function hex(bytes) return (bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end

local function text_of(value) return type(value) == "string" and cut(value) or nil end

-- "name version" of the client: from the params of `initialize`, when there is no session yet, else from the session.
local function client_of(call, params)
  local said = call.client
  if type(said) ~= "table" and type(params) == "table" then said = params.clientInfo end
  if type(said) ~= "table" then return nil end
  local name, version = text_of(said.name), text_of(said.version)
  return name and (version and name .. " " .. version or name)
end

-- True for the text that a client gets for an error in a script: "internal error" and the id of the log line.
local function is_fault(text) return type(text) == "string" and text:find "^internal error %x%x%x%x$" ~= nil end

-- The reason in the audit line. Of wrong arguments it has no values, unless lines have the arguments in full.
local function why_of(call, text)
  if host.config.audit == "full" then return text_of(text) end
  return text_of(arguments.recorded(call) or text)
end

-- Returns outcome, error code, reason and policy for the audit line.
local function outcome_of(call, result, err)
  local trail = policy.trail(call)
  local denied = trail and not trail.reached and trail.at or nil
  if err then return denied and "denied" or is_fault(err.message) and "fault" or "error", err.code, why_of(call, err.message), denied or trail and trail.at end
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

-- The part of the line that is known before the call runs. When a call is cancelled, no later part can be added.
local function open(call, params)
  local args, meta, who = params and params.arguments, call.meta, principal.facts(call.principal)
  local thing = thing_of(call, params)
  local list, key = lists[call.method], params and (params.name or type(params.uri) == "string" and uris.normal(params.uri))
  local definition, approved
  if upstreams.has_any and list and type(key) == "string" then definition, approved = federated.hashes(list, key, call) end
  local session = call.has_session and host.session.id(call)
  local mark, trace = host.call.mark(call)
  return setmetatable({
    event = "call", id = mark, principal = who.id, issuer = who.issuer,
    client = client_of(call, params), caller = host.call.operator(call), address = call.address,
    session = session and hex(host.digest.sum("sha256", session):sub(1, 4)) or nil,
    revision = call.revision, method = cut(call.method), name = params and text_of(params.name or type(params.uri) == "string" and uris.normal(params.uri)),
    arguments = type(args) == "table" and arguments_json(args, thing and thing.input) or nil,
    upstream = thing and thing.upstream, upstream_name = thing and thing.original,
    trace = type(meta) == "table" and text_of(meta.traceparent) or trace, definition = definition, approved = approved,
  }, order)
end

local function write(line, call, started, outcome, code, why, row)
  local sent = line.upstream and forward.sent(call)
  if sent then line.channel, line.retries = sent.channel, sent.times > 1 and sent.times - 1 or nil end
  line.outcome, line.code, line.why, line.policy = outcome, code, why, row
  line.ms = math.floor((host.time.now() - started) * 1e5 + 0.5) / 1e2
  local text = json.encode(line)
  if #text > MAX_LINE_BYTES then                  -- the line is written without its arguments
    line.arguments = "…"
    text = json.encode(line)
  end
  host.log.audit(text:sub(2, -2), outcome == "ok")
end

--- Wraps dispatch so that each call writes a line, also one that is cancelled.
function audit.wrap(dispatch)
  if not host.config.audit then return dispatch end
  return function(call, params, revision, method)
    if quiet[method] or select(2, host.call.operator(call)) then return dispatch(call, params, revision, method) end
    local started, line, ended = host.time.now(), open(call, params), false
    local _ <close> = setmetatable({}, { __close = function()
      if not ended then write(line, call, started, "cancelled") end
    end })
    local result, err = dispatch(call, params, revision, method)
    ended = true
    write(line, call, started, outcome_of(call, result, err))
    return result, err
  end
end

--- Wraps dispatch.finish for calls whose handlers were run by call plans: ends the line that C has begun. Nil without an audit.
function audit.wrap_finish(finish)
  if not host.config.audit then return nil end
  return function(tool, revision, call, ...)
    local result, err = finish(tool, revision, call, ...)
    local outcome, code, why, row = outcome_of(call, result, err)
    host.call.audit(call, outcome, code, why and json.encode(why), row and json.encode(row))
    return result, err
  end
end

return audit
