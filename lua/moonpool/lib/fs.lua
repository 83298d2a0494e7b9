-- The library `fs` of scripts: files in granted paths, read and written on other threads while the call waits.

local host = require "moonpool.host"
local copied = require "moonpool.runtime.copied"
local grants = require "moonpool.runtime.grants"
local paths = require "moonpool.runtime.paths"
local problem = require "moonpool.runtime.diagnostic"
local suggest = require "moonpool.runtime.suggest"

-- stand_in(action, path, text): replaces the file system while a spec fakes it; else nil.
local fs = {}

local verbs = {
  read = "read", write = "write", append = "write", list = "list", stat = "look at", remove = "remove", mkdir = "make",
}

--- The library of one script file. `granted` is what grants.of(path) gives.
function fs.library(granted, file)
  local roots = { read = paths.roots(granted.read), write = paths.roots(granted.write) }

  -- Runs a file action and returns its result; or nil, why, and true if the file does not exist.
  local function act(kind, action, path, text)
    local wanted, wrong = paths.absolute(path)
    if not wanted then problem.raise(2, "fs: " .. wrong, "as in fs.read \"data/prices.csv\"") end
    local root, rest = paths.within(roots[kind], wanted)
    if not root then
      host.log.write("warn", "fs refused", { file = file, path = wanted, why = "no grant to " .. kind, grant = grants.yaml(kind, paths.shown(wanted), file) })
      return nil, grants.refusal(kind, paths.shown(wanted), file)
    end
    local value, why, absent
    if fs.stand_in then
      value, why, absent = fs.stand_in(action, wanted, text)
    else
      value, why, absent = host.fs.run(action, root, rest, text)
    end
    if value ~= nil then return value end
    return nil, ("cannot %s %s: %s"):format(verbs[action], paths.shown(wanted), why), absent
  end

  -- Drops the third result, which only this file uses.
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
    if type(text) ~= "string" then problem.raise(1, "fs.write needs a string, got a " .. type(text), "json.encode(table) makes one") end
    options = copied(options == nil and {} or options)
    if type(options) ~= "table" then problem.raise(1, "fs.write: options must be a table", "as in { append = true }") end
    for name in next, options do
      if name ~= "append" then
        problem.raise(1, "fs.write has no option '" .. tostring(name) .. "'", suggest.hint(tostring(name), { "append" }) or "the only option is 'append'")
      end
    end
    return plain("write", options.append and "append" or "write", path, text)
  end
  return library
end

return fs
