-- Asks the user the questions of a tool at the terminal.

local json = require "moonpool.json"
local stderr = require "moonpool.workbench.format.stderr"
local sorted = require "moonpool.runtime.sorted_keys"
local coerce = require "moonpool.workbench.format.coerce"
local wire = require "moonpool.wire"

local function prompt(text)
  io.stderr:write(text)
  return io.read "l"
end

local function hint(field, is_required)
  local parts = {}
  if field.enum then
    for i, value in ipairs(field.enum) do parts[i] = tostring(value) end
    parts = { table.concat(parts, ", ") }
  elseif field.type and field.type ~= "string" then
    parts[1] = field.type == "boolean" and "yes or no" or tostring(field.type)
  end
  if field.default ~= nil then parts[#parts + 1] = "default " .. json.encode(field.default) end
  if not is_required then parts[#parts + 1] = "may be empty" end
  return parts[1] and " (" .. table.concat(parts, "; ") .. ")" or ""
end

-- Reads the value of one field; nil at the end of the terminal's input.
local function ask(name, field, is_required)
  while true do
    local text = prompt("  " .. (field.title or field.description or name) .. hint(field, is_required) .. ": ")
    if not text then return nil end
    if text == "" and field.default ~= nil then return field.default, true end
    if text == "" and not is_required then return nil, true end
    local value, why = coerce.read(text, field)
    if value ~= nil and text ~= "" then return value, true end
    stderr.note("  " .. (why or "a value is required"))
  end
end

local form = {}

--- True if stdin and stderr are terminals, so that a user can answer.
function form.is_possible() return wire.is_terminal(0) and wire.is_terminal(2) end

--- Asks the questions of elicitation/create and returns an ElicitResult.
function form.ask(params)
  if params.mode == "url" then return { action = "decline" } end
  local schema = params.requestedSchema or {}
  local required, content = {}, {}
  for _, name in ipairs(schema.required or {}) do required[name] = true end
  stderr.note(params.message)
  for _, name in ipairs(sorted(schema.properties or {})) do
    local value, is_answered = ask(name, schema.properties[name], required[name])
    if not is_answered then return { action = "cancel" } end
    content[name] = value
  end
  return { action = "accept", content = json.object(content) }
end

return form
