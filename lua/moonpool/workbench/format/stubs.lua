-- Makes type definitions for LuaLS from the definitions that `moonpool check --json` prints: a class for the arguments
-- and output of each tool, the arguments of each prompt and the variables of each template; and overloads, by name, of
-- the functions that take such names.

local json = require "moonpool.json"
local sorted_keys = require "moonpool.runtime.sorted_keys"

local stubs = {}

local DEPTH <const> = 8        -- limit of the depth of nested objects; deeper objects have the type `table`

-- Makes one line of a text, without sequences that have a meaning in Lua or LuaLS comments.
local function words(text)
  if type(text) ~= "string" then return "" end
  local line = text:match "^%s*([^\r\n]*)":gsub("%c", " "):gsub("%s+$", "")
  return line == "" and "" or "  " .. line:gsub("^@", "")
end

-- Writes a comment line such as "--- The arguments of the tool greet: its description".
local function headline(put, what, name, description)
  local sentence = words(description):sub(3)
  put("--- " .. what .. words(name):sub(2) .. (sentence == "" and "." or ": " .. sentence))
end

local function sorted(map) return sorted_keys(type(map) == "table" and map or {}) end

local function is_plain(text) return #text <= 80 and not text:find '[%c"\\|`]' end

-- The LuaLS type of a literal value: "celsius", 3, true.
local function literal(value)
  if type(value) == "string" then return is_plain(value) and '"' .. value .. '"' or "string" end
  if math.type(value) == "integer" then return tostring(value) end
  if type(value) == "boolean" then return tostring(value) end
  if type(value) == "number" then return "number" end
  return value == json.null and "userdata" or "table"
end

