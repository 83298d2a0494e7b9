-- Arguments of a call: error texts for arguments that do not fit the input schema, and default values.

local json = require "moonpool.json"
local schema = require "moonpool.schema"
local suggest = require "moonpool.runtime.suggest"

local arguments = {}

-- A JSON pointer as people write a path: "/orders/0/id" becomes "orders[0].id".
local function told_path(pointer)
  local plain = pointer:match "^/(%a[%w_]*)$"
  if plain then return plain end
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
  local plain = pointer:match "^/(%a[%w_]*)$"
  if plain then return value[plain] end
  for part in pointer:gmatch "/([^/]*)" do
    if type(value) ~= "table" then return nil end
    part = part:gsub("~1", "/"):gsub("~0", "~")
    local item = value[part]
    if item == nil and part:find "^%d+$" then item = value[math.tointeger(part) + 1] end
    value = item
  end
  return value
end

-- The wrong value in a short form, to follow "got a string": " (\"x\")".
local function shown(value)
  local kind = type(value)
  if kind ~= "string" and kind ~= "number" and kind ~= "boolean" then return "" end
  local ok, text = pcall(json.encode, value)
  if not ok then return "" end
  if #text > 60 then text = text:sub(1, (utf8.offset(text, 0, 57) or 57) - 1) .. "..." end
  return " (" .. text .. ")"
end

local MAX_FAULTS = 10      -- limit of the wrong arguments that one text names

-- A copy of the schema's check for arguments that are given and known: missing and unknown arguments are reported
-- separately.
local checks_of_known = setmetatable({}, { __mode = "k" })

local function check_of_known(input)
  local check = checks_of_known[input]
  if check == nil then
    local known = setmetatable({}, debug.getmetatable(input))
    for name, value in pairs(input) do known[name] = value end
    known.required, known.additionalProperties, known.unevaluatedProperties = nil, nil, nil
    check = schema.compile(known) or false
    checks_of_known[input] = check
  end
  return check
end

-- Two texts about a wrong argument: for the client, and for the audit, which names the rule and shows no value.
local function fault_of(args, why)
  local message, found = why.message, ""
  if why.keyword == "type" and (message:find("got a ", 1, true) or message:find("got an ", 1, true)) then found = shown(at(args, why.path)) end
  local subject = "argument '" .. told_path(why.path) .. "' "
  return subject .. why.message .. found, subject .. "does not fit" .. (why.keyword and ": " .. why.keyword or "")
end

-- The first member of a JSON pointer.
local function first_of(pointer)
  local name = pointer:match "^/([^/]*)"
  if not name or not name:find("~", 1, true) then return name end
  return (name:gsub("~1", "/"):gsub("~0", "~"))
end

-- A text for each argument that is missing, unknown or wrong; at most MAX_FAULTS + 1; and these texts without values.
-- `why` is the failure of the whole check: the first wrong argument, unless one is missing or unknown.
local function faults_of(input, args, why)
  local faults, quiet, properties = {}, {}, input.properties or {}
  for _, name in ipairs(input.required or {}) do
    if args[name] == nil then faults[#faults + 1] = "argument '" .. name .. "' is missing" end
  end
  if input.additionalProperties == false and not input.patternProperties then
    local unknown = {}
    for name in pairs(args) do
      if properties[name] == nil then unknown[#unknown + 1] = tostring(name) end
      if #unknown > 1000 then break end
    end
    table.sort(unknown)
    for i = 1, math.min(#unknown, MAX_FAULTS + 1) do
      faults[#faults + 1] = suggest.with_hint("there is no argument '" .. unknown[i]:sub(1, 80) .. "'", unknown[i], properties)
    end
  end
  local left, check, fits = {}, check_of_known(input), false
  for name, value in pairs(args) do
    if properties[name] ~= nil then left[name] = value end
  end
  if check and #faults > 0 then fits, why = check(left) end
  while check and not fits and #faults <= MAX_FAULTS do
    local name = why.path and first_of(why.path)
    if not name or left[name] == nil then break end
    local n = #faults + 1
    faults[n], quiet[n] = fault_of(left, why)
    left[name] = nil
    if next(left) == nil then break end
    fits, why = check(left)
  end
  return faults, setmetatable(quiet, { __index = faults })
end

-- Joins several texts to one.
local function joined(faults, count)
  if count == 1 then return faults[1] end
  local lines = {}
  for i = 1, math.min(count, MAX_FAULTS) do lines[i] = faults[i] end
  local more = count > MAX_FAULTS
  if more then lines[#lines + 1] = "and more" end
  return (more and "more than " .. MAX_FAULTS or count) .. " arguments are wrong:\n- " .. table.concat(lines, "\n- ")
end

local recorded = setmetatable({}, { __mode = "k" })      -- call -> why its arguments are wrong, without their values

--- Why the arguments of a call are wrong, for the audit: no value of an argument is in it. Nil if they were right.
function arguments.recorded(call) return recorded[call] end

--- The reason that `args` do not fit: a text that names each wrong argument, one per line if there are several. `why`
--- is the failure from the schema's check. With `call`, the audit's line of the call has the text without values.
function arguments.explain(input, args, why, call)
  local faults, quiet = faults_of(input, args, why)
  local text, record
  if #faults > 0 then
    text, record = joined(faults, #faults), joined(quiet, #faults)
  elseif not why.path or why.path == "" then
    text, record = "the arguments do not fit: " .. why.message, "the arguments do not fit"
  else
    text, record = fault_of(args, why)
  end
  if call then recorded[call] = record end
  return text
end

local function copy(value)
  if type(value) ~= "table" then return value end
  local made = setmetatable({}, debug.getmetatable(value) == json.array_mt and json.array_mt or nil)
  for k, v in pairs(value) do made[k] = copy(v) end
  return made
end

--- Rows { name, value | inside } of the defaults in the schema `input`; nil if there are none.
function arguments.defaults(input)
  local rows = {}
  for name, property in pairs(input.properties or {}) do
    if type(property) == "table" then
      local inside = arguments.defaults(property)
      if property.default ~= nil or inside then rows[#rows + 1] = { name = name, value = property.default, inside = inside } end
    end
  end
  return rows[1] and rows or nil
end

--- Adds the default of each argument that is missing.
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

--- A copy of `args` that has the default of each argument that is missing.
function arguments.filled(rows, args)
  local made = copy(args)
  arguments.fill(rows, made)
  return made
end

return arguments
