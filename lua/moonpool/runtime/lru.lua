-- A cache that evicts the least recently used keys. It has a young and an old table; when the young one is full it
-- becomes the old one and the old one is dropped, so each operation takes constant time.

local recent = {}
recent.__index = recent

--- Makes a cache of at most `most` entries. The `most // 2` most recently used entries are always in it.
function recent.new(most) return setmetatable({ half = math.max(1, most // 2), young = {}, old = {}, count = 0 }, recent) end

function recent:put(key, value)
  if self.young[key] == nil then
    if self.count >= self.half then self.old, self.young, self.count = self.young, {}, 0 end
    self.count = self.count + 1
  end
  self.young[key] = value
end

function recent:get(key)
  local value = self.young[key]
  if value ~= nil then return value end
  value = self.old[key]
  if value ~= nil then
    self.old[key] = nil
    self:put(key, value)
  end
  return value
end

function recent:drop(key)
  self.old[key] = nil
  if self.young[key] ~= nil then self.young[key], self.count = nil, self.count - 1 end
end

return recent
