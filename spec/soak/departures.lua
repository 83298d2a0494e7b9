-- Clients that send `initialize` and leave before its answer, thousands of them: `./dev soak departures` and a few hundred in the suite.
--   departures.run(g, { form = "http2", times = 300, at_once = 4 })
-- The gateway keeps no session and no call of theirs, at the limit of the sessions and below it.
local uv = require "luv"
local http2 = require "spec.helpers.http2"
local wait = require "spec.helpers.wait"

local departures = {}

local PATIENCE <const> = 60

-- An initialize of about `bytes` bytes in small arrays: it is decoded in several turns, between which its client can be seen to have left.
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

local function http2_request(body)
  local parts = { http2.preface, http2.settings(), http2.frame(http2.HEADERS, http2.END_HEADERS, 1, http2.block(http2.fields { headers = http2.usual })) }
  for at = 1, #body, 16384 do
    parts[#parts + 1] = http2.frame(http2.DATA, at + 16384 > #body and http2.END_STREAM or 0, 1, body:sub(at, at + 16383))
  end
  parts[#parts + 1] = http2.rst(1)
  return table.concat(parts)
end

local SSE <const> = "GET /sse HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n\r\n"

-- What is sent, and how the client leaves once it is sent.
departures.forms = {
  ["http1 FIN"] = { text = http1_request(initialize(390000)), leave = function(tcp) tcp:close() end },
  ["http1 RST"] = { text = http1_request(initialize(390000)), leave = function(tcp) tcp:close_reset() end },
  ["http1 small, FIN"] = { text = http1_request(initialize(0)), leave = function(tcp) tcp:close() end },
  ["http1 small, RST"] = { text = http1_request(initialize(0)), leave = function(tcp) tcp:close_reset() end },
  ["http1 call, FIN"] = { text = http1_request(call(390000), MIRRORED), leave = function(tcp) tcp:close() end },
  ["HTTP+SSE, FIN"] = { text = SSE, leave = function(tcp) tcp:close() end },
  ["HTTP+SSE, RST"] = { text = SSE, leave = function(tcp) tcp:close_reset() end },
  ["http2 RST_STREAM"] = { text = http2_request(initialize(0)), leave = function(tcp) tcp:close() end },
  ["http2 large, RST_STREAM"] = { text = http2_request(initialize(390000)), leave = function(tcp) tcp:close() end },
}

local function one(g, form, done)
  local tcp = uv.new_tcp()
  tcp:connect("127.0.0.1", g.port, function(err)
    if err then
      tcp:close()
      return done(err)
    end
    tcp:write(form.text, function()
      if not tcp:is_closing() then form.leave(tcp) end
      done()
    end)
  end)
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

-- Waits until the gateway has no call, stream or connection of those clients any more, and gives the number of Streamable HTTP sessions.
function departures.sessions_left(g)
  return g:wait_status(function(status)
    local gauges = status.gauges
    return gauges.requests_in_flight == 0 and gauges.streams_open == 0 and gauges.connections <= 1 and gauges.body_bytes == 0
  end, PATIENCE).gauges.sessions.http
end

-- `times` clients of a form (a name in departures.forms) come and leave, at most `at_once` at the same time. Fails if the gateway ends. After each
-- hundred the gateway has time to notice that they have left, so that it never has more calls than it takes.
function departures.run(g, options)
  local form, left = assert(departures.forms[options.form], options.form), options.times
  while left > 0 do
    local count = math.min(left, 100)
    local failure = run_some(g, form, count, options.at_once or 4)
    left = left - count
    if failure then error(("%d clients of %q were to come: %s\n%s"):format(left, options.form, failure, g:log():sub(-2000)), 0) end
    if left > 0 then departures.sessions_left(g) end
  end
end

-- Those of which no session may be left: the client is gone before the gateway can have answered.
departures.exact = { "http1 FIN", "http1 RST", "http1 call, FIN", "http2 RST_STREAM", "http2 large, RST_STREAM" }

-- `times` clients of each form, at a limit of the sessions and below it. True if the gateway survived and kept no session.
function departures.all(options)
  local gateway = require "spec.helpers.gateway"
  local wire = require "spec.helpers.wire"
  local is_well = true
  for _, form in ipairs(departures.exact) do
    for _, limit in ipairs { 2, 1000000 } do
      local before = limit == 2 and 2 or 0
      local ok, why = pcall(function()
        local g <close> = gateway.start { workers = 1, config = http2.config { auth = "none", sessions = { per_principal = limit, max = 1000000 } } }
        for _ = 1, before do wire.initialize(g, "2025-11-25") end
        departures.run(g, { form = form, times = options.times })
        local left = departures.sessions_left(g) - before
        assert(left == 0, left .. " sessions are left")
      end)
      is_well = is_well and ok
      options.say(("  %-24s %-12s %s"):format(form, before == 2 and "at the limit" or "below it", ok and options.times .. " clients" or tostring(why)))
    end
  end
  return is_well
end

return departures
