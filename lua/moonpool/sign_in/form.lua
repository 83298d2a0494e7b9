-- Parameters of a query or of a form (application/x-www-form-urlencoded), read strictly: a parameter that is there twice
-- is refused before anything is chosen.

local form = {}

local MAX_PARAMETERS <const> = 64

--- The media type of a request's body, without its parameters.
function form.media_type(request) return ((request.headers["content-type"] or ""):lower():gsub("%s*;.*", "")) end

--- True if the body of a request is a form.
function form.is_in(request) return form.media_type(request) == "application/x-www-form-urlencoded" end

local function decode(text)
  if text:find "%%" and text:gsub("%%%x%x", ""):find "%%" then return nil end
  text = text:gsub("+", " "):gsub("%%(%x%x)", function(digits) return string.char(tonumber(digits, 16)) end)
  if text:find "%z" or not utf8.len(text) then return nil end
  return text
end

--- A table of the parameters; or nil and the fault.
function form.parse(text)
  local found, count = {}, 0
  for part in text:gmatch "[^&]+" do
    local name, value = part:match "^([^=]*)=?(.*)$"
    name, value = decode(name), decode(value)
    if not name or not value then return nil, "a parameter is not encoded as a form" end
    if found[name] ~= nil then return nil, "a parameter is there twice" end
    count = count + 1
    if count > MAX_PARAMETERS then return nil, "there are too many parameters" end
    found[name] = value
  end
  for name, value in pairs(found) do
    if value == "" then found[name] = nil end       -- RFC 6749, 3.1: as if it were not there
  end
  return found
end

function form.escape(text)
  return (text:gsub("[^%w%-._~]", function(c) return ("%%%02X"):format(c:byte()) end))
end

--- `url` with parameters added, a list of names and values; a value nil is left out.
function form.with(url, list)
  local parts = {}
  for i = 1, list.n, 2 do
    if list[i + 1] ~= nil then parts[#parts + 1] = form.escape(list[i]) .. "=" .. form.escape(list[i + 1]) end
  end
  return url .. (url:find("?", 1, true) and "&" or "?") .. table.concat(parts, "&")
end

return form
