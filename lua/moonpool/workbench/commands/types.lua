-- moonpool types: writes type definitions for LuaLS to a folder: those of the script API, and those of the served
-- scripts.

local files = require "moonpool.workbench.format.files"
local json = require "moonpool.json"
local stderr = require "moonpool.workbench.format.stderr"
local stubs = require "moonpool.workbench.format.stubs"
local wire = require "moonpool.wire"

local settings = [[
{
  "$schema": "https://raw.githubusercontent.com/LuaLS/vscode-lua/master/setting/schema.json",
  "runtime.version": "Lua 5.4",
  "runtime.path": ["?.lua", "@SCRIPTS@/lib/?.lua", "@SCRIPTS@/lib/?/init.lua"],
  "workspace.library": ["lua/types"]@CLOSED@
}
]]
-- Libraries that strict scripts do not have and that LuaLS can disable.
local closed = [[,
  "runtime.builtin": { "io": "disable", "debug": "disable" }]]

local LOAD_TIMEOUT_S = 60     -- seconds to wait until the scripts are loaded

-- Returns the definitions that the scripts of a configuration serve; nil and the exit code if a child found and printed
-- errors in them.
local function definitions(config)
  local child, why = wire.spawn { "check", "--json", config }
  if not child then return nil, stderr.wrong("cannot start moonpool check: " .. why) end
  child:finish()
  local pieces = {}
  repeat
    local bytes = child:read(LOAD_TIMEOUT_S)
    pieces[#pieces + 1] = bytes
  until not bytes or bytes == ""
  local code = child:close()
  if code ~= 0 then return nil, code end
  return json.decode(table.concat(pieces))
end

-- The path of the scripts' folder relative to `dir`.
local function scripts_in(dir, scripts)
  local path = scripts:gsub("^%./", "")
  if dir == "." or path:sub(1, 1) == "/" then return path end
  if path:sub(1, #dir + 1) == dir .. "/" then return path:sub(#dir + 2) end
  return (os.getenv "PWD" or ".") .. "/" .. path
end

return function(args)
  if #args ~= 1 then return stderr.misuse("types takes one folder", "as in moonpool types .") end
  local dir = args[1]:gsub("(.)/+$", "%1")
  for _, folder in ipairs { dir, dir .. "/lua", dir .. "/lua/types" } do
    local made, why = wire.mkdir(folder)
    if not made then return stderr.wrong(folder .. ": " .. why) end
  end
  local list = {}
  for _, name in ipairs { "lua/types/moonpool.d.lua", "lua/types/moonpool_spec.d.lua" } do
    list[#list + 1] = { dir .. "/" .. name, wire.embedded(name) }
  end
  local code = 0
  if args.config then
    local served, wrong = definitions(args.config)
    code = not served and wrong or 0
    local path = dir .. "/lua/types/moonpool_scripts.d.lua"
    if served then
      list[#list + 1] = { path, stubs.text(served) }
    else
      stderr.note("left " .. path .. " as it was")
    end
  end
  for _, file in ipairs(list) do
    local written, why = files.write(file[1], file[2], "wb")
    if not written then return stderr.wrong(why) end
    print("wrote " .. file[1])
  end
  local rc = dir .. "/.luarc.json"
  local scripts = scripts_in(dir, args.scripts or "scripts")
  local made, because, is_there = wire.create(rc, (settings:gsub("@(%u+)@", { SCRIPTS = scripts, CLOSED = args.trust and "" or closed })))
  if is_there then
    print("left " .. rc .. " as it is\n  next: \"workspace.library\" in it has to name lua/types")
  elseif not made then
    return stderr.wrong(rc .. ": " .. because)
  else
    print("wrote " .. rc)
  end
  return code
end
