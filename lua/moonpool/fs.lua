-- `fs` of scripts: files within what is granted, read and written on other threads while the call waits.

local host = require "moonpool.host"
local grants = require "moonpool.grants"
local paths = require "moonpool.paths"
local problem = require "moonpool.problem"
local suggest = require "moonpool.suggest"

local fs = {}

local verbs = {
  read = "read", write = "write", append = "write", list = "list", stat = "look at", remove = "remove", mkdir = "make",
}

--- The library of one script file. `granted` is what grants.of(path) gives.
function fs.library(granted, file)
  local roots = { read = paths.roots(granted.read), write = paths.roots(granted.write) }

  -- What the action gives; or nil, why, whether there is nothing there.
  local function act(kind, action, path, text)
    local wanted, wrong = paths.absolute(path)
    if not wanted then problem.raise(2, "fs: " .. wrong, "as in fs.read \"data/prices.csv\"") end
    local root, rest = paths.within(roots[kind], wanted)
    if not root then
      host.log("warn", "fs refused", { file = file, path = wanted, why = "no grant to " .. kind })
      return nil, grants.refusal(kind, paths.shown(wanted), file)
    end
    local value, why, absent = host.fs(action, root, rest, text)
    if value ~= nil then return value end
    return nil, ("cannot %s %s: %s"):format(verbs[action], paths.shown(wanted), why), absent
  end

  -- Without what only this file needs to know.
  local function plain(...)
    local value, why = act(...)
    if value == nil then return nil, why end
    return value
  end

  local library = {}
  function library.read(path) return plain("read", "read", path) end
  function library.list(path) return plain("read", "list", path) end
  function library.stat(path) return plain("read", "stat", path) end
  function library.remove(path) return plain("write", "remove", path) end
  function library.mkdir(path) return plain("write", "mkdir", path) end

  function library.exists(path)
    local info, why, absent = act("read", "stat", path)
    if info then return true end
    if absent then return false end
    return nil, why
  end

  function library.write(path, text, options)
    if type(text) ~= "string" then problem.raise(1, "fs.write needs a text, got a " .. type(text), "json.encode makes one of a table") end
    for name in pairs(options or {}) do
      if name ~= "append" then
        problem.raise(1, "fs.write has no option '" .. tostring(name) .. "'", suggest.hint(name, { "append" }) or "the one option is append")
      end
    end
    return plain("write", options and options.append and "append" or "write", path, text)
  end
  return library
end

return fs
