-- Copies a script's table one level deep, without metamethods. The gateway then checks and uses the same values: a
-- script's `__index` or `__pairs` cannot return one value to the check and another one later. A value that is not a
-- table is returned unchanged.

return function(value)
  if type(value) ~= "table" then return value end
  local copy = {}
  for name, item in next, value do copy[name] = item end
  return copy
end
