-- redis of scripts with a real server: commands, replies, pipelines, grants, passwords, TLS, and servers that fail.
local beside = require "spec.helpers.beside"
local certificates = require "spec.helpers.certificates"
local code = require "spec.helpers.code"
local redis = require "spec.helpers.redis"
local wait = require "spec.helpers.wait"
local cjson = require "cjson.safe"

local it_real, describe = redis.it(it, pending), redis.each(describe, setup, teardown)

local start = redis.gateway

-- Runs code with `cache` open at `at`.
local function run(me, at, text, options)
  return code.run(me, redis.open(at, options) .. text)
end

describe("redis", function()
  local server, g, me
  beside(redis, lazy_setup, lazy_teardown, function(...) server, g, me = ... end)
  local function here(text, options) return run(me, server.at, text, options) end

  it_real("gets and sets values of any bytes, with a time to live, and only where asked", function()
    assert.same({ true, true, false, true, false, "one", cjson.null }, here [[
      local bytes = "\0\r\n\xff" .. ("x"):rep(100000)
      local first = try(cache:set("a", bytes))
      local same = cache:get "a" == bytes
      local new, existing = cache:set("a", "two", { only = "new" }), cache:set("a", "one", { ttl = 60, only = "existing" })
      return { first, same, new, existing, cache:set("none", 1, { only = "existing" }), cache:get "a", cache:get "none" or json.null }]])
    local ttl = math.tointeger((server:cli("PTTL", "a")))
    assert.is_true(ttl > 50000 and ttl <= 60000, ttl)
    assert.equal("1500", here [[try(cache:set("n", 1500)) return cache:get "n"]])
  end)

  it_real("makes values of every kind of reply", function()
    assert.same({ 42, "OK", "-1", {}, { "a", 1, cjson.null, { 2, { { error = "ERR inside" } } } } }, here [[
      local eval = [=[return {"a", 1, false, {2, {redis.error_reply("ERR inside")}}}]=]
      return { cache:call("INCRBY", "m", 42), cache:call("set", "x", -1), cache:call("GET", "x"), cache:call("LRANGE", "none", 0, -1),
        cache:call("EVAL", eval, 0) }]])
    assert.same({ true, "WRONGTYPE Operation against a key holding the wrong kind of value", "error" }, here [[
      cache:call("DEL", "l") try(cache:call("RPUSH", "l", "v"))
      local value, why, reason = cache:get "l"
      return { value == nil, why, reason }]])
    assert.equal("0.10000000000000001", here [[try(cache:call("SET", "f", 0.1)) return cache:get "f"]])
  end)

  it_real("sends a pipeline at once, whose replies may be errors", function()
    assert.same({ 1, true, cjson.null, "WRONGTYPE", 2 }, here [[
      cache:call("DEL", "p", "l") cache:call("RPUSH", "l", 1)
      local got = try(cache:pipeline { { "INCR", "p" }, { "EXPIRE", "p", 60 }, { "GET", "none" }, { "GET", "l" }, { "INCR", "p" } })
      return { got[1], got[2] == 1, got[3], got[4].error:match "^%a+", got[5] }]])
    assert.same({ {}, { cjson.null }, "WRONGTYPE" }, here [[return { json.array(try(cache:pipeline {})), try(cache:pipeline { { "GET", "none" } }),
      cache:pipeline({ { "GET", "l" } })[1].error:match "^%a+" }]])
  end)

  it_real("shares one connection among all tasks", function()
    local before = tonumber(server:cli("INFO", "stats"):match "total_connections_received:(%d+)")
    assert.equal(3000, here [[
      local calls = {}
      for i = 1, 3000 do calls[i] = function() try(cache:set("s" .. i, i)) return tonumber(cache:get("s" .. i)) == i end end
      local count = 0
      for from = 1, 3000, 50 do
        for _, ok in ipairs(try(parallel { table.unpack(calls, from, from + 49) })) do count = count + (ok[1] and 1 or 0) end
      end
      return count]])
    local after = tonumber(server:cli("INFO", "stats"):match "total_connections_received:(%d+)")
    assert.is_true(after - before <= 5, after - before)     -- that of the question is one; an idle one may have closed
  end)

  it_real("refuses what would change the connection for others, and says what to use", function()
    for command, hint in pairs {
      ['"blpop", "l", 0'] = "LPOP", ['"SUBSCRIBE", "c"'] = "channels", ['"MONITOR"'] = "stream", ['"Select", 1'] = "redis.open",
      ['"WATCH", "k"'] = "eval", ['"CLIENT", "reply", "OFF"'] = "answers", ['"MULTI"'] = "transaction",
      ['"XREAD", "BLOCK", 0, "STREAMS", "s", "$"'] = "without BLOCK",
      ['"AUTH", "x"'] = "password", ['"SHUTDOWN"'] = "stops the server",
    } do
      assert.is_nil((here(("return cache:call(%s)"):format(command))))
      local name = command:match '%a+':upper()
      local line = g:wait_log("tool failed", { why = "call: " .. name .. " is refused" })
      assert.truthy(line.fields.hint:find(hint, 1, true), line.text)
    end
    assert.equal("PONG", here [[return cache:call "PING"]])
    assert.equal(cjson.null, here [[return cache:call("XREAD", "COUNT", 1, "STREAMS", "block", "0") or json.null]])
  end)
end)

