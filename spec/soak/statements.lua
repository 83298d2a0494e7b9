-- Statements of PostgreSQL that are cut at any moment, by clients that leave or cancel and by the time limit of a tool, beside
-- others that are not: `./dev soak statements` with 1,000, and a tenth in the suite.
--   local report = statements.run { cuts = 1000, long = 100 }
-- Each transaction is whole or not there, no call sees another's values, and a statement that is cut ends on the server.
local certificates = require "spec.helpers.certificates"
local gateway = require "spec.helpers.gateway"
local postgres = require "spec.helpers.postgres"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local statements = {}

local CALLERS <const> = 10
local ERAS <const> = { "2026-07-28", "2025-11-25" }

local pay <const> = [[
local db = try(postgres.open { '%s', pool = 4 })
return tool { "Pays.", timeout = %s, input = { n = t.integer }, function(args)
  local n = try(db:transaction(function(tx)
    try(tx:exec("insert into ledger values ($1)", { args.n }))
    try(tx:row("select pg_sleep($1::float8)", { args.n %% 7 / 1000 }))
    try(tx:exec("insert into ledger values ($1)", { args.n }))
    return try(tx:row("select $1::int as n, count(*)::int as c from ledger where id = $1", { args.n }))
  end))
  if n.n ~= args.n or n.c ~= 2 then error("foreign: " .. n.n) end
  return "own"
end }]]

local sleep <const> = [[
local db = try(postgres.open { '%s', pool = 4 })
return tool { "Sleeps.", timeout = %s, function() return db:row "select pg_sleep(60)" end }]]

-- Ends the call of `stream`, as its client may.
local function cut(g, me, stream, era)
  if era == "2026-07-28" then return stream:hang_up() end
  local note = { jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = stream.id } }
  local other = g:connect()
  other:request { method = "POST", path = "/mcp", headers = me:headers(note), body = note }
  other:close()
  stream:hang_up()
end

local function random_of(seed)
  return function(n)
    seed = (seed * 1103515245 + 12345) % 2147483648
    return seed // 65536 % n
  end
end

