-- B-38: data is sent as soon as it exists: the head of a quiet stream, the last event before a wait, the bytes of a
-- result.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local wait = require "spec.helpers.wait"

-- The heartbeat is too rare to cause a write.
local config = { heartbeat = "60s" }

local scripts = {
  ["tools/steps.lua"] = [[return tool {
    "Goes step by step.", input = { n = t.integer, pause = t.number },
    function(args, call)
      for i = 1, args.n do
        call:progress(i, args.n)
        if args.pause > 0 then sleep(args.pause) end
      end
      return "arrived"
    end,
  }]],
}

local function steps(n, pause)
  return { name = "steps", arguments = { n = n, pause = pause }, _meta = { progressToken = "t" } }
end

local function leave(me)
  if me.delete then
    me:delete()
  end
  me:close()
end

-- Seconds: less than any timer that could hold a byte back, Nagle's algorithm with a delayed acknowledgement (40 ms)
-- included.
local AT_ONCE, TRIES = 0.035, 50

describe("the head of a stream without events", function()
  it("arrives at once over HTTP+SSE and on a GET stream", function()
    local g <close> = gateway.start { config = config }
    local me = g:client "2025-11-25"
    local took = wait.soonest(TRIES, AT_ONCE, function()
      local connection <close> = client.connect(g)
      assert.equal(200, connection:send({ path = "/sse", headers = { Accept = "text/event-stream" } }):read_head().status)
    end)
    assert.is_true(took <= AT_ONCE, "GET /sse took " .. took)
    took = wait.soonest(TRIES, AT_ONCE, function()
      local stream = me:get_stream()
      assert.equal(200, stream:head().status)
      stream:close()
    end)
    assert.is_true(took <= AT_ONCE, "GET /mcp took " .. took)
    leave(me)
    assert.has_nothing_left(g)
  end)
end)

for _, revision in ipairs { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" } do
  describe("a tool's progress in " .. revision, function()
    it("arrives while the tool still waits", function()
      local g <close> = gateway.start { config = config, scripts = scripts }
      local me = g:client(revision)
      local stream = me:open("tools/call", steps(2, 30))
      assert.equal(1, stream:wait_event("notifications/progress", 5).json.params.progress)
      assert.equal(1, g:status().gauges.requests_in_flight)
      stream:close()
      if me.delete then
        me:notify("notifications/cancelled", { requestId = stream.id })
      end
      leave(me)
      assert.has_nothing_left(g)
    end)

    it("arrives complete, in order, and before the result", function()
      local g <close> = gateway.start { config = config, scripts = scripts }
      local me = g:client(revision)
      for _, pause in ipairs { 0, 0.001 } do
        local stream = me:open("tools/call", steps(20, pause))
        stream.connection.events = {}
        assert.equal("arrived", stream:answer().result.content[1].text)
        local seen = {}
        for _, message in ipairs(stream:messages()) do
          seen[#seen + 1] = message.params and message.params.progress or "result"
        end
        assert.same({ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, "result" }, seen)
      end
      leave(me)
      assert.has_nothing_left(g)
    end)

    it("is not delayed by Nagle's algorithm or a timer", function()
      local g <close> = gateway.start { config = config, scripts = scripts }
      local me = g:client(revision)
      local took = wait.soonest(TRIES, AT_ONCE, function()
        assert.equal("arrived", me:result("tools/call", steps(3, 0.001)).content[1].text)
      end)
      assert.is_true(took <= AT_ONCE, "it took " .. took)
      leave(me)
      assert.has_nothing_left(g)
    end)
  end)
end

-- A proxy that forwards each byte in a write of its own, and reads no further meanwhile. Returns its port and a
-- function that ends it.
local function start_proxy(port)
  local server, sockets = uv.new_tcp(), {}
  server:bind("127.0.0.1", 0)
  server:listen(8, function()
    local near, far = uv.new_tcp(), uv.new_tcp()
    sockets[#sockets + 1], sockets[#sockets + 2] = near, far
    server:accept(near)
    near:nodelay(true)
    far:connect("127.0.0.1", port, function()
      near:read_start(function(_, bytes)
        if bytes then far:write(bytes) else far:shutdown() end
      end)
      far:read_start(function(_, bytes)
        for i = 1, #(bytes or "") do
          near:write(bytes:sub(i, i))
        end
      end)
    end)
  end)
  return server:getsockname().port, function()
    server:close()
    for _, socket in ipairs(sockets) do
      if not socket:is_closing() then socket:close() end
    end
  end
end

describe("behind a proxy that forwards bytes as they arrive", function()
  it("progress and results arrive at once, too", function()
    local g <close> = gateway.start { config = config, scripts = scripts }
    local port, stop = start_proxy(g.port)
    local there = setmetatable({ port = port }, { __index = g })
    for _, revision in ipairs { "2024-11-05", "2025-11-25", "2026-07-28" } do
      local me = there:client(revision)
      local stream = me:open("tools/call", steps(3, 0))
      assert.equal("arrived", stream:answer().result.content[1].text)
      local quiet = me:open("tools/call", steps(2, 30))
      assert.equal(1, quiet:wait_event("notifications/progress").json.params.progress)
      quiet:close()
      leave(me)
    end
    stop()
    assert.has_nothing_left(g)
  end)
end)
