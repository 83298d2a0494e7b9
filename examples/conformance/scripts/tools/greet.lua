--- Greet somebody.
---@param name string Whom
return function(name) return "Hello, " .. name .. "!" end
