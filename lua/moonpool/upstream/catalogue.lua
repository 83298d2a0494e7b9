-- The catalogue of an upstream as text: what its lists contained, in the base revision. The first line is a JSON object
-- of facts about the upstream.
-- Each other line is an entry: its kind, its key, facts about it, and its definition, separated by tabs; all but the
-- kind are JSON.
--   kind   "tools", "prompts", "resources" or "templates"
--   key    the name of a tool or prompt, the URI of a resource, the template of a template
-- C keeps the text, once for all workers; a Lua state reads the definitions only when they are needed.

local host = require "moonpool.host"
local json = require "moonpool.json"
local lru = require "moonpool.runtime.lru"

local catalogue = {}

--- By the kind of an entry: the list in which clients see it, which is also the one of which upstreams and the gateway
--- notify.
catalogue.list_of = { tools = "tools", prompts = "prompts", resources = "resources", templates = "resources" }

-- JSON text without tabs and line ends. Strings of JSON contain neither.
local function one_line(text)
  if not (text:find("\n", 1, true) or text:find("\t", 1, true) or text:find("\r", 1, true)) then return text end
  return (text:gsub("[\t\r\n]", " "))
end

-- Facts as JSON. Most entries have nothing but a hash, which can be written and read faster.
local function encoded_facts(facts)
  if facts.hash and next(facts) == "hash" and next(facts, "hash") == nil then return '{"hash":"' .. facts.hash .. '"}' end
  return json.encode(json.object(facts))
end

local HASH_ONLY <const> = #'{"hash":"sha256:"}' + 64

local function decoded_facts(text)
  local hash = #text == HASH_ONLY and text:match '^{"hash":"(sha256:%x+)"}$'
  return hash and { hash = hash } or json.decode(text)
end

--- An entry as one line of the text of a catalogue. The entry is { kind, key, facts, definition } with its definition
--- as JSON text.
function catalogue.line(entry)
  return table.concat({ entry.kind, json.encode(entry.key), encoded_facts(entry.facts), one_line(entry.definition) }, "\t")
end

--- A catalogue as text. `facts` is a table; `entries` are as for catalogue.line, perhaps with the `line` that it gave.
function catalogue.encode(facts, entries)
  local lines = { one_line(json.encode(facts)) }
  for i, entry in ipairs(entries) do lines[i + 1] = entry.line or catalogue.line(entry) end
  return host.upstream.join(lines)
end

--- The facts of a catalogue and a list of its entries { kind, key, facts, definition }.
function catalogue.decode(text)
  local first, rest = text:match "^([^\n]*)\n?(.*)$"
  local entries = {}
  for kind, key, facts, definition in rest:gmatch "(%l+)\t([^\t\n]*)\t([^\t\n]*)\t([^\n]*)" do
    entries[#entries + 1] = { kind = kind, key = json.decode(key), facts = decoded_facts(facts), definition = definition }
  end
  return json.decode(first), entries
end

local MAX_CALLERS <const> = 256

-- name .. "\0" .. class -> { hash, facts, entries }: the catalogues in force that this Lua state has read
local read = {}
local of_callers = lru.new(MAX_CALLERS)                        -- as `read`, for the classes that belong to a single caller
local by_hash = setmetatable({}, { __mode = "v" })             -- hash -> a value of `read` or `of_callers`: equal catalogues are decoded once

local none = { facts = {}, entries = {}, hash = "" }

--- The class of the lists of one caller, by the owner that auth.identity gave.
function catalogue.of_caller(owner) return "@" .. owner end

--- True for a class that catalogue.of_caller gave.
function catalogue.is_of_caller(class) return class:sub(1, 1) == "@" end

local function known_of(key, class)
  if catalogue.is_of_caller(class) then return of_callers:get(key) end
  return read[key]
end

local function keep(key, class, made)
  if not catalogue.is_of_caller(class) then
    read[key] = made
  elseif made then
    of_callers:put(key, made)
  else
    of_callers:drop(key)
  end
end

local function decoded(text, hash)
  local made = by_hash[hash] or { hash = hash }
  if made.facts then return made end
  if text == "" then
    made.facts, made.entries = {}, {}
  else
    made.facts, made.entries = catalogue.decode(text)
  end
  by_hash[hash] = made
  return made
end

--- The catalogue that is in force: { hash, facts, entries }; without one, an empty one whose `hash` is "".
function catalogue.of(name, class)
  local key = name .. "\0" .. class
  local hash = host.upstream.catalogue_hash(name, class)
  local known = hash and known_of(key, class)
  if known and known.hash == hash then return known end
  local text
  if hash then text, hash = host.upstream.catalogue(name, class) end      -- another catalogue may have been published since the hash was read
  local made = text and decoded(text, hash) or nil
  keep(key, class, made)
  return made or none
end

--- For "tools", "prompts" and "resources" (with the templates): a hash of the entries of a catalogue, and of the revision
--- and transport of the server.
function catalogue.digests(of)
  if of.digests then return of.digests end
  local parts, digests = { tools = {}, prompts = {}, resources = {} }, {}
  for _, entry in ipairs(of.entries) do
    local list = parts[catalogue.list_of[entry.kind]]
    list[#list + 1] = entry.kind .. " " .. entry.key .. " " .. tostring(entry.facts.hash)
  end
  for kind, list in pairs(parts) do
    list[#list + 1] = tostring(of.facts.revision) .. " " .. tostring(of.facts.transport)
    digests[kind] = host.base64.encode(host.digest.sum("sha256", table.concat(list, "\n")))
  end
  of.digests = digests
  return digests
end

--- Merges into `all` how long clients may keep each list of a catalogue with these facts, and whether for one user alone:
--- kind -> { ttl = milliseconds, is_private }. The strictest counts.
function catalogue.add_caching(all, facts)
  for kind, one in pairs(facts.caching or {}) do
    local merged = all[kind] or { ttl = one.ttl }
    all[kind] = merged
    merged.ttl, merged.is_private = math.min(merged.ttl, one.ttl), merged.is_private or one.is_private
  end
end

--- The class of a client that cannot be asked anything.
catalogue.class = "none"

return catalogue
