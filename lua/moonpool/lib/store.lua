-- `store` of scripts: JSON values by key, shared by all workers. Their keys have a prefix, so what the library keeps there is out of reach.

local host = require "moonpool.host"
local json = require "moonpool.json"
local problem = require "moonpool.problem"

local store = {}

local PREFIX = "s:"
local LONGEST_KEY = 1024
local MOST_KEYS = 1000

local function full_key(key, what)
  if type(key) ~= "string" or #key > LONGEST_KEY then
    problem.raise(3, what .. " needs a key: a text of at most " .. LONGEST_KEY .. " bytes, not a " .. type(key))
  end
  return PREFIX .. key
end

local function life(options, what)
  if options == nil then return nil end
  if type(options) ~= "table" then problem.raise(3, what .. ": options are a table", "as in { ttl = 5 * minutes }") end
  for name in pairs(options) do
    if name ~= "ttl" then problem.raise(3, what .. ": unknown option '" .. tostring(name) .. "'", "the only one is 'ttl'") end
  end
  local ttl = options.ttl
  if ttl ~= nil and not (type(ttl) == "number" and ttl > 0) then problem.raise(3, what .. ": 'ttl' is a time above zero, in seconds") end
  return ttl
end

local function text_of(value, what)
  if value == nil then problem.raise(3, what .. " needs a value", "store.delete(key) takes one away; json.null is a value") end
  local ok, text = pcall(json.encode, value)
  if not ok then problem.raise(3, what .. ": " .. tostring(text)) end
  return text
end

--- set(key, value [, { ttl = seconds }]): true; or nil, "full".
function store.set(key, value, options)
  return host.store_set(full_key(key, "store.set"), text_of(value, "store.set"), life(options, "store.set"))
end

--- add(key, value [, { ttl }]): the same where there is no value yet; else false.
function store.add(key, value, options)
  return host.store_add(full_key(key, "store.add"), text_of(value, "store.add"), life(options, "store.add"))
end

--- get(key): its value, or nil.
function store.get(key)
  local text = host.store_get(full_key(key, "store.get"))
  if text == nil then return nil end
  return (json.decode(text))
end

--- delete(key)
function store.delete(key) host.store_delete(full_key(key, "store.delete")) end

--- incr(key [, by [, { ttl }]]): the sum; or nil, "full". The time is a new key's alone.
function store.incr(key, by, options)
  by = by == nil and 1 or by
  if math.type(by) ~= "integer" then problem.raise(2, "store.incr adds whole numbers, not " .. tostring(by)) end
  local full, ttl = full_key(key, "store.incr"), life(options, "store.incr")
  local ok, sum, why = pcall(host.store_incr, full, by, ttl)
  if not ok then problem.raise(2, "store.incr: the value of '" .. key .. "' is no whole number") end
  return sum, why
end

--- list([prefix [, most]]): keys that begin with it, sorted; at most 1000 unless it says otherwise.
function store.list(prefix, most)
  local keys = host.store_keys(full_key(prefix == nil and "" or prefix, "store.list"), most or MOST_KEYS)
  for i, key in ipairs(keys) do keys[i] = key:sub(#PREFIX + 1) end
  return keys
end

return store
