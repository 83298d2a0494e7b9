-- reload.lua: a thousand reloads in ten minutes, one in ten broken in one of eight ways, under 200 calls a second and
-- 500 open streams of three eras; or as many as fit the seconds that are given. `./dev bench reload [SECONDS]` calls
-- it. Ends with 1 when a figure is not what docs/explanation/reload.md promises.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local SECONDS = tonumber(arg[1]) or 600
local RELOADS = SECONDS * 1000 // 600
local STREAMS, CALLS_PER_SECOND, CALLERS, OTHER_TOOLS, WORKERS = 500, 200, 24, 20, 2

gateway.binary = os.getenv "MOONPOOL" or "build/release/moonpool"

local function now() return uv.hrtime() / 1e9 end

-- -- what is served -----------------------------------------------------------------------------------------------------

local function tool(n)
  return ([[local number = require "number"
return tool { "Generation %d.", function() local first = %d sleep(0.002) return first .. " " .. number() end }]]):format(n, n)
end

local broken = {
  { "syntax error", "return tool {" },
  { "runtime error at load", "local x = nil + 1" },
  { "missing module", "local x = require 'nowhere' return tool { 'X.', function() return x end }" },
  { "endless loop at load", "while true do end" },
  { "1 GB at load", "local t = {} for i = 1, 1 << 30 do t[i] = ('x'):rep(1 << 20) .. i end return t" },
  { "empty file", "" },
  { "binary chunk", string.dump(load "return 5") },
  { "half a file", 'return tool { "Half.", function() return "ha' },
}

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

-- A whole set in a folder of its own; a link that is put in place of another makes it the one that is served.
local function lay_out(dir, n, bad)
  local root = ("%s/set%d"):format(dir, n % 2)
  for _, folder in ipairs { "", "/tools", "/lib" } do uv.fs_mkdir(root .. folder, 493) end
  write(root .. "/tools/one.lua", tool(n))
  write(root .. "/lib/number.lua", ("return function() return %d end"):format(n))
  for i = 1, OTHER_TOOLS do
    write(("%s/tools/other%d.lua"):format(root, i),
      ('return tool { "Other %d.", input = { a = t.number "One", b = t.string "The other" }, function(args) return args.a end }'):format(i))
  end
  if bad then write(root .. "/tools/bad.lua", bad) else os.remove(root .. "/tools/bad.lua") end
  uv.fs_unlink(dir .. "/next")
  assert(uv.fs_symlink(("set%d"):format(n % 2), dir .. "/next"))
  assert(uv.fs_rename(dir .. "/next", dir .. "/served"))
end

-- -- who calls ----------------------------------------------------------------------------------------------------------

local g
local started_at, generation_seen, switched = 0, 1, {} -- switched[n]: when its link was put in place
local figures = { calls = 0, failed = 0, mixed = 0, slowest = 0, late = 0, took = {}, taken = {}, broken = 0 }
local failures = {}

local function fail(what)
  figures.failed = figures.failed + 1
  if #failures < 10 then failures[#failures + 1] = what end
end

local function body_of(era)
  local meta = era == "2026-07-28"
    and [[,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}]] or ""
  return ([[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"one"%s}}]]):format(meta)
end

