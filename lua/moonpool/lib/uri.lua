-- `uri` of scripts (RFC 3986): taken apart, put together, joined, and texts made fit for a place in one.

local problem = require "moonpool.problem"

local uri = {}

local function check(what, text)
  if type(text) ~= "string" then problem.raise(3, what .. " takes a text, not a " .. type(text)) end
end

local function escape(byte) return ("%%%02X"):format(byte:byte()) end
local function unescape(hex) return string.char(tonumber(hex, 16)) end

local function encode(text) return (text:gsub("[^%w%-._~]", escape)) end

--- encode(text): fit for any place in a URI, '/' and '&' included.
function uri.encode(text)
  if type(text) == "number" then text = tostring(text) end
  check("uri.encode", text)
  return encode(text)
end

local function decode(text)
  if text:gsub("%%%x%x", ""):find("%", 1, true) then return nil end
  return (text:gsub("%%(%x%x)", unescape))
end

--- decode(text): what encode was given; or nil, why.
function uri.decode(text)
  check("uri.decode", text)
  local decoded = decode(text)
  if not decoded then return nil, "a '%' without two hexadecimal digits" end
  return decoded
end

-- Everything up to the parts of the authority, which may each be missing.
local function split(text)
  local parts, rest = {}, text
  local function cut(pattern)
    local found, tail = rest:match(pattern)
    if found then rest = tail end
    return found
  end
  local before, fragment = rest:match "^([^#]*)#(.*)$"
  if before then rest, parts.fragment = before, fragment end
  local start, query = rest:match "^([^?]*)%?(.*)$"
  if start then rest, parts.query = start, query end
  parts.scheme = cut "^(%a[%w+.-]*):(.*)$"
  parts.authority = cut "^//([^/]*)(.*)$"
  parts.path = rest
  return parts
end

local function authority_of(parts)
  local rest = parts.authority
  local user, after = rest:match "^(.*)@(.*)$"
  if user then parts.userinfo, rest = user, after end
  local host, port = rest:match "^(%[[%x:.]+%]):?(%d*)$"
  if not host then host, port = rest:match "^([^:%[%]]*):?(%d*)$" end
  if not host then return false end
  parts.host, parts.port = host:lower(), math.tointeger(port)
  return not parts.port or parts.port <= 65535
end

--- parse(text): { scheme, userinfo, host, port, path, query, fragment }, those that are there; or nil, why.
function uri.parse(text)
  check("uri.parse", text)
  if text:find "[%c%s\"<>\\^`{|}]" then return nil, "a character that no URI has" end
  if text:gsub("%%%x%x", ""):find("%", 1, true) then return nil, "a '%' without two hexadecimal digits" end
  local parts = split(text)
  if parts.scheme then parts.scheme = parts.scheme:lower() end
  if parts.authority and not authority_of(parts) then return nil, "what stands between '//' and '/' is no host and port" end
  parts.authority = nil
  return parts
end

local function sorted(fields)
  local names = {}
  for name in pairs(fields) do names[#names + 1] = name end
  table.sort(names)
  return names
end

--- query(fields): "a=1&b=x%20y", sorted by name; a list gives its name several times.  query(text): the table.
function uri.query(fields)
  if type(fields) == "table" then
    local out = {}
    for _, name in ipairs(sorted(fields)) do
      local values = fields[name]
      for _, value in ipairs(type(values) == "table" and values or { values }) do out[#out + 1] = encode(name) .. "=" .. encode(tostring(value)) end
    end
    return table.concat(out, "&")
  end
  check("uri.query", fields)
  local made = {}
  for pair in fields:gmatch "[^&]+" do
    local name, value = pair:match "^([^=]*)=?(.*)$"
    name, value = decode((name:gsub("+", " "))), decode((value:gsub("+", " ")))
    if not name or not value then return nil, "a '%' without two hexadecimal digits" end
    made[name] = value
  end
  return made
end

local function whole(parts)
  local out = {}
  if parts.scheme then out[#out + 1] = parts.scheme .. ":" end
  if parts.authority then out[#out + 1] = "//" .. parts.authority end
  out[#out + 1] = parts.path
  if parts.query then out[#out + 1] = "?" .. parts.query end
  if parts.fragment then out[#out + 1] = "#" .. parts.fragment end
  return table.concat(out)
end

--- build(parts): the text of what parse gives; `query` may be a table.
function uri.build(parts)
  if type(parts) ~= "table" then problem.raise(2, "uri.build takes a table, not a " .. type(parts)) end
  local authority
  if parts.host then
    authority = (parts.userinfo and parts.userinfo .. "@" or "") .. parts.host .. (parts.port and ":" .. parts.port or "")
  end
  local path = parts.path or ""
  if authority and path ~= "" and path:sub(1, 1) ~= "/" then path = "/" .. path end
  return whole {
    scheme = parts.scheme, authority = authority, path = path, fragment = parts.fragment,
    query = type(parts.query) == "table" and uri.query(parts.query) or parts.query,
  }
end

-- Section 5.2.4, a segment at a time.
local function without_dots(path)
  local out, rooted = {}, path:sub(1, 1) == "/"
  local segments = {}
  if path == "" then return "" end
  for segment in ((rooted and path:sub(2) or path) .. "/"):gmatch "([^/]*)/" do segments[#segments + 1] = segment end
  for i, segment in ipairs(segments) do
    local is_last = i == #segments
    if segment == ".." then
      out[#out] = nil
      if is_last then out[#out + 1] = "" end
    elseif segment == "." then
      if is_last then out[#out + 1] = "" end
    else
      out[#out + 1] = segment
    end
  end
  return (rooted and "/" or "") .. table.concat(out, "/")
end

--- join(base, reference): where the reference leads, read in base; or nil, why.
function uri.join(base, reference)
  check("uri.join", base)
  check("uri.join", reference)
  local from, to = split(base), split(reference)
  if not from.scheme then return nil, "the first URI has no scheme" end
  if to.scheme then
    to.path = without_dots(to.path)
    return whole(to)
  end
  to.scheme = from.scheme
  if to.authority then
    to.path = without_dots(to.path)
    return whole(to)
  end
  to.authority = from.authority
  if to.path == "" then
    to.path, to.query = from.path, to.query or from.query
  elseif to.path:sub(1, 1) == "/" then
    to.path = without_dots(to.path)
  else
    local folder = from.authority and from.path == "" and "/" or from.path:match "^(.*/)" or ""
    to.path = without_dots(folder .. to.path)
  end
  return whole(to)
end

return uri
