-- neighbours.lua: what 200 callers notice of scripts that do not end, want all memory or match for ever, on the one worker that
-- serves them all, in one run; and how long those scripts last. `./dev bench neighbours [PATTERN]` calls it, for those whose name fits.
-- It is fair in this: callers ask at a fixed rate, far below what the worker can do, whoever was held up or not; they and the gateway run
-- ahead of all else on the machine, where that is allowed (bench/run): with other work beside them, it would be that which is measured.
-- The budget is of the processor: the end counts from the call's start, as its client sees it.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local offenders = require "spec.helpers.offenders"

local CALLERS <const>, EVERY_MS <const> = 200, 100 -- so many calls, each so often: 2,000 a second
local SECONDS <const>, TIMES <const> = 5, 3
local BUDGET_MS <const>, GRACE_MS <const>, SLICE_MS <const> = 200, 100, 2
local META <const> = [["_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}]]

local function request_of(name)
  local body = ([[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":{},%s}}]]):format(name, META)
  return ("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n" ..
    "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: %s\r\nContent-Length: %d\r\n\r\n%s"):format(name, #body, body)
end

-- One connection; `on_answer(body, milliseconds)` hears of each answer.
local function connect(g, on_answer)
  local self = { tcp = uv.new_tcp(), rest = "" }
  self.tcp:connect("127.0.0.1", g.port, function(err)
    assert(not err, err)
    self.tcp:nodelay(true)
    self.is_ready = true
    self.tcp:read_start(function(_, bytes)
      if not bytes then return end
      self.rest = self.rest .. bytes
      local length, from = self.rest:match "[Cc]ontent%-[Ll]ength: (%d+).-\r\n\r\n()"
      if length and #self.rest - from + 1 >= tonumber(length) then
        local body, took = self.rest:sub(from), (uv.hrtime() - self.since) / 1e6
        self.rest, self.since = "", nil
        on_answer(body, took)
      end
    end)
  end)
  function self.ask(bytes)
    self.since = uv.hrtime()
    self.tcp:write(bytes)
  end
  return self
end

local samples = {}

-- Each keeps to its own moments, so that whoever was held up does not ask together with all others from then on.
local function start_callers(g)
  local ok, list, began, turn = request_of "ok", {}, uv.hrtime() / 1e6, 0
  for i = 1, CALLERS do
    list[i] = connect(g, function(body, took)
      assert(body:find('"ok"', 1, true), body)
      samples[#samples + 1] = took
    end)
  end
  local timer = uv.new_timer()
  timer:start(1, 1, function()
    local due = math.floor((uv.hrtime() / 1e6 - began) * CALLERS / EVERY_MS)
    for n = math.max(turn + 1, due - CALLERS // 10), due do
      local one = list[n % CALLERS + 1]
      if one.is_ready and not one.since then one.ask(ok) end
    end
    turn = due
  end)
  return function()
    timer:close()
    for _, one in ipairs(list) do one.tcp:close() end
    uv.run "nowait"
  end
end

local function run_for(ms)
  local over = false
  local timer = uv.new_timer()
  timer:start(ms, 0, function() over = true end)
  while not over do uv.run "once" end
  timer:close()
end

local function of(list, share)
  table.sort(list)
  return list[math.max(1, math.ceil(#list * share))] or 0
end

local function row(what, list, ends)
  print(("  %-34s %6d %8.2f %8.2f %8.1f   %s"):format(what, #list, of(list, 0.5), of(list, 0.99), of(list, 1), ends))
end

-- Runs an offender TIMES times, one after another: its milliseconds to the end.
local function offend(g, name)
  local worst, left = 0, TIMES
  local bytes, one = request_of(name), nil
  one = connect(g, function(body, took)
    assert(body:find('"error"', 1, true) or body:find('"isError":true', 1, true), name .. ": " .. body)
    worst, left = math.max(worst, took), left - 1
    if left > 0 then one.ask(bytes) end
  end)
  while not one.is_ready do uv.run "once" end
  one.ask(bytes)
  while left > 0 do uv.run "once" end
  one.tcp:close()
  return worst
end

local function sorted(group)
  local names, bodies = {}, offenders[group]
  for name in pairs(bodies) do
    if (group .. " " .. name):find(arg[1] or "") then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

local function measure()
  local scripts, groups = { ["tools/ok.lua"] = offenders.tool "return 'ok'" }, { "endless", "hungry", "patterns" }
  for _, group in ipairs(groups) do
    for name, body in pairs(offenders[group]) do scripts[("tools/%s_%s.lua"):format(group, name)] = offenders.tool(body) end
  end
  local g <close> = gateway.start { workers = 1, scripts = scripts, config = {
    log = { level = "error" }, limits = { call = { cpu = BUDGET_MS .. "ms", memory = "16MiB" } } } }
  print(("%d callers, each every %d ms, on one worker; offenders with %d ms of CPU and 16 MiB, one at a time, %d times each; milliseconds"):format(
    CALLERS, EVERY_MS, BUDGET_MS, TIMES))
  print(("  %-34s %6s %8s %8s %8s   %s"):format("beside", "calls", "p50", "p99", "most", "ended after, at most"))
  local stop_callers = start_callers(g)
  run_for(1000)
  samples = {}
  run_for(SECONDS * 1000)
  local base = samples
  row("nobody", base, "")
  local bound = 2 * of(base, 0.99) + SLICE_MS
  local all, late, above = {}, {}, {}
  for _, group in ipairs(groups) do
    for _, name in ipairs(sorted(group)) do
      samples = {}
      local worst = offend(g, group .. "_" .. name)
      row(group .. " " .. name, samples, ("%.0f"):format(worst))
      if worst > BUDGET_MS + GRACE_MS then late[#late + 1] = group .. " " .. name end
      if of(samples, 0.99) > bound then above[#above + 1] = group .. " " .. name end
      table.move(samples, 1, #samples, #all + 1, all)
      run_for(50)
    end
  end
  row("all of them in turn", all, "")
  print(("  bound of p99: twice that beside nobody and a slice of %d ms: %.2f; over all %s"):format(SLICE_MS, bound,
    of(all, 0.99) <= bound and "kept" or "NOT kept"))
  print("  above it: " .. (above[1] and table.concat(above, ", ") or "none"))
  print(("  later than %d + %d ms: %s"):format(BUDGET_MS, GRACE_MS, late[1] and table.concat(late, ", ") or "none"))
  stop_callers()
end

gateway.binary = "build/release/moonpool"
measure()
os.exit(true, false) -- not by way of the end of luv, which trips over processes that have just ended
