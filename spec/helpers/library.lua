-- lua/moonpool on the C modules of the binary, loaded from modules.so on busted's cpath, or in build/debug.
--   local library, why = require "spec.helpers.library"()     nil if modules.so has not been built

return function()
  package.cpath = package.cpath .. ";./build/debug/?.so"
  package.path = "./lua/?.lua;./lua/?/init.lua;" .. package.path

  local found, modules = pcall(require, "modules")
  if not found then return nil, "modules.so is not built" end
  if not modules.regex then return nil, "modules.so is older than module_regex.c" end
  for name in pairs(package.loaded) do
    if name:find "^moonpool" then package.loaded[name] = nil end
  end
  package.loaded["moonpool.json"], package.loaded["moonpool.regex"] = modules.json.lua, modules.regex
  return { json = modules.json.lua, regex = modules.regex, schema = require "moonpool.schema" }
end
