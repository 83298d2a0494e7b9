--- Add two numbers.
---@param a number
---@param b number
return function(a, b) return a + b end
