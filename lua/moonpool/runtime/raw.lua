-- rawset and rawget for scripts. Values of the gateway are tables whose metatables have `__metatable = false`. rawset
-- refuses these tables: a raw field would hide the value that the metatable's __index returns.

local raw = {}

local metatable_of = debug.getmetatable
local rawset, rawget = rawset, rawget

--- rawset(table, name, value). It accepts the environment of the script's file, although the environment's metatable is
--- protected.
function raw.set(to, name, value)
  local mt = metatable_of(to)
  if mt and type(to) == "table" and rawget(mt, "__metatable") == false and not rawget(mt, "is_environment") then
    error("rawset: a value of the gateway cannot be changed", 2)
  end
  return rawset(to, name, value)
end

return raw
