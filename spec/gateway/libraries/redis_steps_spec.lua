-- redis of scripts with a real server: transactions, scripts in the server, iteration over keys; the end of a server in
-- the middle, reloads, times of commands and spans.
local beside = require "spec.helpers.beside"
local code = require "spec.helpers.code"
local redis = require "spec.helpers.redis"
local shell = require "spec.helpers.shell"
local wait = require "spec.helpers.wait"
local cjson = require "cjson.safe"

local it_real, describe = redis.it(it, pending), redis.each(describe, setup, teardown)

local open = redis.open

describe("redis", function()
  local server, g, me
  beside(redis, lazy_setup, lazy_teardown, function(...) server, g, me = ... end)
  local function here(text) return code.run(me, open(server.at) .. text) end

  it_real("runs the commands of a transaction as one step", function()
    assert.same({ 1, 3, { "3" }, cjson.null }, here [[
      cache:call("DEL", "a")
      local got = try(cache:transaction { { "INCR", "a" }, { "INCRBY", "a", 2 }, { "MGET", "a" }, { "GET", "none" } })
      return { got[1], got[2], got[3], got[4] }]])
    assert.same({ true, "ERR unknown command 'NOSUCH', with args beginning with: ", "error", "3" }, here [[
      local value, why, reason = cache:transaction { { "INCR", "a" }, { "NOSUCH" } }
      return { value == nil, why, reason, cache:get "a" }]])
    assert.same({ "WRONGTYPE", 4 }, here [[
      cache:call("DEL", "l") cache:call("RPUSH", "l", 1)
      local got = try(cache:transaction { { "GET", "l" }, { "INCR", "a" } })
      return { got[1].error:match "^%a+", got[2] }]])
  end)

  it_real("runs scripts in the server, which has them under their hashes", function()
    server:cli("SCRIPT", "FLUSH")
    local before = server:cli("INFO", "commandstats")
    assert.is_nil(before:find("cmdstat_eval:", 1, true))
    assert.same({ { "k", "v" }, { "k", "v" }, "ERR user error" }, here [[
      local script = "return {KEYS[1], ARGV[1]}"
      local first, second = try(cache:eval(script, { "k" }, { "v" })), try(cache:eval(script, { "k" }, { "v" }))
      local _, why = cache:eval "return redis.error_reply('ERR user error')"
      return { first, second, why }]])
    local after = server:cli("INFO", "commandstats")
    assert.equal("2", after:match "cmdstat_eval:calls=(%d+)")
    assert.equal("3", after:match "cmdstat_evalsha:calls=(%d+)")
  end)

  it_real("iterates over keys", function()
    assert.same({ 1000, 1, 0 }, here [[
      local list = {}
      for i = 1, 1000 do list[i] = { "SET", "scan:" .. i, i } end
      try(cache:pipeline(list))
      local seen, count = {}, 0
      for key in cache:scan "scan:*" do
        if not seen[key] then count = count + 1 end
        seen[key] = true
      end
      local one, none = 0, 0
      for _ in cache:scan("scan:77", { count = 10 }) do one = one + 1 end
      for _ in cache:scan("scan:*", { type = "list" }) do none = none + 1 end
      return { count, one, none }]])
  end)

  it_real("counts times by command, and never shows keys or values", function()
    here [[cache:set("tiger-key", "tiger-value") cache:call("TIGER-COMMAND", "x") return true]]
    local text = g:admin "/metrics".body
    assert.truthy(text:find('moonpool_redis_client_duration_seconds_count{command="SET",outcome="ok"}', 1, true), text)
    assert.truthy(text:find('moonpool_redis_client_duration_seconds_count{command="_other",outcome="error"}', 1, true))
    assert.is_nil(text:lower():find("tiger", 1, true))
    assert.is_nil(g:log():lower():find("tiger", 1, true))
  end)
end)

describe("a script that is replaced", function()
  it_real("leaves no connection behind", function()
    local server <close> = redis.start()
    local function tool(n)
      return ('local cache = redis.open { "redis://%s" } return tool { "T.", function() return %d .. try(cache:call "PING") end }'):format(server.at, n)
    end
    local g <close> = code.start { workers = 2, config = { scripts = { allow = { net = { server.at } } } }, scripts = { ["tools/ping.lua"] = tool(1) } }
    local me = g:client "2026-07-28"
    assert.equal("1PONG", me:result("tools/call", { name = "ping", arguments = {} }).content[1].text)
    shell.write(g.dir .. "/scripts/tools/ping.lua", 'return tool { "T.", function() return "none" end }')
    g:signal "sighup"
    wait.for_fact("the new script", 20, function() return me:result("tools/call", { name = "ping", arguments = {} }).content[1].text == "none" end)
    wait.for_fact("no connection", 20, function() return server:cli("CLIENT", "LIST"):find("\n", 1, true) == nil end)
    assert.equal(0, g:status().gauges.redis_connections)
    me:close()
    assert.has_nothing_left(g)
  end)
end)
