-- redis of scripts with connections that fail at bad moments: cuts, freezes, slow and half replies, replies that nobody
-- takes at once. Whatever was sent is "unknown", and what is "unavailable" has never reached the server.
local code = require "spec.helpers.code"
local redis = require "spec.helpers.redis"
local wait = require "spec.helpers.wait"

local it_real, describe = redis.it(it, pending), redis.each(describe, setup, teardown)

local open = redis.open

local function start(at, constants) return redis.gateway(at, { constants = constants }) end

describe("a connection", function()
  it("that is cut gives each command its reason, and the next command has a new one", function()
    local ran, cut = 0, true
    local server <close> = redis.told(function(words, client)
      if words[1] ~= "INCR" then return "+OK\r\n" end
      ran = ran + 1
      if cut and ran == 50 then
        client:close()
        return
      end
      return ":" .. ran .. "\r\n"
    end)
    local g <close> = start(server.at)
    local me = g:client "2026-07-28"
    local got = code.run(me, open(server.at, ", timeout = 10") .. [[
      local calls, reasons = {}, { ok = 0, unknown = 0, unavailable = 0 }
      for i = 1, 64 do calls[i] = function() return (select(3, cache:call("INCR", "k"))) or "ok" end end
      for _, one in ipairs(try(parallel(calls))) do local reason = one[1] reasons[reason] = reasons[reason] + 1 end
      return reasons]])
    assert.equal(64, got.ok + got.unknown + got.unavailable)
    assert.equal(49, got.ok)
    assert.is_true(got.unknown >= 1)
    local count = 0
    for _, words in ipairs(server.commands) do count = count + (words[1] == "INCR" and 1 or 0) end
    assert.is_true(count <= 64 - got.unavailable, count)         -- nothing that is unavailable was sent
    cut = false
    assert.equal("OK", code.run(me, open(server.at) .. [[return cache:call "PONG"]]))
    me:close()
    assert.has_nothing_left(g)
  end)

  it("whose replies come in pieces, one byte at a time, has the same values", function()
    local uv = require "luv"
    local server <close> = redis.told(function(words, client)
      if words[1] ~= "GET" then return "+OK\r\n" end
      local text, at = "*3\r\n$5\r\nab\r\nc\r\n:-7\r\n*1\r\n$-1\r\n", 1
      local timer = uv.new_timer()
      timer:start(0, 1, function()
        if at > #text or client:is_closing() then return timer:close() end
        client:write(text:sub(at, at))
        at = at + 1
      end)
    end)
    local g <close> = start(server.at)
    local me = g:client "2026-07-28"
    assert.same({ "ab\r\nc", -7, { require "cjson.safe".null } }, code.run(me, open(server.at, ", timeout = 20") .. [[return try(cache:get "k")]]))
    me:close()
    assert.has_nothing_left(g)
  end)

  it_real("to a server that stands still is closed: then commands are unavailable, until it goes on", function()
    local server <close> = redis.start()
    local g <close> = start(server.at, { redis_idle_ms = 60000 })
    local me = g:client "2026-07-28"
    local function reason()
      return code.run(me, open(server.at, ", timeout = 0.3") .. [[local value, _, reason = cache:call "PING" return value or reason]])
    end
    assert.equal("PONG", reason())
    server:kill "sigstop"
    assert.equal("unknown", reason())
    wait.for_fact("the connection to be given up", 30, function() return reason() == "unavailable" end)
    server:kill "sigcont"
    wait.for_fact("the server to be used again", 30, function() return reason() == "PONG" end)
    me:close()
    g:stop()
  end)

  it_real("to a server that stands still: what is unavailable is not sent when it goes on", function()
    local server <close> = redis.start()
    local g <close> = start(server.at, { redis_idle_ms = 60000 })
    local me = g:client "2026-07-28"
    assert.equal("PONG", code.run(me, open(server.at) .. [[return cache:call "PING"]]))
    server:kill "sigstop"
    local stream = me:open("tools/call", code.params(open(server.at, ", timeout = 0.15") .. [=[
      local calls, results, value = {}, {}, ("x"):rep(24000)
      for round = 1, 8 do                                          -- more than sockets take
        for i = 1, 64 do
          calls[i] = function()
            local _, _, reason = cache:set("big:" .. 64 * round + i, value)
            results[64 * round + i] = reason or "ok"
          end
        end
        parallel(calls)
      end
      store.set("are late", true)
      while not cache:call "PING" do sleep(0.01) end
      local found = { unknown = 0, unavailable = 0, sent = 0 }
      for i, reason in pairs(results) do
        found[reason] = found[reason] + 1
        if reason == "unavailable" then found.sent = found.sent + try(cache:call("EXISTS", "big:" .. i)) end
      end
      return found]=]))
    wait.for_fact("the commands to be late", 20, function() return code.run(me, [[return store.get "are late"]]) end)
    server:kill "sigcont"
    local found = code.read(stream:answer(30))
    assert.equal(0, found.sent)
    assert.is_true(found.unknown > 0 and found.unavailable > 0, ("%d, %d"):format(found.unknown, found.unavailable))
    me:close()
    g:stop()
  end)

  it_real("waits with reading while calls have not taken what came, and loses nothing", function()
    local server <close> = redis.start()
    local g <close> = start(server.at)
    local me = g:client "2026-07-28"
    assert.same({ 8, 8 << 20 }, code.run(me, open(server.at, ", timeout = 30") .. [[
      try(cache:set("big", ("x"):rep(8 << 20)))
      local calls = {}
      for i = 1, 8 do calls[i] = function() return #try(cache:get "big") end end
      local sizes = try(parallel(calls))
      return { #sizes, sizes[8][1] }]], 60))
    local why = code.run(me, open(server.at, ", timeout = 30") .. [[return select(2, cache:pipeline { { "GET", "big" }, { "GET", "big" }, { "GET", "big" } })]])
    assert.truthy(why:find("the replies together are larger than 16 MiB", 1, true), why)
    assert.equal("PONG", code.run(me, open(server.at) .. [[return cache:call "PING"]]))
    assert.equal(0, g:status().gauges.redis_bytes)
    me:close()
    assert.has_nothing_left(g)
  end)

  it_real("takes the commands of 10,000 tasks at once: each has its own reply, or is refused", function()
    local server <close> = redis.start()
    local g <close> = start(server.at)
    local me, streams = g:client "2026-07-28", {}
    for i = 1, 157 do
      streams[i] = me:open("tools/call", code.params(open(server.at, ", timeout = 60") .. ([=[
        local tasks = {}
        for i = 1, 64 do
          tasks[i] = function()
            local sent = "%d:" .. i
            local value, why, reason = cache:call("ECHO", sent)
            return value == sent and "own" or value and "foreign" or reason
          end
        end
        local counts = { own = 0, foreign = 0, unavailable = 0, unknown = 0 }
        for _, one in ipairs(try(parallel(tasks))) do counts[one[1]] = counts[one[1]] + 1 end
        return counts]=]):format(i)))
    end
    local sums = { own = 0, foreign = 0, unavailable = 0, unknown = 0 }
    for _, stream in ipairs(streams) do
      for name, count in pairs((code.read(stream:answer(120)))) do sums[name] = sums[name] + count end
    end
    assert.same({ 157 * 64, 0, 0 }, { sums.own + sums.unavailable, sums.foreign, sums.unknown })
    assert.is_true(sums.own >= 3000, sums.own)
    assert.equal(sums.unavailable, g:status().counters.refused.redis_requests)
    me:close()
    assert.has_nothing_left(g)
  end)

  it_real("is used by several workers and many calls at once, each with its own replies", function()
    local server <close> = redis.start()
    local g <close> = code.start { workers = 2, constants = { redis_idle_ms = 200 }, config = { scripts = { allow = { net = { server.at } } } } }
    local clients, streams = {}, {}
    for i = 1, 16 do clients[i] = g:client "2026-07-28" end
    for i, me in ipairs(clients) do
      streams[i] = me:open("tools/call", code.params(open(server.at, ", pool = 2, timeout = 30") .. ([[
        local same = 0
        for i = 1, 200 do
          if try(cache:call("ECHO", "%d:" .. i)) == "%d:" .. i then same = same + 1 end
        end
        return same]]):format(i, i)))
    end
    for _, stream in ipairs(streams) do assert.equal(200, (code.read(stream:answer(60)))) end
    for _, me in ipairs(clients) do me:close() end
    assert.has_nothing_left(g)
  end)
end)
