-- blocking.lua: a tool that blocks its worker in a system call, as scripts of trust: full can. Each call of it ends
-- when blocking.release has written for it; the text of its answer is "done".
local blocking = {}

-- The pipe is open for writing too, in the tool: what is written waits there, whoever reads when.
blocking.tool = [[return tool { "Blocks its worker until four bytes come.", input = { pipe = t.string }, function(args)
  local pipe <close> = assert(io.open(args.pipe, "r+"))
  pipe:setvbuf "no"
  return pipe:read(4) end }]]

local function path_of(g) return g.dir .. "/pipe" end

-- Calls the tool, which the gateway has as `block`. Returns the open call.
function blocking.open(g, me)
  assert(os.execute(("test -p '%s' || mkfifo '%s'"):format(path_of(g), path_of(g))))
  return me:open("tools/call", { name = "block", arguments = { pipe = path_of(g) } })
end

-- Ends one call that is blocked, or `count`.
function blocking.release(g, count)
  local pipe <close> = assert(io.open(path_of(g), "r+")) -- "w" waits if there is no reader
  pipe:write(("done"):rep(count or 1))
end

return blocking
