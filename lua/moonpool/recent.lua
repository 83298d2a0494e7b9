-- What was met lately, by key: at most so many, those that were not met for longest go first. Two tables take turns, so a
-- look costs the same however many there are.

local recent = {}
recent.__index = recent

--- Remembers `most` at most, half of them surely.
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