local function transactions(g, server, options, report)
  local random, at = random_of(options.seed or 17), 0
  local clients = {}
  for i = 1, CALLERS do clients[i] = g:client(ERAS[i % 2 + 1]) end
  while report.cut < options.cuts do
    local streams = {}
    for i, me in ipairs(clients) do
      at = at + 1
      local is_brief = random(6) == 0
      streams[i] = { n = at, is_brief = is_brief, is_cut = not is_brief and random(3) == 0,
        stream = me:open("tools/call", { name = is_brief and "brief" or "pay", arguments = { n = at } }) }
    end
    local until_then = uv.hrtime() + random(12) * 1000000
    wait.for_fact("a moment", 5, function() return uv.hrtime() >= until_then end)
    for i, one in ipairs(streams) do
      if one.is_cut then
        report.cut = report.cut + 1
        cut(g, clients[i], one.stream, ERAS[i % 2 + 1])
      end
    end
    for _, one in ipairs(streams) do
      local answer = not one.is_cut and one.stream:answer(60)
      if answer and one.is_brief then
        if not answer.result or answer.result.isError then report.cut = report.cut + 1 end
      elseif answer then
        local text = answer.result and answer.result.content[1].text
        if text == "own" then report.answered = report.answered + 1 else report.foreign[#report.foreign + 1] = tostring(text) end
      end
    end
  end
  for _, me in ipairs(clients) do me:close() end
  report.halves = tonumber((server:sql "select count(*) from (select id from ledger group by id having count(*) <> 2) x"))
end

-- How long a statement of a minute runs on after its call has ended, by each way.
local function ends(g, server, options, report)
  local watcher = g:client "2026-07-28"
  local function is_over() return watcher:result("tools/call", { name = "running", arguments = {} }).content[1].text == "0" end
  for i = 1, options.long do
    local era = ERAS[i % 2 + 1]
    local me = g:client(era)
    local is_brief = i % 3 == 0
    local stream = me:open("tools/call", { name = is_brief and "doze" or "sleep", arguments = {} })
    server:wait_running(1)
    if is_brief then stream:answer(60) else cut(g, me, stream, era) end
    local began = uv.hrtime()
    wait.for_fact("the statement to end", 20, is_over)
    report.slowest_ms = math.max(report.slowest_ms, (uv.hrtime() - began) / 1e6)
    stream:hang_up()
    me:close()
  end
  watcher:close()
end

--- `options`: cuts, long (statements whose end is timed), seed. Gives { cut, answered, foreign, halves, left, slowest_ms }:
--- `foreign`: what calls got that was not theirs; `halves`: transactions of which the server has half; `left`:
--- connections that are in a transaction at the end.
function statements.run(options)
  local server <close> = postgres.start()
  server:sql "create table ledger (id int)"
  local g <close> = gateway.start { workers = 1, config = { scripts = { allow = { net = { server.at } } } }, constants = { postgres_idle_ms = 200 }, scripts = {
    ["tools/pay.lua"] = pay:format(server.url, 30), ["tools/brief.lua"] = pay:format(server.url, 0.02),
    ["tools/sleep.lua"] = sleep:format(server.url, 60), ["tools/doze.lua"] = sleep:format(server.url, 2),
    ["tools/running.lua"] = ([[
      local db = try(postgres.open { '%s', pool = 1 })
      return tool { "Counts.", function() return tostring(try(db:row
        "select count(*)::int as n from pg_stat_activity where query = 'select pg_sleep(60)' and state = 'active'").n) end }]]):format(server.url),
  } }
  local report = { cut = 0, answered = 0, foreign = {}, slowest_ms = 0 }
  transactions(g, server, options, report)
  ends(g, server, options, report)
  server:wait_running(0)
  g:wait_status(function(status)
    return status.gauges.postgres_apart == 0 and status.gauges.postgres_waiting == 0 and status.gauges.postgres_bytes == 0
  end)
  report.left = tonumber((server:sql "select count(*) from pg_stat_activity where application_name = 'moonpool' and state like 'idle in%'"))
  report.paid = tonumber((server:sql "select count(*) / 2 from ledger"))
  return report, g
end

-- What a worker does while a timer of it runs: { name, Lua text with `db` }.
local WORK <const> = {
  { "looks a name up and connects", [[for _ = 1, 50 do try(named:row "select 1") sleep(0.004) end]] },
  { "connects with TLS", [[for _ = 1, 30 do try(secure:row "select 1") sleep(0.004) end]] },
  { "takes 16 MiB in rows of 1.5 KB", [[for _ = 1, 5 do assert(#try(db:query "select repeat('x', 1500) as s from generate_series(1, 9999)") == 9999) end]] },
  { "takes a row of 15 MB", [[for _ = 1, 5 do assert(#try(db:row "select repeat('x', 15000000) as s").s == 15000000) end]] },
  { "cancels", [[for _ = 1, 30 do for _ in db:each "select n from generate_series(1, 1000000) n" do break end sleep(0.02) end]] },
}

--- How late a timer of 5 ms of the same worker is, in ms: { name = the worst of the best of three runs }.
function statements.turns()
  local certificate = certificates.here()
  local server <close> = postgres.start { tls = certificate }
  local scripts = { ["tools/tick.lua"] = [[
    return tool { "Ticks.", timeout = 300, function()
      local late = 0
      store.set("ticks", true)
      while store.get "ticks" do
        local began = time.monotonic()
        sleep(0.005)
        late = math.max(late, time.monotonic() - began - 0.005)
      end
      return tostring(late * 1000)
    end }]] }
  scripts["tools/stop.lua"] = [[return tool { "Stops.", function() store.delete "ticks" return "stopped" end }]]
  local url = ("postgres://app@localhost:%d/postgres"):format(server.port)
  for i, work in ipairs(WORK) do
    scripts["tools/work" .. i .. ".lua"] = ([[
      local named, secure = try(postgres.open { %q, timeout = 29 }), try(postgres.open { %q, tls = "on" })
      local db = try(postgres.open { %q })
      return tool { "Works.", timeout = 60, function() %s return "done" end }]]):format(url, url, server.url, work[2])
  end
  local g <close> = gateway.start { workers = 1, constants = { postgres_idle_ms = 1 }, scripts = scripts, files = { ["ca.pem"] = certificate.own },
    config = { scripts = { allow = { net = { server.at, "localhost:" .. server.port } } }, http = { ca = "ca.pem" } } }
  local me, other, worst = g:client(ERAS[1]), g:client(ERAS[1]), {}
  for i, work in ipairs(WORK) do
    local least = math.huge
    for _ = 1, 3 do
      local ticking = other:open("tools/call", { name = "tick", arguments = {} })
      local done = me:result("tools/call", { name = "work" .. i, arguments = {} }, 60)
      assert(done.content[1].text == "done", done.content[1].text)
      me:result("tools/call", { name = "stop", arguments = {} })
      least = math.min(least, tonumber(ticking:answer(60).result.content[1].text))
    end
    worst[i] = { work[1], least }
  end
  me:close()
  other:close()
  return worst
end

function statements.describe_turns(worst)
  local lines = {}
  for i, one in ipairs(worst) do lines[i] = ("a timer of 5 ms is at most %.1f ms late while the worker %s"):format(one[2], one[1]) end
  return table.concat(lines, "\n")
end

function statements.describe(report)
  return ("%d statements cut, %d calls answered, %d with something foreign, %d transactions of which half is there, %d connections left in one; "
    .. "a statement of a minute ended at most %.0f ms after its call"):format(report.cut, report.answered, #report.foreign, report.halves, report.left,
    report.slowest_ms)
end

return statements
