--- Greet a person.
---@param name string The person's name
return function(name) return "Hello, " .. name .. "!" end
