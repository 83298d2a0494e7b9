-- Lists the served things as text for the script's author: a line for each thing, the whole definitions, or JSON.

local characters = require "moonpool.runtime.characters"
local doubts = require "moonpool.registry.lint"
local host = require "moonpool.host"
local job = require "moonpool.things.job"
local policy = require "moonpool.things.policy"
local json = require "moonpool.json"
local registry = require "moonpool.registry.registry"
local sorted = require "moonpool.runtime.sorted_keys"

-- Jobs and policies are listed too, although clients never see them.
local function put_jobs(put)
  local jobs = job.all()
  for _, name in ipairs(sorted(jobs)) do
    put("job  " .. name .. "  " .. jobs[name].description:match "^[^\n]*" .. (jobs[name].off and "  (off)" or ""))
  end
end

local around = { "tools", "resources", "prompts" }

local function put_policies(put)
  for _, row in ipairs(policy.of()) do
    local parts = {}
    for _, kind in ipairs(around) do
      for _, pattern in ipairs(row[kind] or {}) do parts[#parts + 1] = pattern.text end
    end
    put("policy  " .. row.name .. "  " .. (row.description or "") .. "  (around " .. (parts[1] and table.concat(parts, ", ") or "everything") .. ")")
  end
end

local forms = {}

function forms.list(put)
  registry.each(function(word, name, thing)
    put(word .. "  " .. name .. "  " .. thing.description:match "^[^\n]*" .. (registry.is_off(thing) and "  (off)" or ""))
  end)
  put_jobs(put)
  put_policies(put)
end

-- The names of one kind, a line each, in the form that commands take.
for _, kind in ipairs { "tools", "resources", "prompts" } do
  forms[kind] = function(put)
    for _, list in ipairs { kind, kind == "resources" and "templates" or nil } do
      local things, names = registry.everything(list)
      for _, name in ipairs(names) do
        if not registry.is_off(things[name]) then put(name) end
      end
    end
  end
end

function forms.jobs(put)
  for _, name in ipairs(sorted(job.all())) do put(name) end
end

-- -- as clients see it -------------------------------------------------------------------------------------------------

local function plain(value)
  if type(value) == "string" then return value end
  local ok, text = pcall(json.encode, value)
  return ok and text or tostring(value)
end

local function listed(values, between)
  local parts = {}
  for i, value in ipairs(values) do parts[i] = plain(value) end
  return table.concat(parts, between)
end

-- A schema in a few words: "integer", "celsius | fahrenheit", "list of string".
local function type_of(schema, depth)
  depth = depth or 0
  if type(schema) ~= "table" then return schema == false and "nothing" or "anything" end
  if schema.enum then return listed(schema.enum, " | ") end
  if schema.const ~= nil then return plain(schema.const) end
  if type(schema["$ref"]) == "string" then return schema["$ref"]:match "[^/#]*$" end
  local either = schema.anyOf or schema.oneOf
  if type(either) == "table" and depth < 3 then
    local parts = {}
    for i, one in ipairs(either) do parts[i] = type_of(one, depth + 1) end
    return table.concat(parts, " | ")
  end
  if type(schema.prefixItems) == "table" and depth < 3 then
    local parts = {}
    for i, one in ipairs(schema.prefixItems) do parts[i] = type_of(one, depth + 1) end
    return "[" .. table.concat(parts, ", ") .. "]"
  end
  local kind = type(schema.type) == "table" and listed(schema.type, " | ") or schema.type or "anything"
  if kind == "array" then
    return schema.items == nil and "list" or depth < 3 and "list of " .. type_of(schema.items, depth + 1) or "list"
  end
  return schema.format and kind .. " (" .. plain(schema.format) .. ")" or kind
end

local bounds = {
  { "minimum", "at least " }, { "exclusiveMinimum", "above " }, { "maximum", "at most " }, { "exclusiveMaximum", "below " },
  { "minLength", "at least ", " character" }, { "maxLength", "at most ", " character" },
  { "minItems", "at least ", " item" }, { "maxItems", "at most ", " item" }, { "pattern", "like " }, { "multipleOf", "a multiple of " },
}

local function counted(value, word)
  return plain(value) .. (word and word .. (value == 1 and "" or "s") or "")
end

-- The demands of a schema on a value, as text: "required, at least 1, at most 20".
local function rules(schema, is_required)
  local parts = { is_required and "required" or schema.default ~= nil and "default " .. json.encode(schema.default) or "optional" }
  for _, bound in ipairs(bounds) do
    if schema[bound[1]] ~= nil then parts[#parts + 1] = bound[2] .. counted(schema[bound[1]], bound[3]) end
  end
  return table.concat(parts, ", ")
end

local function ordered(properties)
  local mt, names, seen = debug.getmetatable(properties), {}, {}
  for _, name in ipairs(mt and mt.__order or {}) do
    if properties[name] ~= nil then names[#names + 1], seen[name] = name, true end
  end
  for _, name in ipairs(sorted(properties)) do
    if not seen[name] then names[#names + 1] = name end
  end
  return names
end

-- Rows as aligned columns; the last column is not padded.
local function columns(put, rows, indent)
  local wide = {}
  for _, row in ipairs(rows) do
    for i = 1, #row - 1 do wide[i] = math.min(math.max(wide[i] or 0, utf8.len(row[i]) or #row[i]), 28) end
  end
  for _, row in ipairs(rows) do
    local parts = {}
    for i, text in ipairs(row) do
      parts[i] = i < #row and text .. (" "):rep(wide[i] - (utf8.len(text) or #text)) or text
    end
    put((indent .. table.concat(parts, "  ")):gsub("%s+$", ""))
  end
end

local function fields(schema)
  local rows, required = {}, {}
  local properties = type(schema.properties) == "table" and schema.properties or {}
  for _, name in ipairs(type(schema.required) == "table" and schema.required or {}) do required[name] = true end
  for _, name in ipairs(ordered(properties)) do
    local field = properties[name]
    local said = type(field) == "table" and type(field.description) == "string" and ": " .. field.description:match "^[^\n]*" or ""
    rows[#rows + 1] = { name, type_of(field), rules(type(field) == "table" and field or {}, required[name]) .. said }
  end
  return rows
end

local function put_schema(put, word, schema)
  if not schema then return end
  local rows = fields(schema)
  if #rows == 0 then
    put("  " .. word .. "  " .. (schema.type == "object" and "none" or type_of(schema)))
    return
  end
  put("  " .. word)
  columns(put, rows, "    ")
end

local hints = {
  { "readOnlyHint", "read only", "not read only" }, { "destructiveHint", "destructive", "not destructive" },
  { "idempotentHint", "idempotent", "not idempotent" }, { "openWorldHint", "open world", "closed world" },
}

local function annotations(definition)
  local parts = {}
  for _, hint in ipairs(hints) do
    local value = (definition.annotations or {})[hint[1]]
    if value ~= nil then parts[#parts + 1] = value and hint[2] or hint[3] end
  end
  return parts
end

local function head(word, name, thing)
  local definition = thing.definition
  local parts = { word, name }
  if definition.title then parts[#parts + 1] = '"' .. definition.title .. '"' end
  local more = annotations(definition)
  if thing.task then more[#more + 1] = "task " .. thing.task end
  if thing.timeout then more[#more + 1] = ("at most %g s"):format(thing.timeout) end
  if thing.concurrency then more[#more + 1] = thing.concurrency .. " at once" end
  if definition.mimeType then more[#more + 1] = definition.mimeType end
  if thing.scopes then more[#more + 1] = "needs " .. table.concat(thing.scopes, " ") end
  if thing.visible then more[#more + 1] = "visible to some" end
  if registry.is_off(thing) then more[#more + 1] = "off" end
  return table.concat(parts, "  ") .. (more[1] and "  (" .. table.concat(more, ", ") .. ")" or "")
end

function forms.whole(put)
  local is_first = true
  registry.each(function(word, name, thing)
    if not is_first then put "" end
    is_first = false
    put(head(word, name, thing))
    for line in thing.description:gmatch "[^\n]+" do put("  " .. line) end
    local definition = thing.definition
    if word == "tool" then
      put_schema(put, "arguments", definition.inputSchema)
      put_schema(put, "output", definition.outputSchema)
    elseif word == "prompt" and definition.arguments then
      local rows = {}
      for i, argument in ipairs(definition.arguments) do
        rows[i] = { argument.name, argument.required and "required" or "optional", argument.description or "" }
      end
      put "  arguments"
      columns(put, rows, "    ")
    end
  end)
  if not is_first and (next(job.all()) or policy.of()[1]) then put "" end
  put_jobs(put)
  put_policies(put)
end

function forms.json(put)
  local whole = {}
  for _, row in pairs(registry.kinds) do whole[row.member] = json.array {} end
  registry.each(function(_, _, thing, kind) table.insert(whole[registry.kinds[kind].member], thing.definition) end)
  put(json.encode(whole))
end

local MANY = 20      -- things whose list is longer than a screen, so that a line at its end sums it up

-- The last line of a long list: "300 tools, 2 prompts: 3 warnings"; nil for a short one.
local function summary(warnings)
  local counts, words, all = {}, {}, 0
  registry.each(function(word)
    if not counts[word] then words[#words + 1] = word end
    counts[word], all = (counts[word] or 0) + 1, all + 1
  end)
  if all <= MANY then return nil end
  for i, word in ipairs(words) do words[i] = counted(counts[word], " " .. word) end
  local doubtful = select(2, warnings:gsub("%f[^%z\n]%S[^\n]*:%d+: ", ""))
  return table.concat(words, ", ") .. ": " .. (doubtful == 0 and "no warning" or counted(doubtful, " warning"))
end

-- What is said beside an empty list: the commands that list what other servers offer need them, or a gateway.
local function nothing_listed()
  local text = "nothing is listed: " .. host.script.root .. "/ has no tools, resources, prompts or jobs\n  hint: "
  if not (host.config.upstreams or {})[1] then return text .. "`moonpool new tool greet` writes a tool\n" end
  return text .. "`moonpool check --connect` lists what upstreams offer, `moonpool list --url URL` what a running gateway serves\n"
end

--- Returns the served things in a form ("list", "whole", "json", or a kind for its names alone), and the warnings; for a
--- list, what is said if it is empty.
return function(form)
  local lines = {}
  local clean = form == "json" and characters.escaped or characters.shown
  forms[form](function(line) lines[#lines + 1] = clean(line) end)
  local warnings = (form == "whole" or form == "json") and doubts() or form == "list" and not lines[1] and nothing_listed() or ""
  local last = form == "whole" and summary(warnings)
  if last then lines[#lines + 1], lines[#lines + 2] = "", last end
  return table.concat(lines, "\n") .. (lines[1] and "\n" or ""), (warnings:gsub("[^\n]+", characters.shown))
end
