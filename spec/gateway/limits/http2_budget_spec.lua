-- limits.bodies over HTTP/2: it bounds the memory of all requests of all connections, whatever of them arrived last.
local gateway = require "spec.helpers.gateway"
local beat = require "spec.helpers.beat"
local http2 = require "spec.helpers.http2"
local memory = require "spec.helpers.memory"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local MIB = 1 << 20
local LIMIT = 128 * MIB
local scripts = { ["auth/main.lua"] = [[return auth { function() return nil, "nobody comes in" end }]] }

local function start(limits)
  limits.bodies = limits.bodies or LIMIT // MIB .. "MiB"
  return gateway.start { config = http2.config { limits = limits }, scripts = scripts, env = memory.environment() }
end

local function bytes_of(g) return g:status().gauges.body_bytes end

-- The frames of `count` requests whose bodies are open, with `more` headers each.
local function heads(count, flags, more)
  local frames, headers = {}, {}
  for name, value in pairs(http2.usual) do headers[name] = value end
  for i = 1, more or 0 do headers["x-" .. i] = "v" end
  local block = http2.block(http2.fields { headers = headers })
  for i = 1, count do frames[i] = http2.frame(http2.HEADERS, http2.END_HEADERS | (flags or 0), 2 * i - 1, block) end
  return table.concat(frames)
end

