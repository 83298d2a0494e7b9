-- Checks and encodes the options of http.get and the other functions of `http`. A mistake of the script raises an
-- error; a bad value that may come from a call's arguments returns `nil, why`.

local host = require "moonpool.host"
local copied = require "moonpool.runtime.copied"
local json = require "moonpool.json"
local problem = require "moonpool.runtime.diagnostic"
local sorted = require "moonpool.runtime.sorted_keys"
local suggest = require "moonpool.runtime.suggest"
local uris = require "moonpool.runtime.uris"

local request = {}

local MAX_TIME_S = 86400 -- longest time limit of a request, in seconds
local MAX_RETRIES = 10

local known = { headers = "table", query = "table", body = "string", json = true, timeout = "number", max = "number", follow = "boolean",
  retry = "number", retry_unsafe = "boolean" }
local streaming = { idle = "number", max_event = "number" }

-- Headers that frame the message or belong to the connection. Scripts must not set them.
local ours = {}
for name in ("host content-length transfer-encoding connection keep-alive te trailer upgrade expect accept-encoding " ..
  "proxy-authorization proxy-connection"):gmatch "%S+" do ours[name] = true end

-- Headers that a redirect may carry to another origin.
local harmless = { accept = true, ["accept-language"] = true, ["content-type"] = true, ["user-agent"] = true, range = true }

local function names(stream) return sorted(known, stream and streaming or nil) end

local function check(options, stream)
  for name, value in next, options do
    local want = known[name] or stream and streaming[name]
    if not want then
      problem.raise(2, "http has no option '" .. tostring(name) .. "'", suggest.listed(name, names(stream), "options"))
    elseif want ~= true and type(value) ~= want then
      problem.raise(2, "'" .. name .. "' must be a " .. want .. ", got a " .. type(value))
    end
  end
  if options.body and options.json ~= nil then problem.raise(2, "a request has a 'body' or 'json', not both") end
  for _, name in ipairs { "timeout", "idle" } do
    local value = options[name]
    if value and not (value > 0 and value <= MAX_TIME_S) then problem.raise(2, "'" .. name .. "' must be above 0 and at most a day",
      "as in " .. name .. " = 5 * seconds") end
  end
  local again = options.retry
  if again and not (again >= 0 and again <= MAX_RETRIES and again % 1 == 0) then
    problem.raise(2, "'retry' must be 0 to " .. MAX_RETRIES .. ": how often the request is sent again", "as in retry = 3")
  end
  for _, name in ipairs { "max", "max_event" } do
    local value = options[name]
    if value and not (value >= 1 and value <= host.limits.http.body) then
      problem.raise(2, "'" .. name .. "' must be 1 to limits.http.body, which is " .. host.limits.http.body .. " bytes")
    end
  end
end

local function scalar(value, where)
  local kind = type(value)
  if kind == "string" then return value end
  if kind == "boolean" or math.type(value) == "integer" then return tostring(value) end
  if kind == "number" and value == value and value ~= math.huge and value ~= -math.huge then return ("%.14g"):format(value) end
  problem.raise(2, where .. " must be a string, a number or a boolean, got a " .. kind)
end

local function names_in(fields)
  for name in next, fields do
    if type(name) ~= "string" then problem.raise(2, "a field of 'query' or 'headers' has no name", "as in { page = 2 }") end
  end
  return sorted(fields)
end

local function each(value) return type(value) == "table" and copied(value) or { value } end

--- Appends the fields of `query` to `url`.
function request.with_query(url, query)
  query = copied(query)
  local parts = {}
  for _, name in ipairs(names_in(query)) do
    for _, value in ipairs(each(query[name])) do parts[#parts + 1] = uris.escape(name) .. "=" .. uris.escape(scalar(value, "query field '" .. name .. "'")) end
  end
  if not parts[1] then return url end
  local bare = url:match "^[^#]*"
  local joint = not bare:find("?", 1, true) and "?" or bare:find "[?&]$" and "" or "&"
  return bare .. joint .. table.concat(parts, "&")
end

-- Encodes headers as { { name, value }, … }, names in lower case; or nil, why.
local function read_headers(fields)
  fields = copied(fields)
  local list = {}
  for _, name in ipairs(names_in(fields)) do
    local low = name:lower()
    if not name:find "^[%w!#$%%&'*+.^_`|~-]+$" then return nil, "a header's name contains a character that is not allowed" end
    if ours[low] then problem.raise(2, "the header '" .. low .. "' is set by moonpool", "remove it") end
    for _, value in ipairs(each(fields[name])) do
      local text = host.secret.reveal(value) or scalar(value, "header '" .. low .. "'")
      if text:find "[%z\1-\8\10-\31\127]" then return nil, "the header '" .. low .. "' contains a line break or another control character" end
      list[#list + 1] = { low, text:match "^[ \t]*(.-)[ \t]*$" }
    end
  end
  return list
end

local function has(headers, name)
  for _, header in ipairs(headers) do
    if header[1] == name then return true end
  end
  return false
end

--- Makes the plan of a request: { method, url, headers, body, timeout, most, follow, idle, most_event }; or nil, why.
function request.plan(method, url, options, stream)
  options = copied(options or {})
  if type(url) ~= "string" then problem.raise(2, "http needs a URL, got a " .. type(url), "as in http.get \"https://example.com/\"") end
  if type(options) ~= "table" then problem.raise(2, "the options of http must be a table, got a " .. type(options)) end
  if type(method) ~= "string" or not method:find "^%u+$" or #method > 20 or method == "CONNECT" then
    problem.raise(2, "'method' must be a word such as GET", "upper case, and not CONNECT")
  end
  check(options, stream)
  local headers, why = read_headers(options.headers or {})
  if not headers then return nil, why end
  local body = options.body
  if options.json ~= nil then
    body = json.encode(options.json)
    if not has(headers, "content-type") then headers[#headers + 1] = { "content-type", "application/json" } end
  end
  if not body and (method == "POST" or method == "PUT" or method == "PATCH") then body = "" end
  return {
    method = method, url = options.query and request.with_query(url, options.query) or url, headers = headers, body = body,
    timeout = options.timeout or host.limits.http.time, follow = options.follow ~= false, idle = options.idle,
    retry = math.tointeger(options.retry or 0), retry_unsafe = options.retry_unsafe,
    most = math.floor(options.max or (stream and math.maxinteger or host.limits.http.body)),
    most_event = math.floor(options.max_event or math.min(1 << 20, host.limits.http.body)),
  }
end

--- The header lines in the form of host.http.send.
function request.lines(plan)
  local lines = {}
  for _, header in ipairs(plan.headers) do lines[#lines + 1] = header[2] == "" and header[1] .. ";" or header[1] .. ": " .. header[2] end
  if plan.body and not has(plan.headers, "content-type") then lines[#lines + 1] = "content-type:" end -- libcurl must not add a content-type of its own
  return lines
end

--- Changes `plan` for a redirect: after 303, and after 301 and 302 of a POST, the method is GET; credentials are not
--- sent to another origin.
function request.redirect(plan, status, same_origin)
  if status == 303 and plan.method ~= "HEAD" or (status == 301 or status == 302) and plan.method == "POST" then
    plan.method, plan.body = "GET", nil
  end
  local kept = {}
  for _, header in ipairs(plan.headers) do
    if (same_origin or harmless[header[1]]) and (plan.body or header[1] ~= "content-type") then kept[#kept + 1] = header end
  end
  plan.headers = kept
end

return request
