-- As much of HTTP/1.1 as it takes to ask a gateway: one request a connection, the body as it comes.

local wire = require "moonpool.wire"

local http = {}

local PATIENCE = 600      -- seconds without a byte: more than any call may take by default

--- { host, port, path, unix } of an http URL, host:port or unix:/path; or nil, why, hint.
function http.place(address)
  local unix = address:match "^unix:(/.*)$"
  if unix then return { unix = unix, host = "localhost", path = "/" } end
  if address:find "^https:" then return nil, "https is not spoken here: " .. address, "use the gateway's own address, behind the proxy" end
  local authority, path = address:gsub("^http://", ""):match "^([^/]+)(.*)$"
  local host, port = (authority or ""):match "^%[([%x:.]+)%]:?(%d*)$"
  if not host then host, port = (authority or ""):match "^([^:]+):?(%d*)$" end
  if not host then return nil, "this is no address: '" .. address .. "'", "as in http://127.0.0.1:7300/mcp" end
  if host == "0.0.0.0" or host == "::" then host = host == "::" and "::1" or "127.0.0.1" end
  return { host = host, port = port ~= "" and port or "80", path = path ~= "" and path or "/", authority = authority }
end

-- Bytes of a wire, as lines and counted pieces.
local function reader(w)
  local self, rest = {}, ""
  local function more()
    local bytes, why = w:read(PATIENCE)
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
  if not status then return nil, "what answered does not speak HTTP" end
  while true do
    line, why = from.line()
    if not line then return nil, why end
    if line == "" then return status, headers end
    local name, value = line:match "^([^:]+):%s*(.-)%s*$"
    if name then headers[name:lower()] = value end
  end
end

-- Hands the body to `on_bytes`, piece by piece; that stops it by giving true.
local function read_body(from, headers, on_bytes)
  local left = tonumber(headers["content-length"])
  local is_chunked = (headers["transfer-encoding"] or ""):lower():find "chunked"
  while true do
    if is_chunked and (not left or left == 0) then
      local line, why = from.line()
      if not line then return nil, why end
      left = tonumber(line:match "^%x+" or "", 16)
      if not left then return nil, "what answered does not speak HTTP" end
      if left == 0 then return true end
    end
    if left == 0 then return true end
    local piece, why = from.some(left or 65536)
    if not piece then return left == nil or nil, why end
    if on_bytes(piece) then return true end
    if left then left = left - #piece end
    if is_chunked and left == 0 then from.line() end
  end
end

--- Asks { method, place, path, headers, body, on_head, on_bytes }: status, headers, body; or nil, why. `on_head(status, headers)` may
--- give a function that takes the body's bytes as they come, and ends it by giving true.
function http.ask(request)
  local place = request.place
  local w <close>, why = (place.unix and wire.connect_unix or wire.connect)(place.unix or place.host, place.port)
  if not w then return nil, why end
  local lines = {
    request.method .. " " .. (request.path or place.path) .. " HTTP/1.1",
    "host: " .. (place.authority or place.host), "connection: close",
  }
  for name, value in pairs(request.headers or {}) do lines[#lines + 1] = name .. ": " .. value end
  if request.method == "POST" then lines[#lines + 1] = "content-length: " .. #(request.body or "") end
  local sent, wrong = w:write(table.concat(lines, "\r\n") .. "\r\n\r\n" .. (request.body or ""))
  if not sent then return nil, wrong end
  local from = reader(w)
  local status, headers = read_head(from)
  if not status then return nil, headers end
  local pieces = {}
  local take = request.on_head and request.on_head(status, headers) or function(piece) pieces[#pieces + 1] = piece return false end
  local whole, broken = read_body(from, headers, take)
  if not whole then return nil, broken end
  return status, headers, table.concat(pieces)
end

return http
