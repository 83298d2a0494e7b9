-- Lists by class. What an upstream lists can depend on what its client can be asked, so the lists are read once for
-- each class of clients that comes, on a channel that no client uses. A client in whose own channel the lists have
-- changed has a class of its own (federation/own_lists.lua).
-- The things in the registry are those for clients that cannot be asked; one that differs for other classes has:
--   variants    class -> the thing for that class, or false where the class has none
--   is_variant  true for a thing that is itself one of the variants
--   is_absent   clients of other classes do not have it
--   resolve     f(call) -> the thing for the client of a call, or nil

local ask = require "moonpool.upstream.ask"
local catalogue = require "moonpool.upstream.catalogue"
local class = require "moonpool.upstream.class"
local host = require "moonpool.host"
local channel_key = require "moonpool.upstream.channel_key"
local lists = require "moonpool.upstream.lists"
local own_lists = require "moonpool.federation.own_lists"

local class_lists = {}

--- The lists for each of which an upstream notifies that it has changed.
class_lists.kinds = { "tools", "prompts", "resources" }

local RETRY_S = 10           -- seconds after which lists of a class are tried again that could not be read

--- The class whose lists the client of a call sees. `facts`: those of the upstream's catalogue.
function class_lists.of(record, facts, call)
  local own = own_lists.of(record, call)
  if own then return own end
  if record.per == "gateway" then return class.none end
  if facts.is_modern then return class.of(call, record.asks) end
  if facts.transport == "http" and not facts.has_session and not record.per then return class.none end
  return ask.class_of(record, facts, call)
end

-- -- making the things -----------------------------------------------------------------------------------------------

local function resolve(record, thing, facts)
  return function(call)
    local variant = thing.variants[class_lists.of(record, facts, call)]
    if variant ~= nil then return variant or nil end
    return not thing.is_absent and thing or nil
  end
end

local function set_variant(record, facts, thing, name, variant)
  if not thing.variants then
    thing.variants = {}
    thing.resolve = resolve(record, thing, facts)
  end
  thing.variants[name] = variant
  if variant then variant.is_variant = true end
end