describe("a password", function()
  it_real("is given as a secret, and appears nowhere", function()
    local server <close> = redis.start { password = "tiger-93" }
    local g <close> = start({ server.at }, { env = { REDIS_PASSWORD = "tiger-93", WRONG = "leopard-17" },
      config = { scripts = { allow = { net = { server.at }, env = { "REDIS_PASSWORD", "WRONG" } } } } })
    local me = g:client "2026-07-28"
    assert.equal("PONG", run(me, server.at, [[return cache:call "PING"]], [[, password = secret "REDIS_PASSWORD"]]))
    assert.equal("PONG", run(me, server.at, [[return cache:call "PING"]], [[, user = "default", password = secret "REDIS_PASSWORD"]]))
    local got = run(me, server.at, [[local _, why, reason = cache:get "x" return { why, reason }]], [[, password = secret "WRONG"]])
    assert.same({ "unavailable: " .. server.at .. ": the server refuses the user or the password (WRONGPASS)", "unavailable" }, got)
    got = run(me, server.at, [[local _, why = cache:get "x" return why]])
    assert.equal("unavailable: " .. server.at .. ": the server wants a password: redis.open takes 'user' and 'password'", got)
    local status = g:status()
    for _, text in ipairs { g:log(), cjson.encode(status) } do
      assert.is_nil(text:find("tiger", 1, true))
      assert.is_nil(text:find("leopard", 1, true))
    end
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a server without a grant", function()
  it_real("is not connected to", function()
    local server <close> = redis.start()
    local g <close> = start { "localhost:" .. server.port, "cache.internal:" .. server.port }
    local me = g:client "2026-07-28"
    local got = code.run(me, ("local _, why = redis.open { %q } return why"):format("redis://" .. server.at))
    assert.truthy(got:find("no grant allows it", 1, true), got)
    g:wait_log("redis refused", { host = server.at })
    assert.equal("PONG", run(me, "localhost:" .. server.port, [[return cache:call "PING"]]))
    me:close()
    assert.has_nothing_left(g)
  end)

  it_real("is judged at the address of the connection", function()
    local errand = require "spec.helpers.errand"
    local server <close> = redis.start()
    local g <close> = start({ "cache.test:" .. server.port, "inside.test:" .. server.port .. " private" },
      { env = errand.names "cache.test=127.0.0.1;inside.test=127.0.0.1" })
    local me = g:client "2026-07-28"
    local why = run(me, "cache.test:" .. server.port, [[return select(2, cache:get "x")]])
    assert.truthy(why:find("an address that no grant allows", 1, true), why)
    assert.equal("PONG", run(me, "inside.test:" .. server.port, [[return cache:call "PING"]]))
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("rediss://", function()
  it_real("is TLS with a server whose certificate is for the name", function()
    local authority = certificates.make { subject = "/CN=ca", is_authority = true, sans = false }
    local certificate = certificates.make({ sans = "DNS:localhost" }, authority)
    local server <close> = redis.start { tls = certificate }
    local net = { server.at, "localhost:" .. server.port }
    local function gateway_with(ca)
      return start(net, { files = { ["ca.pem"] = ca }, config = { scripts = { allow = { net = net } }, http = { ca = "ca.pem" } } })
    end
    local g <close> = gateway_with(authority.own)
    local me = g:client "2026-07-28"
    assert.equal(200000, run(me, "rediss://localhost:" .. server.port, [[cache:set("k", ("x"):rep(200000)) return #cache:get "k"]]))
    local why = run(me, "rediss://" .. server.at, [[return select(2, cache:get "k")]])
    assert.truthy(why:find("certificate is not trusted: IP address mismatch", 1, true), why)
    why = run(me, "redis://localhost:" .. server.port, [[return select(2, cache:get "k")]])
    assert.truthy(why:find("unavailable: ", 1, true), why)
    server:stop()
    local expired <close> = redis.start { port = server.port, tls = certificates.make({ sans = "DNS:localhost", ends = os.time() - 60 }, authority) }
    why = run(me, "rediss://localhost:" .. expired.port, [[return select(2, cache:get "k")]])
    assert.truthy(why:find("certificate is not trusted: certificate has expired", 1, true), why)
    me:close()
    assert.has_nothing_left(g)
    local other <close> = gateway_with(certificates.here().own)
    me = other:client "2026-07-28"
    why = run(me, "rediss://localhost:" .. server.port, [[return select(2, cache:get "k")]])
    assert.truthy(why:find("certificate is not trusted: ", 1, true), why)
    me:close()
    assert.has_nothing_left(other)
  end)
end)

describe("a server that fails", function()
  it_real("is connected to again, and what it did not answer is unknown", function()
    local server <close> = redis.start()
    local g <close> = start { server.at }
    local me = g:client "2026-07-28"
    assert.equal("PONG", run(me, server.at, [[return cache:call "PING"]]))
    server:stop()
    local got = run(me, server.at, [[local _, why, reason = cache:get "x" return { why, reason }]])
    assert.same({ ("unavailable: %s: connection refused: nothing listens at this port"):format(server.at), "unavailable" }, got)
    g:wait_log("redis unavailable", { server = server.at })
    server:begin()
    wait.for_fact("the server to be used again", 20, function() return run(me, server.at, [[return cache:call "PING" or false]]) == "PONG" end)
    g:wait_log("redis available", { server = server.at })
    server:kill "sigstop"
    got = run(me, server.at, [[local _, why, reason = cache:call("INCR", "n") return { why, reason }]], ", timeout = 0.2")
    server:kill "sigcont"
    assert.equal(("%s: %s: no answer within 0.2 s"):format(got[2], server.at), got[1])
    me:close()
    assert.has_nothing_left(g)
  end)
end)
