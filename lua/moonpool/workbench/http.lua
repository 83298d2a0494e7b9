-- A small HTTP/1.1 client for requests to gateways, with or without TLS: one request per connection, the body read in pieces.

local wire = require "moonpool.wire"

local http = {}

local READ_TIMEOUT_S = 600      -- seconds without a byte; longer than the default time limit of any call

--- Parses a URL, host:port or unix:/path to { host, port, path, is_secure, unix }; or nil, why, hint.
function http.place(address)
  local unix = address:match "^unix:(/.*)$"
  if unix then return { unix = unix, host = "localhost", path = "/" } end
  local is_secure = address:find "^https://" ~= nil
  local authority, path = address:gsub("^https?://", ""):gsub("#.*$", ""):match "^([^/?]+)(.*)$"
  local host, port = (authority or ""):match "^%[([%x:.]+)%]:?(%d*)$"
  if not host then host, port = (authority or ""):match "^([^:]+):?(%d*)$" end
  if not host then return nil, "not a URL: '" .. address .. "'", "as in http://127.0.0.1:7300/mcp" end
  if host == "0.0.0.0" or host == "::" then host = host == "::" and "::1" or "127.0.0.1" end
  return {
    host = host, port = port ~= "" and port or is_secure and "443" or "80", path = path:gsub("^%f[?\0]", "/"), is_secure = is_secure,
    authority = authority,
  }
end

--- Resolves the URI `reference` that the gateway at `place` sent; nil for another origin, because credentials must not be sent there.
function http.resolve(place, reference)
  if reference:find "^%a[%w+.-]*:" then
    local there = http.place(reference)
    local is_same = there and not there.unix and there.host == place.host and there.port == place.port and there.is_secure == place.is_secure
    return is_same and there or nil
  end
  if reference:sub(1, 2) == "//" then return nil end
  local there = {}
  for name, value in pairs(place) do there[name] = value end
  there.path = reference:sub(1, 1) == "/" and reference or place.path:gsub("%?.*$", ""):gsub("[^/]*$", "") .. reference
  return there
end

-- Reads a connection as lines and as pieces of a given number of bytes.
local function reader(w)
  local self, rest = {}, ""
  local function more()
    local bytes, why = w:read(READ_TIMEOUT_S)
    if not bytes then return nil, why end
    if bytes == "" then return nil, "the gateway closed the connection" end
    rest = rest .. bytes
    return true
  end
  function self.line()
    while true do
      local at = rest:find("\n", 1, true)
      if at then
        local line = rest:sub(1, at - 1):gsub("\r$", "")
        rest = rest:sub(at + 1)
        return line
      end
      local ok, why = more()
      if not ok then return nil, why end
    end
  end
  function self.some(most)
    if rest == "" then
      local ok, why = more()
      if not ok then return nil, why end
    end
    local piece = rest:sub(1, most)
    rest = rest:sub(#piece + 1)
    return piece
  end
  return self
end

local function read_head(from)
  local line, why = from.line()
  if not line then return nil, why end
  local status, headers = tonumber(line:match "^HTTP/1%.%d (%d%d%d)"), {}
  if not status then return nil, "the server at this address does not speak HTTP" end
  while true do
    line, why = from.line()
    if not line then return nil, why end
    if line == "" then return status, headers end
    local name, value = line:match "^([^:]+):%s*(.-)%s*$"
    if name then headers[name:lower()] = value end
  end
end

-- Returns a function that reads the next bytes of the body, "" at its end; or nil, why.
local function body_of(from, headers)
  local left = tonumber(headers["content-length"])
  local is_chunked = (headers["transfer-encoding"] or ""):lower():find "chunked"
  if is_chunked then left = nil end
  return function()
    if is_chunked and not left then
      local line, why = from.line()
      if not line then return nil, why end
      left = tonumber(line:match "^%x+" or "", 16)
      if not left then return nil, "the server at this address does not speak HTTP" end
    end
    if left == 0 then return "" end
    local piece, why = from.some(left or 65536)
    if not piece then return left == nil and "" or nil, why end
    if left then left = left - #piece end
    if is_chunked and left == 0 then
      from.line()
      left = nil
    end
    return piece
  end
end

local function connect(place, ca)
  local w, why = (place.unix and wire.connect_unix or wire.connect)(place.unix or place.host, place.port)
  if not w then return nil, why, why:find "refused" and "is it running there? `moonpool run` starts a gateway" or nil end
  if place.is_secure then
    local fine, wrong, hint = w:secure(place.host, ca)
    if not fine then
      w:close()
      return nil, wrong, hint
    end
  end
  return w
end

--- Sends { method, place, path, headers, body, ca } and reads the answer's head: { status, headers, next(), close() }, where next
--- reads the next bytes of the body, "" at its end; or nil, why, hint.
function http.open(request)
  local place = request.place
  local w, why, hint = connect(place, request.ca)
  if not w then return nil, why, hint end
  local lines = {
    request.method .. " " .. (request.path or place.path) .. " HTTP/1.1",
    "host: " .. (place.authority or place.host), "connection: close",
  }
  for name, value in pairs(request.headers or {}) do lines[#lines + 1] = name .. ": " .. value end
  if request.method == "POST" then lines[#lines + 1] = "content-length: " .. #(request.body or "") end
  local sent, wrong = w:write(table.concat(lines, "\r\n") .. "\r\n\r\n" .. (request.body or ""))
  local from, status, headers = reader(w), nil, nil
  if sent then status, headers = read_head(from) end
  if not status then
    w:close()
    return nil, sent and headers or wrong
  end
  return { status = status, headers = headers, next = body_of(from, headers), close = function() w:close() end }
end

--- Sends a request and reads the whole answer: status, headers, body; or nil, why, hint.
function http.ask(request)
  local answer, why, hint = http.open(request)
  if not answer then return nil, why, hint end
  local pieces = {}
  while true do
    local piece, broken = answer.next()
    if not piece or piece == "" then
      answer.close()
      if not piece then return nil, broken end
      return answer.status, answer.headers, table.concat(pieces)
    end
    pieces[#pieces + 1] = piece
  end
end

return http
