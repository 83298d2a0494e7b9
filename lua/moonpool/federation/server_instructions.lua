-- The instructions of upstreams with `instructions: true`, for the answers to `initialize` and server/discover. A client
-- gets those of an upstream of which it sees anything. They are judged like a definition: text that people do not see,
-- or that differs from what `moonpool lock` has approved, is withheld.

local access = require "moonpool.access.access"
local caller_lists = require "moonpool.federation.caller_lists"
local canonical_definition = require "moonpool.upstream.canonical_definition"
local catalogue = require "moonpool.upstream.catalogue"
local config = require "moonpool.upstream.config"
local host = require "moonpool.host"
local pins = require "moonpool.upstream.pins"
local registry = require "moonpool.registry.registry"
local scan = require "moonpool.upstream.scan"

local server_instructions = {}

local MAX_BYTES <const> = host.limits.upstreams.definition

local entries = setmetatable({}, { __mode = "k" })       -- the facts of a catalogue -> the entry that was made of them

--- The instructions of an upstream, with the facts of its catalogue, as an entry of a catalogue: { kind, key, facts,
--- definition, text }; nil if it has none, or if the configuration wants none.
function server_instructions.entry(record, facts)
  if not record.has_instructions or type(facts.instructions) ~= "string" or facts.instructions == "" then return nil end
  local made = entries[facts]
  if made then return made end
  local text = canonical_definition.text { instructions = facts.instructions }
  local bad, doubts = scan.instructions(facts.instructions)
  if #facts.instructions > MAX_BYTES then
    host.upstream.count_refused "lists"
    bad = ("they have more than %d bytes"):format(MAX_BYTES)
  end
  made = {
    kind = "instructions", key = "-", definition = text, text = facts.instructions,
    facts = { bad = bad or nil, doubts = doubts, hash = canonical_definition.hash(text) },
  }
  entries[facts] = made
  return made
end

--- Why the instructions of an entry are not served, and what to do about it; nil: they are served.
function server_instructions.why(record, entry)
  local why, hint = pins.why(record.name, entry)
  if why and entry.facts.bad then hint = "tell the people who run this server; `instructions: false` leaves them out" end
  return why, hint
end

-- True if the client of a call sees a tool, prompt or resource of the upstream.
local function sees_any(record, call)
  for _, kind in ipairs { "tools", "prompts", "resources", "templates" } do
    local things, names = registry.served(kind)
    for _, name in ipairs(names) do
      local thing = things[name]
      if thing.upstream == record.name and access.sees(call.principal, thing) then return true end
    end
  end
  return false
end

-- The instructions of one upstream with a line that says whose they are; nil: the client of the call gets none.
local function part_of(record, call)
  local class = caller_lists.class_of(record, call) or catalogue.class
  local entry = server_instructions.entry(record, catalogue.of(record.name, class).facts)
  if not entry or server_instructions.why(record, entry) or not sees_any(record, call) then return nil end
  local prefix = record.prefix ~= "" and (", whose tools and prompts have names that begin with '%s' here"):format(record.prefix) or ""
  return ("Instructions of the server '%s'%s:\n%s"):format(record.name, prefix, entry.text)
end

--- True if clients get the instructions of any upstream.
function server_instructions.are_served()
  for _, record in ipairs(config.list) do
    if record.has_instructions then return true end
  end
  return false
end

--- The instructions for the client of a call: those of the configuration, then those of upstreams; nil: there are none.
function server_instructions.of(call)
  local parts = { host.config.server.instructions }
  for _, record in ipairs(config.list) do parts[#parts + 1] = record.has_instructions and part_of(record, call) or nil end
  return parts[1] and table.concat(parts, "\n\n")
end

--- True if clients may get different instructions.
function server_instructions.may_differ()
  for _, record in ipairs(config.list) do
    if record.has_instructions and (access.has_private() or next(caller_lists.records) ~= nil) then return true end
  end
  return false
end

return server_instructions
