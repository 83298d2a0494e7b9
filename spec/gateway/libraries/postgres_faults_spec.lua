-- postgres of scripts when something ends too early: calls that are cancelled, servers that are killed, frozen, full or
-- far too slow. A statement that nobody waits for ends on the server, and its connection serves others only then.
--   "a statement whose call ends": left, cancelled, out of time, reloaded, SIGTERM; `./dev soak statements`
--   "a server of PostgreSQL": killed, started again, frozen, out of connections, slow
--   "is never waited for by other calls", and in `./dev soak statements` a timer of 5 ms
local beat = require "spec.helpers.beat"
local certificates = require "spec.helpers.certificates"
local code = require "spec.helpers.code"
local postgres = require "spec.helpers.postgres"
local shell = require "spec.helpers.shell"
local statements = require "spec.soak.statements"
local wait = require "spec.helpers.wait"

local it_real = postgres.it(it, pending)

local function start(server, more) return postgres.gateway(server.at, more) end
local function open(server, options) return postgres.open(server.url, options) end
local function wait_running(server, count) server:wait_running(count) end

local function wait_whole(g)
  wait.for_fact("no statement to be left", 20, function()
    local gauges = g:status().gauges
    return gauges.postgres_apart == 0 and gauges.postgres_waiting == 0 and gauges.postgres_bytes == 0
  end)
end

