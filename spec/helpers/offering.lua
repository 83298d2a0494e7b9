-- Calls that are sent when they are due, whether those before have been answered or not, as many callers send them.
local uv = require "luv"

local offering = {}

local body = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":'
  .. '"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}'
local plain = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
  .. "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: work\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body

local function request_of(name)
  return name and plain:gsub("\r\n", "\r\nAuthorization: Bearer " .. name .. "\r\n", 1) or plain
end

function offering.now_ms() return uv.hrtime() / 1e6 end

--- Connections without a request in flight, from this address.
function offering.connect(port, address, count)
  local free = {}
  local made = 0
  for _ = 1, count do
    local one = { tcp = uv.new_tcp() }
    assert(one.tcp:bind(address, 0))
    one.tcp:connect("127.0.0.1", port, function(err)
      assert(not err, err)
      made = made + 1
      free[#free + 1] = one
      one.tcp:read_start(function(read_err, bytes)
        if not one.done then return end -- the gateway may close a connection that waits for no answer
        assert(bytes, read_err or "a connection was closed")
        one.got = (one.got or "") .. bytes
        local length = one.got:lower():match "\r\ncontent%-length: (%d+)\r\n"
        local _, till = one.got:find("\r\n\r\n", 1, true)
        if till and length and #one.got >= till + tonumber(length) then
          one.done(one.got)
          one.got, one.done = nil, nil
          free[#free + 1] = one
        end
      end)
    end)
  end
  while made < count do uv.run "once" end
  return free
end

function offering.close(free)
  for _, one in ipairs(free) do one.tcp:close() end
end

--- Sends the calls of each of `callers`, `rate` of them for each unit of `clock(results)`, over its `free` connections, as
--- the principal `name` if it has one, until the clock is at `last`; where it has a `burst`, so many at once. Returns what
--- was sent for each and what came back after `first`, when the gateway has settled. `unit_ms`: milliseconds of a unit: the
--- latency counts from when a call was due; nil: from when it was sent.
function offering.run(callers, clock, first, last, unit_ms)
  local from, now, open, results = offering.now_ms(), 0, 0, { served = 0 }
  local function send(caller, result)
    local at, one = offering.now_ms() - (now - result.due / caller.rate) * (unit_ms or 0), table.remove(caller.free)
    if not one then
      result.unsent = result.unsent + 1
      return
    end
    open = open + 1
    result.asked = result.asked + (now > first and 1 or 0)
    function one.done(text)
      open = open - 1
      local is_served = text:find "^HTTP/1.1 200"
      results.served = results.served + (is_served and 1 or 0)
      if now <= first or now >= last then return end
      table.insert(is_served and result.latencies or result.refusals, offering.now_ms() - at)
      if not is_served and not text:lower():find "\r\nretry%-after: %d+\r\n" then result.without = result.without + 1 end
    end
    one.tcp:write(request_of(caller.name))
  end
  for i in ipairs(callers) do results[i] = { latencies = {}, refusals = {}, unsent = 0, without = 0, asked = 0, due = 0 } end
  -- The caller whose next call is due first, if one is by then: all callers' calls go out in the order in which they are due.
  local function next_due(till)
    local found, at = nil, till
    for i, caller in ipairs(callers) do
      local burst = caller.burst or 1
      local due = (results[i].due // burst + 1) * burst / caller.rate
      if due <= at then
        found, at = i, due
      end
    end
    return found
  end
  local timer = uv.new_timer()
  timer:start(1, 1, function()
    now = clock(results, offering.now_ms() - from, open)
    for i in next_due, now do
      results[i].due = results[i].due + 1
      send(callers[i], results[i])
    end
  end)
  while now < last do uv.run "once" end
  timer:stop()
  timer:close()
  while open > 0 do uv.run "once" end
  return results
end

--- How `sum` is divided fairly: the smaller of an equal share and what is asked for, for each of `asks`, which are in
--- ascending order.
function offering.shares(asks, sum)
  local shares = {}
  for i, ask in ipairs(asks) do
    shares[i] = math.min(ask, sum / (#asks - i + 1))
    sum = sum - shares[i]
  end
  return shares
end

return offering