local function new_caller(era)
  local body = body_of(era)
  local lines = {
    "POST /mcp HTTP/1.1", "host: 127.0.0.1", "content-type: application/json", "accept: application/json, text/event-stream",
    "mcp-protocol-version: " .. era, "content-length: " .. #body,
  }
  if era == "2026-07-28" then
    lines[#lines + 1] = "mcp-method: tools/call\r\nmcp-name: one"
  else
    local session <close> = g:client(era)
    lines[#lines + 1] = "mcp-session-id: " .. session.session
  end
  local caller = { request = table.concat(lines, "\r\n") .. "\r\n\r\n" .. body, rest = "", tcp = uv.new_tcp(), is_free = false }
  caller.tcp:connect("127.0.0.1", g.port, function(why)
    assert(not why, why)
    caller.is_free = true
    caller.tcp:read_start(function(err, bytes)
      if not bytes then
        caller.is_dead = true
        if not caller.is_over then fail("a connection ended: " .. tostring(err)) end
        return
      end
      caller.rest = caller.rest .. bytes
      local head, length = caller.rest:match "^(.-)\r\n\r\n()"
      if not head then return end
      local wanted = tonumber(head:lower():match "content%-length: (%d+)")
      if not wanted or #caller.rest < length - 1 + wanted then return end
      local text, took = caller.rest:sub(length, length - 1 + wanted), now() - caller.sent_at
      caller.rest, caller.is_free = "", true
      figures.calls = figures.calls + 1
      figures.took[#figures.took + 1] = took
      local first, last = text:match '"text":"(%d+) (%d+)"'
      if not head:find "^HTTP/1.1 200" or not first then return fail(head:match "^[^\r]*" .. " " .. text:sub(1, 200)) end
      if first ~= last then figures.mixed = figures.mixed + 1 end
      local n = tonumber(first)
      if switched[n] then
        figures.taken[#figures.taken + 1] = now() - switched[n]
        switched[n] = nil
      end
      if n > generation_seen then generation_seen = n end
    end)
  end)
  return caller
end

local callers, due, turn = {}, 0, 0

-- As many as are due by now, however late we are.
local function send_due()
  while due <= now() do
    local caller
    for _ = 1, #callers do -- in turn: none may look idle
      turn = turn % #callers + 1
      if callers[turn].is_free and not callers[turn].is_dead then caller = callers[turn] break end
    end
    if not caller then
      figures.late = figures.late + 1
      return
    end
    caller.is_free, caller.sent_at = false, now()
    caller.tcp:write(caller.request)
    due = due + 1 / CALLS_PER_SECOND
  end
end

-- -- who listens --------------------------------------------------------------------------------------------------------

local NOTICE <const> = "notifications/tools/list_changed"
local listeners = {}

-- Counts on the raw bytes, which is quick; a notice may come in two pieces.
local function count_notices(connection)
  local it = { told = 0, tail = "", connection = connection }
  connection.tcp:read_stop()
  connection.tcp:read_start(function(_, bytes)
    if not bytes then
      it.is_over = true
      return
    end
    bytes = it.tail .. bytes
    local at = 1
    while true do
      local from, to = bytes:find(NOTICE, at, true)
      if not from then break end
      it.told, at = it.told + 1, to + 1
    end
    it.tail = bytes:sub(math.max(at, #bytes - #NOTICE + 2))
  end)
  listeners[#listeners + 1] = it
end

local function open_streams()
  for i = 1, STREAMS do
    if i % 3 == 0 then
      local me = g:client "2026-07-28"
      local stream = me:open("subscriptions/listen", { notifications = { toolsListChanged = true } })
      stream:wait "notifications/subscriptions/acknowledged"
      count_notices(stream.connection)
    else
      local me = g:client(i % 3 == 1 and "2024-11-05" or "2025-11-25")
      local stream = me.stream or me:get_stream().connection
      stream:read_head()
      count_notices(stream)
    end
  end
end

-- -- the run ------------------------------------------------------------------------------------------------------------

local function percentile(list, part)
  table.sort(list)
  return (list[math.max(1, math.ceil(#list * part))] or 0) * 1000
end

local most = { vms = 0, draining = 0 }

local function look()
  local status = g:status()
  most.vms = math.max(most.vms, status.gauges.vms)
  most.draining = math.max(most.draining, status.gauges.vms_draining)
  return status
end

local function check(ok, text, ...)
  print((ok and "  " or "! ") .. text:format(...))
  return ok
end

local function run()
  g = gateway.start {
    workers = WORKERS, before = function(dir) lay_out(dir, 1) end,
    -- as many notices as are kept for a client that comes back have come after the first tenth
    config = { scripts = { path = "served" }, log = { level = "warn" }, sessions = { replay = { events = math.max(1, RELOADS // 20) } } },
  }
  open_streams()
  for i = 1, CALLERS do callers[i] = new_caller(i % 2 == 0 and "2026-07-28" or "2025-11-25") end
  wait.for_fact("callers", 5, function()
    for _, one in ipairs(callers) do if not one.is_free then return false end end
    return true
  end)
  local ticker = uv.new_timer()
  started_at, due = now(), now()
  ticker:start(1, 1, send_due)
  local warm, first_rss = math.max(2, RELOADS // 10), nil
  local effective, laid_out, bad_count = 0, 1, 0
  for n = 1, RELOADS do
    local at = started_at + n * SECONDS / RELOADS
    wait.for_fact("the next reload", SECONDS, function() return now() >= at end)
    laid_out = laid_out + 1
    if n % 10 == 0 then
      bad_count = bad_count + 1
      local generation = look().scripts.generation
      lay_out(g.dir, laid_out, broken[bad_count % #broken + 1][2])
      local status = g:wait_status(function(status) return not status.scripts.ok end, 10)
      assert(status.scripts.generation == generation, "a broken set serves")
      figures.broken = figures.broken + 1
    else
      lay_out(g.dir, laid_out)
      switched[laid_out] = now()
      wait.for_fact("generation " .. laid_out .. " to serve", 10, function() return generation_seen >= laid_out end)
      effective = effective + 1
      if n % 5 == 1 then look() end
    end
    if n == warm then first_rss = g:rss() end
  end
  wait.quietly(0.5)
  ticker:stop()
  wait.for_fact("the last answers", 5, function()
    for _, one in ipairs(callers) do if not one.is_free and not one.is_dead then return false end end
    return true
  end)
  local seconds = now() - started_at
  wait.for_fact("the last notices", 10, function()
    for _, one in ipairs(listeners) do if one.told < effective and not one.is_over then return false end end
    return true
  end)
  local status, last_rss = g:wait_status(function(status) return status.gauges.vms == WORKERS end), g:rss()
  local least_told, most_told, dropped = math.huge, 0, 0
  for _, one in ipairs(listeners) do
    least_told, most_told = math.min(least_told, one.told), math.max(most_told, one.told)
    if one.is_over then dropped = dropped + 1 end
  end
  local turns = status.counters.turns
  table.sort(figures.taken)

  print(("%d reloads in %.0f s, %d of them broken, %d workers, %d streams of three eras"):format(
    effective + figures.broken, seconds, figures.broken, WORKERS, STREAMS))
  local fine = check(figures.failed == 0, "calls                  %d (%.0f/s), %d failed", figures.calls, figures.calls / seconds, figures.failed)
  fine = check(figures.mixed == 0, "calls of two generations %d", figures.mixed) and fine
  fine = check(dropped == 0, "streams dropped        %d", dropped) and fine
  fine = check(least_told == effective and most_told == effective, "notices of each stream %d to %d, of %d reloads", least_told, most_told, effective) and fine
  fine = check(last_rss < first_rss * 1.1, "resident               %.1f MB, %.1f MB after the first tenth (%+.1f %%)",
    last_rss / 1e6, first_rss / 1e6, (last_rss / first_rss - 1) * 100) and fine
  fine = check(most.vms <= 2 * WORKERS + most.draining, "Lua states             at most %d, %d of them draining; %d at the end, %.1f MB", most.vms,
    most.draining, status.gauges.vms, status.gauges.lua_bytes / 1e6) and fine
  local reloading = status.counters.reload_turns
  local stalls = reloading["100ms"] + reloading.longer
  fine = check(stalls == 0, "a loop's stall         %d turns with work of a reload within 1 ms of processor time, %d within 5, %d within 20, %d longer",
    reloading["1ms"], reloading["5ms"], reloading["20ms"], stalls) and fine
  check(true, "all turns, by the clock %d within 1 ms, %d within 5, %d within 20, %d longer", turns["1ms"], turns["5ms"], turns["20ms"],
    turns["100ms"] + turns.longer)
  check(true, "an answer takes        %.1f ms at the median, %.1f at the 99th hundredth, %.1f at most", percentile(figures.took, 0.5),
    percentile(figures.took, 0.99), percentile(figures.took, 1))
  check(true, "saved to served        %.0f ms at the median, %.0f at the 99th hundredth, %.0f at most", percentile(figures.taken, 0.5),
    percentile(figures.taken, 0.99), percentile(figures.taken, 1))
  for _, text in ipairs(failures) do print("! " .. text) end
  for _, one in ipairs(callers) do
    one.is_over = true
    one.tcp:close()
  end
  for _, one in ipairs(listeners) do one.connection:close() end
  g:stop()
  return fine
end

local ok, fine = xpcall(run, debug.traceback)
if not ok then
  print(fine)
  if g then print(g:log():sub(-4000)) g:kill() end
end
os.exit(ok and fine and 0 or 1)
