-- Formats a value for a log line: tables as JSON, limited in depth, members and bytes. Values that JSON cannot express
-- are shown as <cycle>, <function …> and so on. A secret is shown as ***.

local json = require "moonpool.json"
local problem = require "moonpool.runtime.diagnostic"

local MAX_BYTES = 2000 -- limit of the shown text in bytes: the remainder of a value is not read
local MAX_MEMBERS = 64 -- limit of the members shown of one table
local DEEPEST = 6

local function less(a, b)
  if type(a) == type(b) then return a < b end
  return type(a) == "number"
end

-- Returns at most MAX_MEMBERS sorted keys, true if the table has more keys, and true if it is a list.
local function keys_of(value)
  local keys, more, is_list = {}, false, true
  for key in pairs(value) do
    if #keys == MAX_MEMBERS then
      more = true
      break
    end
    local kind = math.type(key) or type(key)
    is_list = is_list and kind == "integer"
    keys[#keys + 1] = (kind == "string" or kind == "integer" or kind == "float") and key or tostring(key)
  end
  table.sort(keys, less)
  if is_list then is_list = keys[1] and keys[1] == 1 and keys[#keys] == #keys or getmetatable(value) == json.array_mt end
  return keys, more, is_list
end

local function quoted(text)
  text = text:sub(1, MAX_BYTES)
  return '"' .. text:gsub('[\\"]', "\\%0"):gsub("\n", "\\n"):gsub("%c", function(c) return ("\\u%04x"):format(c:byte()) end) .. '"'
end

-- The text that tostring returns for a value. A __tostring of a script may fail; then `otherwise` is shown.
local function printed(value, otherwise)
  local ok, text = pcall(tostring, value)
  if not ok or type(text) ~= "string" then return "<" .. otherwise .. ">" end
  return text:find "^[%w_. ]+: 0x%x+$" and "<" .. text:gsub(": 0x%x+$", "") .. ">" or text
end

local function function_name(value)
  local info = debug.getinfo(value, "S")
  if not problem.is_of_script(info.source) then return "<function>" end -- the value belongs to the gateway
  return ("<function at %s:%d>"):format(info.source:sub(2), info.linedefined)
end

local put

local function put_table(out, value, depth, above)
  if above[value] then return out.put "<cycle>" end
  local mt = debug.getmetatable(value)
  if type(mt) == "table" and rawget(mt, "__tostring") ~= nil then return out.put(quoted(printed(value, "table"))) end
  if depth > DEEPEST then return out.put "…" end
  above[value] = true
  local keys, more, is_list = keys_of(value)
  out.put(is_list and "[" or "{")
  for i, key in ipairs(keys) do
    if out.is_full() then break end
    if i > 1 then out.put "," end
    if not is_list then out.put(quoted(tostring(key)) .. ":") end
    put(out, value[key], depth + 1, above)
  end
  if more then out.put ",…" end
  out.put(is_list and "]" or "}")
  above[value] = nil
end

function put(out, value, depth, above)
  local kind = type(value)
  if kind == "string" then
    out.put(quoted(value))
  elseif kind == "table" then
    put_table(out, value, depth, above)
  elseif kind == "function" then
    out.put(function_name(value))
  elseif value == json.null then
    out.put "null"
  elseif kind == "userdata" or kind == "thread" then
    out.put(printed(value, kind))
  else
    out.put(tostring(value))
  end
end

local function show(value)
  local pieces, size = {}, 0
  local out = {}
  function out.is_full() return size > MAX_BYTES end
  function out.put(text)
    if size > MAX_BYTES then return end
    size = size + #text
    pieces[#pieces + 1] = size > MAX_BYTES and "…" or text
  end
  put(out, value, 1, {})
  return table.concat(pieces)
end

--- Returns a string unchanged, and any other value formatted for a log line.
return function(value)
  if type(value) == "string" then return value end
  if type(value) == "table" then
    local mt = debug.getmetatable(value)
    if type(mt) == "table" and rawget(mt, "__tostring") ~= nil then return printed(value, "table") end
  end
  return show(value)
end
