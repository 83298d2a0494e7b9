-- All C functions that a strict script reaches in the real binary: in its environment, in the values that it gets, and
-- behind the Lua functions there, however deep. Found with Lua's debug library in a gateway with `trust: full`, which
-- makes the environment of a strict script.
local gateway = require "spec.helpers.gateway"

local reachable = {}

local walk = [[return tool { "Walks.", function(_, call)
  local host = package.loaded["moonpool.host"]
  local sandbox, library = package.loaded["moonpool.registry.sandbox"], package.loaded["moonpool.registry.require"]
  host.script.trust_full = false
  local _, base = sandbox.new(library.find, "tools/walk.lua")
  host.script.trust_full = true
  base.cjson = host.cjson.new(false)

  local names, order = {}, {}         -- function of C -> its name
  local function is_c(f) return debug.getinfo(f, "S").what == "C" end
  local function name(f, text)
    if names[f] then return end
    names[f], order[#order + 1] = text, text
  end
  -- The function of C that a value is, or that moonpool.runtime.exact has put a count of arguments before.
  local function function_of_c(value)
    if type(value) ~= "function" or is_c(value) then return type(value) == "function" and value or nil end
    for i = 1, 255 do
      local upvalue, inner = debug.getupvalue(value, i)
      if not upvalue then return nil end
      if upvalue == "f" and type(inner) == "function" and is_c(inner) then return inner end
    end
  end
  -- Modules of C, Lua's libraries and metatables first: what they hold has a name of its own.
  local named = {}
  local function add(prefix, content, suffix)
    local keys = {} -- sorted: a function may have two names
    for key, f in pairs(content) do
      if function_of_c(f) then keys[#keys + 1] = key end
    end
    table.sort(keys)
    for _, key in ipairs(keys) do
      local f = function_of_c(content[key])
      named[f] = named[f] or prefix .. key .. (suffix or "")
    end
  end
  local libraries = { "string", "table", "math", "utf8", "os", "coroutine", "debug" }
  for _, name in ipairs(libraries) do
    if rawget(base, name) then add(name .. ".", base[name]) end
  end
  add("", base)
  add("cjson.", base.cjson)
  local modules = { host = host }
  for _, name in ipairs { "json", "keys", "events", "regex" } do modules[name] = package.loaded["moonpool." .. name] end
  for module, content in pairs(modules) do add(module .. ".", content) end
  for group, members in pairs(host) do add("host." .. group .. ".", members) end
  local real = package.loaded._G
  for _, name in ipairs(libraries) do add(name .. ".", real[name], " (Lua's)") end
  add("", real, " (Lua's)")
  add("call:", host.call.methods)
  add("call.", debug.getmetatable(call))
  add("json.array_mt.", debug.getmetatable(modules.json.array_mt))
  add("text.", debug.getmetatable(""))
  local _, lua_cjson = debug.getupvalue(host.cjson.new, 4)
  add("lua-cjson ", lua_cjson)
  for i = 1, 4 do
    local _, config = debug.getupvalue(lua_cjson.encode, i)
    if type(config) == "userdata" then add("lua-cjson ", debug.getmetatable(config)) end
  end
  local live = { call, coroutine.wrap(print), ("x"):gmatch "x", (utf8.codes "x"), base.regex.new "x", base.cjson }
  named[live[2] ], named[live[3] ], named[live[4] ] = "coroutine.wrap, its function", "string.gmatch, its iterator", "utf8.codes, its iterator"
  -- The registry's entries of moonpool. Other tasks run between two steps of a slow loop and add entries, which may move
  -- those that are there to where `pairs` has been: so it is read three times.
  local entries = {}
  for _ = 1, 3 do
    for key, value in pairs(debug.getregistry()) do
      if type(key) == "string" and key:find "^moonpool" then entries[key] = value end
    end
  end
  for key, value in pairs(entries) do
    if type(value) == "table" then
      add(key .. ".", value)
      if type(value.__index) == "table" then add(key .. ":", value.__index) end
    end
  end

  local seen = {}
  local function visit(value, from)
    local kind = type(value)
    if seen[value] or (kind ~= "table" and kind ~= "function" and kind ~= "userdata") then return end
    if value == package or value == debug or value == _G or value == package.loaded then return end
    seen[value] = true
    local mt = debug.getmetatable(value)
    if mt then visit(mt, from .. ".mt") end
    if kind == "table" then
      for key, inner in next, value do
        visit(key, from .. "{}")
        visit(inner, from .. "." .. tostring(key))
      end
    elseif kind == "userdata" then
      for i = 1, 8 do
        local inner, there = debug.getuservalue(value, i)
        if not there then break end
        visit(inner, from .. "<" .. i .. ">")
      end
    else
      if is_c(value) then name(value, named[value] or "? " .. from) end
      for i = 1, 255 do
        local upvalue, inner = debug.getupvalue(value, i)
        if not upvalue then break end
        local is_replaced = type(inner) == "function" and is_c(value) and is_c(inner)
        local replaced = is_replaced and (named[value] or "?")
        if replaced then named[inner] = named[inner] or replaced:find "^cjson" and replaced:gsub("^cjson.", "lua-cjson ") or replaced .. " (Lua's)" end
        if upvalue ~= "_ENV" then visit(inner, from .. "^" .. (upvalue == "" and i or upvalue)) end
      end
    end
  end
  visit(base, "")
  visit(live, "live")
  visit(debug.getmetatable "", "text")
  for _, content in pairs(modules) do visit(content, "modules") end
  for key, value in pairs(entries) do visit(value, key) end
  table.sort(order)
  local list = {}
  for i, text in ipairs(order) do list[#list + 1] = text ~= order[i - 1] and text or nil end
  return table.concat(list, "\n")
end }]]

--- The names, one per line, sorted.
function reachable.list()
  local g <close> = gateway.start { workers = 1, scripts = { ["tools/walk.lua"] = walk }, config = { scripts = { path = "scripts", trust = "full" } } }
  local me = g:client "2026-07-28"
  local result = me:call("tools/call", { name = "walk", arguments = {} }).result
  assert(not result.isError, result.content[1].text)
  me:close()
  return result.content[1].text
end

return reachable
