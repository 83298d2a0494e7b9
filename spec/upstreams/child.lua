-- The program that the gateway runs for a stub upstream over stdio: it gives every byte of its stdin to the spec that
-- waits at a socket, and writes what that spec sends. So the server and all its misbehaviour are in the spec's process,
-- where a spec can ask and change it.
--   lua5.4 child.lua SOCKET [LABEL]
-- Frames in both directions: "TYPE LENGTH\n" and that many bytes. It ends when the spec does.
local uv = require "luv"

local control = assert(uv.new_pipe(false))
local input, output = uv.new_pipe(false), uv.new_pipe(false)
local orders = {}
local pieces, size = {}, 0 -- what has come of the next orders
local wanted = 0 -- the least size with which one is complete
local stays = false -- set by the order `stay`
local is_below = (arg[2] or ""):find "^below" ~= nil
local kept = {} -- handles; one that nothing refers to would be closed

local function send(kind, bytes)
  if not control:is_closing() then control:write(("%s %d\n%s"):format(kind, #bytes, bytes)) end
end

local function read_file(path)
  local file <close> = io.open(path, "rb")
  return file and file:read "a" or ""
end

-- What this process got from the one that started it.
local function describe()
  local descriptors, entries = {}, uv.fs_scandir "/proc/self/fd"
  for name in uv.fs_scandir_next, entries do
    local target = uv.fs_readlink("/proc/self/fd/" .. name)
    if target and not target:find "^/proc/" then descriptors[#descriptors + 1] = name .. "=" .. target end
  end
  local environment = read_file("/proc/self/environ"):gsub("%z", "\n")
  return ("%d\n%d\n%s\n%s\n%s\n\n%s"):format(uv.os_getpid(), uv.os_getppid(), arg[2] or "", uv.cwd(), table.concat(descriptors, "\t"), environment)
end

local hello = describe()

function orders.out(bytes) output:write(bytes) end
function orders.err(bytes) io.stderr:write(bytes) end

-- Writes "COUNT TEXT": the text that many times to stderr, blocking.
function orders.flood(bytes)
  local count, text = bytes:match "^(%d+) (.*)$"
  for _ = 1, tonumber(count) do io.stderr:write(text) end
  send("done", "flood")
end

function orders.exit(bytes) os.exit(tonumber(bytes)) end
function orders.kill(bytes) uv.kill(uv.os_getpid(), bytes) end
function orders.pause() input:read_stop() end

-- Closes stdout, and runs on. libuv leaves the descriptors 0 to 2 open when it closes a handle.
function orders.close_out()
  output:close()
  uv.fs_close(1)
end

-- Ignores a signal ("sigterm").
function orders.ignore(bytes)
  local signal = uv.new_signal()
  kept[#kept + 1] = signal
  signal:start(bytes, function() send("signal", bytes) end)
end

-- Lets nothing end this process but SIGKILL, and the end of the spec.
function orders.stay() stays = true end

-- Starts a copy of this program with a label that begins with "below": it has no stdin and no stdout. "detached LABEL":
-- as the leader of a session.
function orders.child(bytes)
  local how, label = bytes:match "^(%S+) (.*)$"
  local null = assert(uv.fs_open("/dev/null", "r+", 0))
  local options = { args = { arg[0], arg[1], label }, stdio = { null, null, null }, detached = how == "detached" }
  kept[#kept + 1] = uv.spawn("/usr/bin/lua5.4", options, function() end)
  uv.fs_close(null)
end

local function start_reading()
  input:read_start(function(_, bytes)
    if bytes then return send("in", bytes) end
    send("eof", "")
    input:read_stop()
    if stays then return end
    if output:is_closing() then os.exit(0) end
    output:shutdown(function() os.exit(0) end)
  end)
end
orders.resume = start_reading

control:connect(arg[1], function(fault)
  if fault then os.exit(69) end
  send("hello", hello)
  control:read_start(function(_, bytes)
    if not bytes then os.exit(0) end
    pieces[#pieces + 1] = bytes
    size = size + #bytes
    if size < wanted then return end
    local text, from = table.concat(pieces), 1
    while true do
      local kind, length, at = text:match("^(%S+) (%d+)\n()", from)
      wanted = kind and at - from + tonumber(length) or 0
      if not kind or #text - from + 1 < wanted then break end
      orders[kind](text:sub(at, at + tonumber(length) - 1))
      from = at + tonumber(length)
    end
    text = text:sub(from)
    pieces, size = { text }, #text
  end)
  if is_below then return end
  input:open(0)
  output:open(1)
  start_reading()
end)

uv.run()
