-- without_nulls(object): takes the members out of an object of JSON that are null, and returns it.
local json = require "moonpool.json"

return function(object)
  for name, value in pairs(object) do
    if value == json.null then object[name] = nil end
  end
  return object
end
