-- Arguments of a call: error texts for arguments that do not fit the input schema, and default values.

local host = require "moonpool.host"
local json = require "moonpool.json"
local digits = require "moonpool.runtime.digits"
local schema = require "moonpool.schema"
local sorted = require "moonpool.runtime.sorted_keys"
local suggest = require "moonpool.runtime.suggest"

local arguments = {}

local byte, find, math_type, concat = string.byte, string.find, math.type, table.concat
local encode <const> = json.encode
local none <const> = {}
local SUBJECT <const> = "argument '"
local audits <const> = host.config.audit

-- The text about the value at the keys of a failure, inside what `subject` is about, and that value:
-- "argument 'orders[0].id".
local function follow(subject, value, why)
  local keys = why.keys
  for i = why.levels, 1, -1 do
    local key = keys[i]
    if math_type(key) == "integer" then
      subject = subject .. "[" .. (digits[key] or key) .. "]"
      value = value[key + 1]
    else
      local first = byte(key)
      if first and first >= 48 and first <= 57 and find(key, "^%d+$") then
        subject = subject .. "[" .. key .. "]"
      elseif subject == SUBJECT then
        subject = SUBJECT .. key
      else
        subject = subject .. "." .. key
      end
      value = value[key]
    end
  end
  return subject, value
end

