-- Error reports about scripts, for the author of the script: file and line, the error, and a hint.
--   trouble   an error value with a place and a hint; scripts that pcall it see its text
--   problem   the finished text: "path:line: what", the excerpt, "hint: …"

local frozen = require "moonpool.runtime.frozen"
local host = require "moonpool.host"

local problem = {}

local trouble = { name = "moonpool.trouble", what = "an error", tostring = function(content) return content.where .. content.what end }

--- True if a function of this source, as debug.getinfo gives it, belongs to a script or to a rock.
function problem.is_of_script(source)
  local scripts, rocks = "@" .. host.script.root .. "/", host.rock.folder and "@" .. host.rock.folder .. "/"
  return source:sub(1, #scripts) == scripts or rocks and source:sub(1, #rocks) == rocks or false
end

--- Raises a trouble with the place of the function `level` calls up (1 is the caller of raise), as `error` would. A
--- tail call leaves no place; then the nearest script further up the stack is named.
function problem.raise(level, what, hint)
  local where = ""
  for above = level + 1, level + 9 do
    local info = debug.getinfo(above, "Sl")
    if not info then break end
    if info.currentline > 0 and problem.is_of_script(info.source) then
      where = info.source:sub(2) .. ":" .. info.currentline .. ": "
      break
    end
  end
  error(frozen.new(trouble, { where = where, what = what, hint = hint }), 0)
end

function problem.is_trouble(value) return frozen.is(value, trouble) end

--- Splits an error message of Lua into path, line and text.
function problem.split(message)
  local path, line, what = message:match "^([^\n]-%.lua):(%d+): (.*)$"
  if not path then return nil, nil, message end
  return path, tonumber(line), what
end

--- Functions of Lua's library that scripts do not have, with their replacements; `says` is the hint for a script that
--- uses one.
problem.closed = {
  io = { instead = "fs" }, debug = { instead = "log" }, package = { instead = "require" }, dofile = { instead = "require" },
  loadfile = { instead = "require" }, loadstring = { instead = "load" }, warn = { instead = "log" },
  ["os.execute"] = { instead = "exec", says = "exec { … } runs a program that is granted" },
  ["os.getenv"] = { instead = "env", says = "env \"NAME\" reads a variable that is granted" },
  ["os.remove"] = { instead = "fs", says = "fs.remove removes a file that is granted" },
  ["os.rename"] = { instead = "fs" }, ["os.tmpname"] = { instead = "fs" },
  ["os.exit"] = { says = "a call ends with its function, or by fail" },
}

--- An error value about the file at `path` as a whole, without a line.
function problem.of_file(path, what, hint)
  return frozen.new(trouble, { where = host.script.root .. "/" .. path .. ": ", what = what, hint = hint, file = path })
end

--- The hint for an error message that Lua itself raised, or nil.
function problem.hint(message)
  if message:find "attempt to %l+ a userdata value" then return "json.null, JSON's null, is a value and true: compare with json.null" end
  local missing = message:match "attempt to index a nil value %(%l+ '(%l+)'%)" or message:match "attempt to call a nil value %(global '(%l+)'%)"
  local of_lua = missing and problem.closed[missing]
  if of_lua then
    return ("there is no '%s': scripts have '%s' instead, and rocks that need it do not run; 'trust: full' in the config opens the whole "
      .. "standard library"):format(missing, of_lua.instead)
  end
  if missing == "module" or missing == "setfenv" or missing == "getfenv" then return missing .. " is of Lua 5.1: look for a version for Lua 5.4" end
  local name = message:match "attempt to call a nil value %(field '(%l+)'%)"
  local known = name and problem.closed["os." .. name]
  if known and known.says then return "scripts have no os." .. name .. ": " .. known.says end
  local path, line, what = problem.split(message)
  local text = path and problem.script_text(path:sub(#host.script.root + 2))
  return require "moonpool.runtime.hint_errors"(what, text and line and problem.line(text, line))
end

--- Line number `wanted` of `text`, without its line end; nil if the text has fewer lines.
function problem.line(text, wanted)
  local n = 0
  for line in (text .. "\n"):gmatch "(.-)\r?\n" do
    n = n + 1
    if n == wanted then return line end
  end
end

--- The text of the script's line that runs `level` calls up (1 is the caller of calling_line); nil if that function is
--- not a script's.
function problem.calling_line(level)
  local info = debug.getinfo(level + 1, "Sl")
  local path = info and info.source:sub(1, #host.script.root + 2) == "@" .. host.script.root .. "/" and info.source:sub(#host.script.root + 3)
  local text = path and problem.script_text(path)
  return text and problem.line(text, info.currentline)
end

--- The number of the first line of `text`, from line `from` on, that contains the name `word`.
function problem.find(text, word, from)
  local n, pattern = 0, "%f[%w_]" .. word:gsub("%W", "%%%0") .. "%f[^%w_]"
  for line in (text .. "\n"):gmatch "(.-)\r?\n" do
    n = n + 1
    if n >= (from or 1) and line:gsub("%-%-.*", ""):find(pattern) then return n end
  end
end

--- The full report of one problem. `text` is the source of the file, for the excerpt.
function problem.text(path, line, what, hint, text)
  local out = { path, line and ":" .. line or "", ": ", what }
  local excerpt = line and text and problem.line(text, line)
  if excerpt and excerpt:find "%S" then
    out[#out + 1] = "\n    " .. excerpt:gsub("^%s+", ""):sub(1, 160)
  end
  if hint then out[#out + 1] = "\n  hint: " .. hint end
  return table.concat(out)
end

--- The text of the script at `path` below the scripts' folder; nil if there is none.
function problem.script_text(path)
  for _, script in ipairs(host.script.list) do
    if script.path == path then return script.text end
  end
end

--- The description of a problem in the script at `path` below the scripts' folder; see problem.text.
function problem.of_script(path, line, what, hint)
  return problem.text(host.script.root .. "/" .. path, line, what, hint, problem.script_text(path))
end

return problem
