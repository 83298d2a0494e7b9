-- Credentials for requests to a URL: a bearer token from an environment variable, and headers from the command line.

local place_of = require "moonpool.workbench.client.address"
local stderr = require "moonpool.workbench.format.stderr"

local credentials = {}

-- Headers that each request has already; a second value would break it.
local ours = {
  host = true, connection = true, ["content-length"] = true, ["transfer-encoding"] = true, ["content-type"] = true, accept = true,
  ["mcp-session-id"] = true, ["mcp-method"] = true, ["mcp-name"] = true, ["mcp-protocol-version"] = true,
}

local function add(headers, line)
  local name, value = line:match "^([%w!#$%%&'*+.^_`|~-]+)%s*:%s*(.-)%s*$"
  if not name then return nil, "a header needs a name, ':' and a value", "as in --header 'X-Team: blue'" end
  name = name:lower()
  if ours[name] then return nil, "the header " .. name .. " is moonpool's own" end
  if value:find "%c" then return nil, "the header " .. name .. " contains a control character" end
  headers[name] = value
  return true
end

local function add_file(headers, path)
  local file <close>, why = io.open(path, "rb")
  if not file then return nil, why end
  for line in file:lines() do
    line = line:gsub("\r$", "")
    if line ~= "" then
      local fine, what, hint = add(headers, line)
      if not fine then return nil, path .. ": " .. what, hint end
    end
  end
  return true
end

--- The token in an environment variable; or nil, what, hint.
function credentials.token(name)
  local token = os.getenv(name)
  if not token or token == "" then return nil, "the environment variable " .. name .. " is not set", "--bearer-env takes its name, not the token" end
  if token:find "[%c%s]" then return nil, "the environment variable " .. name .. " contains white space, so it is not a token" end
  return token
end

local function add_bearer(headers, name)
  local token, what, hint = credentials.token(name)
  headers.authorization = token and "Bearer " .. token
  return token ~= nil, what, hint
end

local function is_near(place) return place.unix or place.is_secure or place.host == "localhost" or place.host == "::1" or place.host:find "^127%." end

--- The headers for the options in `args`; or nil, what, hint.
function credentials.read(args)
  local headers = {}
  for _, name in ipairs { "bearer-env", "header", "ca" } do
    if args[name] and not args.url then return nil, "--" .. name .. " is for a gateway at a URL", "name it with --url" end
  end
  for _, text in ipairs(args.every.header or {}) do
    local path = text:match "^@(.+)$"
    local fine, what, hint = (path and add_file or add)(headers, path or text)
    if not fine then return nil, what, hint end
  end
  if args["bearer-env"] then
    local fine, what, hint = add_bearer(headers, args["bearer-env"])
    if not fine then return nil, what, hint end
  end
  local place = headers.authorization and place_of(args.url)
  if place and not is_near(place) then stderr.note("warning: the token goes to " .. place.host .. " without TLS") end
  return headers
end

return credentials
