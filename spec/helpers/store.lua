-- The store of the host of spec/helpers/host.lua: texts in a table, with a clock that specs set.
--   local s = store.add(host)    s.now = s.now + 60
--   s.is_away = true             its process does not answer; "unknown": and may do what is written
local store = {}

function store.add(host)
  local self = { now = 0, texts = {}, untils = {} }

  local function get(key)
    if self.texts[key] and self.untils[key] <= self.now then self.texts[key] = nil end
    return self.texts[key]
  end

  local function set(key, text, seconds)
    self.texts[key], self.untils[key] = text, seconds and self.now + seconds or math.huge
    return true
  end

  host.store.get, host.store.set = get, set

  function host.store.add(key, text, seconds)
    return get(key) == nil and set(key, text, seconds)
  end

  function host.store.cas(key, old, text, seconds)
    local was = get(key)
    if was ~= (old or nil) then return false end
    if not text then self.texts[key] = nil return true end
    if not was or seconds then return set(key, text, seconds) end
    self.texts[key] = text
    return true
  end

  local fence = 0

  function host.store.lock(key, seconds)
    if get(key) then return false end
    fence = fence + 1
    set(key, tostring(fence), seconds)
    return fence
  end

  function host.store.set_locked(key, text, lock, of, seconds)
    return get(lock) == tostring(of) and set(key, text, seconds)
  end

  function host.store.delete(key)
    self.texts[key] = nil
    return true
  end

  function host.store.keys(prefix, most)
    local keys = {}
    for key in pairs(self.texts) do
      if key:sub(1, #prefix) == prefix then keys[#keys + 1] = key end
    end
    table.sort(keys)
    local there = {}
    for _, key in ipairs(keys) do
      if get(key) and #there < (most or math.huge) then there[#there + 1] = key end
    end
    return there
  end

  function host.store.incr(key, n, seconds)
    local was = get(key)
    local sum = math.tointeger(was or 0) + n
    if was then self.texts[key] = tostring(sum) else set(key, tostring(sum), seconds) end
    return sum
  end

  function host.store.take() return true end
  function host.store.lost() end

  for name, f in pairs(host.store) do
    host.store[name] = function(...)
      if self.is_away then
        return name == "keys" and {} or nil, self.is_away == "unknown" and name ~= "get" and name ~= "keys" and "unknown" or "unavailable"
      end
      return f(...)
    end
  end
  return self
end

return store
