-- listen { cache, "channel", f } in scripts/jobs: f runs for each message, on one worker of one process, and with nil
-- where messages may have been missed.
local code = require "spec.helpers.code"
local gateway = require "spec.helpers.gateway"
local listening = require "spec.helpers.listening"
local proxy = require "spec.helpers.proxy"
local redis = require "spec.helpers.redis"
local shell = require "spec.helpers.shell"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"

local it_real, describe = redis.it(it, pending), redis.each(describe, setup, teardown)

local function job(at, options, more)
  return listening.job(("redis.open { 'redis://%s' }"):format(at), "news", options, more)
end

local function start(at, scripts, more) return listening.start(redis, at, scripts, more) end
local seen, wait_seen = listening.seen, listening.wait_seen

local function wait_listeners(server, count)
  wait.for_fact(count .. " to listen", 20, function() return server:cli("PUBSUB", "NUMSUB", "news"):match "%d+$" == tostring(count) end)
end

describe("a job that listens", function()
  it_real("runs for each message, in their order, with a call of its own; first with nil", function()
    local server <close> = redis.start()
    local g <close> = start(server.at, { ["jobs/news.lua"] = job(server.at) })
    local me = g:client "2026-07-28"
    wait_seen(me, { "gap" })
    assert.equal("1", server:cli("PUBSUB", "NUMSUB", "news"):match "%d+$")
    local wanted, list = { "gap" }, {}
    for i = 1, 100 do
      wanted[i + 1] = "m" .. i
      list[i] = ('{ "PUBLISH", "news", "m%d" }'):format(i)
    end
    code.run(me, ("try(try(redis.open 'redis://%s'):pipeline { %s }) return true"):format(server.at, table.concat(list, ",")))
    wait_seen(me, wanted)
    assert.equal("job:news", code.run(me, [[return store.get "who"]]))
    me:close()
    g:stop()
  end)

  it_real("may follow a pattern, and gets any bytes", function()
    local server <close> = redis.start()
    local g <close> = start(server.at, { ["jobs/news.lua"] = job(server.at, "pattern = true,"):gsub('"news",', '"news.*",', 1) })
    local me = g:client "2026-07-28"
    wait_seen(me, { "gap" })
    code.run(me, ([[
      local cache = try(redis.open 'redis://%s')
      for _, channel in ipairs { "news.a", "other", "news.b" } do try(cache:call("PUBLISH", channel, "x\r\n" .. channel)) end
      return true]]):format(server.at))
    wait_seen(me, { "gap", "x\r\nnews.a of news.a", "x\r\nnews.b of news.b" })
    me:close()
    g:stop()
  end)

  it_real("goes on after an error of its function, which is logged with its line", function()
    local server <close> = redis.start()
    local g <close> = start(server.at, { ["jobs/news.lua"] = job(server.at, "", 'if message == "bad" then error "a bug" end') })
    local me = g:client "2026-07-28"
    wait_seen(me, { "gap" })
    server:cli("PUBLISH", "news", "bad")
    server:cli("PUBLISH", "news", "good")
    wait_seen(me, { "gap", "good" })
    g:wait_log("job failed", { name = "news", why = "scripts/jobs/news.lua:3: a bug" })
    assert.equal("1", server:cli("PUBSUB", "NUMSUB", "news"):match "%d+$")
    me:close()
    g:stop()
  end)

  it_real("has a new connection when the old one is lost, and gets nil", function()
    local server <close> = redis.start()
    local g <close> = start(server.at, { ["jobs/news.lua"] = job(server.at) })
    local me = g:client "2026-07-28"
    wait_seen(me, { "gap" })
    assert.equal("1", server:cli("CLIENT", "KILL", "TYPE", "pubsub"))
    wait_seen(me, { "gap", "gap" })
    server:cli("PUBLISH", "news", "one")
    wait_seen(me, { "gap", "gap", "one" })
    server:stop()
    g:wait_log "redis unavailable"
    server:begin()
    wait_seen(me, { "gap", "gap", "one", "gap" })
    me:close()
    g:stop()
  end)

  it_real("gives a connection up that has become silent", function()
    local server <close> = redis.start()
    local between <close> = proxy.start(server.port)
    local at = "127.0.0.1:" .. between.port
    local g <close> = start(at, { ["jobs/news.lua"] = job(at) }, { constants = { redis_quiet_ms = 200 } })
    local me = g:client "2026-07-28"
    wait_seen(me, { "gap" })
    between.swallows = true
    local before = #between.pairs
    wait.for_fact("another connection", 30, function() return #between.pairs > before end)
    between.swallows = false
    wait_seen(me, { "gap", "gap" })
    server:cli("PUBLISH", "news", "one")
    wait_seen(me, { "gap", "gap", "one" })
    me:close()
    g:stop()
  end)

  it_real("drops what it has no place for, counts it, and gets nil in its place", function()
    local server <close> = redis.start()
    local hold = 'if message == "hold" then while not store.get "go" do sleep(0.01) end end'
    local g <close> = start(server.at, { ["jobs/news.lua"] = job(server.at, "", hold) }, { constants = { job_messages = 4 } })
    local me = g:client "2026-07-28"
    wait_seen(me, { "gap" })
    server:cli("PUBLISH", "news", "hold")
    g:wait_status(function(status) return status.gauges.jobs == 1 and status.gauges.redis_messages == 0 end)
    for i = 1, 20 do server:cli("PUBLISH", "news", i) end
    g:wait_status(function(status) return status.counters.dropped.redis_messages == 16 and status.gauges.redis_messages == 4 end)
    g:wait_log("redis messages dropped", { server = server.at, channel = "news" })
    code.run(me, [[store.set("go", true) return true]])
    wait_seen(me, { "gap", "hold", "1", "2", "3", "4", "gap" })
    server:cli("PUBLISH", "news", "after")
    wait_seen(me, { "gap", "hold", "1", "2", "3", "4", "gap", "after" })
    assert.equal(0, g:status().gauges.redis_messages)
    me:close()
    g:stop()
  end)

  it_real("is told of a refused subscription by the log, and listens once it may", function()
    local server <close> = redis.start()
    server:cli("ACL", "SETUSER", "default", "resetchannels")
    local g <close> = start(server.at, { ["jobs/news.lua"] = job(server.at) })
    local me = g:client "2026-07-28"
    g:wait_log("redis subscription refused", { server = server.at, channel = "news", why = "NOPERM" })
    assert.same({}, seen(me))
    server:cli("ACL", "SETUSER", "default", "allchannels")
    wait_seen(me, { "gap" })
    me:close()
    g:stop()
  end)

  it("survives a server that sends what it should not", function()
    local sent, strange = 0, {
      "*3\r\n$7\r\nmessage\r\n:5\r\n*0\r\n", "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$-1\r\n", "*2\r\n$7\r\nmessage\r\n$1\r\nx\r\n", "+PONG\r\n+PONG\r\n",
      "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$99999999\r\n", "*0\r\n", "-ERR no\r\n", "*3\r\n$7\r\nmessage\r\n*1\r\n$1\r\nx\r\n$1\r\ny\r\n",
    }
    local server <close> = redis.told(function(words, client)
      if words[1] ~= "SUBSCRIBE" then return "*2\r\n$4\r\npong\r\n$0\r\n\r\n" end
      client:write "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n"
      sent = sent + 1
      return strange[sent] or "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$4\r\nlast\r\n"
    end)
    local g <close> = start(server.at, { ["jobs/news.lua"] = job(server.at) })
    local me = g:client "2026-07-28"
    wait.for_fact("the last message", 60, function()
      local got = seen(me)
      return got[#got] == "last"
    end)
    assert.equal(#strange + 1, sent)
    me:close()
    g:stop()
  end)
end)

describe("of several that could listen to a channel", function()
  it_real("the newest scripts do after a reload, and only they", function()
    local server <close> = redis.start()
    local g <close> = start(server.at, { ["jobs/news.lua"] = job(server.at) })
    local me = g:client "2026-07-28"
    wait_seen(me, { "gap" })
    shell.write(g.dir .. "/scripts/jobs/news.lua", job(server.at, "", 'message = (message or "gap") .. "2"'))
    g:signal "sighup"
    wait_seen(me, { "gap", "gap2" })
    server:cli("PUBLISH", "news", "one")
    wait_seen(me, { "gap", "gap2", "one2" })
    wait_listeners(server, 1)
    shell.write(g.dir .. "/scripts/jobs/news.lua", 'return job { "Other.", every = 60, function() end }')
    g:signal "sighup"
    wait_listeners(server, 0)
    wait.for_fact("no connection", 20, function() return g:status().gauges.redis_connections == 0 end)
    me:close()
    g:stop()
  end)

  it_real("none does while the gateway drains", function()
    local server <close> = redis.start()
    local g <close> = start(server.at, { ["jobs/news.lua"] = job(server.at) }, { workers = 4, config = {
      scripts = { allow = { net = { server.at } } }, limits = { drain = "20s" } } })
    local me = g:client "2026-07-28"
    wait_seen(me, { "gap" })
    local stream = me:open("tools/call", code.params 'while true do sleep(0.02) end')
    g:wait_status(function(status) return status.gauges.calls == 1 or status.gauges.requests_in_flight == 1 end)
    g:signal "sigterm"
    wait_listeners(server, 0)
    assert.is_true(g:is_alive())
    stream:hang_up()
    me:close()
    g:wait_exit(30)
  end)

  it_real("the newest process does after an upgrade, and no older one", function()
    local server <close> = redis.start()
    local g <close> = upgrading.start_quick {
      workers = 2, scripts = { ["jobs/news.lua"] = job(server.at) }, config = { scripts = { allow = { net = { server.at } } } } }
    wait_listeners(server, 1)
    local before = server:cli("CLIENT", "LIST", "TYPE", "pubsub"):match "id=%d+"
    local old = g:client "2025-11-25"
    assert.equal(0, (g:upgrade()))
    wait.for_fact("the newest process to listen", 20, function()
      local list = server:cli("CLIENT", "LIST", "TYPE", "pubsub")
      local _, lines = list:gsub("id=", "")
      return lines == 1 and list:match "id=%d+" ~= before
    end)
    wait_listeners(server, 1)
    old:close()
    g:stop()
  end)
end)

describe("listen", function()
  it("is checked where scripts load", function()
    local dir = gateway.prepare { config = { scripts = { allow = { net = { "127.0.0.1:1" } } } }, scripts = {
      ["jobs/a.lua"] = 'return listen { nil, "news", function() end }',
      ["jobs/b.lua"] = 'return listen { {}, "news", function() end }',
      ["jobs/c.lua"] = 'return listen { redis.open "redis://127.0.0.1:1", "", "f" }',
      ["jobs/d.lua"] = 'return listen { redis.open "redis://127.0.0.1:1", "news", function() end, patern = true, timeout = "1" }',
      ["jobs/e.lua"] = 'return listen "news"',
      ["jobs/f.lua"] = 'return listen { redis.open "redis://127.0.0.1:1", "news", function() end, timeout = 1e9 }',
    } }
    local _, _, err = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })
    for _, text in ipairs {
      "the first item of listen must be what can be listened to, not nil", "the first item of listen must be what can be listened to, not a table",
      "the second item of listen must be the name of a channel", "the third item of listen must be its function",
      "listen has no option 'patern'", "did you mean 'pattern'?", "'timeout' must be a number, not a string", "listen needs a table",
      "'timeout' must be from 0.1 seconds to 30 days",
    } do assert.truthy(err:find(text, 1, true), text .. "\n" .. err) end
  end)

  it("is listed, and its function is run by specs", function()
    local dir = gateway.prepare { config = { scripts = { allow = { net = { "127.0.0.1:1" } } } }, scripts = {
      ["jobs/news.lua"] = job "127.0.0.1:1",
      ["jobs/news_spec.lua"] = [[
        it("notes messages", function()
          assert(run_job("news", "one", "news"))
          assert(run_job "news")
          assert.equal("one", store.get "seen:1")
          assert.equal("gap", store.get "seen:2")
          assert.same({}, (function() fake.time(0) return due_jobs() end)())
        end)]],
    } }
    local status, out, err = gateway.exec({ "test" }, { cwd = dir })
    assert.equal(0, status, out .. err)
    status, out = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })
    assert.equal(0, status)
    assert.truthy(out:find("job  news  Listens to news at 127.0.0.1:1", 1, true), out)
  end)
end)
