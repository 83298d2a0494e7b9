-- The library `store` of scripts: JSON values by key, shared by all workers; and `store.near`, the same functions for
-- values of this process alone. Keys of scripts get a prefix, so scripts cannot reach the entries of the gateway. Keys
-- that moonpool.yaml grants to single scripts are reserved: other scripts can neither read nor change them.
-- Every function of `store` may give nil and why: "unavailable", nothing was done; or, of those that write, "unknown": it
-- was asked for, and may have been done. After an upgrade the store is in the newest process, which may not answer for
-- the moment; with `cluster` it is in a server (store_redis.lua). "full": there is no room. "not replicated": it was done,
-- and no replica has it yet (`sync`). WHY below is one of these.

local host = require "moonpool.host"
local grants = require "moonpool.runtime.grants"
local copied = require "moonpool.runtime.copied"
local exact = require "moonpool.runtime.exact"
local json = require "moonpool.json"
local problem = require "moonpool.runtime.diagnostic"
local suggest = require "moonpool.runtime.suggest"
local store_lock = require "moonpool.lib.store_lock"

local MAX_KEY_BYTES = 1024
local MAX_KEYS = 1000
local OPTIONS <const>, OPTIONS_OF_SET <const> = { "ttl", "sync" }, { "ttl", "sync", "lock" }
local NAMES <const> = { "set", "add", "get", "cas", "lock", "delete", "incr", "list" }

local function check_key(key, what)
  if type(key) ~= "string" or #key > MAX_KEY_BYTES then
    problem.raise(4, what .. " needs a key: a string of at most " .. MAX_KEY_BYTES .. " bytes, not a " .. type(key))
  end
end

-- The ttl of the options, and `sync`, which asks that the change is in a second place before the function returns: a
-- store in this process or another one has one place only. With `more` the options may have `lock`, which is returned, too.
local function life(options, what, more)
  if options == nil then return nil end
  if type(options) ~= "table" then problem.raise(3, what .. ": options must be a table", "as in { ttl = 5 * minutes }") end
  options = copied(options)
  for name in next, options do
    if name ~= "ttl" and name ~= "sync" and name ~= more then
      problem.raise(3, what .. ": unknown option '" .. tostring(name) .. "'",
        suggest.listed(tostring(name), more and OPTIONS_OF_SET or OPTIONS, "the options"))
    end
  end
  local ttl, sync = options.ttl, options.sync
  if ttl ~= nil and not (type(ttl) == "number" and ttl > 0) then problem.raise(3, what .. ": 'ttl' must be above 0 seconds") end
  if sync ~= nil and type(sync) ~= "boolean" then problem.raise(3, what .. ": 'sync' must be true or false") end
  return ttl, sync or nil, options.lock
end

local function text_of(value, what)
  if value == nil then problem.raise(3, what .. " needs a value", "store.delete(key) removes a key; json.null is a value") end
  local ok, text = pcall(json.encode, value)
  if not ok then problem.raise(3, what .. ": " .. tostring(text)) end
  return text
end

-- The text that a table has once it was stored and read: its members are sorted by name.
local function sorted(text) return json.encode((json.decode(text))) end

