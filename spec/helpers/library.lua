-- lua/moonpool on the C modules of the binary, loaded from rooms.so: in $MOONPOOL_ROOMS, on busted's cpath, or in build/debug.
--   local library, why = require "spec.helpers.library"()     nil if rooms.so has not been built

return function()
  local places = { package.cpath, "./build/debug/?.so" }
  if os.getenv "MOONPOOL_ROOMS" then table.insert(places, 1, os.getenv "MOONPOOL_ROOMS" .. "/?.so") end
  package.cpath = table.concat(places, ";")
  package.path = "./lua/?.lua;./lua/?/init.lua;" .. package.path

  local found, rooms = pcall(require, "rooms")
  if not found then return nil, "rooms.so is not built" end
  if not rooms.regex then return nil, "rooms.so is older than room_regex.c" end
  for name in pairs(package.loaded) do
    if name:find "^moonpool" then package.loaded[name] = nil end
  end
  package.loaded["moonpool.json"], package.loaded["moonpool.regex"] = rooms.json.lua, rooms.regex
  return { json = rooms.json.lua, regex = rooms.regex, schema = require "moonpool.schema" }
end
