-- Starts a gateway that serves its parent on stdio and has one upstream: the server that a command is a client of. Its
-- configuration and the headers with the user's credentials are files in memory, which only that process has.

local json = require "moonpool.json"
local link = require "moonpool.workbench.client.link"
local wire = require "moonpool.wire"

local child_gateway = {}

-- The value with each `$` as the configuration writes it.
local function literal(value)
  if type(value) == "string" then return (value:gsub("%$", "$$$$")) end
  if type(value) ~= "table" then return value end
  local made = setmetatable({}, debug.getmetatable(value))
  for key, one in pairs(value) do made[key] = literal(one) end
  return made
end

local limits = { call = { time = "24h", output = "32MiB", memory = "512MiB" }, upstreams = { answer = "64MiB" } }

--- A link to a gateway whose only upstream is `server`: { url, ca } or { command = list }; `patience`: how long it may
--- be silent, as the configuration writes times. `headers` (optional): name -> value. Returns nil, why if it cannot be
--- started.
function child_gateway.start(server, headers)
  local folder, why = wire.temporary_folder()                -- the folder of its scripts: there are none
  if not folder then return nil, "cannot make a temporary folder: " .. tostring(why) end
  local lines = {}
  for name, value in pairs(headers or {}) do lines[#lines + 1] = name .. ": " .. value .. "\n" end
  local entry = literal { url = server.url, command = server.command and json.array(server.command), private = server.url and true or nil }
  if server.command then entry.process = { cwd = "/proc/self/cwd" } end
  if server.ca then entry.tls = { ca = literal(server.ca:find "^/" and server.ca or "/proc/self/cwd/" .. server.ca) } end
  entry.prefix, entry.timeout, entry.timeout_total, entry.open = "", server.patience or "10m", "24h", "1h"
  if server.url then entry.connect = server.patience or "1m" end
  entry.circuit = { failures = 1000 }
  local text = json.encode { admin = "off", scripts = { path = folder, watch = false }, limits = limits, upstreams = { server = entry } }
  local arguments = { "--specs", "--log-level", "error", "/proc/self/fd/10" }
  if lines[1] then arguments = { "--headers", "/proc/self/fd/11", table.unpack(arguments) } end
  local child, wrong = link.child(arguments, text, lines[1] and table.concat(lines))
  if not child then
    os.remove(folder)
    return nil, wrong
  end
  local close = child.close
  function child.close()
    local code = close()
    os.remove(folder)
    return code
  end
  return child
end

return child_gateway