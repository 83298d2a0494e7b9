-- While calls are replayed, scripts do not get the libraries that `scripts.trust: full` opens, such as io: what a
-- script reads by them is in no record. Scripts get stand-ins instead. A script may store a stand-in while it loads;
-- using one raises an error that says why it does nothing in a replay, and what to do.

local problem = require "moonpool.runtime.diagnostic"

local libraries <const> = { "io", "debug", "package" }
local functions <const> = { "dofile", "loadfile", "loadstring", "warn" }
local of_os <const> = { "execute", "exit", "getenv", "remove", "rename", "setlocale", "tmpname" }

local HINT <const> = "a replay reaches nothing outside, whatever scripts.trust says: use it in a handler, whose calls are then compared without refusing a "
  .. "reload; or %sset scripts.reload_check to off"

local function hint_for(name)
  local known = problem.closed[name] or problem.closed[name:match "^%l+"]
  return HINT:format(known and known.instead and ("use '%s' instead; or "):format(known.instead) or "")
end

--- Returns a function that puts stand-ins into `base`, the names of a script. `count` is called for each use.
return function(count)
  local function stand_in(name)
    local function refuse()
      count()
      problem.raise(2, "a replay has no '" .. name .. "'", hint_for(name))
    end
    return setmetatable({}, { __index = refuse, __newindex = refuse, __call = refuse, __metatable = false })
  end

  local function library(name)
    return setmetatable({}, {
      __index = function(_, key) return stand_in(name .. "." .. tostring(key)) end,
      __newindex = function(_, key) return stand_in(name .. "." .. tostring(key))() end, __metatable = false,
    })
  end

  return function(base)
    for _, name in ipairs(libraries) do base[name] = library(name) end
    for _, name in ipairs(functions) do base[name] = stand_in(name) end
    for _, name in ipairs(of_os) do base.os[name] = stand_in("os." .. name) end
  end
end
