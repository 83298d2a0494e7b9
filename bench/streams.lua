-- streams.lua: what quiet streams of each kind take, how long they take to open, how long one event takes to all of them, and what is
-- left of their memory after their clients have left. For bench.lua.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"

local streams = {}

local META = '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}'
local AFTER_S <const> = 3 -- after the last client has left
local SETTLED_S <const> = 2 -- after the last stream was opened: then the garbage of opening them has gone
local FIRST <const> = 100 -- streams that are open before the first look at the memory

local scripts = {
  ["tools/wait.lua"] = 'return tool { "Waits.", function() sleep(3000) return "x" end }',
  ["tools/other.lua"] = 'return tool { "Is switched.", function() return "x" end }',
  ["tools/switch.lua"] = 'return tool { "Switches the other.", function() disable("tool", "other") return "x" end }',
}

local function post(method, params, more)
  local body = ('{"jsonrpc":"2.0","id":1,"method":"%s","params":{%s,%s}}'):format(method, params, META)
  return ("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n" ..
    "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: %s\r\n%sContent-Length: %d\r\n\r\n%s"):format(method, more or "", #body, body)
end

local LISTEN = post("subscriptions/listen", '"notifications":{"toolsListChanged":true}')
local WAIT = post("tools/call", '"name":"wait","arguments":{}', "Mcp-Name: wait\r\n")

streams.kinds = {
  { name = "HTTP+SSE", gauge = "streams_open", open = function(_, c) c:send_raw "GET /sse HTTP/1.1\r\nHost: localhost\r\n\r\n" end },
  {
    name = "GET", gauge = "streams_open",
    open = function(g, c)
      local me = g:client "2025-11-25"
      me:close()
      c:send { method = "GET", path = "/mcp", headers = { accept = "text/event-stream", ["mcp-session-id"] = me.session } }
      return me
    end,
  },
  { name = "subscriptions/listen", gauge = "listeners", open = function(_, c) c:send_raw(LISTEN) end, has_events = true },
  { name = "waiting calls", gauge = "ops", open = function(_, c) c:send_raw(WAIT) end },
}

local function seconds_since(at) return (uv.hrtime() - at) / 1e9 end

local function pause(seconds)
  local began = uv.hrtime()
  while seconds_since(began) < seconds do uv.sleep(20) end
end

-- Milliseconds from a change of the list of tools until every client has read the notification.
local function fan_out(g, list)
  local began = uv.hrtime()
  assert(g:client("2026-07-28"):call("tools/call", { name = "switch", arguments = {} }).result)
  for _, c in ipairs(list) do c:wait_event("notifications/tools/list_changed", 30) end
  return seconds_since(began) * 1000
end

--- { kb, open_s, fan_out_ms, left } of `count` streams of a kind: KB resident for each, seconds until all were open, milliseconds for one
--- event to all, and the part of the memory that is still held AFTER_S after they have left.
function streams.measure(kind, count, departure)
  local g <close> = gateway.start { workers = 2, scripts = scripts, config = {
    heartbeat = "10m", sessions = { max = 2 * count + 500, per_principal = 2 * count + 500, initialize_within = "1h" },
    limits = { connections = 2 * count + 500, calls_in_flight = 2 * count + 500, listeners = 2 * count + 500, call = { time = "1h" } },
  } }
  local list, owners = {}, {}
  local function open(more)
    for _ = 1, more do
      local c = g:connect()
      list[#list + 1] = c
      owners[#owners + 1] = kind.open(g, c) or nil
    end
    g:wait_status(function(status) return status.gauges[kind.gauge] >= #list end, 120)
  end
  open(FIRST)
  local before, began = g:rss(), uv.hrtime()
  open(count)
  local row = { open_s = seconds_since(began) }
  pause(SETTLED_S)
  row.kb = (g:rss() - before) / count / 1024
  row.fan_out_ms = kind.has_events and fan_out(g, list) or nil
  local full = g:rss()
  for _, c in ipairs(list) do c[departure](c) end
  for _, me in ipairs(owners) do me:delete() end
  for _, me in ipairs(owners) do me:close() end
  g:wait_status(function(status) return status.gauges.connections <= 2 end, 120)
  pause(AFTER_S)
  row.left = math.max(0, g:rss() - before) / (full - before)
  row.longest = g:status().counters.trims.longer
  return row
end

return streams
