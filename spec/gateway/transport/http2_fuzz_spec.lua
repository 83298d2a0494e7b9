-- Random frames, some of them broken, on many connections. HTTP2_FUZZ=N in the environment makes N connections instead
-- of the usual number; HTTP2_SEED begins with another sequence.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local http2 = require "spec.helpers.http2"
local wire = require "spec.helpers.wire"

local CONNECTIONS = tonumber(os.getenv "HTTP2_FUZZ") or 250
local SEED = tonumber(os.getenv "HTTP2_SEED") or 20260728

local scripts = {
  ["tools/wait.lua"] = [[return tool { "Waits.", input = { seconds = t.number }, function(args) sleep(args.seconds) return "waited" end }]],
  ["tools/long.lua"] = [[return tool { "A long text.", input = { n = t.integer }, function(args) return ("x"):rep(args.n) end }]],
  ["tools/steps.lua"] = [[return tool { "Steps.", function(_, call) for i = 1, 5 do call:progress(i, 5) sleep(0.005) end return "done" end }]],
}

local random = math.random

local function pick(list)
  return list[random(#list)]
end

local function bytes(most)
  local list = {}
  for i = 1, random(0, most) do list[i] = string.char(random(0, 255)) end
  return table.concat(list)
end

-- A stream: mostly one of the latest, sometimes any.
local function any_id(state)
  if random(20) == 1 then return random(0, 0x7fffffff) end
  return math.max(0, state.last - 2 * random(0, 6) + pick { 0, 0, 0, 0, 1 })
end

local function call(name, arguments)
  local message = wire.message(7, "tools/call", { name = name, arguments = arguments, _meta = wire.meta(nil, { progressToken = "t" }) })
  local headers = { table.unpack(http2.fields { headers = http2.usual }) }
  for header, value in pairs(wire.mirrored(message)) do
    if value then headers[#headers + 1] = { header:lower(), value } end
  end
  return headers, require "cjson".encode(message)
end

local calls = {
  function() return call("wait", { seconds = pick { 0, 0.001, 0.05, 10 } }) end,
  function() return call("long", { n = pick { 1, 1000, 70000, 500000 } }) end,
  function() return call("steps", {}) end,
  function() return http2.fields { method = "GET", path = "/sse", headers = { accept = "text/event-stream" } } end,
  function() return http2.fields { method = pick { "GET", "HEAD", "OPTIONS", "PUT" }, path = pick { "/nowhere", "/mcp", "*", "/%2e%2e/x" } } end,
  function() return http2.fields { headers = http2.usual }, ("x"):rep(random(0, 200000)) end,
}

local function block_of(list, is_tame)
  local parts = {}
  for i, pair in ipairs(list) do parts[i] = http2.literal(pair[1], pair[2], pick { 0, 0, 64, 16 }) end
  if is_tame then return table.concat(parts) end
  if random(8) == 1 then table.insert(parts, random(#parts), http2.integer(32, 5, random(0, 4096))) end
  if random(4) == 1 then parts[#parts + 1] = http2.integer(128, 7, random(1, 70)) end
  if random(10) == 1 then parts[#parts + 1] = bytes(30) end
  return table.concat(parts)
end

-- A request in one to many frames, sometimes without its end.
local function request(state)
  state.last = state.last + 2
  local list, body = pick(calls)()
  local block, id = block_of(list, state.is_tame), state.last
  local flags = body and 0 or http2.END_STREAM
  local head = ""
  if random(4) == 1 then
    flags, head = flags | http2.WITH_PRIORITY, (">I4B"):pack(any_id(state) | pick { 0, 0x80000000 }, random(0, 255))
  end
  local frames
  if random(5) == 1 then
    local at = random(#block)
    frames = http2.frame(http2.HEADERS, flags, id, head .. block:sub(1, at)) .. http2.frame(http2.CONTINUATION, http2.END_HEADERS, id, block:sub(at + 1))
  else
    frames = http2.frame(http2.HEADERS, flags | http2.END_HEADERS, id, head .. block)
  end
  for at = 1, #(body or ""), 16384 do
    frames = frames .. http2.frame(http2.DATA, at + 16384 > #body and random(10) > 1 and 1 or 0, id, body:sub(at, at + 16383))
  end
  return frames
end

local makers = {
  request, request, request, request,
  function(state) return http2.rst(any_id(state), random(0, 13)) end,
  function(state) return http2.window(any_id(state), pick { 0, 1, 1000, 70000, 1 << 20, 0x7fffffff }) end,
  function() return http2.window(0, pick { 1, 1000, 1 << 20, 1 << 24 }) end,
  function() return http2.settings { [random(0, 8)] = pick { 0, 1, 100, 4096, 16384, 65535, 1 << 20, 0x7fffffff, 0xffffffff } } end,
  function() return http2.settings { [http2.INITIAL_WINDOW_SIZE] = pick { 0, 1, 50, 1000, 65535, 1 << 20 } } end,
  function() return http2.ping() end,
  function(state) return http2.frame(http2.PRIORITY, 0, any_id(state), (">I4B"):pack(any_id(state) | pick { 0, 0x80000000 }, random(0, 255))) end,
  function(state) return http2.frame(http2.DATA, pick { 0, 1, 8, 9 }, any_id(state), bytes(300)) end,
  function(state) return http2.frame(http2.HEADERS, random(0, 255), any_id(state), bytes(60)) end,
  function(state) return http2.frame(http2.CONTINUATION, random(0, 255), any_id(state), bytes(60)) end,
  function(state) return http2.frame(random(0, 12), random(0, 255), any_id(state), bytes(40)) end,
  function() return http2.frame(http2.GOAWAY, 0, 0, (">I4I4"):pack(random(0, 100), pick { 0, 0, 0, 2 })) end,
  function(state) return http2.frame(http2.HEADERS, 5, any_id(state), block_of { { "x-trailer", "v" } }) end,
}

local function opened(state)
  return math.max(1, state.last - 2 * random(0, 12))
end

-- Nothing of these ends the connection, so that long sequences arrive.
local tame = {
  request, request, request, request, request,
  function(state) return state.last < 0 and "" or http2.rst(opened(state)) end,
  function(state) return state.last < 0 and "" or http2.window(opened(state), pick { 1, 50, 1000, 30000 }) end,
  function(state) return state.last < 0 and "" or http2.window(opened(state), pick { 1000, 70000 }) end,
  function() return http2.window(0, pick { 1000, 70000, 1 << 20 }) end,
  function() return http2.settings { [http2.INITIAL_WINDOW_SIZE] = pick { 0, 1, 50, 1000, 65535 } } end,
  function() return http2.ping() end,
  function(state) return http2.frame(http2.PRIORITY, 0, state.last + 2 * random(1, 9), (">I4B"):pack(0x80000000, random(0, 255))) end,
}

local function mutate(text)
  for _ = 1, random(1, 4) do
    local at = random(#text)
    text = text:sub(1, at - 1) .. string.char(random(0, 255)) .. text:sub(at + 1)
  end
  return text
end

-- Sends one sequence in pieces. The connection may end at any time.
local function play(g)
  local state = { last = -1, is_tame = random(2) == 1 }
  local settings = random(3) == 1 and { [http2.INITIAL_WINDOW_SIZE] = pick { 0, 1, 100, 1000 } } or nil
  local peer <close> = http2.connect(g, { settings = settings, buffer = random(4) == 1 and 4096 or nil })
  if random(3) == 1 then peer.connection:pause() end
  for _ = 1, random(1, 60) do
    local frames = pick(state.is_tame and tame or makers)(state)
    if frames ~= "" and not state.is_tame and random(30) == 1 then frames = mutate(frames) end
    if #frames > 0 and random(6) == 1 then
      local at = random(#frames)
      peer:send(frames:sub(1, at))
      uv.run "nowait"
      frames = frames:sub(at + 1)
    end
    peer:send(frames)
    if random(3) == 1 then uv.run "nowait" end
    if random(12) == 1 then pcall(peer.wait, peer, "a moment", function() return peer:is_closed() end, random(1, 8) / 1000) end
    if random(40) == 1 then peer.connection:pause() elseif random(15) == 1 and not peer:is_closed() then peer.connection:resume() end
    if peer:is_closed() then break end
  end
  local ending = random(4)
  if ending == 1 then
    peer.connection:reset()
  elseif ending == 2 then
    peer.connection:fin()
  elseif ending == 3 then
    pcall(peer.wait, peer, "more", function() return peer:is_closed() end, 0.02)
  end
end

describe("random frames", function()
  it("end at most their own connection", function()
    math.randomseed(SEED)
    local limits = { request_time = "500ms", body = "64KiB", bodies = "4MiB" }
    local config = http2.config { auth = "none", limits = limits, heartbeat = "100ms" }
    local g <close> = gateway.start { config = config, scripts = scripts, constants = { stall_ms = 500, initialize_within_ms = 3600000 } }
    local other <close> = http2.connect(g)
    local session = other:ask { method = "GET", path = "/sse", headers = { accept = "text/event-stream" } }
    for i = 1, CONNECTIONS do
      play(g)
      if i % 50 == 0 then
        assert.is_true(g:is_alive(), "after connection " .. i)
        assert.is_true(other:is_alive(), "after connection " .. i)
      end
    end
    assert.equal(200, other.streams[session].status)
    other:close()
    assert.has_nothing_left(g)
  end)
end)
