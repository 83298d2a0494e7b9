-- Makes wrong JSON values of right ones: at every place of a value, in turn, each kind of JSON value, and none. For specs
-- about what the gateway lets through of what another server sends.
--   misshapen.of(value)                    a list of { place =, value = }; `value` as cjson decodes it
--   misshapen.definitions, misshapen.blocks    right values with every member that any revision defines, as JSON text
local cjson = require "cjson.safe"

local misshapen = {}

local ICONS <const> = '[{"src":"https://a.example/i.png","mimeType":"image/png","sizes":["16x16","any"],"theme":"dark"}]'
local ANNOTATIONS <const> = '{"audience":["user","assistant"],"priority":0.5,"lastModified":"2025-01-12T15:00:58Z"}'
local SCHEMA <const> = '{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"a":{"type":"string"}},"required":["a"]}'
local META <const> = '{"example.com/a":{"b":1}}'

--- Of each list of definitions one with all members.
misshapen.definitions = {
  tools = '{"name":"n","title":"T","description":"D","inputSchema":' .. SCHEMA .. ',"outputSchema":' .. SCHEMA
    .. ',"annotations":{"title":"A","readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false},"icons":' .. ICONS
    .. ',"execution":{"taskSupport":"optional"},"_meta":' .. META .. "}",
  prompts = '{"name":"n","title":"T","description":"D","arguments":[{"name":"a","title":"A","description":"D","required":true}],"icons":' .. ICONS
    .. ',"_meta":' .. META .. "}",
  resources = '{"uri":"x://n","name":"n","title":"T","description":"D","mimeType":"text/plain","size":5,"annotations":' .. ANNOTATIONS
    .. ',"icons":' .. ICONS .. ',"_meta":' .. META .. "}",
  templates = '{"uriTemplate":"x://n/{a}","name":"n","title":"T","description":"D","mimeType":"text/plain","annotations":' .. ANNOTATIONS
    .. ',"icons":' .. ICONS .. ',"_meta":' .. META .. "}",
}

local END <const> = ',"annotations":' .. ANNOTATIONS .. ',"_meta":' .. META .. "}"

--- Of each type of content block one with all members.
misshapen.blocks = {
  text = '{"type":"text","text":"t"' .. END,
  image = '{"type":"image","data":"AAEC","mimeType":"image/png"' .. END,
  audio = '{"type":"audio","data":"AAEC","mimeType":"audio/wav"' .. END,
  link = '{"type":"resource_link","uri":"x://l","name":"l","title":"L","description":"D","mimeType":"text/plain","size":3,"icons":' .. ICONS .. END,
  text_resource = '{"type":"resource","resource":{"uri":"x://r","mimeType":"text/plain","text":"t","_meta":' .. META .. "}" .. END,
  bytes_resource = '{"type":"resource","resource":{"uri":"x://r","mimeType":"text/plain","blob":"AAEC","_meta":' .. META .. "}" .. END,
}

local NONE <const> = {}
local WRONG <const> = {
  NONE, cjson.null, "text", 7, true, cjson.decode "[]", cjson.decode "{}", { 7 }, { { a = 1 } }, { a = 7 }, { a = cjson.null },
}

local function copy(value)
  if type(value) ~= "table" then return value end
  local made = setmetatable({}, getmetatable(value))
  for name, inner in pairs(value) do made[name] = copy(inner) end
  return made
end

-- Calls f(holder, name, place) for each place in `value`, outer places first.
local function each_place(value, place, f)
  for name, inner in pairs(value) do
    local inner_place = place .. "/" .. name
    f(value, name, inner_place)
    if type(inner) == "table" then each_place(inner, inner_place, f) end
  end
end

--- All wrong values that can be made of `value`, a decoded object, by one change.
function misshapen.of(value)
  local made = {}
  each_place(value, "", function(holder, name, place)
    local was = holder[name]
    for i, wrong in ipairs(WRONG) do
      if wrong == NONE and math.type(name) then goto continue end
      holder[name] = wrong ~= NONE and wrong or nil
      made[#made + 1] = { place = place .. " #" .. i, value = copy(value) }
      holder[name] = was
      ::continue::
    end
  end)
  return made
end

return misshapen
