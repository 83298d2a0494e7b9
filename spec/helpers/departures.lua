-- Clients of quiet streams that disconnect in various ways, and the state of the gateway 100 ms later. The specs of
-- B-01 to B-03 run this once, the spec of B-04 many times.
local uv = require "luv"
local cjson = require "cjson.safe"
local assert = require "luassert"
local children = require "spec.helpers.children"
local client = require "spec.helpers.client"
local wait = require "spec.helpers.wait"

local departures = {}

departures.PROMISE = 0.1 -- seconds within which the gateway must notice that a client has disconnected

-- Heartbeats are a minute apart: the gateway writes nothing by which it could find a dead socket.
departures.config = {
  heartbeat = "60s", limits = { stream_queue = "64MiB" }, sessions = { max = 20000, per_principal = 20000 },
}

departures.scripts = {
  ["tools/big.lua"] = [[
local kib = ("x"):rep(1024)
return tool { "Gives that many bytes.", input = { bytes = t.integer }, function(args) return kib:rep(args.bytes // 1024) end }]],
}

-- More bytes than a socket takes whose peer reads nothing and has a small window.
departures.more_than_the_kernel_holds = (function()
  local file <close> = assert(io.open "/proc/sys/net/ipv4/tcp_wmem")
  return file:read "a":match "(%d+)%s*$" + 1024 * 1024
end)()

-- A monotonic clock, in seconds.
function departures.now()
  return uv.hrtime() / 1e9
end

-- Runs the loop until the monotonic clock is at `moment` (seconds).
function departures.wait_until(moment)
  local left = moment - departures.now()
  if left > 0 then
    wait.quietly(left)
  end
end

-- HTTP status of a `ping` posted to an HTTP+SSE session.
function departures.ping(g, endpoint)
  return client.request(g, { method = "POST", path = endpoint, body = { jsonrpc = "2.0", id = 99, method = "ping" } }).status
end

-- Fails if the log has a warning or an error.
function departures.assert_calm(g)
  for _, line in ipairs(g:log_lines()) do
    assert.is_true(line.level == "info" or line.level == "debug", line.text)
  end
end

-- Calls `arrive`, which returns a function by which the client leaves, and a value that is closed at the end. Lets the
-- client leave, and waits until fact(status). Repeats this up to ten times, until the wait takes no longer than
-- departures.PROMISE: the machine may delay some tries. Returns the number of tries.
function departures.notices(g, arrive, fact)
  local tries, took = 0
  repeat
    local leave, left = arrive()
    tries = tries + 1
    took = wait.timed(function()
      leave()
      g:wait_status(fact, 10)
    end)
    if left then left:close() end
  until took <= departures.PROMISE or tries == 10
  assert.is_true(took <= departures.PROMISE, ("it took %g s and more"):format(took))
  return tries
end

-- -- HTTP+SSE sessions whose client leaves ---------------------------------------------------------------------------

local ways = {
  FIN = function(connection)
    connection:close()
  end,
  RST = function(connection)
    connection:reset()
  end,
  ["half-close"] = function(connection)
    connection:fin()
  end,
  ["FIN behind bytes"] = function(connection) -- the beginning of another request
    connection:send_raw "GET /sse HTTP/1.1\r\nHost: localhost\r\n"
    connection:close()
  end,
  goodbye = function(connection) -- closes only TLS: TCP stays open
    connection:goodbye()
  end,
}

local function arrive(g, name)
  local me = g:client "2024-11-05"
  assert.equal(202, departures.ping(g, me.endpoint), name)
  me.stream:wait_event(99)
  return me
end

-- A client that leaves in the way `name` is noticed within departures.PROMISE seconds. Its session is then the only one
-- that has ended, and its id is unknown.
function departures.assert_noticed(g, name)
  local others, endpoints = g:status().gauges.sessions.sse, {}
  departures.notices(g, function()
    local me = arrive(g, name)
    endpoints[#endpoints + 1] = me.endpoint
    return function() ways[name](me.stream) end, me
  end, function(status) return status.gauges.sessions.sse == others and status.counters.sessions_closed.gone == #endpoints end)
  for _, endpoint in ipairs(endpoints) do assert.equal(404, departures.ping(g, endpoint), name) end
end

-- For each entry of `names`, a client opens a session, initializes, gets an answer, and disconnects in the named way;
-- `delay` seconds later, each session is sent a ping. Returns the HTTP statuses by way.
function departures.leave_sessions(g, names, delay)
  local people = {}
  for i, name in ipairs(names) do
    people[i] = arrive(g, name)
  end
  local statuses, left = {}, {}
  for i, name in ipairs(names) do
    ways[name](people[i].stream)
    left[i] = departures.now()
  end
  for i, name in ipairs(names) do
    departures.wait_until(left[i] + delay)
    statuses[name] = departures.ping(g, people[i].endpoint)
    people[i]:close()
  end
  return statuses
end

-- -- a client's process that is killed -------------------------------------------------------------------------------

-- A program that opens an event stream, prints its endpoint, and reads nothing more.
local careless = [[
local uv = require "luv"
local tcp, seen = uv.new_tcp(), ""
tcp:connect("127.0.0.1", tonumber(arg[1]), function(err)
  assert(not err, err)
  tcp:write "GET /sse HTTP/1.1\r\nHost: localhost\r\n\r\n"
  tcp:read_start(function(_, bytes)
    seen = seen .. (bytes or "")
    local endpoint = seen:match "data: (%S+)\n\n"
    if endpoint then
      tcp:read_stop()
      io.write(endpoint, "\n")
      io.flush()
    end
  end)
end)
uv.new_timer():start(600000, 0, os.exit)
uv.run()
]]

local process = {}
process.__index = process

-- Starts a program and waits for the first line of its stdout. The program ends with its scope. `input`: a pipe, and
-- the text that the program reads from it.
function departures.spawn(path, args, input, text_in)
  local out = uv.new_pipe(false)
  local self, text = setmetatable({}, process), ""
  local handle, pid
  handle, pid = uv.spawn(path, { args = args, stdio = { input, out, not input and 2 or nil } }, function()
    children.alive[pid] = nil
    self.over = true
    handle:close()
  end)
  assert(handle, pid)
  children.alive[pid] = true
  self.handle, self.pid, self.out = handle, pid, out
  if input then
    input:write(text_in)
  end
  out:read_start(function(_, bytes)
    text = text .. (bytes or "")
  end)
  self.line = wait.for_fact("the first line of " .. path, 20, function()
    return text:match "^(.-)\n"
  end)
  return self
end

function process:kill()
  if not self.over then
    self.handle:kill "sigkill"
    wait.for_fact("process " .. self.pid .. " to end", 20, function()
      return self.over
    end)
    self.out:close()
  end
end

process.__close = process.kill

-- The path of the lua5.4 that runs the specs.
departures.interpreter = uv.exepath()

-- Kills a client while `calls` answers of `bytes` bytes each wait for it unread: all of them in the kernel if
-- `is_sent`, else some in the gateway.
-- Returns the HTTP status of a ping 100 ms later.
function departures.kill_client(g, calls, bytes, is_sent)
  local doomed <close> = departures.spawn(departures.interpreter, { "-e", careless, "-", tostring(g.port) })
  local endpoint = doomed.line
  local function post(message)
    message.jsonrpc = "2.0"
    assert.equal(202, client.request(g, { method = "POST", path = endpoint, body = message }).status)
  end
  local function wait_answered()
    g:wait_status(function(status)
      return status.gauges.requests_in_flight == 0 and (status.gauges.queue_bytes == 0) == is_sent
    end, 30)
  end
  post { id = 1, method = "initialize", params = {
    protocolVersion = "2024-11-05", capabilities = cjson.decode "{}", clientInfo = { name = "careless", version = "1" },
  } }
  g:wait_status(function(status)
    return status.gauges.requests_in_flight == 0 and status.gauges.queue_bytes == 0
  end)
  post { method = "notifications/initialized" }
  for id = 2, calls + 1 do
    post { id = id, method = "tools/call", params = { name = "big", arguments = { bytes = bytes } } }
  end
  wait_answered()
  doomed:kill()
  departures.wait_until(departures.now() + departures.PROMISE)
  return departures.ping(g, endpoint)
end

-- -- many quiet streams ----------------------------------------------------------------------------------------------

local INITIALIZE = {
  jsonrpc = "2.0", id = 1, method = "initialize",
  params = { protocolVersion = "2025-11-25", capabilities = cjson.decode "{}", clientInfo = { name = "quiet", version = "1" } },
}

local function open_sse(g)
  return client.connect(g):send { path = "/sse", headers = { Accept = "text/event-stream" } }
end

local function open_get(g, session)
  return client.connect(g):send { path = "/mcp", headers = {
    Accept = "text/event-stream", ["Mcp-Session-Id"] = session, ["MCP-Protocol-Version"] = "2025-11-25",
  } }
end

-- Opens `count` Streamable HTTP sessions over one connection and returns their ids.
local function make_sessions(g, count)
  local ids, connection <close> = {}, client.connect(g)
  for i = 1, count do
    ids[i] = connection:request({ method = "POST", path = "/mcp", body = INITIALIZE,
      headers = { Accept = "application/json, text/event-stream" } }).headers["mcp-session-id"]
  end
  return ids
end

local function delete_sessions(g, ids)
  local connection <close> = client.connect(g)
  for _, id in ipairs(ids) do
    assert.equal(204, connection:request({ method = "DELETE", path = "/mcp", headers = { ["Mcp-Session-Id"] = id } }).status)
  end
end

-- Opens `count` HTTP+SSE streams and `count` GET streams of Streamable HTTP sessions, which carry no event; then half
-- of each kind disconnect by FIN and half by RST. Streamable HTTP sessions outlive their streams, so they are deleted
-- at the end.
function departures.leave_quiet_streams(g, count)
  local ids, all = make_sessions(g, count), {}
  for i = 1, count do
    all[#all + 1] = open_sse(g)
    all[#all + 1] = open_get(g, ids[i])
  end
  for i, stream in ipairs(all) do
    assert.equal(200, stream:read_head(20).status)
    if i % 2 == 1 then
      stream:wait_event("endpoint", 20)
    end
  end
  local gauges = g:status().gauges
  assert.same({ sse = count, http = count }, gauges.sessions)
  assert.equal(2 * count, gauges.streams_open)
  for i, stream in ipairs(all) do
    ways[(i + 1) // 2 % 2 == 0 and "FIN" or "RST"](stream)
  end
  wait.for_fact("all descriptors to be closed", 10, function()
    return g:fds() <= g.baseline_fds and g:close_waits() == 0
  end)
  gauges = g:status().gauges
  assert.same({ sse = 0, http = count }, gauges.sessions)
  assert.equal(0, gauges.streams_open)
  delete_sessions(g, ids)
end

return departures
