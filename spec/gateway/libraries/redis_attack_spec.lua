-- redis of scripts with a server that sends what it should not, with scripts that ask for too much, and with calls that
-- end before their replies.
local code = require "spec.helpers.code"
local redis = require "spec.helpers.redis"
local wait = require "spec.helpers.wait"

local MIB <const> = 1 << 20

local it_real, each = redis.it(it, pending), redis.each(describe, setup, teardown)

local open = redis.open

local function start(at, constants) return redis.gateway(at, { constants = constants }) end

-- What a tool gets from a server that sends `reply` to GET, and the gateway with it.
local function get(reply, more)
  local server <close> = redis.told(function(words, client, self)
    if type(reply) == "function" then return reply(words, client, self) end
    return reply
  end)
  local g <close> = start(server.at)
  local me = g:client "2026-07-28"
  local got = code.run(me, open(server.at, ", timeout = 5") .. (more or [[
    local value, why, reason = cache:get "k"
    return { value ~= nil and json.encode(value) or false, why or false, reason or false }]]))
  local before = g:rss()
  me:close()
  assert.has_nothing_left(g)
  return got, before, server
end

local STRANGE <const> = "the server sent something that is no reply of RESP2"
local LARGE <const> = "the server's reply is larger than 16 MiB"

describe("a server of Redis", function()
  local function refused(reply, why)
    local got, rss = get(reply)
    assert.is_false(got[1])
    assert.equal("unknown", got[3])
    assert.truthy(got[2]:find(why, 1, true), got[2])
    assert.is_true(rss < 120 * MIB * (os.getenv "ASAN_OPTIONS" and 8 or 1), rss)
  end

  it("may send lists seven deep, and no deeper", function()
    local got = get(("*1\r\n"):rep(7) .. ":1\r\n")
    assert.same({ ("["):rep(7) .. "1" .. ("]"):rep(7), false, false }, got)
    local deep = get(("*1\r\n"):rep(8) .. ":1\r\n")
    assert.is_false(deep[1])
    assert.equal("unknown", deep[3])
    refused(("*1\r\n"):rep(100000), "unknown: ")
  end)

  it("may say that a list or a text is huge: nothing is allocated for it", function()
    refused("*2147483647\r\n:1\r\n", LARGE)
    refused("*99999999999999\r\n", "unknown: ")
    refused("*1\r\n*1048576000\r\n", LARGE)
    refused("$99999999999999999999\r\n", "unknown: ")
    refused(function(_, client) client:write("$2147483647\r\n" .. ("x"):rep(17 * MIB)) end, LARGE)
    refused(function(_, client) client:write("*1000000\r\n" .. (":1\r\n"):rep(1000000)) end, LARGE)
  end)

  it("may not send negative lengths, other protocols, or lines without end", function()
    refused("$-2\r\n", STRANGE)
    refused("*-7\r\n", STRANGE)
    refused(":x\r\n", STRANGE)
    refused("HTTP/1.1 400 Bad Request\r\n\r\n", STRANGE)
    refused("\0\0\0\0\r\n", STRANGE)
    refused(function(_, client) client:write("+" .. ("a"):rep(2 * MIB)) end, STRANGE)
    refused(function(_, client) client:write("$" .. ("1"):rep(2 * MIB)) end, STRANGE)
    assert.same({ false, false, false }, (get "*-1\r\n"))
    assert.same({ false, false, false }, (get "$-1\r\n"))
    assert.same({ "[]", false, false }, (get "*0\r\n"))
  end)

  it("may close in the middle of a reply, and may answer what nothing has asked for", function()
    refused(function(_, client)
      client:write("$100\r\nhalf", function() client:close() end)
    end, "the server closed the connection")
    local got = get(function(words) return words[1] == "GET" and "+one\r\n+two\r\n+three\r\n" or "+x\r\n" end, [[
      local first = cache:get "k"
      local second, why = cache:get "k"
      return { first, second or why }]])
    assert.equal("one", got[1])
    assert.is_true(got[2]:find("a reply that nothing has asked for", 1, true) ~= nil or got[2] == "one", got[2])
  end)

  it("may repeat the password in its errors: the words are not shown", function()
    local server <close> = redis.told(function(words) if words[1] == "AUTH" then return "-ERR no " .. words[2] .. "\r\n" end end)
    local g <close> = start(server.at)
    local me = g:client "2026-07-28"
    local why = code.run(me, open(server.at, ", password = 'tiger-93'") .. [[return select(2, cache:get "k")]])
    assert.equal(("unavailable: %s: the server refuses the user or the password (ERR)"):format(server.at), why)
    assert.is_nil(g:log():find("tiger", 1, true))
    me:close()
    assert.has_nothing_left(g)
  end)

  it("that takes connections and says nothing is unavailable", function()
    local server <close> = redis.told(function() end, { login = false })
    local g <close> = start(server.at)
    local me = g:client "2026-07-28"
    local got = code.run(me, open(server.at, ", timeout = 0.2") .. [[local _, why, reason = cache:get "k" return { why, reason }]])
    assert.same({ ("unavailable: %s: no answer within 0.2 s"):format(server.at), "unavailable" }, got)
    assert.equal(0, #server.commands - 1)               -- the login alone was sent
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a script of Redis", function()
  it("that asks for too much is refused, and others go on", function()
    local server <close> = redis.told(function(words) if words[1] == "INCR" then return ":1\r\n" end end)
    local g <close> = start(server.at, { redis_requests = 100 })
    local me = g:client "2026-07-28"
    local got = code.run(me, open(server.at, ", timeout = 30") .. [[
      local list = {}
      for i = 1, 100000 do list[i] = { "INCR", "k" } end
      local _, why, reason = cache:pipeline(list)
      for i = #list, 88, -1 do list[i] = nil end
      return { why, reason, #try(cache:pipeline(list)) }]])
    assert.truthy(got[1]:find("too many requests wait for this connection (100, or 16 MiB;", 1, true), got[1])
    assert.same({ "unavailable", 87 }, { got[2], got[3] })
    assert.equal(87, #server.commands - 1)
    assert.equal(1, g:status().counters.refused.redis_requests)
    local why = code.run(me, open(server.at) .. [[local half = ("x"):rep(9 << 20) return select(2, cache:call("MSET", "a", half, "b", half))]])
    assert.truthy(why:find("the command is larger than 16 MiB", 1, true), why)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("that fills a connection leaves a part to other scripts", function()
    local server <close> = redis.told(function(words) if words[1] ~= "INCR" then return "+OK\r\n" end end)
    local ask = 'local cache = redis.open { "redis://%s", timeout = 30 } return tool { "T.", input = { n = t.integer, word = t.string }, function(args) '
      .. 'local list = {} for i = 1, args.n do list[i] = { args.word, "k" } end return #try(cache:pipeline(list)) .. "" end }'
    ask = ask:format(server.at)
    local g <close> = redis.gateway(server.at, { constants = { redis_requests = 64, redis_idle_ms = 50 },
      scripts = { ["tools/fills.lua"] = ask, ["tools/other.lua"] = ask, ["tools/third.lua"] = ask } })
    local me, other = g:client "2026-07-28", g:client "2026-07-28"
    local function hold(name, n)
      local before = g:status().gauges.redis_requests
      local stream = me:open("tools/call", { name = name, arguments = { n = n, word = "INCR" } })
      g:wait_status(function(status) return status.gauges.redis_requests == before + n end)
      return stream
    end
    local function text(name, n) return other:result("tools/call", { name = name, arguments = { n = n, word = "GET" } }).content[1].text end
    local streams = { hold("fills", 50), hold("fills", 6) }
    assert.truthy(text("fills", 1):find("scripts share the last eighth", 1, true))
    streams[3] = hold("other", 4)
    assert.truthy(text("other", 1):find("scripts share the last eighth", 1, true))
    streams[4] = hold("third", 2)
    assert.truthy(text("third", 1):find("scripts share the last eighth", 1, true))
    assert.equal(3, g:status().counters.refused.redis_requests)
    for _, stream in ipairs(streams) do stream:hang_up() end
    for _, client in ipairs(server.clients) do client:close() end
    me:close()
    other:close()
    assert.has_nothing_left(g)
  end)

  it("that opens connections leaves some to other scripts", function()
    local server <close> = redis.told(function() return "+x\r\n" end)
    local opens = ([[
      local caches = {}
      return tool { "T.", input = { from = t.integer }, function(args)
        for i = 0, 99 do
          caches[i] = try(redis.open { "redis://%s/" .. args.from + i })
          local value, why = caches[i]:call "PING"
          if not value then return i .. " " .. why end
        end
      end }]]):format(server.at)
    local g <close> = redis.gateway(server.at, { constants = { redis_connections = 16 },
      scripts = { ["tools/fills.lua"] = opens, ["tools/other.lua"] = opens } })
    local me = g:client "2026-07-28"
    local function text(name, from) return me:result("tools/call", { name = name, arguments = { from = from } }).content[1].text end
    assert.truthy(text("fills", 1):find("^14 .*connections to Redis servers are open"))
    assert.truthy(text("other", 200):find("^1 .*connections to Redis servers are open"))
    assert.equal(2, g:status().counters.refused.redis_connections)
    me:close()
    g:stop()
  end)

  it("that opens too many connections is refused", function()
    local server <close> = redis.told(function() return "+x\r\n" end)
    local g <close> = start(server.at, { redis_connections = 2 })
    local me = g:client "2026-07-28"
    local why = code.run(me, ([[
      local whys = {}
      for i = 0, 3 do
        local value, why = try(redis.open { "redis://%s/" .. i }):call "PING"
        whys[#whys + 1] = value or why
      end
      return whys]]):format(server.at))
    assert.same({ "PONG", "PONG" }, { why[1], why[2] })
    assert.truthy(why[4]:find("connections to Redis servers are open", 1, true), why[4])
    me:close()
    assert.has_nothing_left(g)
  end)
end)

each("calls that end before their replies", function()
  it_real("leave others their own replies, and nothing behind", function()
    local server <close> = redis.start()
    local g <close> = code.start { workers = 1, constants = { redis_idle_ms = 50 }, config = { scripts = { allow = { net = { server.at } } } },
      scripts = { ["tools/own.lua"] = ([[
        local cache = redis.open { "redis://%s", timeout = 20 }
        return tool { "T.", input = { n = t.integer }, function(args)
          for i = 1, 20 do
            local value = try(cache:call("ECHO", args.n .. ":" .. i))
            if value ~= args.n .. ":" .. i then error("foreign: " .. value) end
          end
          return "own"
        end }]]):format(server.at) } }
    local clients, streams, random = {}, {}, 17
    for i = 1, 20 do clients[i] = g:client "2026-07-28" end
    for round = 1, 50 do
      local open_streams = {}
      for i, me in ipairs(clients) do
        random = (random * 1103515245 + 12345) % 2147483648
        open_streams[i] = { stream = me:open("tools/call", { name = "own", arguments = { n = round * 100 + i } }), is_cut = random % 10 == 0 }
      end
      for i, one in ipairs(open_streams) do
        if one.is_cut then
          one.stream:hang_up()
          clients[i]:close()
          clients[i] = g:client "2026-07-28"
        end
      end
      for _, one in ipairs(open_streams) do
        if not one.is_cut then streams[#streams + 1] = one.stream:answer() end
      end
    end
    assert.is_true(#streams > 800 and #streams < 990, #streams)
    for _, answer in ipairs(streams) do assert.equal("own", answer.result.content[1].text) end
    for _, me in ipairs(clients) do me:close() end
    assert.has_nothing_left(g)
    wait.for_fact("no request to be left", 20, function() return g:status().gauges.redis_requests == 0 end)
  end)
end)
