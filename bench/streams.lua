-- streams.lua: what quiet streams of each kind take, how long they take to open, how long one event takes to all of
-- them, and what is left of their memory after their clients have left. For bench.lua; `./dev bench streams [COUNT…]
-- [KIND…] [FIN | RST]` prints it for COUNT streams (1000 9000 19000) of each KIND (sse get listen wait), whose clients
-- leave by both unless one is named.
-- The clients are in a process of their own (hold.lua). What is left is compared with the memory of a gateway whose
-- first four streams have come and left; what each takes, with that of one that has a hundred.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local streams = {}

local AFTER_S <const> = 3 -- after the last client has left
local SETTLED_S <const> = 2 -- after the last stream was opened: then the garbage of opening them has gone
local FIRST <const> = 100 -- streams that are open before the memory of each is measured
local PATIENCE <const> = 300

local scripts = {
  ["tools/wait.lua"] = 'return tool { "Waits.", function() sleep(3000) return "x" end }',
  ["tools/other.lua"] = 'return tool { "Is switched.", function() return "x" end }',
  ["tools/switch.lua"] = 'return tool { "Switches the other.", function() disable("tool", "other") return "x" end }',
}

streams.kinds = {
  { name = "HTTP+SSE", short = "sse", gauge = "streams_open" },
  { name = "GET", short = "get", gauge = "streams_open" },
  { name = "subscriptions/listen", short = "listen", gauge = "listeners", has_events = true },
  { name = "waiting calls", short = "wait", gauge = "ops" },
}
streams.departures = { { name = "FIN", command = "close" }, { name = "RST", command = "reset" } }

local function seconds_since(at) return (uv.hrtime() - at) / 1e9 end

local function pause(seconds)
  local began = uv.hrtime()
  while seconds_since(began) < seconds do uv.sleep(20) end
end

--- The process of the clients: tell(command, word) gives it a command of bench/hold.lua, and waits until it has been
--- done; stop(). `by`: the gateway by way of which the streams are opened, nil for `g`.
function streams.hold(g, kind, by)
  local input, output, said = uv.new_pipe(false), uv.new_pipe(false), ""
  local process = {}
  local args = { "bench/hold.lua", tostring(g.port), kind.name, by and tostring(by.port) }
  process.handle = assert(uv.spawn("/usr/bin/lua5.4", { args = args, stdio = { input, output, 2 } }, function(code) process.code = code end))
  output:read_start(function(_, bytes) said = said .. (bytes or "") end)
  return {
    tell = function(command, word)
      said = ""
      input:write(("%s %s\n"):format(command, word or ""))
      return wait.for_fact("the clients: " .. command, PATIENCE, function()
        assert(not process.code, "the clients have ended")
        return said:find(command .. "\n", 1, true)
      end)
    end,
    stop = function()
      input:close()
      wait.for_fact("the clients to end", 10, function() return process.code end)
      output:close()
      process.handle:close()
    end,
  }
end

-- Milliseconds from a change of the list of tools until every client has read the notification.
local function fan_out(g, holder)
  holder.tell("wanted", "notifications/tools/list_changed")
  local began = uv.hrtime()
  assert(g:client("2026-07-28"):call("tools/call", { name = "switch", arguments = {} }).result)
  holder.tell "heard"
  return seconds_since(began) * 1000
end

local function wait_left(g)
  g:wait_status(function(status) return status.gauges.connections <= 2 and status.gauges.ops == 0 end, PATIENCE)
end

-- The number of turns that returned memory and took longer than 5 ms of processor time.
local function longer(g)
  local sum = 0
  for within, count in pairs(g:status().counters.memory_turns) do
    if within ~= "1ms" and within ~= "5ms" then sum = sum + count end
  end
  return sum
end

-- A gateway with room for twice `count` streams.
local function start(count)
  return gateway.start { workers = 2, scripts = scripts, config = {
    heartbeat = "10m", sessions = { max = 2 * count + 500, per_principal = 2 * count + 500 },
    limits = { connections = 2 * count + 500, calls_in_flight = 2 * count + 500, call = { time = "1h" } },
  } }