-- The frames with `size` bytes of body for each of the first `count` requests, one frame of each request in turn.
local function bodies(count, size)
  local frames, piece = {}, ("x"):rep(16384)
  for _ = 1, size // #piece do
    for i = 1, count do frames[#frames + 1] = http2.frame(http2.DATA, 0, 2 * i - 1, piece) end
  end
  return table.concat(frames)
end

local function has_pong(peer)
  for i = #peer.frames, 1, -1 do
    if peer.frames[i].kind == http2.PING then return true end
  end
  return false
end

-- Sends `bytes` and a PING on `count` new connections, and waits for the answers to the PINGs. Returns the connections,
-- and by how many bytes the gateway's memory grew.
local function flood(g, count, bytes, settings)
  local before, most, peers = g:rss(), 0, {}
  for i = 1, count do
    peers[i] = http2.connect(g, { settings = settings })
    peers[i]:send(bytes, http2.ping "answered")
    if i % 4 == 0 then
      uv.run "nowait"
      most = math.max(most, g:rss() - before)
    end
  end
  wait.for_fact("all to be read", 60, function()
    most = math.max(most, g:rss() - before)
    for _, peer in ipairs(peers) do
      if not peer:is_closed() and not has_pong(peer) then return false end
    end
    return true
  end)
  return peers, most
end

-- Fails if the gateway's memory grew by more than the limit and a fifth of it, the memory of connections without
-- requests, and `more`.
local function assert_bounded(most, count, more)
  if beat.is_sanitized() then return end
  local allowed = LIMIT + LIMIT // 5 + count * 8192 + (more or 0)
  assert.is_true(most <= allowed, ("%.1f MiB more, and %.1f are allowed"):format(most / MIB, allowed / MIB))
end

describe("limits.bodies over HTTP/2", function()
  it("holds for two hundred connections without a credential, with 98 requests each, four of which send bodies", function()
    local g <close> = start { body = "1MiB" }
    local peers, most = flood(g, 200, heads(98) .. bodies(4, 768 << 10))
    assert_bounded(most, #peers)
    wait.for_fact("bodies within limits.bodies and an eighth", 10, function() return bytes_of(g) <= LIMIT + LIMIT // 8 end)
    assert.is_true(g:status().counters.refused.bodies > 100)
    for _, peer in ipairs(peers) do peer:close() end
    assert.has_nothing_left(g)
  end)

  it("is enforced though the newest requests have sent nothing", function()
    local g <close> = start { body = "1MiB", bodies = "2MiB" }
    local peer <close> = http2.connect(g)
    peer:send(heads(60), bodies(4, 768 << 10))
    peer:wait("three of four to be refused", function()
      local refused = 0
      for i = 1, 4 do
        local stream = peer.streams[2 * i - 1]
        refused = refused + (stream and stream.status == 503 and 1 or 0)
      end
      return refused >= 2
    end)
    wait.for_fact("bodies within limits.bodies", 20, function() return bytes_of(g) <= 2 * MIB end)
    assert.is_true(peer:is_alive())
  end)

  it("ends a request for which there is no room with one RST_STREAM, however much of its body still comes", function()
    local g <close> = start { bodies = "2MiB" }
    local peers = flood(g, 8, heads(98, 0, 90))
    local peer, id
    for _, one in ipairs(peers) do
      for _, frame in ipairs(one.frames) do
        if frame.kind == http2.RST_STREAM and frame.payload == "\0\0\0\7" then peer, id = one, frame.id end
      end
    end
    local frames, piece = {}, http2.frame(http2.DATA, 0, assert(id, "no request was refused"), ("x"):rep(16384))
    for i = 1, 12 * MIB // 16384 do frames[i] = piece end
    peer:send(table.concat(frames), http2.ping "received")
    peer:wait("all to be read", function()
      local last = peer.frames[#peer.frames]
      return last.kind == http2.PING and last.payload == "received"
    end, 20)
    local resets = 0
    for _, frame in ipairs(peer.frames) do resets = resets + (frame.kind == http2.RST_STREAM and frame.id == id and 1 or 0) end
    assert.equal(1, resets)
    for _, one in ipairs(peers) do one:close() end
  end)

  it("holds for requests without a byte of a body, and for many headers", function()
    local g <close> = start {}
    local peers, most = flood(g, 100, heads(98, 0, 90))
    assert_bounded(most, #peers)
    wait.for_fact("requests within the limit", 10, function() return bytes_of(g) <= LIMIT + LIMIT // 8 end)
    assert.is_true(g:status().counters.refused.bodies > 0)
    for _, peer in ipairs(peers) do peer:close() end
    assert.has_nothing_left(g)
  end)

  it("holds for complete requests whose answers are not read", function()
    local g <close> = start {}
    local peers, most = flood(g, 100, heads(98, http2.END_STREAM, 90), { [http2.INITIAL_WINDOW_SIZE] = 0 })
    assert_bounded(most, #peers, 8 * MIB) -- 8 MiB more, for the coroutines of the auth script
    wait.for_fact("requests within the limit", 10, function() return bytes_of(g) <= LIMIT + LIMIT // 4 end)
    for _, peer in ipairs(peers) do peer:close() end
    assert.has_nothing_left(g)
  end)

  it("does not keep the memory of a burst for half a frame that came with it", function()
    local g <close> = start { body = "64KiB", bodies = "1GiB" }
    local before, peers = g:rss(), {}
    for i = 1, 100 do
      peers[i] = http2.connect(g)
      peers[i]:send(heads(1), bodies(1, MIB):sub(1, -8000))
    end
    wait.for_fact("the bursts to be read, and refused", 20, function()
      for _, peer in ipairs(peers) do
        assert.is_false(not not peer:is_closed())
        if not (peer.streams[1] and peer.streams[1].status == 413) or peer.connection.tcp:get_write_queue_size() > 0 then return false end
      end
      return true
    end)
    local function what() return ("little to be kept; there are %.1f MiB more"):format((g:rss() - before) / MIB) end
    wait.for_fact(what, 10, function() return beat.is_sanitized() or g:rss() - before < 16 * MIB end)
    for _, peer in ipairs(peers) do peer:close() end
    assert.has_nothing_left(g)
  end)

  it("lets a connection live whose hundred uploads were refused while they arrived", function()
    local g <close> = start { body = "1MiB", bodies = "512KiB" }
    local peer <close> = http2.connect(g)
    peer:send(heads(98), bodies(98, 64 << 10))
    assert.is_true(peer:is_alive())
    assert.is_nil(peer.goaway)
    peer.next_id = 2 * 98 + 1
    assert.equal(401, peer:call({ jsonrpc = "2.0", id = 1, method = "ping" }).status)
  end)
end)
