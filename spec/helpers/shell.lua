-- Commands and files of specs that run no gateway.
local shell = {}

--- Runs a line of shell. Returns what it writes to stdout and stderr, and its exit code.
function shell.run(command)
  local pipe <close> = assert(io.popen(command .. " 2>&1"))
  local out = pipe:read "a"
  return out, select(3, pipe:close())
end

function shell.write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

return shell
