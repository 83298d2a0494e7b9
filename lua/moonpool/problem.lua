-- What is wrong with a script, told so that a person can mend it: where, what, what next.
--   trouble   an error value with a place and a hint; scripts that pcall it see its text
--   problem   the finished text: "path:line: what", the excerpt, "hint: …"

local host = require "moonpool.host"

local problem = {}

local trouble = {}
trouble.__index = trouble
trouble.__name = "moonpool.trouble"
trouble.__metatable = false
function trouble:__tostring() return self.where .. self.what end

--- Raises a trouble at the place `level` calls up (1 is the caller of raise), as `error` would; a tail call leaves no
--- place, so the nearest script above it is named.
function problem.raise(level, what, hint)
  local where, prefix = "", "@" .. host.root .. "/"
  for above = level + 1, level + 9 do
    local info = debug.getinfo(above, "Sl")
    if not info then break end
    if info.currentline > 0 and info.source:sub(1, #prefix) == prefix then
      where = info.source:sub(2) .. ":" .. info.currentline .. ": "
      break
    end
  end
  error(setmetatable({ where = where, what = what, hint = hint }, trouble), 0)
end

function problem.is_trouble(value) return debug.getmetatable(value) == trouble end

--- The place and the words of an error message: path, line, what.
function problem.split(message)
  local path, line, what = message:match "^([^\n]-%.lua):(%d+): (.*)$"
  if not path then return nil, nil, message end
  return path, tonumber(line), what
end

--- What of Lua's library scripts run without, and what they have instead; `says` is the hint where they call it all the same.
problem.closed = {
  io = { instead = "fs" }, debug = { instead = "log" }, package = { instead = "require" }, dofile = { instead = "require" },
  loadfile = { instead = "require" }, loadstring = { instead = "load" }, warn = { instead = "log" },
  ["os.execute"] = { instead = "exec", says = "exec { … } runs a program that is granted" },
  ["os.getenv"] = { instead = "env", says = "env \"NAME\" reads a variable that is granted" },
  ["os.remove"] = { instead = "fs", says = "fs.remove removes a file that is granted" },
  ["os.rename"] = { instead = "fs" }, ["os.tmpname"] = { instead = "fs" },
  ["os.exit"] = { says = "a call ends with its function, or by fail" },
}

--- The hint about an error of Lua's own, or nil.
function problem.hint(message)
  local name = message:match "attempt to call a nil value %(field '(%l+)'%)"
  local known = name and problem.closed["os." .. name]
  return known and known.says and "scripts have no os." .. name .. ": " .. known.says
end

--- Line `wanted` of `text`, without its end; nil past the end.
function problem.line(text, wanted)
  local n = 0
  for line in (text .. "\n"):gmatch "(.-)\r?\n" do
    n = n + 1
    if n == wanted then return line end
  end
end

--- The first line of `text` that holds `word` as a name, from line `from` on.
function problem.find(text, word, from)
  local n, pattern = 0, "%f[%w_]" .. word:gsub("%W", "%%%0") .. "%f[^%w_]"
  for line in (text .. "\n"):gmatch "(.-)\r?\n" do
    n = n + 1
    if n >= (from or 1) and line:gsub("%-%-.*", ""):find(pattern) then return n end
  end
end

--- The whole text about one problem. `text` is the file's, for the excerpt.
function problem.text(path, line, what, hint, text)
  local out = { path, line and ":" .. line or "", ": ", what }
  local excerpt = line and text and problem.line(text, line)
  if excerpt and excerpt:find "%S" then
    out[#out + 1] = "\n    " .. excerpt:gsub("^%s+", ""):sub(1, 160)
  end
  if hint then out[#out + 1] = "\n  hint: " .. hint end
  return table.concat(out)
end

return problem
