-- limits.connections has a share for each address: what one of them opens, busy connections too, leaves room for others.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local MOST <const>, KEPT <const>, CROWD <const> = 96, 8, 120
local ONE <const>, OTHER <const>, THIRD <const> = "127.0.0.1", "127.0.0.2", "127.0.0.3"

local scripts = {
  ["tools/hold.lua"] = 'return tool { "Holds.", function() sleep(60) end }',
  ["tools/ping.lua"] = 'return tool { "Answers.", function() return "pong" end }',
  ["tools/which.lua"] = 'local worker = uuid() return tool { "Names the state of its worker.", function() return worker end }',
}

local function start(listen, most)
  return gateway.start { scripts = scripts, workers = 2, config = { listen = listen, auth = listen and "none", limits = { connections = most or MOST } } }
end

-- A request of HTTP/1.1 that calls a tool.
local function request(name)
  local message = wire.message(1, "tools/call", { name = name, arguments = {}, _meta = wire.meta() })
  local headers = wire.mirrored(message)
  headers.Accept = wire.both
  return { method = "POST", path = "/mcp", headers = headers, body = message }
end

-- `count` connections of an address, of which those that one worker has are idle, and each other one has a call that
-- holds. Returns the connections, and the number of the idle ones.
local function idle_on_one(g, from, count)
  local all, of, last = {}, {}, nil
  for i = 1, count do
    all[i] = client.connect(g, { from = from })
    last = all[i]:request(request "which"):json().result.content[1].text
    of[i] = last
  end
  local idle = 0
  for i, worker in ipairs(of) do
    if worker == last then idle = idle + 1 else all[i]:send(request "hold") end
  end
  assert.is_true(idle > count // 3 and idle < count * 2 // 3, idle)
  g:wait_status(function(status) return status.gauges.requests_in_flight == count - idle end)
  return all, idle
end

-- Connections of an address, each with a call that holds; those that are refused have an answer.
local function hold(me, from, count)
  local all = {}
  for i = 1, count do all[i] = me:open("tools/call", { name = "hold" }, { from = from }) end
  return all
end

local function pong(me, from)
  local call <close> = me:open("tools/call", { name = "ping" }, { from = from })
  return call:answer().result.content[1].text
end

local function in_flight(g, count)
  return g:wait_status(function(status) return status.gauges.requests_in_flight == count end)
end

describe("busy connections of one address", function()
  it("leave the last of limits.connections to others, of which each has as many as are free, and none is cut off", function()
    local g <close> = start()
    local me <close> = g:client "2026-07-28"
    hold(me, ONE, CROWD)
    g:wait_status(function(status) return status.counters.refused.connection_shares >= CROWD - MOST + KEPT end)
    in_flight(g, MOST - KEPT)
    local response = hold(me, ONE, 1)[1].connection:read_response()
    assert.same({ 503, "1", "too many connections of this address: try again later\n" }, { response.status, response.headers["retry-after"], response.body })
    assert.equal(ONE, g:wait_log("refused", { cause = "connections" }).fields.address)
    assert.equal("pong", pong(me, OTHER))
    -- the one more is the connection that asks for the status
    g:wait_status(function(status) return status.gauges.connections == MOST - KEPT + 1 end)
    hold(me, OTHER, KEPT // 2)
    in_flight(g, MOST - KEPT // 2)
    assert.equal(503, hold(me, OTHER, 1)[1].connection:read_response().status)
    assert.equal("pong", pong(me, THIRD))
  end)

  it("are never more than that, however many workers accept them at once", function()
    local g <close> = gateway.start { scripts = scripts, workers = 4, config = { limits = { connections = MOST } } }
    local me <close> = g:client "2026-07-28"
    for _ = 1, 10 do
      local refused = g:status().counters.refused.connection_shares
      local all = hold(me, ONE, CROWD)
      local status = g:wait_status(function(status)
        return status.gauges.requests_in_flight + status.counters.refused.connection_shares - refused == CROWD
      end)
      assert.equal(MOST - KEPT, status.gauges.requests_in_flight)
      for _, call in ipairs(all) do call:close() end
      g:wait_status(function(now) return now.gauges.requests_in_flight == 0 and now.gauges.connections == 1 end)
    end
  end)

  it("get none of the places that become free until another address has as many", function()
    local g <close> = start()
    local me <close> = g:client "2026-07-28"
    local all = hold(me, ONE, MOST - KEPT)
    in_flight(g, MOST - KEPT)
    hold(me, OTHER, KEPT // 2)
    in_flight(g, MOST - KEPT // 2)
    for i = 1, KEPT do
      all[i]:close()
      in_flight(g, MOST - KEPT // 2 - 1)
      local refused = g:status().counters.refused.connection_shares
      hold(me, ONE, 1)
      g:wait_status(function(status) return status.counters.refused.connection_shares == refused + 1 end)
      wait.for_fact("a place for the other address", 20, function() -- the connection ends a moment after its call
        refused = g:status().counters.refused.connection_shares
        hold(me, OTHER, 1)
        return g:wait_status(function(status)
          return status.gauges.requests_in_flight == MOST - KEPT // 2 or status.counters.refused.connection_shares > refused
        end).gauges.requests_in_flight == MOST - KEPT // 2
      end)
    end
  end)
end)

describe("an address with idle connections only", function()
  it("has new ones in their place", function()
    local g <close> = start()
    local all = {}
    for i = 1, CROWD do
      all[i] = client.connect(g, { from = ONE })
      assert.equal(404, all[i]:request({ path = "/nowhere" }).status)
    end
    assert.equal("pong", pong(g:client "2026-07-28", OTHER))
    assert.equal(0, g:status().counters.refused.connection_shares)
    for _, connection in ipairs(all) do connection:close() end
  end)
end)

describe("idle connections of one worker", function()
  it("make room for new ones of their address, whichever worker those come to", function()
    local g <close> = start()
    local all, idle = idle_on_one(g, ONE, MOST - KEPT)
    for i = 1, idle do
      all[#all + 1] = client.connect(g, { from = ONE })
      all[#all]:send(request "hold")
      g:wait_status(function(status) return status.gauges.requests_in_flight == MOST - KEPT - idle + i end)
    end
    assert.equal(0, g:status().counters.refused.connection_shares)
    all[#all + 1] = client.connect(g, { from = ONE })
    assert.equal(503, all[#all]:request(request "hold").status)
    for _, connection in ipairs(all) do connection:close() end
  end)

  it("make room at limits.connections for those that wait at another", function()
    local most <const> = 40
    local g <close> = start(nil, most)
    local all, idle = idle_on_one(g, ONE, most)
    for i = 1, idle do
      all[#all + 1] = client.connect(g, { from = ONE })
      all[#all]:send(request "hold")
      g:wait_status(function(status) return status.gauges.requests_in_flight == most - idle + i end)
    end
    for _, connection in ipairs(all) do connection:close() end
  end)
end)

describe("a trusted proxy", function()
  it("has all of limits.connections, since it has those of many clients", function()
    local g <close> = start { { address = "127.0.0.1:0", trusted_proxies = { ONE } } }
    local me <close> = g:client "2026-07-28"
    hold(me, ONE, MOST)
    in_flight(g, MOST)
    assert.equal(0, g:status().counters.refused.connection_shares)
  end)
end)
