-- listen { db, "channel", f } in scripts/jobs: f runs for each message that is notified, on one worker of one process, and
-- with nil where messages may have been missed.
local certificates = require "spec.helpers.certificates"
local code = require "spec.helpers.code"
local gateway = require "spec.helpers.gateway"
local listening = require "spec.helpers.listening"
local postgres = require "spec.helpers.postgres"
local proxy = require "spec.helpers.proxy"
local shell = require "spec.helpers.shell"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"

local it_real = postgres.it(it, pending)

local function job(at, more, name)
  return listening.job(("postgres.open { 'postgres://app@%s/postgres' }"):format(at), name or "news", "", more)
end

local function start(at, scripts, more) return listening.start(postgres, at, scripts, more) end
local wait_seen = listening.wait_seen

local CONNECTIONS <const> = "from pg_stat_activity where application_name = 'moonpool'"
local function wait_listeners(server, count)
  wait.for_fact(count .. " to listen", 20, function() return server:sql("select count(*) " .. CONNECTIONS) == tostring(count) end)
end

describe("a job that listens to PostgreSQL", function()
  it_real("runs for each message, in their order, with a call of its own; first with nil", function()
    local server <close> = postgres.start()
    local g <close> = start(server.at, { ["jobs/news.lua"] = job(server.at) })
    local me = g:client "2026-07-28"
    wait_seen(me, { "gap" })
    wait_listeners(server, 1)
    local wanted = { "gap" }
    for i = 1, 100 do wanted[i + 1] = "m" .. i end
    server:sql "select pg_notify('news', 'm' || n) from generate_series(1, 100) n; notify other, 'x'"
    wait_seen(me, wanted)
    assert.equal("job:news", code.run(me, [[return store.get "who"]]))
    assert.equal(0, g:status().gauges.postgres_bytes)
    me:close()
    g:stop()
    wait_listeners(server, 0)
  end)

  it_real("may have any name for its channel, and any text", function()
    local server <close> = postgres.start()
    local name = [[We"ird 'ü\]]
    local g <close> = start(server.at, { ["jobs/news.lua"] = job(server.at, "", name) })
    local me = g:client "2026-07-28"
    wait_seen(me, { "gap" })
    server:sql([[select pg_notify('We"ird ''ü\', E'line\n' || repeat('x', 7000)), pg_notify('We"ird ''ü\', '')]])
    wait_seen(me, { "gap", "line\n" .. ("x"):rep(7000) .. " of " .. name, " of " .. name })
    me:close()
    g:stop()
  end)

  it_real("has a new connection when the old one is lost, also by a restart of the server, and gets nil", function()
    local server <close> = postgres.start()
    local g <close> = start(server.at, { ["jobs/news.lua"] = job(server.at) })
    local me = g:client "2026-07-28"
    wait_seen(me, { "gap" })
    server:sql("select pg_terminate_backend(pid) " .. CONNECTIONS)
    wait_seen(me, { "gap", "gap" })
    server:sql "notify news, 'one'"
    wait_seen(me, { "gap", "gap", "one" })
    server:stop()
    g:wait_log "postgres unavailable"
    server:begin()
    g:wait_log "postgres available"
    wait_seen(me, { "gap", "gap", "one", "gap" })
    server:sql "notify news, 'two'"
    wait_seen(me, { "gap", "gap", "one", "gap", "two" })
    me:close()
    g:stop()
  end)

  it_real("gives a connection up that has become silent", function()
    local server <close> = postgres.start()
    local between <close> = proxy.start(server.port)
    local at = "127.0.0.1:" .. between.port
    local g <close> = start(at, { ["jobs/news.lua"] = job(at) }, { constants = { postgres_quiet_ms = 200 } })
    local me = g:client "2026-07-28"
    wait_seen(me, { "gap" })
    between.swallows = true
    local before = #between.pairs
    wait.for_fact("another connection", 30, function() return #between.pairs > before end)
    between.swallows = false
    wait_seen(me, { "gap", "gap" })
    server:sql "notify news, 'one'"
    wait_seen(me, { "gap", "gap", "one" })
    me:close()
    g:stop()
  end)

  it_real("keeps its connection over TLS, where each message has a record of its own", function()
    local authority = certificates.make { subject = "/CN=ca", is_authority = true, sans = false }
    local server <close> = postgres.start { tls = certificates.make({ sans = "IP:127.0.0.1" }, authority) }
    local scripts = { ["jobs/news.lua"] = ([[
      local db = try(postgres.open { "postgres://app@%s/postgres", tls = "on" })
      return listen { db, "news", function(message) if message == "end" then store.set("end", true) end end }]]):format(server.at) }
    local g <close> = start(server.at, scripts, { workers = 1, files = { ["ca.pem"] = authority.own },
      config = { scripts = { allow = { net = { server.at } } }, http = { ca = "ca.pem" } } })
    local me = g:client "2026-07-28"
    wait_listeners(server, 1)
    local pid = server:sql("select pid " .. CONNECTIONS)
    server:sql [[do $$ begin for i in 1..10000 loop notify news, 'm'; commit; perform count(*) from generate_series(1, 1000); end loop; end $$]]
    wait.for_fact("the last message", 20, function()
      server:sql "notify news, 'end'"
      return code.run(me, [[return store.get "end"]])
    end)
    assert.equal(pid, server:sql("select pid " .. CONNECTIONS))
    me:close()
    g:stop()
  end)

  it_real("drops what it has no place for, counts it, and gets nil in its place", function()
    local server <close> = postgres.start()
    local hold = 'if message == "hold" then while not store.get "go" do sleep(0.01) end end'
    local g <close> = start(server.at, { ["jobs/news.lua"] = job(server.at, hold) }, { constants = { job_messages = 4 } })
    local me = g:client "2026-07-28"
    wait_seen(me, { "gap" })
    server:sql "notify news, 'hold'"
    g:wait_status(function(status) return status.gauges.jobs == 1 and status.gauges.postgres_messages == 0 end)
    server:sql "select pg_notify('news', n::text) from generate_series(1, 20) n"
    g:wait_status(function(status) return status.counters.dropped.postgres_messages == 16 and status.gauges.postgres_messages == 4 end)
    g:wait_log("postgres messages dropped", { channel = "news" })
    code.run(me, [[store.set("go", true) return true]])
    wait_seen(me, { "gap", "hold", "1", "2", "3", "4", "gap" })
    server:sql "notify news, 'after'"
    wait_seen(me, { "gap", "hold", "1", "2", "3", "4", "gap", "after" })
    assert.equal(0, g:status().gauges.postgres_messages)
    me:close()
    g:stop()
  end)

  it_real("is the newest scripts' after a reload, and of no process that drains", function()
    local server <close> = postgres.start()
    local g <close> = start(server.at, { ["jobs/news.lua"] = job(server.at) }, { config = {
      scripts = { allow = { net = { server.at } } }, limits = { drain = "20s" } } })
    local me = g:client "2026-07-28"
    wait_seen(me, { "gap" })
    shell.write(g.dir .. "/scripts/jobs/news.lua", job(server.at, 'message = (message or "gap") .. "2"'))
    g:signal "sighup"
    wait_seen(me, { "gap", "gap2" })
    server:sql "notify news, 'one'"
    wait_seen(me, { "gap", "gap2", "one2" })
    wait_listeners(server, 1)
    local stream = me:open("tools/call", code.params 'while true do sleep(0.02) end')
    g:wait_status(function(status) return status.gauges.calls == 1 or status.gauges.requests_in_flight == 1 end)
    g:signal "sigterm"
    wait_listeners(server, 0)
    assert.is_true(g:is_alive())
    stream:hang_up()
    me:close()
    g:wait_exit(30)
  end)

  it_real("is the newest process's after an upgrade, to which the environment goes on", function()
    local server <close> = postgres.start()
    local g <close> = upgrading.start_quick { workers = 2, env = { PGHOST = "nowhere.test" }, config = {
      scripts = { allow = { net = { server.at }, env = { "PGHOST" } } } }, scripts = {
      ["jobs/news.lua"] = job(server.at), ["tools/host.lua"] = 'return tool { "Host.", function() return env "PGHOST" end }' } }
    wait_listeners(server, 1)
    local pid = server:sql("select min(pid) " .. CONNECTIONS)
    assert.equal(0, (g:upgrade()))
    wait.for_fact("the newest process to listen", 20, function()
      local now = server:sql("select count(*) || ' ' || min(pid) " .. CONNECTIONS)
      return now ~= "1 " .. pid and now:find "^1 "
    end)
    local me = g:client "2026-07-28"
    assert.equal("nowhere.test", me:result("tools/call", { name = "host", arguments = {} }).content[1].text)
    me:close()
    g:stop()
  end)
end)

describe("listen", function()
  it("is checked for PostgreSQL where scripts load, and listed", function()
    local open = 'listen { postgres.open "postgres://app@127.0.0.1:1/x", '
    local dir = gateway.prepare { config = { scripts = { allow = { net = { "127.0.0.1:1" } } } }, scripts = {
      ["jobs/a.lua"] = "return " .. open .. '"news.*", function() end, pattern = true }',
      ["jobs/b.lua"] = "return " .. open .. ('"%s", function() end }'):format(("n"):rep(64)),
      ["jobs/c.lua"] = "return " .. open .. '"news", function() end }',
    } }
    local _, out, err = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })
    for _, text in ipairs { "a channel of PostgreSQL is no pattern", "the name of a channel of PostgreSQL has at most 63 bytes" } do
      assert.truthy((out .. err):find(text, 1, true), text .. "\n" .. out .. err)
    end
    os.remove(dir .. "/scripts/jobs/a.lua")
    os.remove(dir .. "/scripts/jobs/b.lua")
    local status
    status, out = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })
    assert.equal(0, status)
    assert.truthy(out:find("job  c  Listens to news at 127.0.0.1:1/x", 1, true), out)
  end)
end)
