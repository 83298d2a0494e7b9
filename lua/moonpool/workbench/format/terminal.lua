-- What commands print on a terminal. Texts of servers may have characters that a terminal obeys, or that nobody sees:
-- all that is printed on one passes through here. Into a file or a pipe the texts go as they are.

local characters = require "moonpool.runtime.characters"
local wire = require "moonpool.wire"

local function shown(...)
  local text = table.concat { ... }
  return (text:gsub("[^\n\t]+", characters.shown))
end

local function guarded(file, descriptor)
  if not wire.is_terminal(descriptor) then return file end
  local guard = {}
  function guard:write(...)
    local ok, why, code = file:write(shown(...))
    return ok and self, why, code
  end
  function guard.setvbuf(_, ...) return file:setvbuf(...) end
  function guard.flush() return file:flush() end
  return guard
end

io.stdout, io.stderr = guarded(io.stdout, 1), guarded(io.stderr, 2)

function print(...)
  local words = table.pack(...)
  for i = 1, words.n do words[i] = tostring(words[i]) end
  io.stdout:write(table.concat(words, "\t"), "\n")
end
