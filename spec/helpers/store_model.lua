-- Random operations of `store`, compared with a model: a script of the gateway runs both, so that one request is many
-- operations. The model lasts from one gateway to the next: a spec hands it on.
--   local model = store_model.new(seed) ; model:run(client, 1000) ; model.counts
local code = require "spec.helpers.code"
local cjson = require "cjson.safe"

local store_model = {}
store_model.__index = store_model

-- What runs in the gateway: run(seed, count, entries) does the operations on the entries that are there, and returns
-- the entries, the number of operations by name, and what differed. An entry is { value, from, to }: it expires between
-- `from` and `to` by time.now(), or has neither. Names that begin with n have whole numbers.
store_model.script = [[
local SLACK <const> = 0.05            -- seconds by which an expiry may differ

local model = {}

local function random_of(seed)
  return function(most)
    seed = (seed * 6364136223846793005 + 1442695040888963407)
    return (seed >> 33) % most + 1
  end
end

function model.run(seed, count, entries)
  local random, counts, wrong = random_of(seed), {}, {}
  local values = { true, false, "", "text", 12, -0.5, { 1, 2 }, { a = 1, b = { c = "x" } }, ("long "):rep(500) }

  local function differ(what, ...)
    local given = table.pack(...)
    for i = 1, given.n do given[i] = given[i] == nil and "nil" or json.encode(given[i]) end
    if #wrong < 10 then wrong[#wrong + 1] = what .. ": " .. table.concat(given, ", ") end
  end

  -- True if the key has a value, false if it has none, nil if its time may be over or not.
  local function is_there(key, before, after)
    local e = entries[key]
    if not e then return false end
    if not e.from or after < e.from - SLACK then return true end
    if before > e.to + SLACK then return false end
    return nil
  end

  local function put(key, value, ttl, before)
    entries[key] = { value = value, from = ttl and before + ttl, to = ttl and time.now() + ttl }
  end

  -- Whatever the key has is gone: what the model cannot know begins anew.
  local function begin_anew(key)
    if store.delete(key) ~= true then differ("delete", key) end
    entries[key] = nil
  end

  local function ttl_of()
    local n = random(6)
    return n == 1 and 0.05 or n == 2 and 0.3 or n == 3 and 60 or nil
  end

  local steps = {}

  function steps.set(key)
    local value, ttl, before = values[random(#values)], ttl_of(), time.now()
    if store.set(key, value, ttl and { ttl = ttl }) ~= true then differ("set", key) end
    put(key, value, ttl, before)
  end

  function steps.add(key)
    local value, ttl, before = values[random(#values)], ttl_of(), time.now()
    local done = store.add(key, value, ttl and { ttl = ttl })
    local there = is_there(key, before, time.now())
    if there == nil then return begin_anew(key) end
    if done ~= not there then differ("add", key, done, there) end
    if done then put(key, value, ttl, before) end
  end

  function steps.get(key)
    local before = time.now()
    local value, why = store.get(key)
    local there = is_there(key, before, time.now())
    if there == nil then return begin_anew(key) end
    local same = why == nil and there == (value ~= nil) and (not there or json.encode(value) == json.encode(entries[key].value))
    if not same then differ("get", key, value, why, there and entries[key].value) end
  end

  function steps.cas(key)
    local e, before, ttl = entries[key], time.now(), ttl_of()
    local old = random(3) > 1 and e and e.value or values[random(#values)]
    if random(8) == 1 then old = nil end
    local value = values[random(#values)]
    local done = store.cas(key, old, value, ttl and { ttl = ttl })
    local there = is_there(key, before, time.now())
    if there == nil then return begin_anew(key) end
    local same = old == nil and not there or old ~= nil and there and json.encode(old) == json.encode(e.value)
    if done ~= same then differ("cas", key, done, same) end
    if not done then return end
    if ttl or not there then put(key, value, ttl, before) else e.value = value end
  end

  function steps.delete(key) begin_anew(key) end

  function steps.incr(key)
    local by, ttl, before = random(9) - 4, ttl_of(), time.now()
    local sum = store.incr(key, by, ttl and { ttl = ttl })
    local there = is_there(key, before, time.now())
    if there == nil then return begin_anew(key) end
    local wanted = (there and entries[key].value or 0) + by
    if sum ~= wanted then differ("incr", key, sum, wanted) end
    if there then entries[key].value = wanted else put(key, wanted, ttl, before) end
  end

  function steps.list(key)
    local prefix, before = key:sub(1, 1), time.now()
    local got, after = store.list(prefix), time.now()
    local seen = {}
    for i, name in ipairs(got) do
      if i > 1 and got[i - 1] >= name then differ("list", prefix, got[i - 1], name) end
      seen[name] = true
    end
    for name in pairs(entries) do
      local there = is_there(name, before, after)
      if name:sub(1, 1) == prefix and there ~= nil and there ~= (seen[name] == true) then differ("list", name, there) end
      seen[name] = nil
    end
    if next(seen) then differ("list", (next(seen))) end
  end

  function steps.lock(key)
    local name = "lock " .. key
    local fence, inner = 0, nil
    local got = store.lock(name, { ttl = 2 }, function(lock)
      fence = lock.fence
      inner = select(2, store.lock(name, { ttl = 2 }, function() end))
      return store.set("f", fence, { lock = lock })
    end)
    if got ~= true or inner ~= "locked" or fence <= (model.fence or 0) then differ("lock", got, inner, fence, model.fence) end
    model.fence = fence
    entries.f = { value = fence }
  end

  local of_values <const> = { "set", "add", "get", "get", "cas", "cas", "delete", "list" }
  local of_numbers <const> = { "incr", "incr", "incr", "get", "delete" }
  for _ = 1, count do
    local name, key
    if random(4) == 1 then
      name, key = of_numbers[random(#of_numbers)], "n" .. random(12)
    else
      name, key = of_values[random(#of_values)], "k" .. random(40)
    end
    if random(400) == 1 then name = "lock" end
    steps[name](key)
    counts[name] = (counts[name] or 0) + 1
  end
  return { entries = entries, counts = counts, wrong = json.array(wrong), fence = model.fence }
end

return model
]]

--- A model without entries.
function store_model.new(seed)
  return setmetatable({ seed = seed, entries = {}, counts = {}, fence = 0 }, store_model)
end

--- Runs `count` operations in the gateway of this client; fails with the seed if one differs from the model.
function store_model:run(client, count)
  self.seed = self.seed + 1
  local got, why = code.run(client, ([[
    local model = require "model"
    model.fence = %d
    return model.run(%d, %d, json.decode %q)]]):format(self.fence, self.seed, count, cjson.encode(self.entries)), 120)
  assert(got, why)
  assert(#got.wrong == 0, ("with the seed %d: %s"):format(self.seed, table.concat(got.wrong, "\n")))
  self.entries, self.fence = got.entries, got.fence
  for name, n in pairs(got.counts) do self.counts[name] = (self.counts[name] or 0) + n end
end

return store_model
