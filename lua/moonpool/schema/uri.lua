-- URI references, as far as schemas need them: RFC 3986 section 5, without judging what a URI may look like.
local uri = {}

-- scheme, authority, path, query; absent parts are nil, the path never is. Fragments are cut off before.
local function parts(text)
  local scheme, rest = text:match "^(%a[%w+.-]*):(.*)$"
  rest = rest or text
  local hierarchy, query = rest:match "^([^?]*)%?(.*)$"
  hierarchy = hierarchy or rest
  local authority, path = hierarchy:match "^//([^/]*)(.*)$"
  return scheme, authority, path or hierarchy, query
end

local function without_dots(path)
  local out = {}
  for segment in path:gmatch "/[^/]*" do
    if segment == "/.." then
      out[#out] = nil
    elseif segment ~= "/." then
      out[#out + 1] = segment
    end
  end
  if path:find "/%.%.?$" then out[#out + 1] = "/" end
  return table.concat(out)
end

local function assemble(scheme, authority, path, query)
  return (scheme and scheme .. ":" or "") .. (authority and "//" .. authority or "") .. path .. (query and "?" .. query or "")
end

-- "x#y" -> "x", "y";  "x" -> "x", ""
function uri.split(text)
  local head, fragment = text:match "^([^#]*)#(.*)$"
  return head or text, fragment or ""
end

-- The URI that `reference` (without fragment) means inside the document at `base`.
function uri.resolve(base, reference)
  if reference == "" then return base end
  local scheme, authority, path, query = parts(reference)
  if scheme then
    return assemble(scheme, authority, authority and without_dots(path) or path, query)
  end
  local base_scheme, base_authority, base_path, base_query = parts(base)
  if authority then return assemble(base_scheme, authority, without_dots(path), query) end
  if path == "" then return assemble(base_scheme, base_authority, base_path, query or base_query) end
  if path:sub(1, 1) ~= "/" then
    local folder = base_path:match "^(.*/)" or (base_authority and "/" or "")
    path = folder .. path
  end
  if path:sub(1, 1) == "/" then path = without_dots(path) end
  return assemble(base_scheme, base_authority, path, query)
end

function uri.unescape(fragment)
  return (fragment:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
end

return uri