-- Adds to what C has for a place inside an argument: the texts before the first index in the way, between them and behind
-- the last, and where in the way these indexes are.
local function add_texts(inside, subject, way)
  local texts, places = {}, {}
  for i = 2, #way do
    local key = way[i]
    if math_type(key) then
      texts[#texts + 1], places[#places + 1], subject = subject .. "[", i, "]"
    else
      subject = follow(subject, none, { levels = 1, keys = { key } })
    end
  end
  texts[#texts + 1] = subject
  inside.texts, inside.places = texts, places
end

-- The text about a value to which C has found the way in what `subject` is about.
local function subject_inside(subject, way)
  local inside = way[1]
  if not inside.texts then add_texts(inside, subject, way) end
  local texts, places = inside.texts, inside.places
  local text = texts[1]
  for i = 1, #places do text = text .. (digits[way[places[i]]] or way[places[i]]) .. texts[i + 1] end
  return text
end

-- The wrong value in a short form; nil if it is better not shown.
local function shown(value)
  local kind = type(value)
  if kind ~= "string" and kind ~= "number" and kind ~= "boolean" then return nil end
  local ok, text = pcall(encode, value)
  if not ok then return nil end
  if #text > 60 then text = text:sub(1, (utf8.offset(text, 0, 57) or 57) - 1) .. "..." end
  return text
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

local facts_of_inputs = setmetatable({}, { __mode = "k" })

-- "argument 'a", by the name of an argument.
local subjects_mt = { __index = function(subjects, name)
  local text = SUBJECT .. (name:find "^%d+$" and "[" .. name .. "]" or name)
  subjects[name] = text
  return text
end }

-- What the texts need of an input schema.
local function facts_of(input)
  local facts = facts_of_inputs[input]
  if facts then return facts end
  local properties = input.properties or none
  facts = {
    properties = properties, names = sorted(properties), required = input.required or none, subjects = setmetatable({}, subjects_mt),
    is_closed = input.additionalProperties == false and not input.patternProperties,
  }
  facts_of_inputs[input] = facts
  return facts
end

-- Adds two texts about a wrong argument: for the client, and for the audit, which names the rule and shows no value.
-- `subjects` has the text about it by its `name`; `why` is the failure of its check. Where C has found the `value` inside an
-- argument, `way` leads to it. Returns whether there are enough.
local function add_fault(faults, quiet, subjects, name, value, why, way)
  local keyword, got, subject, n = why.keyword, why.got, subjects[name], #faults + 1
  if way then subject = subject_inside(subject, way) end
  if why.levels > 0 then subject, value = follow(subject, value, why) end
  local text = keyword == "type" and not math_type(got) and shown(value)      -- `got` may be a number: the value
  if text then
    faults[n] = subject .. "' " .. why.text .. (got or "") .. " (" .. text .. ")"
  else
    faults[n] = subject .. "' " .. why.text .. (got or "")
  end
  if quiet then quiet[n] = subject .. (keyword and "' does not fit: " .. keyword or "' does not fit") end
  return n > MAX_FAULTS
end

local whole <const> = { [""] = SUBJECT }      -- for failures of the check of all arguments

local function add(faults, quiet, text)
  local n = #faults + 1
  faults[n] = text
  if quiet then quiet[n] = text end
end

local function add_missing(faults, quiet, name) add(faults, quiet, SUBJECT .. name .. "' is missing") end

local function unknown_of(properties, args)
  local unknown = {}
  for name in next, args do
    if properties[name] == nil then unknown[#unknown + 1] = tostring(name) end
    if #unknown > 1000 then break end
  end
  return unknown
end

local function add_unknown(faults, quiet, facts, unknown)
  if unknown[2] then table.sort(unknown) end
  for i = 1, math.min(#unknown, MAX_FAULTS + 1) do
    add(faults, quiet, suggest.with_hint("there is no argument '" .. unknown[i]:sub(1, 80) .. "'", unknown[i], facts.names))
  end
end

-- A text for each argument that is missing, unknown or wrong; at most MAX_FAULTS + 1; and these texts without values, if
-- `quiet` is given. `why` is the failure of the whole check: the first wrong argument, unless one is missing or unknown.
local function add_all(faults, quiet, input, args, why)
  local facts = facts_of(input)
  local required, properties = facts.required, facts.properties
  for i = 1, #required do
    if args[required[i]] == nil then add_missing(faults, quiet, required[i]) end
  end
  if facts.is_closed then add_unknown(faults, quiet, facts, unknown_of(properties, args)) end
  local left, check, fits = {}, check_of_known(input), false
  for name, value in pairs(args) do
    if properties[name] ~= nil then left[name] = value end
  end
  if check and #faults > 0 then fits, why = check(left) end
  while check and not fits and #faults <= MAX_FAULTS do
    local name = why.keys[why.levels]
    if left[name] == nil then break end
    add_fault(faults, quiet, whole, "", left, why)
    left[name] = nil
    if next(left) == nil then break end
    fits, why = check(left)
  end
end

-- How a text about several faults begins, by their number.
local heads = {}
for count = 2, MAX_FAULTS do heads[count] = count .. " arguments are wrong:\n- " end

-- Joins several texts to one.
local function joined(faults)
  local count = #faults
  if count == 1 then return faults[1] end
  if count == 2 then return heads[2] .. faults[1] .. "\n- " .. faults[2] end
  if count == 3 then return heads[3] .. faults[1] .. "\n- " .. faults[2] .. "\n- " .. faults[3] end
  if count <= MAX_FAULTS then return heads[count] .. concat(faults, "\n- ") end
  return "more than " .. MAX_FAULTS .. " arguments are wrong:\n- " .. concat(faults, "\n- ", 1, MAX_FAULTS) .. "\n- and more"
end

local recorded = setmetatable({}, { __mode = "k" })      -- call -> why its arguments are wrong, without their values

--- Why the arguments of a call are wrong, for the audit: no value of an argument is in it. Nil if they were right.
function arguments.recorded(call) return recorded[call] end

-- Adds a failure that names no argument.
local function add_whole(faults, quiet, why)
  faults[1] = "the arguments do not fit: " .. why.message
  if quiet then quiet[1] = "the arguments do not fit" end
end

--- The reason that `args` do not fit: a text that names each wrong argument, one per line if there are several; and, with
--- an audit, this text without values, which the line of the call gets, if that is given. `why` is the failure from the
--- schema's check.
function arguments.explain(input, args, why, call)
  local faults, quiet = {}, audits and {} or nil
  add_all(faults, quiet, input, args, why)
  if not faults[1] then
    if why.levels == 0 then
      add_whole(faults, quiet, why)
    else
      add_fault(faults, quiet, whole, "", args, why)
    end
  end
  local record = quiet and joined(quiet)
  if call then recorded[call] = record end
  return joined(faults), record
end

--- The same where C knows which arguments of a tool are wrong, in a schema of which `properties` alone says what they have
--- to be. `list`, as the tool's `check_members` has it, has those that may not fit, `missing` and `unknown`, false or nil
--- without any, the names of others. Nothing if they fit after all; false if all have to be checked as a whole.
function arguments.explain_some(tool, list, missing, unknown)
  local input = tool.input
  local facts, faults, quiet = facts_of_inputs[input] or facts_of(input), { nil, nil, nil, nil }, audits and {} or nil      -- room for a few
  if missing then
    local required = facts.required
    for i = 1, #missing do missing[missing[i]] = true end
    for i = 1, #required do
      if missing[required[i]] then add_missing(faults, quiet, required[i]) end
    end
  end
  if unknown then add_unknown(faults, quiet, facts, unknown) end
  local ended = list[1] and not faults[MAX_FAULTS + 1] and tool.check_members(list, add_fault, faults, quiet, facts.subjects)
  if ended == false then return false end
  if ended and not faults[1] then add_whole(faults, quiet, ended) end
  if faults[1] then return joined(faults), quiet and joined(quiet) end
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
