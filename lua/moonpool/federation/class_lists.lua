-- Lists by class. What an upstream lists can depend on what its client can be asked, so the lists are read once for
-- each class of clients that comes.
-- The things in the registry are those for clients that cannot be asked; one that differs for other classes has:
--   variants    class -> the thing for that class, or false where the class has none
--   is_variant  true for a thing that is itself one of the variants
--   is_absent   clients of other classes do not have it
--   resolve     f(call) -> the thing for the client of a call, or nil

local ask = require "moonpool.upstream.ask"
local catalogue = require "moonpool.upstream.catalogue"
local class = require "moonpool.upstream.class"
local host = require "moonpool.host"
local json = require "moonpool.json"
local channel_key = require "moonpool.upstream.channel_key"
local lists = require "moonpool.upstream.lists"

local class_lists = {}

local RETRY_S = 10           -- seconds after which lists of a class are tried again that could not be read

--- The class whose lists the client of a call sees. `facts`: those of the upstream's catalogue.
function class_lists.of(record, facts, call)
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

--- Adds the variants of other classes to the things of one upstream, `base` = { hash, facts, list = of { kind, key,
--- thing, why } }. `make(record, class)` makes the things of a class; `wrap(kind, thing)` is called with each variant.
--- Returns the classes that were read, as a set.
function class_lists.merge(record, base, make, wrap)
  local by_key, found = {}, {}
  for _, one in ipairs(base.list) do by_key[one.kind .. " " .. one.key] = one end
  for _, name in ipairs(base.facts.revision and class.all or {}) do
    local from = catalogue.of(record.name, name)
    if from.hash ~= "" then found[name] = true end
    if from.hash ~= "" and from.hash ~= base.hash then
      local seen = {}
      for _, one in ipairs(make(record, name).list) do
        local id = one.kind .. " " .. one.key
        local before = by_key[id]
        seen[id] = true
        if not before then
          one.thing.is_absent, by_key[id] = true, one
          base.list[#base.list + 1] = one
          set_variant(record, base.facts, one.thing, name, not one.why and one.thing or false)
        elseif one.why or before.thing.is_absent or before.thing.text ~= one.thing.text then
          if not one.why then wrap(one.kind, one.thing) end
          set_variant(record, base.facts, before.thing, name, not one.why and one.thing or false)
        end
      end
      for id, one in pairs(by_key) do
        if not seen[id] and not one.thing.is_absent then set_variant(record, base.facts, one.thing, name, false) end
      end
    end
  end
  return found
end

-- -- reading ---------------------------------------------------------------------------------------------------------

local PURPOSE <const> = "upstream class"
local WAY_KEPT_S <const> = 86400      -- seconds for which the store remembers the channels by which the lists of a class are read
local MOST_CLASSES <const> = 128
local MOST_WAYS <const> = 4           -- channels of a class that the store remembers

-- Keys of the store, for all workers and processes. Facts about channels of one process are not stored: they are
-- useless in another.
local function key_of(what, record, name) return ("callers:%s:%s:%s:%s"):format(what, host.upstream.instance, record.name, name) end

--- The channel by which the lists of the class of a call's client are read: { key, own, once, class, tells_roots }. It
--- belongs to the client's session where calls of the client use a channel of that session alone. The reading may go on
--- after the call has ended, so it gets nothing of the call.
function class_lists.way(record, facts, call)
  local key, is_own, channel_class = channel_key.of(record, facts, call, ask.class_of(record, facts, call))
  local session = is_own and call.has_session and host.session.id(call) or nil
  return {
    key = key, own = session, once = is_own and not session or nil, class = channel_class,
    tells_roots = is_own and class.tells_roots(call) or nil,
  }
end

-- The ways by which the lists of a class can be read: the one by which they were read last, then those of other clients
-- that have listed.
local function ways_of(record, name)
  local text = host.store.get(key_of("ways", record, name))
  local list = text and json.decode(host.seal.open(text, PURPOSE) or "null")
  return type(list) == "table" and list or {}
end

local function save_ways(record, name, list)
  host.store.set(key_of("ways", record, name), host.seal.make(json.encode(json.array(list)), PURPOSE), WAY_KEPT_S) -- ids of sessions are secrets
end

-- A copy of `list` with `way` at the index `place`, and nowhere else.
local function with_way(list, way, place)
  local made = {}
  for _, one in ipairs(list) do
    if one.key ~= way.key and #made < MOST_WAYS - 1 then made[#made + 1] = one end
  end
  table.insert(made, math.min(place, #made + 1), way)
  return made
end

local offered = {}          -- name .. " " .. class -> key of the way that this Lua state stored last

--- Stores the channel of a client that has listed: later, the lists are read again by it if the clients that listed
--- before have disconnected.
function class_lists.offer(record, name, way)
  local id = record.name .. " " .. name
  if way.once or offered[id] == way.key then return end
  offered[id] = way.key
  local list = ways_of(record, name)
  for _, one in ipairs(list) do
    if one.key == way.key then return end
  end
  save_ways(record, name, with_way(list, way, 2))
end

-- When the last reading of the lists of a class began, in seconds, and the hash that the base lists had then.
local function last_reading(record, name)
  local began, hash = (host.store.get(key_of("fresh", record, name)) or ""):match "^(%S+) (.*)$"
  return tonumber(began), hash
end

local function changed_at(record) return tonumber(host.store.get(key_of("changed", record, "")) or "") or 0 end

--- True if the lists of a class are to be read: their last reading began before `since`, before the upstream notified
--- that its lists have changed, or with other base lists. False for a while after a reading has failed.
function class_lists.is_due(record, name, base_hash, since)
  if host.store.get(key_of("tried", record, name)) then return false end
  local began, hash = last_reading(record, name)
  return began == nil or hash ~= base_hash or began <= changed_at(record) or began < (since or 0)
end

--- True if a reading of the lists of a class has failed a moment ago, in any worker.
function class_lists.has_failed(record, name) return host.store.get(key_of("tried", record, name)) ~= nil end

--- The upstream notified at `since` (host.time.now()) that its lists have changed: the lists of each class are to be
--- read again. A reading that has begun may have the earlier ones. Does nothing if another worker has noted a change
--- since then.
function class_lists.forget(record, since)
  if changed_at(record) > since then return end
  host.store.set(key_of("changed", record, ""), ("%.6f"):format(host.time.now()))
  for _, key in ipairs(host.store.keys(key_of("tried", record, ""), MOST_CLASSES)) do host.store.delete(key) end
end

-- Reads the lists of a class by a way. nil if they cannot be read. `publish(text)` gets what is there if an answer takes
-- long.
local function read_by(record, name, way, publish)
  local options = { own = way.own, once = way.once, class = way.class, tells_roots = way.tells_roots }
  return lists.read(record, { key = way.key, options = options, class = name }, publish)
end

-- Reads the lists of a class by the first way that works: the session of a way may be over.
local function read_by_any(record, name, ways, publish)
  for _, way in ipairs(ways) do
    local text, retry_s = read_by(record, name, way, publish)
    if text then return text, way, retry_s end
  end
end

--- Reads the lists of a class, if they are due. `publish(text, claim)`. `way`: the channel of a client that waits for
--- the lists; nil: a channel of any client that has listed before. Without `way` a failure is not noted, so the next
--- client tries again. False if another task reads them.
function class_lists.read(record, base_hash, name, publish, way, since)
  local claim <close> = host.upstream.claim(record.name, name)
  if not claim then return false end
  if catalogue.of(record.name, name).hash ~= "" and not class_lists.is_due(record, name, base_hash, since) then return true end
  local began, ways = host.time.now(), ways_of(record, name)
  local text, by, retry_s = read_by_any(record, name, way and { way } or ways, function(part) publish(part, claim) end)
  if text then
    host.store.set(key_of("fresh", record, name), ("%.6f %s"):format(began, base_hash), retry_s or record.refresh)
    if not by.once then save_ways(record, name, with_way(ways, by, 1)) end
    publish(text, claim)
  elseif way then
    host.store.set(key_of("tried", record, name), "", RETRY_S)
  end
  return true
end

--- The classes for which the store has a channel that can read their lists.
function class_lists.known(record)
  local prefix, found = key_of("ways", record, ""), {}
  for _, key in ipairs(host.store.keys(prefix, MOST_CLASSES)) do found[#found + 1] = key:sub(#prefix + 1) end
  return found
end

--- True if the lists of a class were read last by the channel with this key.
function class_lists.has_way(record, key)
  for _, name in ipairs(class_lists.known(record)) do
    local first = ways_of(record, name)[1]
    if first and first.key == key then return true end
  end
  return false
end

return class_lists