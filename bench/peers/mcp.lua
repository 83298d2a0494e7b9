-- The peer of the bench: a tools/call endpoint as one would write it by hand for nginx with Lua (LuaJIT) and lua-cjson.
-- It checks what moonpool checks of a 2026-07-28 or 2025-11-25 request, and the arguments of its two tools, and answers
-- with the same bytes.
local cjson = require "cjson.safe"

local HOSTS = { localhost = true, ["127.0.0.1"] = true }
local META_VERSION, META_CAPABILITIES = "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"
local SESSION = "0123456789abcdef0123456789abcdef" -- the only one, for revisions with sessions

local tools = {
  add = {
    arguments = { a = "number", b = "number" },
    check = function(args) return args.a >= -1e9 and args.a <= 1e9 end,
    run = function(args) return tostring(args.a + args.b) end,
  },
  echo = { arguments = { text = "string" }, run = function(args) return args.text end },
}

local function send(status, body)
  ngx.status = status
  ngx.header["Content-Type"] = "application/json"
  ngx.header["Content-Length"] = #body
  ngx.print(body)
end

local function refuse(status, id, code, message)
  send(status, cjson.encode { jsonrpc = "2.0", id = id, error = { code = code, message = message } })
end

-- What is wrong with the request's head: a status and a message; nil if nothing is.
local function check_head(headers)
  local host = (headers.host or ""):match "^(.-):?%d*$"
  if not HOSTS[host] then return 403, "Host is not served" end
  if headers.origin and not HOSTS[headers.origin:match "^https?://([^:/]+)"] then return 403, "Origin is not served" end
  if not (headers["content-type"] or ""):find "^application/json" then return 415, "Content-Type must be application/json" end
  local accept = headers.accept or ""
  if not (accept:find("application/json", 1, true) and accept:find("text/event-stream", 1, true)) then return 406, "Accept lacks a type" end
end

-- What is wrong with a message of a stateless revision; nil if nothing is.
local function check_modern(headers, message)
  local meta = message.params._meta
  if type(meta) ~= "table" or meta[META_VERSION] ~= "2026-07-28" or type(meta[META_CAPABILITIES]) ~= "table" then return "_meta is not complete" end
  if headers["mcp-method"] ~= message.method then return "Mcp-Method differs from the body" end
  if headers["mcp-name"] ~= message.params.name then return "Mcp-Name differs from the body" end
end

local function check_arguments(tool, args)
  for name, kind in pairs(tool.arguments) do
    if type(args[name]) ~= kind then return "argument '" .. name .. "' must be a " .. kind end
  end
  for name in pairs(args) do
    if not tool.arguments[name] then return "there is no argument '" .. name .. "'" end
  end
  if tool.check and not tool.check(args) then return "an argument is out of range" end
end

local function result_of(is_modern, text)
  local block = '"content":[{"text":' .. cjson.encode(text) .. ',"type":"text"}]'
  if is_modern then
    return '{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"moonpool","version":"0.1.0"}},' .. block .. ',"resultType":"complete"}'
  end
  return "{" .. block .. "}"
end

local headers = ngx.req.get_headers()
local status, why = check_head(headers)
if status then return refuse(status, nil, -32600, why) end
ngx.req.read_body()
local message = cjson.decode(ngx.req.get_body_data() or "")
if type(message) ~= "table" then return refuse(400, nil, -32700, "not JSON") end
local id = message.id
if message.jsonrpc ~= "2.0" or message.method ~= "tools/call" or type(message.params) ~= "table" then
  return refuse(400, id, -32600, "not a tools/call")
end
local is_modern = headers["mcp-protocol-version"] == "2026-07-28"
if is_modern then
  why = check_modern(headers, message)
  if why then return refuse(400, id, -32020, why) end
elseif headers["mcp-session-id"] ~= SESSION then
  return refuse(404, id, -32600, "no such session")
end
local tool, args = tools[message.params.name], message.params.arguments or {}
if not tool then return refuse(200, id, -32602, "no such tool") end
why = check_arguments(tool, args)
if why then return refuse(200, id, -32602, why) end
send(200, '{"jsonrpc":"2.0","id":' .. cjson.encode(id) .. ',"result":' .. result_of(is_modern, tool.run(args)) .. "}")
