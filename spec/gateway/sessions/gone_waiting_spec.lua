-- Clients that leave while something waits for them: an auth script, a subscription, an upstream, a channel that is
-- being opened, a question. Over both versions of HTTP, and by each way to leave, nothing of theirs stays.
local departures = require "spec.soak.departures"
local gateway = require "spec.helpers.gateway"
local http2 = require "spec.helpers.http2"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local FORMS <const> = { ["io.modelcontextprotocol/clientCapabilities"] = { elicitation = { form = { [" "] = 1 } } } }
local QUESTION <const> = '{"message":"Name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}'

-- A request of 2026-07-28.
local function modern(method, params)
  params._meta = wire.meta(nil, FORMS)
  return wire.message(1, method, params)
end

local over_http1, over_http2 = departures.over_http1, departures.over_http2
local ways = {
  ["HTTP/1.1, FIN"] = over_http1 "fin", ["HTTP/1.1, closed"] = over_http1 "close", ["HTTP/1.1, RST"] = over_http1 "reset",
  ["HTTP/2, RST_STREAM"] = over_http2 "RST_STREAM", ["HTTP/2, FIN"] = over_http2 "fin", ["HTTP/2, closed"] = over_http2 "close",
  ["HTTP/2, RST"] = over_http2 "reset",
}

local function start(options)
  options.workers = 1
  options.config = http2.config(options.config)
  return gateway.start(options)
end

-- A client for each message sends it and, once is_there says that the gateway has it, leaves in this way.
local function come_and_leave(g, way, messages, is_there, token)
  local leave = {}
  for i, message in ipairs(messages) do leave[i] = way(g, message, token) end
  g:wait_status(is_there)
  local left = {}
  for i, f in ipairs(leave) do left[i] = f() end
  return function()
    for _, one in ipairs(left) do one:close() end
  end
end

for name, way in pairs(ways) do
  describe("clients that leave: " .. name, function()
    it("end the authentication that waits for them, and get no session", function()
      local g <close> = start { scripts = { ["auth/main.lua"] = "return auth { function() sleep(50) return { id = 'ann' } end }" },
        constants = { auth_ms = 50000 } }
      local all = {}
      for i = 1, 3 do all[i], all[3 + i] = wire.initialize_message "2025-11-25", modern("tools/list", {}) end
      local close = come_and_leave(g, way, all, function(status) return status.gauges.auth_pending == 6 end, "slow")
      g:wait_status(function(status) return status.gauges.auth_pending == 0 and status.counters.sessions_opened == 0 end)
      close()
      assert.has_nothing_left(g)
    end)

    it("end their subscriptions", function()
      local g <close> = start { config = { auth = "none" }, scripts = { ["resources/note.lua"] = 'return resource { "A note.", uri = "note://one", "text" }' } }
      local all = {}
      for i = 1, 5 do all[i] = modern("subscriptions/listen", { notifications = { toolsListChanged = true, resourceSubscriptions = { "note://one" } } }) end
      local close = come_and_leave(g, way, all, function(status) return status.gauges.listeners == 5 end)
      g:wait_status(function(status) return status.gauges.listeners == 0 and status.gauges.subscriptions == 0 end)
      close()
      assert.has_nothing_left(g)
    end)

    it("end their requests to an upstream, and the wait for a channel that is being opened", function()
      local u <close> = upstream.start { revision = "2025-11-25" }
      local g <close> = start { config = { auth = "none", upstreams = upstream.entries({ one = u }, upstream.plain { one = u }) } }
      local all = {}
      for i = 1, 3 do all[i] = modern("tools/call", { name = "hold", arguments = { key = "x" } }) end
      local function are_gone(status)
        local gauges = status.gauges
        return gauges.upstream_exchanges == 0 and gauges.upstream_takes == 0 and gauges.requests_in_flight == 0 and gauges.ops == 0
      end
      local close = come_and_leave(g, way, all, function(status) return status.gauges.upstream_exchanges >= 3 and #u:all { tool = "hold" } == 3 end)
      g:wait_status(are_gone)
      wait.for_fact("three notifications", 20, function() return #u:all { method = "notifications/cancelled" } == 3 end)
      close()
      u:lose_sessions "404"
      u:when("initialize", upstream.faults.hangs())
      local opened = #u:all { method = "initialize" }
      close = come_and_leave(g, way, all, function(status)
        return status.gauges.requests_in_flight == 3 and status.gauges.upstream_takes > 0 and #u:all { method = "initialize" } > opened
      end)
      g:wait_status(function(status)
        return status.gauges.upstream_takes == 0 and status.gauges.requests_in_flight == 0 and status.gauges.upstream_requests == 0
      end)
      close()
    end)
  end)
end

-- The answer cannot be sent at all: the stream's window is empty.
for _, how in ipairs { "RST_STREAM", "fin", "reset" } do
  it("a question of an upstream that its client never got is withdrawn there: HTTP/2, " .. how, function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:offer("tools", { "ask" })
    local answers = 0
    u.handlers.ask = function(x) x:ask("elicitation/create", QUESTION, function() answers = answers + 1 end) end
    local g <close> = start { config = { auth = "none", upstreams = upstream.entries({ one = u }, upstream.plain { one = u }) } }
    local leave = over_http2(how, { [http2.INITIAL_WINDOW_SIZE] = 0 })(g, modern("tools/call", { name = "ask", arguments = {} }))
    g:wait_status(function(status) return status.gauges.upstream_pending >= 1 and status.gauges.requests_in_flight == 0 end)
    local peer = leave()
    g:wait_status(function(status) return status.gauges.upstream_pending == 0 and status.gauges.upstream_exchanges == 0 end)
    u:wait { method = "notifications/cancelled" }
    assert.equal(1, answers)
    peer:close()
  end)
end

it("subscriptions of clients that have left before the gateway reads them end at once", function()
  local g <close> = start { config = { auth = "none" }, scripts = { ["resources/note.lua"] = 'return resource { "A note.", uri = "note://one", "text" }' } }
  departures.freeze(g)
  local left = {}
  for _, way in pairs(ways) do
    for _ = 1, 5 do left[#left + 1] = way(g, modern("subscriptions/listen", { notifications = { toolsListChanged = true } }))() end
  end
  g:signal "sigcont"
  g:wait_status(function(status) return status.gauges.listeners == 0 and status.gauges.streams_open == 0 and status.gauges.requests_in_flight == 0 end)
  for _, one in ipairs(left) do one:close() end
  assert.has_nothing_left(g)
end)
