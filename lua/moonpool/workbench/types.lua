-- moonpool types: what LuaLS reads, for a folder of one's own.

local say = require "moonpool.workbench.say"
local wire = require "moonpool.wire"

local settings = [[
{
  "$schema": "https://raw.githubusercontent.com/LuaLS/vscode-lua/master/setting/schema.json",
  "runtime.version": "Lua 5.4",
  "runtime.path": ["?.lua", "scripts/lib/?.lua", "scripts/lib/?/init.lua"],
  "workspace.library": ["lua/types"]
}
]]

local function write(path, text)
  local file <close>, why = io.open(path, "wb")
  if not file then return nil, why end
  return file:write(text)
end

return function(args)
  if #args ~= 1 then return say.misuse("types takes one folder", "as in moonpool types .") end
  local dir = args[1]:gsub("(.)/+$", "%1")
  for _, folder in ipairs { dir, dir .. "/lua", dir .. "/lua/types" } do
    local made, why = wire.mkdir(folder)
    if not made then return say.wrong(folder .. ": " .. why) end
  end
  for _, name in ipairs { "lua/types/moonpool.d.lua", "lua/types/moonpool_spec.d.lua" } do
    local written, why = write(dir .. "/" .. name, wire.embedded(name))
    if not written then return say.wrong(why) end
    print("wrote " .. dir .. "/" .. name)
  end
  local rc = dir .. "/.luarc.json"
  local made, because, is_there = wire.create(rc, settings)
  if is_there then
    print("left " .. rc .. " as it is\n  next: \"workspace.library\" in it has to name lua/types")
  elseif not made then
    return say.wrong(rc .. ": " .. because)
  else
    print("wrote " .. rc)
  end
  return 0
end