describe("a statement whose call ends", function()
  local server
  lazy_setup(function() server = postgres.find() and postgres.start() end)
  lazy_teardown(function() if server then server:__close() end end)

  it_real("is cancelled on the server: the client has left, the time is over, the tool's own timeout", function()
    local g <close> = start(server, { scripts = { ["tools/slow.lua"] = "local db = try(postgres.open { '" .. server.url .. "' }) \z
      return tool { 'Slow.', timeout = 0.3, function() return db:row 'select pg_sleep(60)' end }" } })
    local me, other = g:client "2026-07-28", g:client "2026-07-28"
    local stream = me:open("tools/call", code.params(open(server) .. [[return db:row "select pg_sleep(60)"]]))
    wait_running(server, 1)
    stream:hang_up()
    wait_running(server, 0)
    me:close()
    local began = os.time()
    local answer = other:call("tools/call", { name = "slow", arguments = {} })
    assert.truthy(answer.error or answer.result.isError)
    wait_running(server, 0)
    assert.is_true(os.time() - began < 10)
    other:close()
    wait_whole(g)
    assert.has_nothing_left(g)
  end)

  it_real("is ended by the server itself after `timeout`", function()
    local g <close> = start(server)
    local me = g:client "2026-07-28"
    assert.same({ "57014", "error", 1 }, code.run(me, open(server, ", timeout = 0.2, pool = 1") .. [[
      local _, why = db:row "select pg_sleep(60)"
      return { why.state, why.reason, try(db:row "select 1 as n").n }]]))
    me:close()
    assert.has_nothing_left(g)
  end)

  it_real("is cancelled where the scripts that a reload has replaced have had their time", function()
    local g <close> = start(server, { config = { scripts = { drain = "300ms", allow = { net = { server.at } } } } })
    local me = g:client "2026-07-28"
    local stream = me:open("tools/call", code.params(open(server) .. [[return db:row "select pg_sleep(60)"]]))
    wait_running(server, 1)
    shell.write(g.dir .. "/scripts/tools/new.lua", 'return tool { "New.", function() return 1 end }')
    g:signal "sighup"
    wait_running(server, 0)
    local answer = stream:answer()
    assert.truthy(answer.error or answer.result.isError)
    assert.equal(1, code.run(me, open(server) .. [[return try(db:row "select 1 as n").n]]))
    me:close()
    wait_whole(g)
    assert.has_nothing_left(g)
  end)

  it_real("is cancelled at SIGTERM, and the process ends", function()
    local g <close> = start(server, { config = { limits = { drain = "200ms" }, scripts = { allow = { net = { server.at } } } } })
    local me = g:client "2026-07-28"
    local streams = {}
    for i = 1, 4 do
      local text = i % 2 == 0 and [[return db:row "select pg_sleep(60)"]]
        or [[return db:transaction(function(tx) try(tx:exec "create table if not exists dropped (n int)") return tx:row "select pg_sleep(60)" end)]]
      streams[i] = me:open("tools/call", code.params(open(server) .. text))
    end
    wait.for_fact("the statements to run", 20, function() return server:sql "select count(*) from pg_stat_activity where wait_event = 'PgSleep'" >= "3" end)
    g:signal "sigterm"
    g:wait_exit(20)
    wait_running(server, 0)
    wait.for_fact("no connection to be left", 5, function()
      return server:sql "select count(*) from pg_stat_activity where application_name = 'moonpool'" == "0"
    end)
    assert.equal("t", server:sql "select to_regclass('dropped') is null")
    for _, stream in ipairs(streams) do stream:hang_up() end
    me:close()
  end)

  it_real("does not hold the end of the process up where the server stands still", function()
    local still <close> = postgres.start()
    local g <close> = start(still, { config = { limits = { drain = "100ms" }, scripts = { allow = { net = { still.at } } } } })
    local me = g:client "2026-07-28"
    local stream = me:open("tools/call", code.params(open(still) .. [[return db:row "select pg_sleep(60)"]]))
    wait_running(still, 1)
    still:freeze()
    local other = me:open("tools/call", code.params(open(still, ", pool = 3") .. [[return db:row "select 1"]]))
    g:wait_status(function(status) return status.gauges.postgres_connections == 2 end)
    g:signal "sigterm"
    g:wait_exit(10)
    stream:hang_up()
    other:hang_up()
    me:close()
  end)

  it_real("takes its transaction with it, and its neighbours stay: at any moment", function()
    local report = statements.run { cuts = 100, long = 6 }
    assert.same({}, report.foreign)
    assert.same({ halves = 0, left = 0 }, { halves = report.halves, left = report.left })
    assert.is_true(report.cut >= 100 and report.paid >= report.answered and report.answered > 50, statements.describe(report))
    assert.is_true(report.slowest_ms < 200 * beat.factor(), statements.describe(report))
  end)

  it_real("waits in line before it is sent; too many are refused", function()
    local g <close> = start(server, { constants = { postgres_idle_ms = 200, postgres_waiting = 2 } })
    local me = g:client "2026-07-28"
    local got = code.run(me, open(server, ", pool = 1, timeout = 1") .. [[
      local calls = {}
      for i = 1, 5 do calls[i] = function() local row, why = db:row "select pg_sleep(0.2)" return row and "ok" or why.reason .. " " .. why end end
      local said = {}
      for _, one in ipairs(try(parallel(calls))) do said[#said + 1] = one[1] end
      return said]])
    table.sort(got)
    assert.same({ "ok", "ok" }, { got[1], got[2] })
    assert.truthy(got[5]:find("^unavailable unavailable: .*: too many statements wait for a connection %(2%)"), got[5])
    assert.is_true(g:status().counters.refused.postgres_waiting >= 1)
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a server of PostgreSQL", function()
  it_real("that is killed leaves `unknown` where something was sent, and is used again", function()
    local server <close> = postgres.start()
    local g <close> = start(server, { constants = { postgres_idle_ms = 60000 } })
    local me = g:client "2026-07-28"
    local stream = me:open("tools/call", code.params(open(server) .. [[
      try(db:row "select 1") local _, why = db:row "select pg_sleep(60)" return { why.reason, tostring(why) }]]))
    wait_running(server, 1)
    server:stop()
    local got = code.read(stream:answer())
    assert.equal("unknown", got[1])
    got = code.run(me, open(server) .. [[local _, why = db:row "select 1" return { why.reason, tostring(why) }]])
    assert.same({ "unavailable", ("unavailable: %s/postgres: connection refused: nothing listens at this port"):format(server.at) }, got)
    g:wait_log("postgres unavailable", { server = server.at })
    server:begin()
    wait.for_fact("the server to be used again", 20, function()
      return code.run(me, open(server) .. [[return (db:row "select 1 as n" or { n = 0 }).n]]) == 1
    end)
    g:wait_log("postgres available", { server = server.at })
    me:close()
  end)

  it_real("that stands still is given up, and its statements may have run", function()
    local server <close> = postgres.start()
    local g <close> = start(server, { constants = { postgres_idle_ms = 60000 } })
    local me = g:client "2026-07-28"
    assert.equal(1, code.run(me, open(server, ", timeout = 0.2") .. [[return try(db:row "select 1 as n").n]]))
    server:freeze()
    local got = code.run(me, open(server, ", timeout = 0.2") .. [[local _, why = db:row "select 1 as n" return { why.reason, tostring(why) }]])
    assert.same({ "unknown", ("unknown: %s/postgres: no answer within 1.2 s"):format(server.at) }, got)
    wait.for_fact("the connection to be closed", 20, function() return g:status().gauges.postgres_apart == 0 end)
    server:thaw()
    wait.for_fact("the server to be used again", 20, function()
      return code.run(me, open(server, ", timeout = 0.2") .. [[return (db:row "select 1 as n" or { n = 0 }).n]]) == 1
    end)
    me:close()
  end)

  it_real("that takes no more connections says so, and calls take turns with those that it has", function()
    local server <close> = postgres.start { args = { "-c", "max_connections=5", "-c", "superuser_reserved_connections=3" } }
    local g <close> = start(server, { constants = { postgres_idle_ms = 60000 } })
    local me = g:client "2026-07-28"
    server:sql "create role small login"
    local url = server.url:gsub("app@", "small@")
    local got = code.run(me, ("local db = try(postgres.open { %q, pool = 8 }) "):format(url) .. [[
      local calls = {}
      for i = 1, 8 do calls[i] = function() local row, why = db:row "select pg_sleep(0.05), 1 as n" return row and "ok" or tostring(why) end end
      local ok = 0
      for _, one in ipairs(try(parallel(calls))) do if one[1] == "ok" then ok = ok + 1 end end
      return ok]])
    assert.equal(8, got)
    got = code.run(me, ("local db = try(postgres.open { %q, pool = 1 }) "):format(url) .. [[local _, why = db:row "select 1" return tostring(why)]])
    assert.truthy(got:find("FATAL", 1, true), got)
    me:close()
  end)

  it_real("is never waited for by other calls", function()
    local certificate = certificates.here()
    local server <close> = postgres.start { tls = certificate }
    local named = ("postgres://app@localhost:%d/postgres"):format(server.port)
    local g <close> = beat.start { files = { ["ca.pem"] = certificate.own }, constants = { postgres_idle_ms = 1 },
      config = { scripts = { allow = { net = { server.at, "localhost:" .. server.port } } }, http = { ca = "ca.pem" } } }
    for name, text in pairs {
      ["looks a name up"] = ("return try(try(postgres.open %q):row 'select 1 as n').n"):format(named),
      ["connects with TLS"] = ("return try(try(postgres.open { %q, tls = 'on' }):row 'select ssl::text as s from pg_stat_ssl where pid = pg_backend_pid()').s")
        :format(named),
      ["opens a connection"] = [[return try(db:row "select 1 as n").n]],
      ["takes many rows"] = [[return #try(db:query "select repeat('x', 1500) as s from generate_series(1, 9000)")]],
      ["takes a large row"] = [[return #try(db:row "select repeat('x', 15000000) as s").s]],
      ["cancels"] = [[for _ in db:each "select n from generate_series(1, 1000000) n" do break end sleep(0.05) return 1]],
    } do
      beat.within(50, name, function() return beat.longest(g, open(server), text) end)
    end
    assert.has_nothing_left(g)
  end)
end)
