-- limits.bodies has a share for each address: whatever one of them holds, bodies of others, large ones too, have room.
local cjson = require "cjson.safe"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local http2 = require "spec.helpers.http2"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local GREEDY <const>, OTHER <const> = "127.0.0.2", "127.0.0.3"
local MIB <const> = 1 << 20
local LIMIT <const> = 16 * MIB
local HUGE <const>, LARGE <const>, SMALL <const> = 100 << 10, 60000, 4000

local scripts = {
  ["tools/count.lua"] = 'return tool { "Counts.", input = { text = t.string }, function(args) return #args.text end }',
  ["tools/hold.lua"] = 'return tool { "Holds.", input = { text = t.string }, function() sleep(60) end }',
}

local function start(more)
  local config = http2.config { limits = { bodies = LIMIT // MIB .. "MiB", drain = "1s" }, overload = { wait = "off" }, auth = "none" }
  for key, value in pairs(more or {}) do config.listen[1][key] = value end
  return gateway.start { scripts = scripts, config = config }
end

-- The bytes of a call, and its headers.
local function message(size)
  local call = wire.message(1, "tools/call", { name = "count", arguments = { text = ("x"):rep(size) }, _meta = wire.meta() })
  local headers = {}
  for name, value in pairs(wire.mirrored(call)) do headers[name:lower()] = value end
  for name, value in pairs(http2.usual) do headers[name] = value end
  return cjson.encode(call), headers
end

-- The frames of a request of HTTP/2; `is_partial`: its last frame is missing.
local function frames_of(id, block, body, is_partial)
  local frames = { http2.frame(http2.HEADERS, http2.END_HEADERS, id, block) }
  for at = 1, #body, 16384 do
    local is_last = at + 16384 > #body
    if not (is_last and is_partial) then frames[#frames + 1] = http2.frame(http2.DATA, is_last and http2.END_STREAM or 0, id, body:sub(at, at + 16383)) end
  end
  return table.concat(frames)
end

-- `count` connections of HTTP/2 that read nothing of a hundred answers each.
local function flood_http2(g, count, size, is_partial)
  local peers, all, body, headers = {}, {}, message(size)
  local block = http2.block(http2.fields { headers = headers })
  for i = 1, 100 do all[i] = frames_of(2 * i - 1, block, body, is_partial) end
  all = table.concat(all)
  for i = 1, count do
    peers[i] = http2.connect(g, { settings = { [http2.INITIAL_WINDOW_SIZE] = 0 }, from = GREEDY })
    peers[i]:send(all, http2.ping "all read")
  end
  for _, peer in ipairs(peers) do
    peer:wait("all to be read", function()
      for i = #peer.frames, 1, -1 do
        if peer.frames[i].payload == "all read" then return true end
      end
      return peer:is_closed()
    end)
  end
  return peers
end

-- `count` connections of HTTP/1.1, each with a request without its last byte.
local function flood_http1(g, count, size)
  local body, headers = message(size)
  local peers, lines = {}, { "POST /mcp HTTP/1.1", "Host: localhost", "Content-Length: " .. size + 1000 }
  for name, value in pairs(headers) do lines[#lines + 1] = name .. ": " .. value end
  for i = 1, count do
    peers[i] = client.connect(g, { from = GREEDY })
    peers[i]:send_raw(table.concat(lines, "\r\n") .. "\r\n\r\n" .. body:sub(1, size))
  end
  wait.for_fact("all to be sent", 20, function()
    for _, peer in ipairs(peers) do
      if not (peer.eof or peer.error) and peer.tcp:get_write_queue_size() > 0 then return false end
    end
    return true
  end)
  return peers
end

local function append(list, more)
  table.move(more, 1, #more, #list + 1, list)
  return list
end

local ways = {
  ["large requests over HTTP/2 whose answers it does not read"] = function(g) return flood_http2(g, 8, LARGE) end,
  ["small requests over HTTP/2 whose answers it does not read"] = function(g) return flood_http2(g, 20, SMALL) end,
  ["large requests over HTTP/2 that do not end"] = function(g) return flood_http2(g, 8, LARGE, true) end,
  ["large requests over HTTP/1.1 that do not end"] = function(g) return flood_http1(g, 300, LARGE) end,
  ["large requests that do not end, and then small ones"] = function(g) return append(flood_http1(g, 300, LARGE), flood_http1(g, 400, 10000)) end,
}

-- Waits until the address of the flood has used up its share of limits.bodies, or nearly all of it.
local function wait_for_flood(g)
  g:wait_status(function(status) return status.gauges.requests_in_flight == 0 and status.gauges.body_bytes > LIMIT * 13 // 16 end)
end

-- How many requests of `size` bytes were answered with each status, over HTTP/1.1 and HTTP/2.
local function ask(g, size, from)
  local statuses, body, headers = {}, message(size)
  for _ = 1, 10 do
    local connection <close> = client.connect(g, { from = from })
    connection:send { method = "POST", path = "/mcp", headers = headers, body = body }
    local status = connection:read_response().status
    statuses[status] = (statuses[status] or 0) + 1
    local peer <close> = http2.connect(g, { from = from })
    status = peer:call(body, headers).status or "reset"
    statuses[status] = (statuses[status] or 0) + 1
  end
  return statuses
end

describe("limits.bodies, of which an address has filled what it may with", function()
  for name, flood in pairs(ways) do
    it(name .. ", has room for others", function()
      local g <close> = start()
      local peers = flood(g)
      wait_for_flood(g)
      assert.same({ [200] = 20 }, ask(g, SMALL))
      assert.same({ [200] = 20 }, ask(g, HUGE))
      local bytes = g:status().gauges.body_bytes
      assert.is_true(bytes > LIMIT * 13 // 16 and bytes < LIMIT, ("%d of %d bytes are held"):format(bytes, LIMIT))
      for _, peer in ipairs(peers) do peer:close() end
      assert.has_nothing_left(g)
    end)
  end
end)

describe("limits.bodies, of which the calls of an address keep what they may after their requests", function()
  it("has room for calls of others", function()
    local g <close> = start()
    local c <close> = g:client "2024-11-05"
    local params = { name = "hold", arguments = { text = ("x"):rep(200000) } }
    for _ = 1, LIMIT // 200000 + 10 do c:open("tools/call", params) end
    g:wait_status(function(status) return status.counters.refused.calls > 0 and status.gauges.call_bytes > LIMIT * 13 // 16 end)
    assert.same({ [200] = 20 }, ask(g, HUGE, OTHER))
    assert.is_true(g:status().gauges.call_bytes > LIMIT * 13 // 16)
  end)
end)

describe("a trusted proxy", function()
  it("has no share: its connections are those of many clients", function()
    local g <close> = start { trusted_proxies = { GREEDY } }
    local peers = flood_http1(g, 300, LARGE)
    g:wait_status(function(status) return status.gauges.body_bytes > LIMIT - LIMIT // 16 end)
    for _, peer in ipairs(peers) do peer:close() end
    assert.has_nothing_left(g)
  end)
end)