end

--- Opens `count` streams of a kind and waits until each takes at most `most` KB. Returns KB of each, also where that
--- did not happen in time.
function streams.weigh(kind, count, most, patience)
  local g <close> = start(count)
  local holder = streams.hold(g, kind)
  local function open(more, sum)
    holder.tell("open", more)
    g:wait_status(function(status) return status.gauges[kind.gauge] >= sum end, PATIENCE)
  end
  open(FIRST, FIRST)
  local before, began = g:rss(), uv.hrtime()
  local kb
  open(count - FIRST, count)
  repeat
    kb = (g:rss() - before) / (count - FIRST) / 1024
    uv.sleep(50)
  until kb <= most or seconds_since(began) > patience
  holder.tell("leave", "close")
  holder.tell "end"
  holder.stop()
  return kb
end

--- { kb, open_s, fan_out_ms, left, longer } of `count` streams of a kind: KB resident for each, seconds until all were
--- open, milliseconds for one event to all, the part of the memory that is still held AFTER_S after they have left, and
--- the number of turns above 5 ms in which memory was returned.
function streams.measure(kind, count, departure)
  local g <close> = start(count)
  local first = streams.hold(g, kind)
  first.tell("open", 4)
  first.tell("leave", departure.command)
  first.tell "end"
  first.stop()
  wait_left(g)
  pause(AFTER_S)
  local holder = streams.hold(g, kind)
  local before = g:rss()
  local function open(more, sum)
    holder.tell("open", more)
    g:wait_status(function(status) return status.gauges[kind.gauge] >= sum end, PATIENCE)
  end
  open(FIRST, FIRST)
  pause(SETTLED_S)
  local with_first, began = g:rss(), uv.hrtime()
  open(count - FIRST, count)
  local row = { count = count, open_s = seconds_since(began) }
  pause(SETTLED_S)
  row.kb = (g:rss() - with_first) / (count - FIRST) / 1024
  row.fan_out_ms = kind.has_events and fan_out(g, holder) or nil
  local full = g:rss()
  holder.tell("leave", departure.command)
  holder.tell "end"
  wait_left(g)
  pause(AFTER_S)
  row.left = math.max(0, g:rss() - before) / (full - before)
  row.left_mb = (g:rss() - before) / 2 ^ 20
  row.longer = longer(g)
  holder.stop()
  return row
end

function streams.print(kind, departure, row)
  print(("  %-22s %5d %s  %5.2f KB each, open after %4.1f s, %s%3.0f %% left (%.1f MB), %d turns above 5 ms"):format(kind.name, row.count,
    departure.name, row.kb, row.open_s, row.fan_out_ms and ("one event to all %.0f ms, "):format(row.fan_out_ms) or "", row.left * 100,
    row.left_mb, row.longer))
end

-- -- ./dev bench streams ----------------------------------------------------------------------------------------------------

local function main()
  gateway.binary = os.getenv "MOONPOOL" or "build/release/moonpool"
  local counts, named = {}, {}
  for _, word in ipairs(arg) do
    if tonumber(word) then counts[#counts + 1] = tonumber(word) else named[word] = true end
  end
  if #counts == 0 then counts = { 1000, 9000, 19000 } end
  local function pick(list, key)
    local found = {}
    for _, item in ipairs(list) do
      if named[item[key]] then found[#found + 1] = item end
    end
    return #found > 0 and found or list
  end
  for _, count in ipairs(counts) do
    for _, kind in ipairs(pick(streams.kinds, "short")) do
      for _, departure in ipairs(pick(streams.departures, "name")) do
        streams.print(kind, departure, streams.measure(kind, count, departure))
      end
    end
  end
  os.exit(true, false)
end

if arg and (arg[0] or ""):find "streams%.lua$" then main() end

return streams
