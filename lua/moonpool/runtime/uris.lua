-- URI references (RFC 3986, section 5). These functions do not check that a URI is valid.

local uris = {}

--- The text, percent-encoded for any part of a URI.
function uris.escape(text) return (text:gsub("[^%w._~-]", function(c) return ("%%%02X"):format(c:byte()) end)) end

--- split(text): { scheme, authority, path, query, fragment }: `path` is always set, the other fields may be nil.
function uris.split(text)
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

--- whole(parts): builds the URI from the table that `split` returns.
function uris.whole(parts)
  local out = {}
  if parts.scheme then out[#out + 1] = parts.scheme .. ":" end
  if parts.authority then out[#out + 1] = "//" .. parts.authority end
  out[#out + 1] = parts.path
  if parts.query then out[#out + 1] = "?" .. parts.query end
  if parts.fragment then out[#out + 1] = "#" .. parts.fragment end
  return table.concat(out)
end

-- Removes "." and ".." segments from a path (RFC 3986, section 5.2.4).
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

--- join(base, text): resolves the URI reference `text` against `base`.
function uris.join(base, text)
  base = uris.split(base)
  local to = uris.split(text)
  if not to.scheme and not to.authority and to.path == "" then
    to.path, to.query = base.path, to.query or base.query
  elseif not to.scheme and not to.authority and to.path:sub(1, 1) ~= "/" then
    local folder = base.authority and base.path == "" and "/" or base.path:match "^(.*/)" or ""
    to.path = without_dots(folder .. to.path)
  else
    to.path = without_dots(to.path)
  end
  if not to.scheme then
    to.scheme, to.authority = base.scheme, to.authority or base.authority
  end
  return uris.whole(to)
end

local function escaped(c) return ("%%%02X"):format(c:byte()) end

--- The normal form of a URI (RFC 3986, section 6.2.2), equal for equivalent URIs: the scheme is in lower case, and only
--- characters that need it are percent-encoded. A template keeps its braces.
function uris.normal(text, is_template)
  text = text:gsub("^%a[%w+.-]*:", string.lower):gsub("%%(%x%x)", function(hex)
    local c = string.char(tonumber(hex, 16))
    return c:find "[%w._~-]" and c or "%" .. hex:upper()
  end)
  return (text:gsub(is_template and '["<>\\^`|\128-\255]' or '["<>\\^`{|}\128-\255]', escaped))
end

--- The normal form of a URI for scripts that use decoded values: no reserved character is percent-encoded, and only the
--- slashes after the scheme are doubled.
function uris.plain(text)
  text = text:gsub("%%(%x%x)", function(hex)
    local c = string.char(tonumber(hex, 16))
    return c:find "[]!$&'()*+,/:;=?@#[]" and c or nil
  end)
  local start, rest = text:match "^([%w+.*-]*:/?/?/?)(.*)$"
  if not start then start, rest = "", text end
  return start .. rest:gsub("//+", "/")
end

--- Splits a text at the first '#': "x#y" gives "x", "y"; "x" gives "x", "".
function uris.cut(text)
  local head, fragment = text:match "^([^#]*)#(.*)$"
  return head or text, fragment or ""
end

return uris
