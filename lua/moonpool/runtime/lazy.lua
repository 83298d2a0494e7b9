-- lazy(name): the functions of a module, which is loaded when one of them is first used. For modules that most gateways
-- do not need: each Lua state loads all others, at each start and reload.

return function(name)
  return setmetatable({}, { __index = function(_, key) return require(name)[key] end })
end
