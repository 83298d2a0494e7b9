-- Lists by class. What an upstream lists can depend on what its client can be asked, so the lists are read once for each class of clients that comes.
-- The things in the registry are those for clients that cannot be asked; one that differs for other classes has:
--   variants    class -> the thing for that class, or false where the class has none
--   is_variant  true for a thing that is itself one of the variants
--   is_absent   clients of other classes do not have it
--   resolve     f(call) -> the thing for the client of a call, or nil

local ask = require "moonpool.upstream.ask"
local catalogue = require "moonpool.upstream.catalogue"
local class = require "moonpool.upstream.class"
local host = require "moonpool.host"
local keys = require "moonpool.upstream.keys"
local lists = require "moonpool.upstream.lists"

local classes = {}

local RETRY_S = 10           -- seconds after which lists of a class are tried again that could not be read

--- The class whose lists the client of a call sees. `facts`: those of the upstream's catalogue.
function classes.of(record, facts, call)
  if record.per == "gateway" then return class.none end
  if facts.is_modern then return class.of(call, record.asks) end
  if facts.transport == "http" and not facts.has_session and not record.per then return class.none end
  return ask.class_of(record, facts, call)
end

-- -- making the things -----------------------------------------------------------------------------------------------

local function resolve(record, thing, facts)
  return function(call)
    local variant = thing.variants[classes.of(record, facts, call)]
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

--- Adds to the things of one upstream, `base` = { hash, facts, list = of { kind, key, thing, why } }, what other classes have instead or besides.
--- `make(record, class)` makes the things of a class; `wrap(kind, thing)` gets each variant. Returns the classes that were read, as a set.
function classes.merge(record, base, make, wrap)
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

local MOST_CLASSES = 128      -- there are 64, each perhaps with the lists before the last change

local function fresh_key(record, name, base_hash) return ("upstream:fresh:%s:%s:%s"):format(record.name, name, base_hash) end
local function tried_key(record, name) return ("upstream:tried:%s:%s"):format(record.name, name) end

--- True if the lists of a class are to be read: they never were, or a while ago, or the upstream's lists have changed since.
function classes.is_due(record, name, base_hash)
  return not host.store.get(fresh_key(record, name, base_hash)) and not host.store.get(tried_key(record, name))
end

--- The upstream says that its lists have changed: those of each class are read again when a client of the class lists next.
function classes.forget(record)
  for _, key in ipairs(host.store.keys("upstream:fresh:" .. record.name .. ":", MOST_CLASSES)) do host.store.delete(key) end
end

--- Reads the lists of the class of a call's client, on the channel that its calls use. `publish(text, claim)`. False if another task does.
function classes.read(record, facts, base_hash, call, name, publish)
  local claim <close> = host.upstream.claim(record.name, name)
  if not claim then return false end
  local key, is_own, channel_class = keys.of(record, facts, call, ask.class_of(record, facts, call))
  local text = lists.read(record, { key = key, class = name, options = {
    own = is_own and call or nil, class = channel_class, stream = true, tells_roots = is_own and class.tells_roots(call),
  } })
  if text then
    host.store.set(fresh_key(record, name, base_hash), "", record.refresh)
    publish(text, claim)
  else
    host.store.set(tried_key(record, name), "", RETRY_S)
  end
  return true
end

return classes
