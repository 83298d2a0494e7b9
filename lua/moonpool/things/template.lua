-- URI templates (RFC 6570), used to parse URIs: does a URI match the template, and which values do its variables have?
--   {x}  part of a segment    {+x}  any text, also with slashes    {/x}  a segment that may be missing    {?a,b}  a query, at the end
-- One pass over the URI for each part, without backtracking. A value that decodes to ".." or "." never matches, nor
-- does an encoded slash where a plain one may be: so scripts may build paths of files from values.

local template = {}

-- A longer URI matches no template (with and without its query); a template with more variables would need too many
-- passes.
local longest, longest_query, most = 2048, 16384, 16

-- The characters that end a value, by operator.
local stops = { [""] = "^[/?#]", ["/"] = "^[/?#]", ["+"] = false }

local function literal(parts, text)
  if text ~= "" then parts[#parts + 1] = { text = text } end
end

-- Parses the names inside one pair of braces.
local function names_of(list, made)
  local names = {}
  for name in (list .. ","):gmatch "([^,]*)," do
    if name:find "[*:]" then return nil, "'" .. name .. "' has a modifier", "{x*} and {x:3} are not supported: write {x}, {+x}, {/x} or {?a,b}" end
    if not name:find "^[%a_][%w_]*$" then return nil, "'" .. name .. "' is not a name", "as in {id}" end
    if made.has[name] then return nil, "'" .. name .. "' appears twice" end
    made.has[name], made.names[#made.names + 1], names[#names + 1] = true, name, name
  end
  return names
end

local function expression(made, inside, is_last)
  local operator, list = inside:match "^([^%w_,]?)(.*)$"
  local parts = made.parts
  if operator ~= "?" and stops[operator] == nil then
    return nil, "there is no '{" .. operator .. "…}' in URI templates", "values are {x}, {+x}, {/x} and {?a,b}"
  end
  local names, why, hint = names_of(list, made)
  if not names then return nil, why, hint end
  if operator == "?" then
    if not is_last then return nil, "'{?…}' must be at the end" end
    if made.text:match("^[^{]*"):find("?", 1, true) then return nil, "a '?' and '{?…}' do not go together", "put all of the query into {?…}" end
    made.query = {}
    for _, name in ipairs(names) do made.query[name] = true end
    return true
  end
  local before = parts[#parts]
  if before and before.name and operator ~= "/" then
    return nil, "nothing separates '{" .. before.name .. "}' and '{" .. inside .. "}'", "put a character between them"
  end
  for i, name in ipairs(names) do
    if i > 1 and operator ~= "/" then literal(parts, ",") end
    parts[#parts + 1] = { name = name, stop = operator == "" and names[2] and "^[/?#,]" or stops[operator], is_segment = operator == "/" }
  end
  return true
end

--- Compiles a template: { text, names, has = { name = true }, literals = the number of its fixed characters }. Or nil,
--- what is wrong, a hint.
function template.compile(text)
  local made = { text = text, parts = {}, names = {}, has = {}, literals = 0 }
  local at = 1
  while at <= #text do
    local open = text:find("[{}]", at) or #text + 1
    literal(made.parts, text:sub(at, open - 1))
    made.literals = made.literals + open - at
    if open > #text then break end
    local inside, past = text:match("^{([^{}]*)}()", open)
    if not inside then return nil, "a brace has no matching brace", "as in {id}" end
    local ok, why, hint = expression(made, inside, past > #text)
    if not ok then return nil, why, hint end
    at = past
  end
  if #made.names > most then return nil, "more than " .. most .. " values" end
  made.prefix = made.parts[1] and made.parts[1].text or ""
  return made
end

--- A template that matches every URI with the fixed text before the first brace of `text`: for templates of other
--- servers that this module cannot read.
function template.any(text)
  local prefix = text:match "^[^{]*"
  return { text = text, parts = { { text = prefix }, { name = "rest", stop = false } }, names = {}, has = {}, literals = #prefix, prefix = prefix }
end

local function decode(raw)
  if raw:find("%%%X") or raw:find("%%%x?$") or raw:find("%%%x%X") then return nil end
  local value = raw:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end)
  if not utf8.len(value) or value:find("\0", 1, true) then return nil end
  if ("/" .. value .. "/"):find "[/\\]%.%.?[/\\]" then return nil end
  return value
end

-- The positions where a fixed text ends that begins at one of `from`. The values of the tables are the positions where
-- the text began.
local function after_text(uri, from, part)
  local text, ends = part.text, {}
  local at = uri:find(text, 1, true)
  while at do
    if from[at] then ends[at + #text] = at end
    at = uri:find(text, at + 1, true)
  end
  return ends
end

-- The positions where a value may end that begins at one of `from`; the earliest beginning is used. 0 means a missing
-- segment.
local function after_value(uri, from, part)
  local ends, stop, is_segment, start = {}, part.stop, part.is_segment, nil
  for at = 1, #uri + 1 do
    ends[at] = is_segment and from[at] and 0 or start
    local begins = is_segment and from[at - 1] and uri:byte(at - 1) == 47 or not is_segment and from[at]
    if stop and uri:find(stop, at) then
      start = nil
    elseif begins and not start then
      start = at
    end
  end
  return ends
end

local function read_query(query, wanted, values)
  for pair in query:gmatch "[^&]+" do
    local name, raw = pair:match "^([^=]*)=?(.*)$"
    local value = decode(raw)
    if not wanted[name] or values[name] ~= nil or value == nil then return nil end
    values[name] = value
  end
  return values
end

--- The values of the variables in `uri` by name; nil if `uri` does not match.
function template.match(made, uri)
  if #uri > longest_query or uri:sub(1, #made.prefix) ~= made.prefix or uri:find "[%c ]" then return nil end
  local values, query = {}, nil
  if made.query then
    local head, rest = uri:match "^([^?]*)%?(.*)$"
    if head then uri, query = head, rest end
  end
  if #uri > longest then return nil end
  local parts, steps, from = made.parts, {}, { true }
  for i = 1, #parts do
    from = (parts[i].text and after_text or after_value)(uri, from, parts[i])
    if next(from) == nil then return nil end
    steps[i] = from
  end
  local at = #uri + 1
  if not from[at] then return nil end
  for i = #parts, 1, -1 do
    local part, start = parts[i], steps[i][at]
    if part.name and start ~= 0 then
      local value = decode(uri:sub(start, at - 1))
      if value == nil or (not part.stop and uri:sub(start, at - 1):find "%%2[Ff]") then return nil end
      values[part.name] = value
      if part.is_segment then start = start - 1 end
    end
    if start ~= 0 then at = start end
  end
  if query then return read_query(query, made.query, values) end
  return values
end

local function encoded(value, keeps_slashes)
  return (value:gsub(keeps_slashes and "[^%w%-._~/]" or "[^%w%-._~]", function(c) return ("%%%02X"):format(c:byte()) end))
end

--- The URI that the template makes of `values`, texts or numbers by name; or nil and why.
function template.expand(made, values)
  local out, query = {}, {}
  local function text_of(name)
    local value = values[name]
    if math.type(value) == "integer" then value = tostring(value) end
    if value ~= nil and type(value) ~= "string" then return nil, "'" .. name .. "' is a " .. type(value) .. ", not a string" end
    return value
  end
  for _, part in ipairs(made.parts) do
    if part.text then
      out[#out + 1] = part.text
    else
      local value, why = text_of(part.name)
      if why then return nil, why end
      if value == nil and not part.is_segment then return nil, "it has no '" .. part.name .. "'" end
      if value ~= nil then out[#out + 1] = (part.is_segment and "/" or "") .. encoded(value, part.stop == false) end
    end
  end
  for _, name in ipairs(made.names) do
    if made.query and made.query[name] then
      local value, why = text_of(name)
      if why then return nil, why end
      if value ~= nil then query[#query + 1] = name .. "=" .. encoded(value) end
    end
  end
  if query[1] then out[#out + 1] = "?" .. table.concat(query, "&") end
  return table.concat(out)
end

return template
