-- Makes the things that clients see from the entries of a catalogue: tools, prompts, resources and templates like those
-- of scripts, whose handlers forward the request. The definition of a thing is decoded when it is needed, so that
-- thousands of tools cost little more than their text.

local forward = require "moonpool.upstream.forward"
local json = require "moonpool.json"
local served_names = require "moonpool.upstream.served_names"
local options = require "moonpool.things.options"
local routes = require "moonpool.upstream.routes"
local template = require "moonpool.things.template"
local uris = require "moonpool.runtime.uris"
local wrapping = require "moonpool.upstream.wrapping"

local make_things = {}

local function fits() return true end

-- The definition as clients see it; nil if the operator's script hides it.
local function definition_of(record, entry, shown, script)
  local definition = json.preserving(entry.definition)
  if entry.kind == "tools" or entry.kind == "prompts" then definition.name = shown end
  local described = record.describe[entry.kind == "resources" and definition.name or entry.key]
  if described then definition.description = described end
  wrapping.definition(record, entry.kind, definition)
  if script and script.define then
    definition = script.define(definition, entry.kind)
    if type(definition) ~= "table" then return nil end
    if entry.kind == "tools" or entry.kind == "prompts" then definition.name = shown end
  end
  return definition
end

-- The definition as clients of the base revision see it, as json.raw, where that is the upstream's own with another
-- name; else nil.
local function raw_of(record, entry, shown, script)
  if script and script.define or record.describe[entry.key] or wrapping.changes(record, entry.kind, entry.definition) then return nil end
  return (json.splice(entry.definition, shown ~= entry.key and { { "set", "name", json.encode(shown) } } or {}, true))
end

-- Fields of a thing that are made when they are first read, each anew, so that nothing is kept.
local lazy = {
  definition = function(made) return made.define() end,
  description = function(made)
    local definition = made.define()
    return definition and definition.description or ""
  end,
  input = function(made)
    if made.kind ~= "tools" then return nil end
    local definition = made.define()
    return definition and definition.inputSchema
  end,
}

local metatable = { __index = function(made, name)
  local make = lazy[name]
  return make and make(made)
end }

local function new(record, entry, shown, script)
  local made = {
    kind = entry.kind, name = shown, upstream = record.name, original = entry.key, facts = entry.facts, path = "upstreams/" .. record.name .. ".lua",
    define = function() return definition_of(record, entry, shown, script) end, check = fits,
  }
  if script and script.define then
    local definition = made.define()
    if not definition then return nil end
    made.define = nil
    made.definition, made.description, made.input = definition, definition.description or "", definition.inputSchema
  end
  -- The parts of the definition that the configuration and the operator's script decide; "" for none.
  made.look = script and script.define and json.encode(made.definition) or record.describe[entry.key]
    or entry.kind == "resources" and next(record.describe) and made.define().description or ""
  if wrapping.changes(record, entry.kind, entry.definition) then made.look = made.look .. " wrapped" end
  made.text = script and script.define and json.encode(made.definition) or entry.definition
  if entry.facts.task then made.text = made.text .. entry.facts.task end
  options.guard(made, { scopes = script and script.scopes_of(entry.key), visible = script and script.visible })
  return setmetatable(made, metatable)
end

local make = {}

function make.tools(record, entry, script)
  local shown = served_names.shown(record, entry.key)
  local made = new(record, entry, shown, script)
  if not made then return nil end
  made.raw_of = function() return raw_of(record, entry, shown, script) end
  made.mirror, made.task = entry.facts.mirror, entry.facts.task
  local function made_handler(args, call)
    return forward.tool(record, entry.key, entry.facts, args, call, {
      headers = script and script.headers_of and script.headers_of(call), can_be_task = true,
      on_stale = make_things.on_stale and function() make_things.on_stale(record, call) end,
      rows = function() return make_things.facts_now(record, entry, call).mirror end,
      learn = not (script and script.headers_of) and function(sent) routes.learn(record, call, made, entry.key, sent) end or nil,
    })
  end
  made.handler = made_handler
  -- what the innermost policy calls; C does the same where there is none
  function made.quick(args, call) return forward.quick_tool(record, entry.key, args, call, made_handler) end
  return made, made.name
end

function make.prompts(record, entry, script)
  local made = new(record, entry, served_names.shown(record, entry.key), script)
  if not made then return nil end
  function made.handler(args, call) return forward.prompt(record, entry.key, args, call) end
  made.forward_complete = function(argument, context, call)
    return forward.complete(record, { type = "ref/prompt", name = entry.key }, argument, context, call)
  end
  return made, made.name
end

-- A handler of resources gets the values of the template's variables, and the URI that the client sent as the value
-- `uri`.
local function read(record, entry)
  return function(values, call)
    local given = type(values) == "table" and values.uri
    return forward.resource(record, given and wrapping.inward(record, given) or entry.key, call)
  end
end

function make.resources(record, entry, script)
  local shown = wrapping.outward(record, entry.key)
  local made = new(record, entry, shown, script)
  if not made then return nil end
  made.uri, made.listed, made.handler = uris.normal(shown), shown, read(record, entry)
  return made, made.uri
end

function make.templates(record, entry, script)
  local shown = wrapping.outward(record, entry.key)
  local made = new(record, entry, shown, script)
  if not made then return nil end
  local compiled = template.compile(uris.normal(shown, true))
  made.uri, made.listed, made.handler = uris.normal(shown, true), shown, read(record, entry)
  made.template = compiled and compiled.names[1] and compiled or template.any(shown)
  made.forward_complete = function(argument, context, call)
    return forward.complete(record, { type = "ref/resource", uri = entry.key }, argument, context, call)
  end
  return made, made.uri
end

--- The thing for an entry of a catalogue, and its key: a name, or a normalized URI. nil if clients do not see it.
function make_things.of(record, entry, script)
  local definition_name
  if entry.kind == "resources" or entry.kind == "templates" then
    local definition = (record.only or record.hide) and json.decode(entry.definition)
    definition_name = definition and definition.name
  end
  if not served_names.is_shown(record, entry.key, definition_name) then return nil end
  return make[entry.kind](record, entry, script)
end

--- The facts of an entry in the catalogue that is in force now for the client of a call. Replaced by
--- federation/federated.lua.
function make_things.facts_now(_, entry) return entry.facts end

return make_things