local function union(list)
  local sentence, met = {}, {}
  for _, one in ipairs(list) do
    if not met[one] then sentence[#sentence + 1] = one end
    met[one] = true
  end
  return #sentence == 0 and "any" or table.concat(sentence, "|")
end

local simple = { string = "string", number = "number", integer = "integer", boolean = "boolean", null = "userdata" }

local type_of

local function each_type(list, defs, depth)
  local sentence = {}
  for i, one in ipairs(list) do sentence[i] = type_of(one, defs, depth) end
  return sentence
end

local function in_brackets(text) return text:find "|" and text:sub(1, 1) ~= "{" and "(" .. text .. ")" or text end

local function required_of(schema)
  local required = {}
  for _, name in ipairs(type(schema.required) == "table" and schema.required or {}) do required[name] = true end
  return required
end

-- The type of an object, { name: string, times?: integer }. Keys that are not Lua names are in brackets.
local function object_type(schema, defs, depth)
  local names, required = sorted(schema.properties), required_of(schema)
  if #names == 0 then
    local rest = schema.additionalProperties
    return type(rest) == "table" and next(rest) and "table<string, " .. type_of(rest, defs, depth + 1) .. ">" or "table"
  end
  if depth >= DEPTH then return "table" end
  local sentence = {}
  for _, name in ipairs(names) do
    if name:find "^[%a_][%w_]*$" then
      sentence[#sentence + 1] = name .. (required[name] and "" or "?") .. ": " .. type_of(schema.properties[name], defs, depth + 1)
    elseif is_plain(name) then
      sentence[#sentence + 1] = '["' .. name .. '"]: ' .. type_of(schema.properties[name], defs, depth + 1)
    end
  end
  return #sentence == 0 and "table" or "{ " .. table.concat(sentence, ", ") .. " }"
end

local function list_type(schema, defs, depth)
  if type(schema.prefixItems) == "table" then
    local sentence = {}
    for i, one in ipairs(schema.prefixItems) do sentence[i] = ("[%d]: %s"):format(i, type_of(one, defs, depth + 1)) end
    return "{ " .. table.concat(sentence, ", ") .. " }"
  end
  if type(schema.items) ~= "table" then return "any[]" end
  return in_brackets(type_of(schema.items, defs, depth + 1)) .. "[]"
end

local function of_kind(kind, schema, defs, depth)
  if kind == "object" then return object_type(schema, defs, depth) end
  if kind == "array" then return list_type(schema, defs, depth) end
  return simple[kind] or "any"
end

--- The LuaLS type of a schema. `defs` has the class names of the schema's definitions.
function type_of(schema, defs, depth)
  if type(schema) ~= "table" then return "any" end
  local reference = type(schema["$ref"]) == "string" and schema["$ref"]:match "^#/%$defs/(.*)$"
  if reference then return defs[reference] or "any" end
  if schema.const ~= nil then return literal(schema.const) end
  if type(schema.enum) == "table" then
    local sentence = {}
    for i, value in ipairs(schema.enum) do sentence[i] = literal(value) end
    return union(sentence)
  end
  local either = schema.oneOf or schema.anyOf
  if type(either) == "table" and either[1] ~= nil then return union(each_type(either, defs, depth + 1)) end
  if schema.type == nil and type(schema.allOf) == "table" and schema.allOf[1] ~= nil then return type_of(schema.allOf[1], defs, depth + 1) end
  if type(schema.type) == "table" then
    local sentence = {}
    for i, kind in ipairs(schema.type) do sentence[i] = of_kind(kind, schema, defs, depth) end
    return union(sentence)
  end
  return schema.type and of_kind(schema.type, schema, defs, depth) or schema.properties and object_type(schema, defs, depth) or "any"
end

-- -- classes -----------------------------------------------------------------------------------------------------------

-- Makes class names that are valid in LuaLS and unique.
local function namer()
  local taken = {}
  return function(prefix, name)
    local base, n = prefix .. name:gsub("[^%w_]", "_"), 1
    local made = base
    while taken[made] do
      n = n + 1
      made = base .. "_" .. n
    end
    taken[made] = true
    return made
  end
end

-- Words that `@field` reads as a visibility and not as a field's name.
local scopes = { public = true, protected = true, private = true, package = true }

local function put_field(put, name, is_needed, of, about)
  local mark = is_needed and "" or "?"
  if name:find "^[%a_][%w_]*$" and not scopes[name] then
    put("---@field " .. name .. mark .. " " .. of .. words(about))
  elseif is_plain(name) and not name:find "[%[%]]" then
    put('---@field ["' .. name .. '"]' .. mark .. " " .. of .. words(about))
  end
end

local function put_properties(put, schema, defs)
  local required = required_of(schema)
  for _, name in ipairs(sorted(schema.properties)) do
    local field = schema.properties[name]
    put_field(put, name, required[name], type_of(field, defs, 1), type(field) == "table" and field.description or nil)
  end
end

-- Writes the class of a schema and the classes of its definitions. A schema without fields becomes an alias.
local function put_class(put, named, schema, class)
  local defs = {}
  for _, name in ipairs(sorted(schema["$defs"])) do defs[name] = named(class .. ".", name) end
  local function one(of, name)
    if type(of) == "table" and of.type == "object" and (next(of.properties or {}) or type(of.additionalProperties) ~= "table") then
      put("---@class " .. name)
      put_properties(put, of, defs)
    else
      put("---@alias " .. name .. " " .. type_of(of, defs, 0))
    end
    put ""
  end
  one(schema, class)
  for _, name in ipairs(sorted(schema["$defs"])) do one(schema["$defs"][name], defs[name]) end
end

local function put_names(put, alias, list)
  if #list == 0 then
    put("---@alias " .. alias .. " string")
  else
    put("---@alias " .. alias)
    for _, one in ipairs(list) do
      if is_plain(one.name) then put('---| "' .. one.name .. '"' .. (words(one.about) ~= "" and " #" .. words(one.about):sub(2) or "")) end
    end
  end
  put ""
end

-- The variables of a URI template, a list of { name, is_needed }.
local function variables(template)
  local list, met = {}, {}
  for expression in template:gmatch "{([^}]*)}" do
    local operator, rest = expression:match "^([+#./;?&]?)(.*)$"
    for name in rest:gmatch "[^,]+" do
      name = name:gsub("%*$", ""):gsub(":%d+$", "")
      if not met[name] then list[#list + 1] = { name = name, is_needed = operator == "" or operator == "+" } end
      met[name] = true
    end
  end
  return list
end

local head = [[
---@meta
-- Types of the tools, resources and prompts of the scripts, for editors (LuaLS). `moonpool types` writes this file; it
-- is never run.
error("moonpool_scripts.d.lua holds types for editors")
]]

local function about(of) return of.description or of.title end

-- Writes a function that specs call with a name and arguments. `overloads` has one line for each name.
local function put_function(put, says, overloads, names, arguments, gives, name)
  put("--- " .. says)
  for _, line in ipairs(overloads) do put(line) end
  put(("---@param name %s\n---@param arguments? %s\n---@return %s\n---@return string? why"):format(names, arguments, gives))
  put("function " .. name .. "(name, arguments) end\n")
end

local function put_tools(put, named, tools)
  local list, overloads = {}, {}
  for i, tool in ipairs(tools) do
    list[i] = { name = tool.name, about = about(tool) }
    local class = named("moonpool.args.", tool.name)
    headline(put, "The arguments of the tool", tool.name, about(tool))
    put_class(put, named, tool.inputSchema or {}, class)
    local result = "moonpool.spec.Result"
    if tool.outputSchema then
      local output = named("moonpool.output.", tool.name)
      headline(put, "The output of the tool", tool.name)
      put_class(put, named, tool.outputSchema, output)
      result = named("moonpool.result.", tool.name)
      put("---@class " .. result .. ": moonpool.spec.Result")
      put("---@field structured " .. output)
      put ""
    end
    if is_plain(tool.name) then
      local is_free = not next(required_of(tool.inputSchema or {}))
      overloads[#overloads + 1] = ('---@overload fun(name: "%s", arguments%s: %s): %s?, string?'):format(tool.name, is_free and "?" or "", class, result)
    end
  end
  put_names(put, "moonpool.ToolName", list)
  put_function(put, "Calls a tool as a client does. For specs.", overloads, "moonpool.ToolName", "table", "moonpool.spec.Result? result", "call")
end

local function put_prompts(put, named, prompts)
  local list, overloads = {}, {}
  for i, prompt in ipairs(prompts) do
    list[i] = { name = prompt.name, about = about(prompt) }
    local class = named("moonpool.prompt.", prompt.name)
    headline(put, "The arguments of the prompt", prompt.name, about(prompt))
    put("---@class " .. class)
    for _, argument in ipairs(prompt.arguments or {}) do put_field(put, argument.name, argument.required, "string", argument.description) end
    put ""
    if is_plain(prompt.name) then
      overloads[#overloads + 1] = ('---@overload fun(name: "%s", arguments?: %s): table[]?, string?'):format(prompt.name, class)
    end
  end
  put_names(put, "moonpool.PromptName", list)
  put_function(put, "Gets the messages of a prompt. For specs.", overloads, "moonpool.PromptName", "table<string, string>", "table[]? messages", "get_prompt")
end

local function put_resources(put, named, fixed, templates)
  local uris, names = {}, {}
  for _, resource in ipairs(fixed) do
    uris[#uris + 1] = { name = resource.uri, about = about(resource) }
    names[#names + 1] = { name = resource.name, about = about(resource) }
  end
  for _, resource in ipairs(templates) do
    names[#names + 1] = { name = resource.name, about = about(resource) }
    local list = variables(resource.uriTemplate)
    headline(put, "The variables of", resource.uriTemplate, about(resource))
    put("---@class " .. named("moonpool.vars.", resource.name))
    for _, variable in ipairs(list) do put_field(put, variable.name, variable.is_needed, "string") end
    put ""
  end
  put_names(put, "moonpool.ResourceName", names)
  put_names(put, "moonpool.ResourceUri", uris)
  put "--- Reads a resource. For specs.\n---@param uri moonpool.ResourceUri|string"
  put "---@return { text: string?, contents: table[] }? result\n---@return string? why"
  put "function read(uri) end\n"
  put "--- Notifies the clients that subscribed to this resource that it has changed."
  put "---@param uri moonpool.ResourceUri|string\nfunction resource_updated(uri) end\n"
end

local switches = {
  { "enable", "Makes a tool, prompt or resource visible to all clients.", "" }, { "disable", "Hides a tool, prompt or resource from all clients.", "" },
  { "enabled", "True if a tool, prompt or resource is visible to clients.", ": boolean" },
}

local function put_switches(put)
  for _, one in ipairs(switches) do
    local name, about_it, gives = table.unpack(one)
    put("--- " .. about_it)
    for _, kind in ipairs { "tool", "prompt", "resource" } do
      put(('---@overload fun(kind: "%s", name: moonpool.%sName)%s'):format(kind, (kind:gsub("^%l", string.upper)), gives))
    end
    put("---@param kind moonpool.Kind\n---@param name string" .. (gives ~= "" and "\n---@return boolean" or ""))
    put("function " .. name .. "(kind, name) end\n")
  end
end

--- Makes the text of moonpool_scripts.d.lua from the definitions that `moonpool check --json` prints.
function stubs.text(served)
  local lines, named = { head }, namer()
  local function put(line) lines[#lines + 1] = line end
  put_tools(put, named, served.tools or {})
  put_prompts(put, named, served.prompts or {})
  put_resources(put, named, served.resources or {}, served.resourceTemplates or {})
  put_switches(put)
  return table.concat(lines, "\n"):gsub("\n+$", "") .. "\n"
end

return stubs
