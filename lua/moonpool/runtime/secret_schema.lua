-- Which parts of a value its JSON Schema calls secret, by `writeOnly` or `format: password`, wherever the schema says
-- so: in members, items, references, and each branch of `anyOf` and its like, whichever one the value fits. It hides
-- too much where a schema leaves it open, and nothing too little.
--   local place = secret_schema.of(tool.input)      -- nil: no part is secret
--   place = place and secret_schema.member(place, "card")
--   if place and place.is_secret then … end

local secret_schema = {}

local MAX_NODES <const> = 256        -- schemas of one place; a place with more is taken as secret

local one_schema = { "not", "if", "then", "else" }
local lists_of_schemas = { "allOf", "anyOf", "oneOf" }
local weak = { __mode = "k" }
local marked = setmetatable({}, weak)        -- root of a schema -> whether any part of it is secret
local roots = setmetatable({}, weak)         -- root of a schema -> its place

local function says_secret(schema) return schema.writeOnly == true or schema.format == "password" end

-- A table in `root`, or `root` itself, that fits; nil: none does.
local function find_within(root, fits)
  local seen, waiting = { [root] = true }, { root }
  while #waiting > 0 do
    local at = table.remove(waiting)
    if fits(at) then return at end
    for _, part in next, at do
      if type(part) == "table" and not seen[part] then
        seen[part] = true
        waiting[#waiting + 1] = part
      end
    end
  end
end

local function at_pointer(root, pointer)
  local found = root
  for token in pointer:gmatch "/([^/]*)" do
    token = token:gsub("~1", "/"):gsub("~0", "~")
    if type(found) ~= "table" then return nil end
    found = found[token] or token:find "^%d+$" and found[tonumber(token) + 1]
  end
  return type(found) == "table" and found or nil
end

local function at_anchor(root, name)
  return find_within(root, function(at) return at["$anchor"] == name or at["$dynamicAnchor"] == name end)
end

-- The schema that a reference names; nil if it is in another document.
local function target_of(root, reference)
  local fragment = reference:match "^#(.*)$"
  if not fragment then return nil end
  fragment = fragment:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end)
  if fragment == "" then return root end
  return fragment:sub(1, 1) == "/" and at_pointer(root, fragment) or at_anchor(root, fragment)
end

-- The list of these schemas with all schemas that they refer to or combine, and whether one of them marks a secret; nil
-- without schemas.
local function place_of(root, schemas)
  local place, seen = { root = root, is_secret = false }, {}
  local function put(schema)
    if type(schema) ~= "table" or seen[schema] then return end
    seen[schema] = true
    if #place == MAX_NODES then
      place.is_secret = true
      return
    end
    place[#place + 1] = schema
    place.is_secret = place.is_secret or says_secret(schema)
    for _, keyword in ipairs { "$ref", "$dynamicRef" } do
      local reference = schema[keyword]
      if type(reference) == "string" then
        local target = target_of(root, reference)
        place.is_secret = place.is_secret or target == nil
        put(target)
      end
    end
    for _, keyword in ipairs(one_schema) do put(schema[keyword]) end
    for _, keyword in ipairs(lists_of_schemas) do
      for _, part in ipairs(type(schema[keyword]) == "table" and schema[keyword] or {}) do put(part) end
    end
    for _, part in next, type(schema.dependentSchemas) == "table" and schema.dependentSchemas or {} do put(part) end
  end
  for _, schema in ipairs(schemas) do put(schema) end
  return #place > 0 and place or nil
end

-- Caches the schemas of a member or item, since each call asks for the same ones. The keys are names in schemas, never
-- in arguments.
local function kept(place, key, schemas)
  place.kept = place.kept or {}
  local found = place.kept[key]
  if found == nil then
    found = place_of(place.root, schemas) or false
    place.kept[key] = found
  end
  return found or nil
end

--- The place of a whole value; nil if no part of it is secret.
function secret_schema.of(schema)
  if type(schema) ~= "table" then return nil end
  if marked[schema] == nil then marked[schema] = find_within(schema, says_secret) ~= nil end
  if not marked[schema] then return nil end
  roots[schema] = roots[schema] or place_of(schema, { schema })
  return roots[schema]
end

--- The place of a member; nil if no schema is about it.
function secret_schema.member(place, name)
  local schemas, is_named = {}, false
  local function put(schema)
    if type(schema) == "table" then schemas[#schemas + 1] = schema end
  end
  for _, schema in ipairs(place) do
    local own = type(schema.properties) == "table" and schema.properties[name]
    is_named = is_named or own ~= nil and own ~= false
    put(own)
    for _, part in next, type(schema.patternProperties) == "table" and schema.patternProperties or {} do put(part) end
    if not own then
      put(schema.additionalProperties)
      put(schema.unevaluatedProperties)
    end
  end
  return kept(place, is_named and "." .. name or "*", schemas)
end

--- The place of the item with this number, from 1.
function secret_schema.item(place, number)
  local schemas, most = {}, 0
  local function put(schema)
    if type(schema) == "table" then schemas[#schemas + 1] = schema end
  end
  for _, schema in ipairs(place) do
    local first = type(schema.prefixItems) == "table" and schema.prefixItems or type(schema.items) == "table" and schema.items[1] ~= nil and schema.items or {}
    most = math.max(most, #first)
    if first[number] ~= nil then put(first[number]) elseif first ~= schema.items then put(schema.items) end
    for _, keyword in ipairs { "additionalItems", "unevaluatedItems", "contains" } do put(schema[keyword]) end
  end
  return kept(place, math.min(number, most + 1), schemas)
end

return secret_schema
