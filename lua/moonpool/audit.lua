-- The audit: one line of JSON for every request that a client makes: who, what, from where, with what outcome. What it tells of
-- arguments is the operator's choice (log.audit_arguments); results are never told.

local host = require "moonpool.host"
local json = require "moonpool.json"
local policy = require "moonpool.policy"
local principal = require "moonpool.principal"
local registry = require "moonpool.registry"
local uris = require "moonpool.uris"

local audit = {}

local LONGEST = 256         -- bytes of a text that is told redacted
local MOST = 64             -- members of a table, and levels below that
local DEEPEST = 6
local MOST_BYTES = 64 << 10 -- of arguments that are told
local MOST_LINE = 256 << 10 -- of what is told of one call

local quiet = { ping = true }

-- -- arguments ----------------------------------------------------------------------------------------------------------

-- Names that hold what nobody else should read; compared without case, '_' and '-'.
local secret_words = { "password", "passwd", "passphrase", "secret", "token", "apikey", "authorization", "credential", "privatekey", "cookie", "bearer" }

local function is_secret(name, schema)
  if schema and (schema.writeOnly == true or schema.format == "password") then return true end
  local plain = tostring(name):lower():gsub("[_-]", "")
  for _, word in ipairs(secret_words) do
    if plain:find(word, 1, true) then return true end
  end
  return false
end

local function cut(text)
  if #text <= LONGEST then return text end
  return text:sub(1, (utf8.offset(text, 0, LONGEST + 1) or LONGEST + 1) - 1) .. "…"
end

local function redacted(value, schema, depth)
  if type(value) == "string" then return cut(value) end
  if type(value) ~= "table" then return value end
  if depth > DEEPEST then return "…" end
  local properties, made, count = type(schema) == "table" and schema.properties or {}, {}, 0
  for name, part in pairs(value) do
    count = count + 1
    if count > MOST then
      if type(name) == "string" then made["…"] = true end
      break
    end
    local inner = type(name) == "string" and properties[name] or (type(schema) == "table" and schema.items) or nil
    if type(inner) ~= "table" then inner = nil end
    made[type(name) == "string" and cut(name) or name] = type(name) == "string" and is_secret(name, inner) and "***" or redacted(part, inner, depth + 1)
  end
  return setmetatable(made, debug.getmetatable(value))
end

local function names_of(args)
  local names = json.array {}
  for name in pairs(args) do
    if #names == MOST then break end
    names[#names + 1] = cut(tostring(name))
  end
  table.sort(names)
  return names
end

local tell = {
  none = function() return nil end,
  names = names_of,
  redacted = function(args, schema) return redacted(args, schema, 1) end,
  full = function(args) return args end,
}

-- Arguments as they are told: now, since the call may change them.
local function told(args, schema)
  local what = tell[host.audit](args, schema)
  if what == nil then return nil end
  local ok, text = pcall(json.encode, what)
  if not ok then return "…" end
  return #text <= MOST_BYTES and json.raw(text) or "… " .. #text .. " bytes"
end

-- -- the line ------------------------------------------------------------------------------------------------------------

local order = { __order = {
  "event", "id", "principal", "issuer", "client", "address", "session", "revision", "method", "name", "outcome", "code", "why", "policy", "ms",
  "arguments", "trace",
} }

local function hex(bytes) return (bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end

local function text_of(value) return type(value) == "string" and cut(value) or nil end

local function client_of(call)
  local said = call.client
  if type(said) ~= "table" then return nil end
  local name, version = text_of(said.name), text_of(said.version)
  return name and (version and name .. " " .. version or name)
end

-- What a client is told of a bug: the log has the rest under the same id.
local function is_fault(text) return type(text) == "string" and text:find "^internal error %x%x%x%x$" ~= nil end

-- outcome, code, why, policy
local function outcome_of(call, result, err)
  local trail = policy.trail(call)
  local denied = trail and not trail.reached and trail.at or nil
  if err then return denied and "denied" or is_fault(err.message) and "fault" or "error", err.code, text_of(err.message), denied or trail and trail.at end
  if type(result) == "table" and result.isError then
    local first = type(result.content) == "table" and result.content[1]
    return denied and "denied" or is_fault(first and first.text) and "fault" or "failed", nil, text_of(first and first.text), denied
  end
  return "ok", nil, nil, denied
end

-- What is known before the call runs: arguments are told as the client sent them, and a call that is off tells nothing any more.
local function open(call, params)
  local args, meta, who = params and params.arguments, call.meta, principal.facts(call.principal)
  local tool = call.method == "tools/call" and params and registry.tools[params.name]
  local session = call.has_session and host.session(call)
  return setmetatable({
    event = "call", id = hex(host.random(8)), principal = who.id, issuer = who.issuer,
    client = client_of(call), address = call.address, session = session and hex(host.digest("sha256", session):sub(1, 4)) or nil,
    revision = call.revision, method = cut(call.method), name = params and text_of(params.name or type(params.uri) == "string" and uris.normal(params.uri)),
    arguments = type(args) == "table" and told(args, tool and tool.input) or nil,
    trace = type(meta) == "table" and text_of(meta.traceparent) or nil,
  }, order)
end

local function write(line, started, outcome, code, why, row)
  line.outcome, line.code, line.why, line.policy = outcome, code, why, row
  line.ms = math.floor((host.now() - started) * 1e5 + 0.5) / 1e2
  local text = json.encode(line)
  if #text > MOST_LINE then                  -- what happened is told, whatever it happened with
    line.arguments = "…"
    text = json.encode(line)
  end
  host.audit_line(text:sub(2, -2))
end

--- dispatch, with a line for each call, however it ends.
function audit.wrap(dispatch)
  if not host.audit then return dispatch end
  return function(call, params, revision, method)
    if quiet[method] then return dispatch(call, params, revision, method) end
    local started, line, ended = host.now(), open(call, params), false
    local _ <close> = setmetatable({}, { __close = function()
      if not ended then write(line, started, "cancelled") end
    end })
    local result, err = dispatch(call, params, revision, method)
    ended = true
    write(line, started, outcome_of(call, result, err))
    return result, err
  end
end

return audit
