-- What many clients took goes back to the system when they have left, in steps that hold up no other client for long.
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local MANY, STREAMS, FIRST = 3000, 1000, 4
local WAITS = 'return tool { "Waits.", function() sleep(3000) return "x" end }'
local META = '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}'

local function start(count)
  return gateway.start { workers = 2, constants = { initialize_within_ms = 3600000 }, scripts = { ["tools/wait.lua"] = WAITS }, config = {
    sessions = { max = 2 * count, per_principal = 2 * count },
    limits = { connections = 3 * count, calls_in_flight = 2 * count, call = { time = "1h" } },
  } }
end

local function post(method, params, more)
  local body = ('{"jsonrpc":"2.0","id":1,"method":"%s","params":{%s,%s}}'):format(method, params, META)
  return ("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n" ..
    "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: %s\r\n%sContent-Length: %d\r\n\r\n%s"):format(method, more or "", #body, body)
end

-- How a client of each kind opens its stream on a connection, and the gauge that counts what is open. `ended`: called
-- for each when all have left.
local kinds = {
  { name = "HTTP+SSE", gauge = "streams_open", open = function(_, c) c:send_raw "GET /sse HTTP/1.1\r\nHost: localhost\r\n\r\n" end },
  {
    name = "GET", gauge = "streams_open",
    open = function(g, c)
      local me = g:client "2025-11-25"
      c:send { method = "GET", path = "/mcp", headers = { accept = "text/event-stream", ["mcp-session-id"] = me.session } }
      return me
    end,
    ended = function(me)
      me:delete()
      me:close()
    end,
  },
  { name = "subscriptions/listen", gauge = "listeners",
    open = function(_, c) c:send_raw(post("subscriptions/listen", '"notifications":{"toolsListChanged":true}')) end },
  { name = "waiting calls", gauge = "ops", open = function(_, c) c:send_raw(post("tools/call", '"name":"wait","arguments":{}', "Mcp-Name: wait\r\n")) end },
}

local departures = {
  FIN = function(c) c:close() end,
  RST = function(c) c:reset() end,
}

-- `count` clients come, and leave. The resident bytes while they were there.
local function visit(g, kind, how, count)
  local streams, owners = {}, {}
  for i = 1, count do
    streams[i] = g:connect()
    owners[i] = kind.open(g, streams[i]) or false
  end
  g:wait_status(function(status) return status.gauges[kind.gauge] >= count end, 60)
  local full = g:rss()
  for _, stream in ipairs(streams) do departures[how](stream) end
  for _, owner in ipairs(owners) do
    if owner then kind.ended(owner) end
  end
  g:wait_status(function(status) return status.gauges.connections <= 1 end, 60)
  return full
end

-- Turns that returned memory and took longer than 5 ms of processor time.
local function long_turns(g)
  local turns = g:status().counters.memory_turns
  return turns["20ms"] + turns["100ms"] + turns.longer
end

local function memory_turns(g)
  local sum = 0
  for _, count in pairs(g:status().counters.memory_turns) do sum = sum + count end
  return sum
end

-- Four clients come and leave before the measurement: the first clients load pages of code, and leave memory that is
-- kept for later clients.
local function returns(kind, how, count)
  local g <close> = start(count)
  visit(g, kind, how, FIRST)
  local before = g:rss()
  local full = visit(g, kind, how, count)
  if not gateway.binary:find "[at]san" then -- a sanitizer's allocator keeps what it has
    local function named()
      return ("the memory to go back: %d bytes before, %d with streams, %d now"):format(before, full, g:rss())
    end
    wait.for_fact(named, 20, function() return g:rss() - before < (full - before) / 5 end)
    -- a step that is too long is so each time; beside other programs one of some hundred takes longer than its own work
    assert.is_true(long_turns(g) <= 1, long_turns(g) .. " long turns")
  end
  wait.for_fact("a turn that returns memory", 20, function() return memory_turns(g) > 0 end)
end

describe("after a mass disconnect", function()
  for _, kind in ipairs { kinds[1], kinds[4] } do
    it("four fifths of the memory of 3,000 of " .. kind.name .. " return to the system within seconds, without a long turn", function()
      returns(kind, "FIN", MANY)
    end)
  end

  for _, kind in ipairs(kinds) do
    for how in pairs(departures) do
      it(("by %s, four fifths of what the first 1,000 of %s took are given back, in turns of at most 5 ms"):format(how, kind.name), function()
        returns(kind, how, STREAMS)
      end)
    end
  end
end)

describe("a session that outlives its stream", function()
  it("does not keep the memory of the streams around it", function()
    local g <close> = start(STREAMS)
    local kind = kinds[2]
    visit(g, kind, "FIN", FIRST)
    local before = g:rss()
    local streams, owners = {}, {}
    for i = 1, STREAMS do
      streams[i] = g:connect()
      owners[i] = kind.open(g, streams[i])
    end
    g:wait_status(function(status) return status.gauges.streams_open >= STREAMS end, 60)
    local full = g:rss()
    for i, stream in ipairs(streams) do
      stream:close()
      owners[i]:close()
    end
    g:wait_status(function(status) return status.gauges.connections <= 1 and status.gauges.sessions.http >= STREAMS end, 60)
    if not gateway.binary:find "[at]san" then
      local function named()
        return ("two thirds of the memory to go back: %d bytes before, %d with streams, %d now"):format(before, full, g:rss())
      end
      wait.for_fact(named, 20, function() return g:rss() - before < (full - before) / 3 end)
    end
  end)
end)
