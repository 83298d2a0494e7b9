-- overload.lua: what clients see at once and at three times the calls that one worker can serve: `./dev bench overload
-- [SECONDS [MS]]`. Calls are sent when they are due, whether those before have been answered or not. The handler
-- computes for MS milliseconds (0.3: it is shorter than a time slice; longer ones are preempted, see
-- docs/explanation/limits.md). Ends with 1 if at three times the capacity the 99th percentile of the calls that are
-- served is above twice that at capacity, or that of the refused ones above 50 ms, or a refusal has no Retry-After.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"

local SECONDS <const> = tonumber(arg[1]) or 10
local HANDLER_S <const> = (tonumber(arg[2]) or 0.3) / 1000
local CONNECTIONS <const> = 2000
local REFUSED_MS <const> = 50

gateway.binary = os.getenv "MOONPOOL" or "build/release/moonpool"

local scripts = {
  ["tools/work.lua"] = ([[
return tool { "Computes.", function()
  local from = os.clock()
  while os.clock() - from < HANDLER_S do end
  return "done"
end }]]):gsub("HANDLER_S", HANDLER_S),
}
local body = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":'
  .. '"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}'
local head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
  .. "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: work\r\nContent-Length: " .. #body .. "\r\n\r\n"
local request = head .. body

local function now_ms() return uv.hrtime() / 1e6 end

-- Connections without a request in flight.
local function connect(port)
  local free = {}
  local made = 0
  for _ = 1, CONNECTIONS do
    local one = { tcp = uv.new_tcp() }
    one.tcp:connect("127.0.0.1", port, function(err)
      assert(not err, err)
      made = made + 1
      free[#free + 1] = one
      one.tcp:read_start(function(read_err, bytes)
        assert(bytes, read_err or "a connection was closed")
        one.got = (one.got or "") .. bytes
        local length = one.got:lower():match "\r\ncontent%-length: (%d+)\r\n"
        local _, till = one.got:find("\r\n\r\n", 1, true)
        if till and length and #one.got >= till + tonumber(length) then
          one.done(one.got)
          one.got = nil
          free[#free + 1] = one
        end
      end)
    end)
  end
  while made < CONNECTIONS do uv.run "once" end
  return free
end

local function percentile(list, part)
  table.sort(list)
  return list[math.max(1, math.ceil(#list * part))] or 0
end

-- Sends `rate` calls a second; returns what came back in the second half of the time, when the gateway has settled.
local function offer(free, rate, seconds)
  local served, refused, without, unsent, open = {}, {}, 0, 0, 0
  local from, sent = now_ms(), 0
  local timer = uv.new_timer()
  timer:start(1, 1, function()
    local due = math.floor((now_ms() - from) * rate / 1000)
    while sent < due do
      sent = sent + 1
      local at, one = from + sent * 1000 / rate, table.remove(free)
      local counts = at - from > seconds * 500
      if not one then
        unsent = unsent + 1
      else
        open = open + 1
        function one.done(text)
          open = open - 1
          if not counts then return end
          if text:find("^HTTP/1.1 200") then
            served[#served + 1] = now_ms() - at
          else
            refused[#refused + 1] = now_ms() - at
            if not text:lower():find "\r\nretry%-after: %d+\r\n" then without = without + 1 end
          end
        end
        one.tcp:write(request)
      end
    end
  end)
  while now_ms() - from < seconds * 1000 do uv.run "once" end
  timer:stop()
  timer:close()
  while open > 0 do uv.run "once" end
  return {
    rate = rate, served = #served / (seconds / 2), refused = #refused / (seconds / 2), unsent = unsent, without = without,
    p50 = percentile(served, 0.5), p99 = percentile(served, 0.99), refused_p99 = percentile(refused, 0.99),
  }
end

local function show(name, r)
  print(("%-14s %7.0f calls/s offered  %7.0f served, p50 %6.1f ms, p99 %6.1f ms  %7.0f refused, p99 %6.1f ms  %d not sent"):format(
    name, r.rate, r.served, r.p50, r.p99, r.refused, r.refused_p99, r.unsent))
end

local g <close> = gateway.start { workers = 1, scripts = scripts, config = {
  overload = { wait = "200ms" }, limits = { calls_in_flight = 10000, request_time = "10m" } } }
local free = connect(g.port)
local capacity = offer(free, math.min(6000, 4 / HANDLER_S), SECONDS).served -- what it serves when there is always something to serve
assert(capacity > 0.1 / HANDLER_S, "this machine is too busy to measure anything")
g:wait_log("worker no longer overloaded", nil, 60)
local once = offer(free, capacity, SECONDS)
local thrice = offer(free, 3 * capacity, SECONDS)
show("capacity", once)
show("3 × capacity", thrice)
local is_good = thrice.p99 <= 2 * once.p99 and thrice.refused_p99 <= REFUSED_MS and thrice.without == 0
print(is_good and "as promised" or "not as promised")
for _, one in ipairs(free) do one.tcp:close() end
g:kill()
os.exit(is_good and 0 or 1)
