-- neighbours.lua: what 200 callers notice of scripts that do not end, want all memory or match for ever, on the one
-- worker that serves them all, in one run; and how long those scripts last. `./dev bench neighbours [PATTERN]` calls
-- it, for those whose name fits.
-- It is fair in this: callers ask at a fixed rate, far below what the worker can do, whoever was held up or not; they
-- and the gateway run ahead of all else on the machine, where that is allowed (bench/run): with other work beside them,
-- it would be that which is measured.
-- Before each run of a script the callers are alone for a while: that is what it is compared with, so both saw the same
-- machine. A machine that others share stands still for milliseconds now and then: `p99` is that of the middle run, `of
-- all` that of all runs.
-- The budget is of the processor: the end counts from the call's start, as its client sees it.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local offenders = require "spec.helpers.offenders"

local CALLERS <const>, EVERY_MS <const> = 200, 100 -- so many calls, each so often: 2,000 a second
local ALONE_MS <const>, TIMES <const> = 200, 7
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

-- The runs of one script: a list of samples each. Its p99s: of the middle run, and of all together.
local function p99s(runs)
  local each, all = {}, {}
  for i, run in ipairs(runs) do
    each[i] = of(run, 0.99)
    table.move(run, 1, #run, #all + 1, all)
  end
  return of(each, 0.5), of(all, 0.99), all
end

local function row(what, runs, ends)
  local middle, whole, all = p99s(runs)
  print(("  %-34s %6d %8.2f %8.2f %8.2f %8.1f   %s"):format(what, #all, of(all, 0.5), middle, whole, of(all, 1), ends))
end

-- Runs an offender TIMES times, one after another, into `runs`, and each time before that nothing, into `alone`: how
-- long it took to end, at most.
local function offend(g, name, runs, alone)
  local worst, bytes, ran = 0, request_of(name), 0
  local one = connect(g, function(body, took)
    assert(body:find('"error"', 1, true) or body:find('"isError":true', 1, true), name .. ": " .. body)
    worst, ran = math.max(worst, took), ran + 1
  end)
  while not one.is_ready do uv.run "once" end
  for i = 1, TIMES do
    run_for(20)
    samples = {}
    run_for(ALONE_MS)
    alone[#alone + 1], samples = samples, {}
    one.ask(bytes)
    while ran < i do uv.run "once" end
    runs[#runs + 1] = samples
  end
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
  print(("  %-34s %6s %8s %8s %8s %8s   %s"):format("beside", "calls", "p50", "p99", "of all", "most", "ended after, at most"))
  local stop_callers = start_callers(g)
  run_for(1000)
  local results, alone, every, late = {}, {}, {}, {}
  for _, group in ipairs(groups) do
    for _, name in ipairs(sorted(group)) do
      local runs = {}
      local worst = offend(g, group .. "_" .. name, runs, alone)
      row(group .. " " .. name, runs, ("%.0f"):format(worst))
      if worst > BUDGET_MS + GRACE_MS then late[#late + 1] = group .. " " .. name end
      results[#results + 1] = { name = group .. " " .. name, p99 = p99s(runs) }
      table.move(runs, 1, #runs, #every + 1, every)
    end
  end
  stop_callers()
  row("all of them", every, "")
  row("nobody, in between", alone, "")
  local middle, whole = p99s(alone)
  local bound, bound_of_all, above = 2 * middle + SLICE_MS, 2 * whole + SLICE_MS, {}
  for _, result in ipairs(results) do
    if result.p99 > bound then above[#above + 1] = result.name end
  end
  local of_middle, of_all = p99s(every)
  print(("  bound: twice the p99 beside nobody and a slice of %d ms: %.2f, %s; of all %.2f, %s"):format(SLICE_MS, bound,
    of_middle <= bound and "kept" or "NOT kept", bound_of_all, of_all <= bound_of_all and "kept" or "NOT kept"))
  print("  above it: " .. (above[1] and table.concat(above, ", ") or "none"))
  print(("  later than %d + %d ms: %s"):format(BUDGET_MS, GRACE_MS, late[1] and table.concat(late, ", ") or "none"))
end

gateway.binary = "build/release/moonpool"
measure()
os.exit(true, false) -- not by way of the end of luv, which trips over processes that have just ended
