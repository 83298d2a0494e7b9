-- The shapes of what upstreams send for clients: definitions, content blocks and messages of prompts, as the schemas of
-- all revisions have them together; protocol/era takes away what an older revision lacks. Strict clients refuse a whole
-- list for one wrong member, so everything that upstreams send passes here, before it is stored or answered.

local json = require "moonpool.json"
local message = require "moonpool.upstream.message"

local shape = {}

local is_object = message.is_object

-- -- kinds of members: a function gives what the value is not, or nil; a table is the kind of each element ------------------

local function text(value) return type(value) ~= "string" and "not a text" or nil end
local function flag(value) return type(value) ~= "boolean" and "not a boolean" or nil end
local function object(value) return not is_object(value) and "not an object" or nil end
local function integer(value) return math.tointeger(type(value) == "number" and value) == nil and "not an integer" or nil end

local function part(value)
  return not (type(value) == "number" and value >= 0 and value <= 1) and "not a number from 0 to 1" or nil
end

local function one_of(...)
  local known, words = {}, table.concat({ ... }, " or ")
  for _, word in ipairs { ... } do known[word] = true end
  return function(value) return not (type(value) == "string" and known[value]) and "not " .. words or nil end
end

local role = one_of("user", "assistant")

-- For each type, its members: name, kind (a function, the name of a type, or a table with the kind of a list's elements),
-- and whether it is required. Members that are not named here pass as they are.
local types = {
  annotations = { { "audience", { role } }, { "priority", part }, { "lastModified", text } },
  hints = { { "title", text }, { "readOnlyHint", flag }, { "destructiveHint", flag }, { "idempotentHint", flag }, { "openWorldHint", flag } },
  icon = { { "src", text, true }, { "mimeType", text }, { "sizes", { text } }, { "theme", one_of("light", "dark") } },
  argument = { { "name", text, true }, { "title", text }, { "description", text }, { "required", flag } },
  schema = { { "$schema", text }, { "properties", "subschemas" }, { "required", { text } } },
  tools = {
    { "name", text, true }, { "title", text }, { "description", text }, { "inputSchema", "schema", true }, { "outputSchema", "schema" },
    { "annotations", "hints" }, { "icons", { "icon" } }, { "_meta", object },
  },
  prompts = {
    { "name", text, true }, { "title", text }, { "description", text }, { "arguments", { "argument" } }, { "icons", { "icon" } }, { "_meta", object },
  },
  resources = {
    { "uri", text, true }, { "name", text, true }, { "title", text }, { "description", text }, { "mimeType", text }, { "size", integer },
    { "annotations", "annotations" }, { "icons", { "icon" } }, { "_meta", object },
  },
  templates = {
    { "uriTemplate", text, true }, { "name", text, true }, { "title", text }, { "description", text }, { "mimeType", text },
    { "annotations", "annotations" }, { "icons", { "icon" } }, { "_meta", object },
  },
  text = { { "text", text, true }, { "annotations", "annotations" }, { "_meta", object } },
  image = { { "data", text, true }, { "mimeType", text, true }, { "annotations", "annotations" }, { "_meta", object } },
  resource = { { "resource", "contents", true }, { "annotations", "annotations" }, { "_meta", object } },
  contents = { { "uri", text, true }, { "mimeType", text }, { "text", text }, { "blob", text }, { "_meta", object } },
  result = { { "isError", flag }, { "_meta", object } },
  completion = { { "values", { text } }, { "total", integer }, { "hasMore", flag } },
  prompt_result = { { "description", text }, { "_meta", object } },
}
types.audio, types.resource_link = types.image, types.resources

-- -- checking ------------------------------------------------------------------------------------------------------------

local mend

-- Takes the wrong elements out of a list, which is a member of `holder`.
local function mend_list(holder, name, kind, place, told)
  local list, kept = holder[name], nil
  if type(list) ~= "table" or is_object(list) then return "not a list" end
  for i, one in ipairs(list) do
    local wrong = mend(list, i, kind, place .. "[" .. i .. "]", told)
    if wrong then
      kept = kept or table.move(list, 1, i - 1, 1, json.array {})
      told(("its %s[%d] is %s"):format(place, i, wrong))
    elseif kept then
      kept[#kept + 1] = one
    end
  end
  if kept then holder[name] = kept end
end

-- Takes the wrong properties out of the properties of a schema. Some servers write an empty list for no properties.
local function mend_subschemas(holder, name, place, told)
  local list = holder[name]
  if type(list) == "table" and not is_object(list) and list[1] == nil then
    holder[name] = json.object {}
    return nil
  end
  if not is_object(list) then return "not an object" end
  for key, one in pairs(list) do
    if not is_object(one) and type(one) ~= "boolean" then
      list[key] = nil
      told(("its %s.%s is not a schema"):format(place, key))
    end
  end
  if next(list) == nil then holder[name] = json.object {} end
end

local function mend_object(value, type_name, place, told)
  if not is_object(value) then return "not an object" end
  for _, member in ipairs(types[type_name]) do
    local name, kind, is_required = member[1], member[2], member[3]
    local inner = value[name]
    local whole = place == "" and name or place .. "." .. name
    if inner == nil then
      if is_required then return ("without %s"):format(name) end
    else
      local wrong = mend(value, name, kind, whole, told)
      if wrong and is_required then return ("wrong: its %s is %s"):format(name, wrong) end
      if wrong then
        value[name] = nil
        -- many servers write null for what they do not have
        if inner ~= json.null then told(("its %s is %s"):format(whole, wrong)) end
      end
    end
  end
  if type_name == "contents" and value.text == nil and value.blob == nil then return "without text and blob" end
end

-- Checks the member `name` of `holder`: what it is not, or nil. What is wrong and optional in it is taken out.
function mend(holder, name, kind, place, told)
  if type(kind) == "function" then return kind(holder[name]) end
  if type(kind) == "table" then return mend_list(holder, name, kind[1], place, told) end
  if kind == "subschemas" then return mend_subschemas(holder, name, place, told) end
  return mend_object(holder[name], kind, place, told)
end

local function nobody() end

--- Takes out of a value what is wrong in it and not required; `told(text)` is called with each. Returns nil, or what is
--- wrong with what is required: "without name". `type_name`: a kind of the lists ("tools", …), or "contents", "result" or
--- "prompt_result".
function shape.mend(value, type_name, told) return mend_object(value, type_name, "", told or nobody) end

--- As shape.mend, for a content block.
function shape.mend_block(block)
  if not is_object(block) then return "not an object" end
  local kind = block.type
  if type(kind) ~= "string" then return "without type" end
  if kind ~= "text" and kind ~= "image" and kind ~= "audio" and kind ~= "resource" and kind ~= "resource_link" then return "of no known type" end
  return mend_object(block, kind, "", nobody)
end

--- Changes the content blocks of a result so that each fits: one that lacks what is required becomes a text that says so.
--- Returns how many did.
function shape.mend_blocks(list, upstream)
  local count = 0
  for i, block in ipairs(list) do
    local wrong = shape.mend_block(block)
    if wrong then
      list[i] = shape.instead(upstream, wrong)
      count = count + 1
    end
  end
  return count
end

--- The content block for one that lacks what is required.
function shape.instead(upstream, wrong)
  return { type = "text", text = ("[The upstream '%s' sent a content block that cannot be passed on: it is %s.]"):format(upstream, wrong) }
end

--- True if the value is a role of a message.
function shape.is_role(value) return role(value) == nil end

return shape
