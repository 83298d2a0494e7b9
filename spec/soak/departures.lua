-- Clients that send `initialize` and leave before its answer, thousands of them: `./dev soak departures` and a few
-- hundred in the suite.
--   departures.run(g, { form = "http2 close", times = 300, at_once = 4 })
-- The gateway keeps no call of theirs, and no session: none is made for one that has left, one that certainly has no
-- answer loses its session at once, and one of which nobody can know it after 30 s. This holds at
-- the limit of the sessions and below it.
local uv = require "luv"
local http2 = require "spec.helpers.http2"
local lfs = require "lfs"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local departures = {}

local PATIENCE <const> = 60

-- An initialize of about `bytes` bytes in small arrays: it is decoded in several turns, between which its client can be
-- seen to have left.
local function initialize(bytes)
  local rest = bytes > 0 and (',"extra":[%s[1]]'):format(("[12345],"):rep(bytes // 8)) or ""
  return ('{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    .. '"clientInfo":{"name":"gone","version":"1"}%s}}'):format(rest)
end

departures.initialize = initialize

-- A call of 2026-07-28, which its client's departure cancels: also while it is decoded.
local function call(bytes)
  return ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"none","arguments":{"extra":[%s[1]]},"_meta":'
    .. '{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}'):format(("[12345],"):rep(bytes // 8))
end

local function http1_request(body, more)
  return table.concat({
    "POST /mcp HTTP/1.1", "host: 127.0.0.1", "content-type: application/json", "accept: application/json, text/event-stream",
    (more or "") .. "content-length: " .. #body, "", body,
  }, "\r\n")
end

local MIRRORED <const> = "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: none\r\n"

-- The frames of a request; `is_reset`: and RST_STREAM.
local function http2_request(body, is_reset)
  local parts = { http2.preface, http2.settings(), http2.frame(http2.HEADERS, http2.END_HEADERS, 1, http2.block(http2.fields { headers = http2.usual })) }
  for at = 1, #body, 16384 do
    parts[#parts + 1] = http2.frame(http2.DATA, at + 16384 > #body and http2.END_STREAM or 0, 1, body:sub(at, at + 16383))
  end
  if is_reset then parts[#parts + 1] = http2.rst(1) end
  return table.concat(parts)
end

local SSE <const> = "GET /sse HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n\r\n"

local function close(stream) stream:close() end
local function reset(tcp) tcp:close_reset() end

-- What is sent, and how the client leaves once it is sent.
departures.forms = {
  ["http1 FIN"] = { text = http1_request(initialize(390000)), leave = close },
  ["http1 RST"] = { text = http1_request(initialize(390000)), leave = reset },
  ["http1 small, FIN"] = { text = http1_request(initialize(0)), leave = close },
  ["http1 small, RST"] = { text = http1_request(initialize(0)), leave = reset },
  ["http1 last, FIN"] = { text = http1_request(initialize(0), "connection: close\r\n"), leave = close },
  ["http1 last, RST"] = { text = http1_request(initialize(0), "connection: close\r\n"), leave = reset },
  ["http1 pipelined, FIN"] = { text = http1_request(initialize(0)) .. http1_request(initialize(0)), leave = close },
  ["http1 call, FIN"] = { text = http1_request(call(390000), MIRRORED), leave = close },
  ["unix"] = { text = http1_request(initialize(390000)), leave = close, is_unix = true },
  ["unix small"] = { text = http1_request(initialize(0)), leave = close, is_unix = true },
  ["unix small, last"] = { text = http1_request(initialize(0), "connection: close\r\n"), leave = close, is_unix = true },
  ["HTTP+SSE, FIN"] = { text = SSE, leave = close },
  ["HTTP+SSE, RST"] = { text = SSE, leave = reset },
  ["http2 FIN"] = { text = http2_request(initialize(0)), leave = close },
  ["http2 RST"] = { text = http2_request(initialize(0)), leave = reset },
  ["http2 RST_STREAM"] = { text = http2_request(initialize(0), true), leave = close },
  ["http2 large, FIN"] = { text = http2_request(initialize(390000)), leave = close },
  ["http2 large, RST_STREAM"] = { text = http2_request(initialize(390000), true), leave = close },
}

-- Their names, in order.
departures.names = {}
for name in pairs(departures.forms) do departures.names[#departures.names + 1] = name end
table.sort(departures.names)

function departures.start(sessions, constants)
  local gateway = require "spec.helpers.gateway"
  local path = os.tmpname()
  os.remove(path)
  local g = gateway.start { workers = 1, constants = constants, config = {
    listen = { { address = "127.0.0.1:0", http2 = "on" }, "unix:" .. path }, auth = "none", sessions = sessions,
  } }
  g.unix_path = path
  return g
end

local function one(g, form, done)
  local stream = form.is_unix and uv.new_pipe(false) or uv.new_tcp()
  local function begun(err)
    if err then
      stream:close()
      return done(err)
    end
    stream:write(form.text, function()
      if not stream:is_closing() then form.leave(stream) end
      done()
    end)
  end
  if form.is_unix then stream:connect(g.unix_path, begun) else stream:connect("127.0.0.1", g.port, begun) end
end

-- `count` clients come and leave. Gives what went wrong, if anything did.
local function run_some(g, form, count, at_once)
  local begun, ended, failure = 0, 0, nil
  local function next_one()
    if begun == count or failure then return end
    begun = begun + 1
    one(g, form, function(err)
      ended = ended + 1
      failure = failure or err
      next_one()
    end)
  end
  for _ = 1, at_once do next_one() end
  wait.for_fact("clients to come and leave", PATIENCE, function() return ended == begun or failure or not g:is_alive() end)
  return failure or not g:is_alive() and "the gateway has ended"
end

local function sessions_of(status) return status.gauges.sessions.http + status.gauges.sessions.sse end

-- Stops all threads of the gateway: it goes on after the signal "sigcont".
function departures.freeze(g)
  g:signal "sigstop"
  wait.for_fact("a stopped gateway", 20, function()
    for name in lfs.dir("/proc/" .. g.pid .. "/task") do
      local file <close> = io.open("/proc/" .. g.pid .. "/task/" .. name .. "/stat")
      if tonumber(name) and file and not file:read "a":find "%) T " then return false end
    end
    return true
  end)
end

-- A client that stays: opens a session, and names it. Gives its id.
function departures.stay(g)
  local id = wire.initialize(g, "2025-11-25")
  assert(wire.post(g, { jsonrpc = "2.0", method = "notifications/initialized" }, { ["Mcp-Session-Id"] = id }).status == 202)
  return id
end

-- Waits until the gateway has no call, stream or connection of those clients any more. Gives its status.
function departures.noticed(g)
  return g:wait_status(function(status)
    local gauges = status.gauges
    return gauges.requests_in_flight == 0 and gauges.streams_open == 0 and gauges.connections <= 1 and gauges.body_bytes == 0
  end, PATIENCE)
end

-- Waits until the gateway has noticed that they have left, and has this number of sessions; the number it has.
function departures.sessions_left(g, expected)
  departures.noticed(g)
  local left
  pcall(g.wait_status, g, function(status)
    left = sessions_of(status)
    return left <= expected
  end, PATIENCE)
  return left
end

-- `times` clients of a form (a name in departures.forms) come and leave, at most `at_once` at the same time. Fails if
-- the gateway ends. After each hundred the gateway has time to notice that they have left, so that it never has more
-- calls than it takes.
function departures.run(g, options)
  local form, left = assert(departures.forms[options.form], options.form), options.times
  while left > 0 do
    local count = math.min(left, 100)
    local failure = run_some(g, form, count, options.at_once or 4)
    left = left - count
    if failure then error(("%d clients of %q were to come: %s\n%s"):format(left, options.form, failure, g:log():sub(-2000)), 0) end
    if left > 0 then departures.noticed(g) end
  end
end

-- -- one client --------------------------------------------------------------------------------------------------------

local function headers_of(message, token)
  local all = message.params and message.params._meta and wire.mirrored(message) or {}
  all.Authorization = token and "Bearer " .. token
  return all
end

-- f(g, message[, token]): a client sends the message. Returns a function by which it leaves, as `how` says, and which
-- returns it.
function departures.over_http1(how)
  return function(g, message, token)
    local c, headers = g:connect(), headers_of(message, token)
    headers.Accept, headers["Content-Type"] = wire.both, "application/json"
    c:send { method = "POST", path = "/mcp", headers = headers, body = message }
    return function()
      c[how](c)
      return c
    end
  end
end

-- The same over HTTP/2, where `how` may be "RST_STREAM", too.
function departures.over_http2(how, settings)
  return function(g, message, token)
    local peer = http2.connect(g, { settings = settings })
    local id = peer:post(message, headers_of(message, token))
    return function()
      if how == "RST_STREAM" then peer:send(http2.rst(id)) else peer.connection[how](peer.connection) end
      return peer
    end
  end
end

-- -- all forms ---------------------------------------------------------------------------------------------------------

-- What became of the sessions that were made: their clients certainly had no answer, may have had none, or came too
-- late for a session at all.
local function ends_of(status)
  local closed = status.counters.sessions_closed
  return ("%d sessions made, %d ended at once, %d later"):format(status.counters.sessions_opened, closed.gone or 0,
    closed.uninitialized or 0)
end

-- `times` clients of each form, or of those whose names match `form`, at a limit of the sessions and below it. True if
-- the gateway survived and kept no session.
function departures.all(options)
  local is_well = true
  for _, form in ipairs(departures.names) do
    local limits = { 2, 1000000 }
    if not form:find(options.form or "") then limits = {} end
    for _, limit in ipairs(limits) do
      local before, ends = limit == 2 and 2 or 0, nil
      local ok, why = pcall(function()
        local g <close> = departures.start { per_principal = limit, max = limit }
        for _ = 1, before do departures.stay(g) end
        departures.run(g, { form = form, times = options.times })
        local left = departures.sessions_left(g, before) - before
        ends = ends_of(g:status())
        assert(left == 0, left .. " sessions are left")
      end)
      is_well = is_well and ok
      options.say(("  %-24s %-12s %s"):format(form, before == 2 and "at the limit" or "below it",
        ok and ("%d clients, %s"):format(options.times, ends) or tostring(why)))
    end
  end
  return is_well
end

return departures
