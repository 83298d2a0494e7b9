-- Games with windows. libh2o 2.2.5 aborts when a WINDOW_UPDATE, or a SETTINGS that raises the windows, arrives for a
-- stream whose last frame is in a write that the socket does not take, if the window is 0 (connection.c:
-- update_stream_output_window).
local gateway = require "spec.helpers.gateway"
local http2 = require "spec.helpers.http2"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local scripts = {
  ["tools/long.lua"] = [[return tool { "A long text.", input = { n = t.integer }, function(args) return ("x"):rep(args.n) end }]],
}

local function call(n)
  local message = wire.message(7, "tools/call", { name = "long", arguments = { n = n }, _meta = wire.meta() })
  return message, wire.mirrored(message)
end

local function post(peer, n)
  return peer:post(call(n))
end

local function small(peer)
  return peer:ask { method = "GET", path = "/nowhere" }
end

-- The bytes of each answer are exactly its window, which is then 0. All answers together are more than the kernel
-- takes.
local ANSWERS, BYTES = 80, 60000

describe("a client that opens windows while the socket is full", function()
  local raises = {
    WINDOW_UPDATE = function(i) return http2.window(2 * i - 1, 1000) end,
    SETTINGS = function(_, length)
      return http2.settings { [http2.INITIAL_WINDOW_SIZE] = length + 1 } .. http2.settings { [http2.INITIAL_WINDOW_SIZE] = length }
    end,
  }
  for how, raise in pairs(raises) do
    it("does not end the process: " .. how, function()
      local g <close> = gateway.start { config = http2.config { auth = "none" }, scripts = scripts, workers = 1 }
      local length
      do
        local peer <close> = http2.connect(g)
        length = #peer:answer(post(peer, BYTES)).data
      end
      local peer <close> = http2.connect(g, { buffer = 4096, settings = { [http2.INITIAL_WINDOW_SIZE] = length } })
      peer.connection:pause()
      peer:send(http2.window(0, 1 << 30))
      for i = 1, ANSWERS do
        post(peer, BYTES)
        -- The answer has been written, or waits for the socket.
        g:wait_status(function(status) return status.gauges.requests_in_flight == 0 and status.counters.calls == i + 1 end)
        peer:send(raise(i, length))
      end
      assert.is_true(g:is_alive())
      peer.connection:resume()
      for i = 1, ANSWERS do
        assert.equal(length, #peer:answer(2 * i - 1).data)
      end
      peer:close()
      assert.has_nothing_left(g)
    end)
  end
end)

describe("a client with a window of 0", function()
  local config, constants = http2.config { auth = "none" }, { stall_ms = 300 }

  it("gets the answer when it opens the window", function()
    local g <close> = gateway.start { config = config, scripts = scripts }
    local peer <close> = http2.connect(g, { settings = { [http2.INITIAL_WINDOW_SIZE] = 0 } })
    local id = small(peer)
    peer:wait("the headers", function() return peer.streams[id] and peer.streams[id].status end)
    assert.is_true(peer:is_alive())
    assert.equal("", peer.streams[id].data)
    peer:send(http2.window(id, 5))
    peer:wait("five bytes", function() return #peer.streams[id].data == 5 end)
    peer:send(http2.settings { [http2.INITIAL_WINDOW_SIZE] = 0 }, http2.settings { [http2.INITIAL_WINDOW_SIZE] = 1000 })
    assert.is_true(peer:answer(id).ended)
  end)

  it("loses the stream, and no other, after a while", function()
    local g <close> = gateway.start { config = config, constants = constants, scripts = scripts }
    local peer <close> = http2.connect(g, { settings = { [http2.INITIAL_WINDOW_SIZE] = 0 } })
    local ids = { small(peer), post(peer, 10), post(peer, 1024 * 1024) }
    local quick = small(peer)
    peer:send(http2.window(quick, 1000))
    assert.is_true(peer:answer(quick).ended)
    for _, id in ipairs(ids) do
      assert.equal(http2.CANCEL, peer:answer(id).reset)
    end
    assert.is_true(peer:is_alive())
    peer:close()
    assert.has_nothing_left(g)
  end)

  it("loses the connection after a while if the socket takes nothing", function()
    local g <close> = gateway.start { config = config, constants = constants, scripts = scripts }
    local peer <close> = http2.connect(g, { buffer = 4096, settings = { [http2.INITIAL_WINDOW_SIZE] = 1 << 30 } })
    peer:send(http2.window(0, 1 << 30))
    peer.connection:pause()
    post(peer, 7 * 1024 * 1024)
    g:wait_status(function(status) return status.gauges.queue_bytes > 0 end)
    g:wait_status(function(status) return status.gauges.http2_connections == 0 end)
    peer:close()
    assert.has_nothing_left(g)
  end)

  it("can open its window one byte at a time", function()
    local g <close> = gateway.start { config = http2.config { auth = "none" }, scripts = scripts }
    local peer <close> = http2.connect(g, { settings = { [http2.INITIAL_WINDOW_SIZE] = 0 } })
    local id = small(peer)
    for i = 1, 20 do
      peer:send(http2.window(id, 1))
      peer:wait("byte " .. i, function() return peer.streams[id] and #peer.streams[id].data == i end)
    end
    peer:send(http2.rst(id))
    assert.is_true(peer:is_alive())
  end)
end)

describe("a window that overflows", function()
  it("ends the stream, or the connection", function()
    local g <close> = gateway.start { config = http2.config { auth = "none" }, scripts = scripts }
    local peer <close> = http2.connect(g, { settings = { [http2.INITIAL_WINDOW_SIZE] = 0 } })
    local id = small(peer)
    peer:send(http2.window(id, 0x7fffffff), http2.window(id, 0x7fffffff))
    wait.for_fact("the stream to end", 20, function() peer:is_closed() return (peer.streams[id] or {}).reset or (peer.streams[id] or {}).ended end)
    peer:send(http2.window(0, 0x7fffffff))
    assert.equal(http2.FLOW_CONTROL_ERROR, peer:refused().code)
    assert.has_nothing_left(g)
  end)
end)