-- The classes of an upstream whose lists differ from the base lists, in groups with equal lists, in order; and the set
-- of all that were read.
local function groups_of(record, base)
  local groups, by_hash, found = {}, {}, {}
  local names = own_lists.classes(record)
  table.move(class.all, 1, #class.all, #names + 1, names)
  for _, name in ipairs(names) do
    local hash = catalogue.of(record.name, name).hash
    if hash ~= "" then found[name] = true end
    if hash ~= "" and hash ~= base.hash then
      if not by_hash[hash] then
        by_hash[hash] = {}
        groups[#groups + 1] = by_hash[hash]
      end
      table.insert(by_hash[hash], name)
    end
  end
  return groups, found
end

--- Adds the variants of other classes to the things of one upstream, `base` = { hash, facts, list = of { kind, key,
--- thing, why } }. `make(record, class)` makes the things of a class; `wrap(kind, thing)` is called with each variant.
--- Returns the classes that were read, as a set.
function class_lists.merge(record, base, make, wrap)
  if not base.facts.revision then return {} end
  local by_key = {}
  for _, one in ipairs(base.list) do by_key[one.kind .. " " .. one.key] = one end
  local groups, found = groups_of(record, base)
  for _, names in ipairs(groups) do
    local seen = {}
    local function set(thing, variant)
      for _, name in ipairs(names) do set_variant(record, base.facts, thing, name, variant) end
    end
    for _, one in ipairs(make(record, names[1]).list) do
      local id = one.kind .. " " .. one.key
      local before = by_key[id]
      seen[id] = true
      if not before then
        one.thing.is_absent, by_key[id] = true, one
        base.list[#base.list + 1] = one
        set(one.thing, not one.why and one.thing or false)
      elseif one.why or before.thing.is_absent or before.thing.text ~= one.thing.text then
        if not one.why then wrap(one.kind, one.thing) end
        set(before.thing, not one.why and one.thing or false)
      end
    end
    for id, one in pairs(by_key) do
      if not seen[id] and not one.thing.is_absent then set(one.thing, false) end
    end
  end
  return found
end

-- -- reading ---------------------------------------------------------------------------------------------------------

local WANTED_S <const> = 3600     -- seconds for which lists of a class are read again after a client of it has listed
local NOTED_S <const> = 600       -- seconds after which this Lua state notes again that a class is wanted
local MOST_CLASSES <const> = 128

-- Keys of the store, for all workers and processes. Facts about channels of one process are not stored: they are
-- useless in another.
local function key_of(what, record, name) return ("callers:%s:%s:%s:%s"):format(what, host.upstream.instance, record.name, name) end

local noted = {}            -- name .. " " .. class -> when this Lua state noted last that the class is wanted

--- A client of the class has listed: the lists are read again while such clients come.
function class_lists.want(record, name)
  if own_lists.is_own(name) then return end
  local id, now = record.name .. " " .. name, host.time.now()
  if noted[id] and now < noted[id] + NOTED_S then return end
  noted[id] = now
  host.store.set(key_of("wanted", record, name), "", math.max(WANTED_S, 2 * record.refresh))
end

-- The channel that reads the lists of a class. It belongs to no client: what a client does in a session of its own
-- shows in no list of others. A stateful upstream gets a session that ends after the reading.
local function way_of(record, facts, name)
  if own_lists.is_own(name) then return own_lists.way(record, name) end
  if facts.is_modern then return { key = channel_key.shared, options = {}, class = name } end
  return { key = channel_key.of_reading(), is_once = true, options = { class = name }, class = name }
end

-- For each list of a class that was read: when its last reading began, in seconds, and the digest that the base list had
-- then.
local function last_readings(record, name)
  local found = {}
  for kind, began, digest in (host.store.get(key_of("fresh", record, name)) or ""):gmatch "(%l+) (%S+) (%S+)" do
    found[kind] = { began = tonumber(began), digest = digest }
  end
  return found
end

local function changed_at(record, kind) return tonumber(host.store.get(key_of("changed", record, kind)) or "") or 0 end

-- The lists of a class that are to be read, as a set; nil: none is.
local function due_kinds(record, name, since)
  local due
  local readings, digests = last_readings(record, name), catalogue.digests(catalogue.of(record.name, catalogue.class))
  for _, kind in ipairs(class_lists.kinds) do
    local last = readings[kind]
    if not last or last.digest ~= digests[kind] or last.began <= changed_at(record, kind) or last.began < (since or 0) then
      due = due or {}
      due[kind] = true
    end
  end
  return due
end

--- True if lists of a class are to be read: their last reading began before `since`, before the upstream notified that
--- they have changed, or with other base lists. False for a while after a reading has failed.
function class_lists.is_due(record, name, since)
  return not host.store.get(key_of("tried", record, name)) and due_kinds(record, name, since) ~= nil
end

--- True if a reading of the lists of a class has failed a moment ago, in any worker.
function class_lists.has_failed(record, name) return host.store.get(key_of("tried", record, name)) ~= nil end

--- The upstream notified at `since` (host.time.now()) that lists have changed, those of the set `only`, or nil: all: for
--- each class they are to be read again. A reading that has begun may have the earlier ones. Leaves out those of which
--- another worker has noted a change since then.
function class_lists.forget(record, since, only)
  for _, kind in ipairs(class_lists.kinds) do
    if (not only or only[kind]) and changed_at(record, kind) <= since then
      host.store.set(key_of("changed", record, kind), ("%.6f"):format(host.time.now()))
    end
  end
  for _, key in ipairs(host.store.keys(key_of("tried", record, ""), MOST_CLASSES)) do host.store.delete(key) end
end

-- Notes that lists of a class were read, those of the set `only`, or nil: all. The reading began at `began` (seconds),
-- with these digests of the base lists.
local function note_reading(record, name, began, digests, only, seconds)
  local readings, parts = only and last_readings(record, name) or {}, {}
  for _, kind in ipairs(class_lists.kinds) do
    if not only or only[kind] then readings[kind] = { began = began, digest = digests[kind] } end
    local last = readings[kind]
    if last then parts[#parts + 1] = ("%s %.6f %s"):format(kind, last.began, last.digest) end
  end
  host.store.set(key_of("fresh", record, name), table.concat(parts, " "), seconds)
end

--- Reads the lists of a class that are due, and gives them to publish(text, claim), first a part where the rest takes
--- long. `facts`: those of the base lists. `is_awaited`: a client waits for the lists; else a failure is not noted, so that
--- the next client tries again. `only`: the set of the lists to read of a single channel; nil: all. False if another task
--- reads them.
function class_lists.read(record, facts, name, publish, is_awaited, since, only)
  local claim <close> = host.upstream.claim(record.name, name)
  if not claim then return false end
  local is_known = catalogue.of(record.name, name).hash ~= ""
  if is_known and not class_lists.is_due(record, name, since) then return true end
  if not own_lists.is_own(name) then only = is_known and due_kinds(record, name, since) or nil end
  local began, way, digests = host.time.now(), way_of(record, facts, name), catalogue.digests(catalogue.of(record.name, catalogue.class))
  if not way then return true end
  local text, retry_s = lists.read(record, way, function(part) publish(part, claim) end, only)
  if text then
    note_reading(record, name, began, digests, only, retry_s or record.refresh)
    publish(text, claim)
  elseif is_awaited then
    host.store.set(key_of("tried", record, name), "", RETRY_S)
  end
  return true
end

--- The classes whose lists were read and are still wanted.
function class_lists.known(record)
  local found = {}
  for _, name in ipairs(class.all) do
    if host.upstream.catalogue_hash(record.name, name) and host.store.get(key_of("wanted", record, name)) then found[#found + 1] = name end
  end
  return found
end

return class_lists