-- The functions of the library `word`, whose keys and locks have these prefixes.
local function functions(word, prefix, lock_prefix)
  local store = {}
  local SET <const>, ADD <const>, GET <const>, CAS <const> = word .. ".set", word .. ".add", word .. ".get", word .. ".cas"
  local DELETE <const>, INCR <const>, LIST <const>, LOCK <const> = word .. ".delete", word .. ".incr", word .. ".list", word .. ".lock"

  local function full_key(key, what)
    check_key(key, what)
    return prefix .. key
  end

  --- set(key, value [, { ttl = seconds, sync = true, lock = lock }]): true; or nil and WHY, or "lost" if the lock is not
  --- held any more.
  function store.set(key, value, options)
    local full, text = full_key(key, SET), text_of(value, SET)
    local ttl, sync, lock = life(options, SET, "lock")
    if lock == nil then return host.store.set(full, text, ttl, sync) end
    local key_of_lock, fence = store_lock.content(lock, word, SET)
    local done, why = host.store.set_locked(full, text, key_of_lock, fence, ttl, sync)
    if done == false then return nil, "lost" end
    return done, why
  end

  --- lock(key, { ttl = 30, wait = 0 }, f): the results of f(lock), which runs while this call alone has the lock; or nil
  --- and WHY, "locked" or "lost".
  function store.lock(key, options, f)
    check_key(key, LOCK)
    return store_lock.run(word, key, lock_prefix .. key, options, f)
  end

  --- add(key, value [, { ttl, sync }]): sets the value and returns true if the key has none; else false; or nil and
  --- WHY.
  function store.add(key, value, options)
    return host.store.add(full_key(key, ADD), text_of(value, ADD), life(options, ADD))
  end

  --- get(key): the value of the key; nil; or nil, "unavailable".
  function store.get(key)
    local text, why = host.store.get(full_key(key, GET))
    if text == nil then return nil, why end
    return (json.decode(text))
  end

  --- cas(key, old, value [, { ttl, sync }]): sets the value and returns true if the key has the value `old`, or none if
  --- `old` is nil; else false; or nil and WHY. Without `ttl` the time to live stays. The texts of the values are
  --- compared; a stored text whose members have another order than the sorted one is equal, too.
  function store.cas(key, old, value, options)
    local full = full_key(key, CAS)
    local ttl, sync = life(options, CAS)
    local old_text, text = old ~= nil and text_of(old, CAS), text_of(value, CAS)
    local done, why = host.store.cas(full, old_text, text, ttl, sync)
    if done ~= false or type(old) ~= "table" then return done, why end
    local stored, away = host.store.get(full)
    if away then return nil, away end
    if not stored then return false end
    if sorted(stored) ~= sorted(old_text) then return false end
    return host.store.cas(full, stored, text, ttl, sync)
  end

  --- delete(key): true; or nil and WHY.
  function store.delete(key) return host.store.delete(full_key(key, DELETE)) end

  --- incr(key [, by [, { ttl, sync }]]): the sum; or nil and WHY. `ttl` applies only to a new key.
  function store.incr(key, by, options)
    by = by == nil and 1 or by
    if math.type(by) ~= "integer" then problem.raise(2, INCR .. " adds whole numbers, not " .. tostring(by)) end
    local full = full_key(key, INCR)
    local ok, sum, why = pcall(host.store.incr, full, by, life(options, INCR))
    if not ok and not tostring(sum):find("whole number", 1, true) then error(sum, 0) end
    if not ok then problem.raise(2, INCR .. ": the value of '" .. key .. "' is not a whole number, or the sum has more than 64 bits") end
    return sum, why
  end

  --- list([prefix [, most]]): the keys that begin with `prefix`, sorted; at most `most`, 1000 by default; or nil,
  --- "unavailable".
  function store.list(begin, most)
    local keys, why = host.store.keys(full_key(begin == nil and "" or begin, LIST), most or MAX_KEYS)
    if why then return nil, why end
    for i, key in ipairs(keys) do keys[i] = key:sub(#prefix + 1) end
    return keys
  end

  return store
end

local store, near = functions("store", "s:", "lock:"), functions("store.near", "near s:", "near lock:")

-- -- reserved keys -------------------------------------------------------------------------------------------------------

-- The pattern that reserves `key` for other scripts, or nil if no pattern does or one of `own` matches the key.
local function reserved_by(reserved, own, key)
  if grants.matches(own, key) then return nil end
  for _, pattern in ipairs(reserved) do
    if grants.fits(pattern, key) then return pattern end
  end
end

-- A copy of `all`, the functions of one store, for the script file at `path`.
local function library_of(all, reserved, granted, path)
  local library = {}
  for _, name in ipairs(NAMES) do
    local f = all[name]
    library[name] = f
    if #reserved > 0 then
      library[name] = function(key, ...)
        local pattern = type(key) == "string" and reserved_by(reserved, granted.store, key)
        if not pattern then return f(key, ...) end
        host.log.write("warn", "store refused", { file = path, keys = pattern, why = "no grant" })
        return nil, grants.refusal("store", pattern, path)
      end
    end
  end
  if #reserved == 0 then return library end
  function library.list(prefix, most)
    local keys, found, why = {}, all.list(prefix, most)
    if not found then return nil, why end
    for _, key in ipairs(found) do
      if not reserved_by(reserved, granted.store, key) then keys[#keys + 1] = key end
    end
    return keys
  end
  return library
end

--- The library of one script file. `granted` is what grants.of(path) gives.
function store.library(granted, path)
  local reserved = grants.reserved "store"
  local library = library_of(store, reserved, granted, path)
  library.near = exact.all("store.near.", library_of(near, reserved, granted, path))
  return library
end

return store
