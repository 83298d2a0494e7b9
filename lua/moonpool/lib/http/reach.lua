-- The addresses that a script may connect to: the `net` grants of moonpool.yaml and the parts of the network that each
-- allows.
--   "api.example.com:443"       a host and its port; without one: 80 and 443; ":*" is every port
--   "*.example.com", "*"        all names below example.com; every name and public address
--   "127.0.0.1:8080"            exactly this address
--   "localhost:8080"            this machine, and nothing else
--   "db.internal:8080 private"  a name that may also lead to this machine and private networks
-- Every other name leads to public addresses only: C checks the address of each connection.

local host = require "moonpool.host"

local reach = {}

-- Parses the port of a grant: nil for "" (80 and 443), "*", or a number; false if it is no port.
local function read_port(text)
  if text == "" then return nil end
  if text == ":*" then return "*" end
  local port = text:find "^:%d+$" and #text <= 6 and tonumber(text:sub(2))
  return port and port >= 1 and port <= 65535 and port or false
end

local function is_name(name) return #name <= 253 and name:find "^[%w_-][%w_.-]*$" and not name:find "%.%." end

--- Parses a grant to { host, port, is_address, private }; nil if the text grants nothing, which the loader warns about.
function reach.parse(text)
  local rest, word = text:match "^(%S+) +(%S+)$"
  if word and word ~= "private" then return nil end
  rest = (rest or text):lower()
  local name, port = rest:match "^%[([%x:.]+)%](:?.*)$"
  if not name then name, port = rest:match "^([^:%[%]]+)(:?[^:]*)$" end
  if not name then return nil end
  name, port = name:gsub("%.$", ""), read_port(port)
  if port == false then return nil end
  local address = host.http.address(name)
  if address then return not word and { text = text, host = address, port = port, is_address = true } or nil end
  if rest:sub(1, 1) == "[" or name:find "^[%d.]+$" then return nil end
  if name ~= "*" and not is_name(name:gsub("^%*%.", "")) then return nil end
  return { text = text, host = name, port = port, private = word ~= nil }
end

local function is_local(name) return name == "localhost" or name:sub(-10) == ".localhost" end

local function opens_host(grant, name, is_address)
  if grant.host == "*" then return true end
  if grant.is_address or is_address then return grant.host == name end
  local suffix = grant.host:match "^%*(%..+)$"
  if suffix then return #name > #suffix and name:sub(-#suffix) == suffix end
  return grant.host == name
end

local function opens_port(grant, port)
  if grant.port == nil then return port == 80 or port == 443 end
  return grant.port == "*" or grant.port == port
end

-- The kind of addresses that one grant allows for a URL: the address itself, "private", "loopback" or "public".
local function kind_of(grant, url, is_address)
  if grant.is_address then return url.host end
  if grant.private then return "private" end
  if not is_address and is_local(url.host) and grant.host ~= "*" then return "loopback" end
  return "public"
end

local rank = { public = 1, loopback = 2, private = 3 }

--- The widest kind of addresses that the grants allow for `url` (from host.http.url), for host.http.send, and the
--- grant; nil if no grant allows it.
function reach.find(grants, url)
  local found, by
  local is_address = host.http.address(url.host) ~= nil
  for _, grant in ipairs(grants) do
    if opens_host(grant, url.host, is_address) and opens_port(grant, url.port) then
      local kind = kind_of(grant, url, is_address)
      if not found or (rank[kind] or 4) > (rank[found] or 4) then found, by = kind, grant end
    end
  end
  return found, by
end

return reach
