-- The library `store` of scripts: JSON values by key, shared by all workers. Keys of scripts get a prefix, so scripts
-- cannot reach the entries of the gateway. Keys that moonpool.yaml grants to single scripts are reserved: other scripts
-- can neither read nor change them.
-- Every function may give nil, "unavailable": after an upgrade the store is in the newest process, which does not
-- answer for the moment.

local host = require "moonpool.host"
local grants = require "moonpool.runtime.grants"
local copied = require "moonpool.runtime.copied"
local json = require "moonpool.json"
local problem = require "moonpool.runtime.diagnostic"

local store = {}

local PREFIX = "s:"
local MAX_KEY_BYTES = 1024
local MAX_KEYS = 1000

local function full_key(key, what)
  if type(key) ~= "string" or #key > MAX_KEY_BYTES then
    problem.raise(3, what .. " needs a key: a string of at most " .. MAX_KEY_BYTES .. " bytes, not a " .. type(key))
  end
  return PREFIX .. key
end

local function life(options, what)
  if options == nil then return nil end
  if type(options) ~= "table" then problem.raise(3, what .. ": options must be a table", "as in { ttl = 5 * minutes }") end
  options = copied(options)
  for name in next, options do
    if name ~= "ttl" then problem.raise(3, what .. ": unknown option '" .. tostring(name) .. "'", "the only option is 'ttl'") end
  end
  local ttl = options.ttl
  if ttl ~= nil and not (type(ttl) == "number" and ttl > 0) then problem.raise(3, what .. ": 'ttl' must be above 0 seconds") end
  return ttl
end

local function text_of(value, what)
  if value == nil then problem.raise(3, what .. " needs a value", "store.delete(key) removes a key; json.null is a value") end
  local ok, text = pcall(json.encode, value)
  if not ok then problem.raise(3, what .. ": " .. tostring(text)) end
  return text
end

--- set(key, value [, { ttl = seconds }]): true; or nil, "full" or "unavailable".
function store.set(key, value, options)
  return host.store.set(full_key(key, "store.set"), text_of(value, "store.set"), life(options, "store.set"))
end

--- add(key, value [, { ttl }]): sets the value and returns true if the key has none; else false; or nil, "full" or
--- "unavailable".
function store.add(key, value, options)
  return host.store.add(full_key(key, "store.add"), text_of(value, "store.add"), life(options, "store.add"))
end

--- get(key): the value of the key; nil; or nil, "unavailable".
function store.get(key)
  local text, why = host.store.get(full_key(key, "store.get"))
  if text == nil then return nil, why end
  return (json.decode(text))
end

--- delete(key): true; or nil, "unavailable".
function store.delete(key) return host.store.delete(full_key(key, "store.delete")) end

--- incr(key [, by [, { ttl }]]): the sum; or nil, "full" or "unavailable". `ttl` applies only to a new key.
function store.incr(key, by, options)
  by = by == nil and 1 or by
  if math.type(by) ~= "integer" then problem.raise(2, "store.incr adds whole numbers, not " .. tostring(by)) end
  local full, ttl = full_key(key, "store.incr"), life(options, "store.incr")
  local ok, sum, why = pcall(host.store.incr, full, by, ttl)
  if not ok then problem.raise(2, "store.incr: the value of '" .. key .. "' is not a whole number") end
  return sum, why
end

--- list([prefix [, most]]): the keys that begin with `prefix`, sorted; at most `most`, 1000 by default; or nil,
--- "unavailable".
function store.list(prefix, most)
  local keys, why = host.store.keys(full_key(prefix == nil and "" or prefix, "store.list"), most or MAX_KEYS)
  if why then return nil, why end
  for i, key in ipairs(keys) do keys[i] = key:sub(#PREFIX + 1) end
  return keys
end

-- -- reserved keys -------------------------------------------------------------------------------------------------------

-- The pattern that reserves `key` for other scripts, or nil if no pattern does or one of `own` matches the key.
local function reserved_by(reserved, own, key)
  if grants.matches(own, key) then return nil end
  for _, pattern in ipairs(reserved) do
    if grants.fits(pattern, key) then return pattern end
  end
end

--- The library of one script file. `granted` is what grants.of(path) gives.
function store.library(granted, path)
  local library, reserved = {}, grants.reserved "store"
  for _, name in ipairs { "set", "add", "get", "delete", "incr", "list" } do library[name] = store[name] end
  if #reserved == 0 then return library end
  for _, name in ipairs { "set", "add", "get", "delete", "incr" } do
    local f = store[name]
    library[name] = function(key, ...)
      local pattern = type(key) == "string" and reserved_by(reserved, granted.store, key)
      if not pattern then return f(key, ...) end
      host.log.write("warn", "store refused", { file = path, keys = pattern, why = "no grant" })
      return nil, grants.refusal("store", pattern, path)
    end
  end
  function library.list(prefix, most)
    local keys, all, why = {}, store.list(prefix, most)
    if not all then return nil, why end
    for _, key in ipairs(all) do
      if not reserved_by(reserved, granted.store, key) then keys[#keys + 1] = key end
    end
    return keys
  end
  return library
end

return store
