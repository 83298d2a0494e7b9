-- The lists of upstreams that get a token of each caller (auth.exchange). Each caller has lists of its own, as the
-- upstream gives them to clients without elicitation, sampling and roots; they are read when that caller needs them,
-- and no list is shared. The things of such an upstream have, as those of classes (federation/class_lists.lua):
--   variants    the hash of a caller's lists -> the thing for that caller
--   resolve     f(call) -> the thing for the caller of a call, or nil

local auth = require "moonpool.upstream.auth"
local catalogue = require "moonpool.upstream.catalogue"
local config = require "moonpool.upstream.config"
local host = require "moonpool.host"
local channel_key = require "moonpool.upstream.channel_key"
local lists = require "moonpool.upstream.lists"
local sorted = require "moonpool.runtime.sorted_keys"

local caller_lists = {}

local RETRY_S <const> = 10           -- seconds after which lists are tried again that could not be read
local MOST <const> = 32768           -- most keys of the store that one search reads; an upstream has 256 of them

--- The upstreams whose lists belong to callers.
caller_lists.records = {}
for _, record in ipairs(config.list) do
  if auth.is_personal(record) then table.insert(caller_lists.records, record) end
end

--- The class of the lists of a call's caller; nil and a failure if the caller has no token.
function caller_lists.class_of(record, call)
  local identity, denied = auth.identity(record, call)
  if not identity then return nil, denied end
  return catalogue.of_caller(identity.owner)
end

-- -- making the things -----------------------------------------------------------------------------------------------

local function resolve(record, thing, hashes)
  return function(call)
    local class = caller_lists.class_of(record, call)
    return class and thing.variants[hashes[class] or false] or nil
  end
end

-- Hash -> one class that has it. `hashes`: class -> hash.
local function classes_of(hashes)
  local found, seen = {}, {}
  for _, class in ipairs(sorted(hashes)) do
    if not seen[hashes[class]] then
      seen[hashes[class]] = true
      found[#found + 1] = class
    end
  end
  return found
end

--- A text that changes when the lists of any caller change.
function caller_lists.fingerprint(record)
  local parts, hashes = {}, host.upstream.callers(record.name)
  for i, class in ipairs(sorted(hashes)) do parts[i] = class .. hashes[class] end
  return table.concat(parts)
end

--- Adds what callers have to the things of one upstream, `base` = { list = of { kind, key, thing, why } }. Callers with
--- equal lists have the same things.
--- `make(record, class)` makes the things of a class; `wrap(kind, thing)` gets those that are not in the list. Returns
--- the classes that were read, as a set.
function caller_lists.merge(record, base, make, wrap)
  local by_key, found, hashes = {}, {}, host.upstream.callers(record.name)
  for class in pairs(hashes) do found[class] = true end
  for _, class in ipairs(classes_of(hashes)) do
    local made = make(record, class)
    for _, one in ipairs(made.hash == hashes[class] and made.list or {}) do
      local id, thing = one.kind .. " " .. one.key, one.thing
      local before = by_key[id]
      if not before then
        thing.is_absent, thing.variants = true, {}
        thing.resolve = resolve(record, thing, hashes)
        base.list[#base.list + 1] = one
        if not one.why then by_key[id] = thing end
      elseif not one.why then
        wrap(one.kind, thing)
      end
      if not one.why then
        thing.is_variant = true
        by_key[id].variants[made.hash] = thing
      end
    end
  end
  return found
end

-- -- reading ---------------------------------------------------------------------------------------------------------

local function key_of(what, record, class) return ("callers:%s callers:%s:%s:%s"):format(what, host.upstream.instance, record.name, class) end

--- Why the lists of a class could not be read a moment ago, in any worker: the reason of the failure; nil if they
--- could, or were not tried.
function caller_lists.failure_of(record, class) return host.store.get(key_of("tried", record, class)) end

--- True if the lists of a class are to be read: they were never read, or longer ago than `refresh`, or before the
--- upstream notified that its lists have changed, or over another connection.
function caller_lists.is_due(record, class)
  if caller_lists.failure_of(record, class) then return false end
  local hash, _, is_stale = host.upstream.catalogue_hash(record.name, class)
  return not hash or is_stale == true or not host.store.get(key_of("fresh", record, class))
end

--- The upstream has notified that its lists have changed: the lists of each caller are read again when that caller
--- needs them.
function caller_lists.forget(record)
  for _, key in ipairs(host.store.keys(key_of("fresh", record, ""), MOST)) do host.store.delete(key) end
end

--- Reads the lists of a caller, unless another task does. `publish(text, claim)`.
function caller_lists.read(record, identity, class, publish)
  local claim <close> = host.upstream.claim(record.name, class)
  if not claim then return end
  local text, rest = lists.read(record, { key = channel_key.of_lists(identity.owner), options = { identity = identity }, class = "none", kept_as = class },
    function(part) publish(part, claim) end)
  if text then
    host.store.set(key_of("fresh", record, class), "", rest or record.refresh)
    publish(text, claim)
  else
    host.store.set(key_of("tried", record, class), rest.reason or "unknown", RETRY_S)
  end
end

--- The failure for a call of a caller whose lists were not read yet, or could not be read.
function caller_lists.failure(record, class)
  return { outcome = "not_run", reason = caller_lists.failure_of(record, class) or "timeout", after = record.list_wait }
end

return caller_lists