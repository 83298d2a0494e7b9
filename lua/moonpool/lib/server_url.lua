-- What the libraries of servers (`redis`, `postgres`) have alike: the host in a URL, and options. `opener` is the function
-- that the script has called, as "redis.open".

local host = require "moonpool.host"
local problem = require "moonpool.runtime.diagnostic"

local server_url = {}

--- The place "cache.internal:6379" of a URL: { host, port, place }, the last as people read it; nil if it has no host; or
--- nil, why.
function server_url.place(opener, text, default_port)
  local name, digits = text:match "^%[([%x:.]+)%]:?(%d*)$"
  if not name then name, digits = text:match "^([%w_.-]+):?(%d*)$" end
  if not name or #name > 253 then return nil end
  local port = digits == "" and default_port or math.tointeger(tonumber(digits))
  if not port or port < 1 or port > 65535 then return nil, opener .. ": the port must be from 1 to 65535" end
  name = name:lower():gsub("%.$", "")
  name = host.http.address(name) or name
  if name:find "^[%d.]+$" and not host.http.address(name) then return nil, opener .. ": '" .. name .. "' is no address" end
  return { host = name, port = port, place = (name:find(":", 1, true) and "[" .. name .. "]" or name) .. ":" .. port }
end

--- The option `name`, a text or a secret; "" if it is not given. `variable`: the name of a secret, for the hint.
function server_url.text(opener, given, name, variable)
  local value = given[name]
  if value == nil then return "" end
  local text = type(value) == "string" and value or host.secret.reveal(value)
  if type(text) ~= "string" or text == "" then
    problem.raise(3, ("%s: '%s' must be a text or a secret"):format(opener, name), ('as in password = secret "%s"'):format(variable))
  end
  return text
end

function server_url.number(opener, given, name, default, least, most)
  local value = given[name]
  if value == nil then return default end
  if type(value) ~= "number" or not (value >= least and value <= most) then
    problem.raise(3, ("%s: '%s' must be a number from %s to %s"):format(opener, name, least, most))
  end
  return value
end

return server_url
