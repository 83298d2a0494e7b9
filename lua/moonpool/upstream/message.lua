-- Messages to upstreams: JSON-RPC requests with the `_meta` of the upstream's revision, and the headers that repeat
-- parts of them.

local call_library = require "moonpool.protocol.call"
local class = require "moonpool.upstream.class"
local host = require "moonpool.host"
local json = require "moonpool.json"

local message = {}

local PREFIX = "io.modelcontextprotocol/"
local OWN = "dev.moonpool/"             -- prefix of the members of `_meta` that this gateway adds
local client_info = { name = "moonpool", version = host.config.server.version }

--- The gateway's description of itself for an upstream.
message.client_info = client_info

--- True if a value of JSON is an object.
function message.is_object(value) return type(value) == "table" and debug.getmetatable(value) ~= json.array_mt end

local function is_own(name) return name:sub(1, #OWN) == OWN end

--- The members of `_meta` that belong to one hop (N-10), and those of this gateway, which say something only if the
--- gateway has written them.
function message.is_of_hop(name) return name == "progressToken" or name:sub(1, #PREFIX) == PREFIX or is_own(name) end

-- Takes the members for whose names `goes` is true out of a `_meta`, and one that is empty then.
local function take_out(value, goes)
  local meta = type(value) == "table" and value._meta
  if type(meta) ~= "table" then return end
  for name in pairs(meta) do
    if type(name) == "string" and goes(name) then meta[name] = nil end
  end
  if next(meta) == nil then value._meta = nil end
end

--- Takes the members of this gateway out of the `_meta` of a message's params or result which another program has sent.
function message.strip(value) take_out(value, is_own) end

--- Removes the members of one hop, such as progressToken, from the `_meta` of an upstream's definition. They may differ in
--- each listing, so the hash of a definition does not cover them; and clients get only what the hash covers.
function message.strip_definition(value) take_out(value, message.is_of_hop) end

--- A client's answer to a question, as JSON for the upstream: without the members of this gateway. A key can be written
--- with escapes.
function message.answer_text(text)
  if not text:find(OWN, 1, true) and not text:find("\\", 1, true) then return text end
  local value = json.preserving(text)
  message.strip(value)
  return json.encode(value)
end

--- The `_meta` of a request: the client's members except those of its own hop, and the members of the upstream's
--- revision; nil for none. `token` is the progress token, or nil; `level` the name of the least log level, or nil;
--- `class_text` the kinds of questions that the client can answer, by default none; `with_tasks`: the upstream may make
--- an MCP task of the request.
function message.meta(server_info, given, token, level, class_text, with_tasks)
  local meta = {}
  for name, value in pairs(type(given) == "table" and given or {}) do
    if type(name) == "string" and not message.is_of_hop(name) then meta[name] = value end
  end
  meta.progressToken = token
  if server_info.is_modern then
    meta[PREFIX .. "protocolVersion"], meta[PREFIX .. "clientInfo"] = server_info.revision, client_info
    local able = class.capabilities(class_text or class.none)
    if with_tasks then
      able.extensions = able.extensions or {}
      able.extensions[call_library.tasks_extension] = json.object {}
    end
    meta[PREFIX .. "clientCapabilities"] = able
    meta[PREFIX .. "logLevel"] = level
  end
  return next(meta) ~= nil and meta or nil
end

--- A table that encodes as an object also if it is empty. One with members stays as it is, as its metatable may keep
--- the bytes that it came from.
function message.object(value) return next(value) == nil and json.object {} or value end

--- A request as JSON.
function message.request(id, method, params)
  return json.encode { jsonrpc = "2.0", id = id, method = method, params = params and message.object(params) or nil }
end

--- A notification as JSON.
function message.notification(method, params) return json.encode { jsonrpc = "2.0", method = method, params = params and message.object(params) or nil } end

--- The notification that cancels the request `id`.
function message.cancelled(id) return message.notification("notifications/cancelled", { requestId = id, reason = "the client cancelled it" }) end

--- An answer to a question of an upstream: `id` as JSON, and a result or an error.
function message.answer(id, result, err)
  return json.encode { jsonrpc = "2.0", id = json.raw(id), result = result, error = err }
end

-- -- headers that repeat the body (H-1 to H-8) -------------------------------------------------------------------------

-- A value as a header can carry it: itself, or Base64 between markers.
local function header_value(text)
  if text:find "^[!-~][ -~]*$" and not text:find " $" and not text:find "^=%?base64%?.*%?=$" or text == "" then return text end
  return "=?base64?" .. host.base64.encode(text) .. "?="
end

local named = {
  ["tools/call"] = "name", ["prompts/get"] = "name", ["resources/read"] = "uri",
  ["tasks/get"] = "taskId", ["tasks/update"] = "taskId", ["tasks/cancel"] = "taskId",
}

local function value_at(args, path)
  for _, name in ipairs(path) do
    if type(args) ~= "table" then return nil end
    args = args[name]
  end
  return args
end

local function text_of(value)
  if type(value) == "string" then return value end
  if type(value) == "boolean" then return tostring(value) end
  if math.type(value) == "integer" then return ("%d"):format(value) end
  if math.type(value) == "float" and value == math.floor(value) and math.abs(value) < 2 ^ 63 then return ("%.0f"):format(value) end
end

--- The HTTP headers of a request in a revision whose headers repeat parts of the body. `rows`: { name, path } of the
--- arguments that headers repeat, or nil.
function message.headers(method, params, rows)
  local list = { "Mcp-Method: " .. method }
  local member = named[method]
  if member and type(params[member]) == "string" then list[2] = "Mcp-Name: " .. header_value(params[member]) end
  for _, row in ipairs(rows or {}) do
    local text = text_of(value_at(params.arguments, row.path))
    if text then list[#list + 1] = "Mcp-Param-" .. row.name .. ": " .. header_value(text) end
  end
  return list
end

-- Headers by which tracing systems join the spans of several programs.
local traced = { "traceparent", "tracestate" }

--- Adds the headers that are passed on from the client: its trace context, and those that `pass` names.
function message.add_passed(list, record, call, meta)
  for _, name in ipairs(traced) do
    local value = type(meta) == "table" and meta[name]
    if type(value) == "string" and #value <= 512 and value:find "^[!-~][ -~]*$" then list[#list + 1] = name .. ": " .. value end
  end
  for _, name in ipairs(record.pass) do
    local value = host.call.header(call, name:lower())
    if value and value:find "^[\t -~]*$" then list[#list + 1] = name .. ": " .. value end
  end
end

--- The name of the least severe level of log messages that the client of a call wants; nil: it wants none.
function message.level_name(call)
  local meta = call.meta
  local wanted = meta and meta[PREFIX .. "logLevel"]
  if wanted ~= nil then return call_library.level(wanted) and wanted or nil end
  local n = host.session.log_level(call)
  return n and call_library.levels[n + 1] or nil
end

return message
