-- prompt { … }: checks its options, compiles its arguments, and makes its entry in prompts/list and its messages.

local arguments = require "moonpool.things.arguments"
local content = require "moonpool.things.tool_result"
local frozen = require "moonpool.runtime.frozen"
local json = require "moonpool.json"
local options = require "moonpool.things.options"
local problem = require "moonpool.runtime.diagnostic"
local schema = require "moonpool.schema"
local typed = require "moonpool.things.type_schema"
local types = require "moonpool.things.type_builder"

local prompt = {}

local written = { name = "moonpool.things.prompt", what = "a prompt" }
local message = { __name = "moonpool.message", __metatable = false }

--- The function `prompt` of scripts. It checks nothing: the path and name of the file are not known here.
function prompt.new(spec) return frozen.new(written, {}, { spec = spec }) end

function prompt.is(value) return frozen.is(value, written) end

local kind = {
  word = "prompt", handler = "function or string", form = "as in prompt { \"What it is for.\", function(args) return user \"…\" end }",
  own = { args = "table" },
  order = { "args", "title", "timeout", "requires", "scopes", "visible", "enabled", "icons", "meta" },
}

local definition_order = { __order = { "name", "title", "description", "arguments" } }
local argument_order = { __order = { "name", "title", "description", "required" } }

-- The types of the arguments as a schema. MCP sends them as strings, so other types are refused.
local function read_arguments(args, complain)
  local fine = {}
  for name, field in pairs(args) do
    if type(name) ~= "string" or not types.is_type(field) then
      complain(type(name) == "string" and name or "args", "args: '" .. tostring(name) .. "' is not a type", "as in args = { name = t.string }")
    elseif typed.schema(field).type ~= "string" then
      complain(name, "args: '" .. name .. "' is not a string", "clients send strings: t.string, or t.one_of { \"a\", \"b\" }")
    else
      fine[name] = field
    end
  end
  return typed.fields(fine), fine
end

-- The completions: name of an argument -> a list or function. An argument with enumerated values has them as
-- completions.
local function completions(fields, input)
  local found
  for name, field in pairs(fields) do
    local source = types.completion(field) or input.properties[name].enum
    if source then
      found = found or {}
      found[name] = source
    end
  end
  return found
end

local function listed(input)
  if not input.properties then return nil end
  local needed, list = {}, json.array {}
  for _, name in ipairs(input.required or {}) do needed[name] = true end
  for i, name in ipairs(debug.getmetatable(input.properties).__order) do
    local property = input.properties[name]
    list[i] = setmetatable({ name = name, title = property.title, description = property.description, required = needed[name] or nil }, argument_order)
  end
  return list
end

--- Prepares the prompt that a file returned. Calls complain(word or line, what, hint) for each error.
function prompt.build(name, value, _, complain)
  local spec = frozen.content(value).spec
  if not options.check(kind, spec, complain) then return nil end
  local input, fields = read_arguments(type(spec.args) == "table" and spec.args or {}, complain)
  local check, why = schema.compile(input)
  if not check then complain("args", "the arguments' schema is not valid: " .. tostring(why)) end
  local handler = spec[2]
  return options.guard({
    name = name,
    description = spec[1],
    handler = type(handler) == "string" and function() return handler end or handler,
    input = input,
    check = check,
    defaults = arguments.defaults(input),
    complete = completions(fields, input),
    definition = setmetatable({
      name = name, title = spec.title, description = spec[1], arguments = listed(input), icons = options.list(spec.icons), _meta = spec.meta,
    }, definition_order),
  }, spec)
end

local function say(role, body)
  if type(body) == "string" or type(body) == "number" then
    body = content.text(body)
  elseif not content.is_block(body) then
    problem.raise(2, role .. " takes one text or one block, got a " .. type(body), "write one message for each text or block")
  end
  return setmetatable({ role = role, content = body }, message)
end

--- user(…) and assistant(…): a message of the user or of the model, from one text or one block.
function prompt.user(body) return say("user", body) end
function prompt.assistant(body) return say("assistant", body) end

-- A new message for each result: converting a result to an older revision changes it.
local function one(value)
  if debug.getmetatable(value) == message then return { role = value.role, content = value.content } end
  if content.is_block(value) then return { role = "user", content = value } end
  if type(value) ~= "string" then return nil end
  return { role = "user", content = { type = "text", text = value } }
end

--- The messages that a handler returned; or nil and the fault of them.
function prompt.messages(value)
  local single = one(value)
  local list = single and { value } or value
  if type(list) ~= "table" or #list == 0 then return nil, "a prompt must return messages: user(…), assistant(…), or a list of them" end
  local messages = json.array {}
  for i = 1, #list do
    messages[i] = one(list[i])
    if not messages[i] then return nil, "item " .. i .. " of the returned list is a " .. type(list[i]) .. ", not a message" end
    local text = messages[i].content.text
    if text and not utf8.len(text) then return nil, "the text of message " .. i .. " is not UTF-8" end
  end
  return messages
end

return prompt
