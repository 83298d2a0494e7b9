-- Arguments of a call: are they what the input schema asks for, and if not, which one and why, in words; and defaults.

local json = require "moonpool.json"
local suggest = require "moonpool.suggest"

local arguments = {}

-- "/orders/0/id" as people write it: "orders[0].id".
local function told_path(pointer)
  local out = ""
  for part in pointer:gmatch "/([^/]*)" do
    part = part:gsub("~1", "/"):gsub("~0", "~")
    if part:find "^%d+$" then
      out = out .. "[" .. part .. "]"
    else
      out = out .. (out == "" and "" or ".") .. part
    end
  end
  return out
end

local function at(value, pointer)
  for part in pointer:gmatch "/([^/]*)" do
    if type(value) ~= "table" then return nil end
    part = part:gsub("~1", "/"):gsub("~0", "~")
    local item = value[part]
    if item == nil and part:find "^%d+$" then item = value[math.tointeger(part) + 1] end
    value = item
  end
  return value
end

-- A value of the wrong type, behind "got a string": " (\"x\")", short.
local function shown(value)
  local kind = type(value)
  if kind ~= "string" and kind ~= "number" and kind ~= "boolean" then return "" end
  local ok, text = pcall(json.encode, value)
  if not ok then return "" end
  if #text > 60 then text = text:sub(1, (utf8.offset(text, 0, 57) or 57) - 1) .. "..." end
  return " (" .. text .. ")"
end

--- Why `args` do not fit: text that names the argument. `why` is what the schema's check gave.
function arguments.explain(schema, args, why)
  local properties = schema.properties or {}
  for _, name in ipairs(schema.required or {}) do
    if args[name] == nil then return "argument '" .. name .. "' is missing" end
  end
  if schema.additionalProperties == false and not schema.patternProperties then
    local unknown
    for name in pairs(args) do
      if properties[name] == nil and (unknown == nil or tostring(name) < unknown) then unknown = tostring(name) end
    end
    if unknown then
      local hint = suggest.hint(unknown, properties)
      return "there is no argument '" .. unknown:sub(1, 80) .. "'" .. (hint and ": " .. hint or "")
    end
  end
  if not why.path or why.path == "" then return "the arguments do not fit: " .. why.message end
  local found = why.keyword == "type" and why.message:find "got an? %l+$" and shown(at(args, why.path)) or ""
  return "argument '" .. told_path(why.path) .. "' " .. why.message .. found
end

local function copy(value)
  if type(value) ~= "table" then return value end
  local made = setmetatable({}, debug.getmetatable(value) == json.array_mt and json.array_mt or nil)
  for k, v in pairs(value) do made[k] = copy(v) end
  return made
end

--- Rows { name, value | inside } of the defaults below `schema`, or nil when there are none.
function arguments.defaults(schema)
  local rows = {}
  for name, property in pairs(schema.properties or {}) do
    if type(property) == "table" then
      local inside = arguments.defaults(property)
      if property.default ~= nil or inside then rows[#rows + 1] = { name = name, value = property.default, inside = inside } end
    end
  end
  return rows[1] and rows or nil
end

--- Puts defaults where nothing was given.
function arguments.fill(rows, args)
  for i = 1, #rows do
    local row = rows[i]
    local value = args[row.name]
    if value == nil then
      args[row.name] = copy(row.value)
    elseif row.inside and type(value) == "table" then
      arguments.fill(row.inside, value)
    end
  end
end

return arguments
