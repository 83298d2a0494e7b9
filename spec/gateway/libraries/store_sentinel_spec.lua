-- The store of several gateways whose server fails over: Redis Sentinels say which server is the primary.
local code = require "spec.helpers.code"
local nodes = require "spec.helpers.nodes"
local redis = require "spec.helpers.redis"
local wait = require "spec.helpers.wait"

if not redis.find() then
  pending "redis-tools is not installed"
  return
end

local run = code.run

describe("the store of several gateways with Redis Sentinels", function()
  it("goes on at the server that takes over, within ten seconds", function()
    local servers <close> = redis.guarded()
    local one, two = servers.primary, servers.replica
    local sentinels = { "127.0.0.1:1", table.unpack(servers.sentinels) }      -- the first one is not there
    local g <close> = nodes.start("redis://main", { redis = { sentinels = sentinels }, scripts = {
      ["tools/one.lua"] = [[return tool { "One.", function() return "ran" end }]],
      ["policy/most.lua"] = [[return quota { tools = { "one" }, most = 2, per = "month", by = "all" }]],
      ["jobs/often.lua"] = [[return job { "Often.", every = 0.2, function(_, run) store.set("fence", run.fence) end }]],
    } })
    local me = g:client "2026-07-28"
    local function count() return me:result("tools/call", { name = "one" }).content[1].text end
    assert.equal("ran", count())
    local fence = wait.for_fact("a run of the job", 20, function() return run(me, [[return store.get "fence"]]) end)
    wait.for_fact("the replica to have it", 10, function() return run(me, [[return store.set("a", 1, { sync = true })]]) end)
    one:kill()
    local began = require "luv".hrtime()
    wait.for_fact("the other server to be used", 30, function() return run(me, [[return store.set("a", 2)]]) end)
    assert.is_true((require "luv".hrtime() - began) / 1e9 < 10 * wait.slower)
    assert.equal("2", two:cli("GET", "mp:spec:k:a"))
    -- A quota goes on where it was, and fences rise.
    assert.equal("ran", count())
    assert.matches("is used up", count())
    wait.for_fact("the job to run again", 20, function()
      local last = run(me, [[return store.get "fence"]])
      return last and last > fence
    end)
    me:close()
    for _, guard in ipairs(servers.guards) do guard:__close() end
    assert.has_nothing_left(g)
  end)

  it("is unavailable where no sentinel knows a primary, and at a server that says it is none", function()
    local replica <close> = redis.told(function(words) return words[1] == "ROLE" and "*3\r\n$5\r\nslave\r\n$1\r\nx\r\n:1\r\n" or ":1\r\n" end)
    local known
    local sentinel <close> = redis.told(function()
      return known and ("*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%d\r\n"):format(#tostring(known), known) or "*-1\r\n"
    end)
    local g <close> = nodes.start("redis://main", { redis = { sentinels = { sentinel.at } } })
    local me = g:client "2026-07-28"
    assert.equal("unavailable", run(me, [[return select(2, store.set("a", 1))]]))
    known = replica.port
    wait.for_fact("the server to be asked", 20, function()
      assert.equal("unavailable", run(me, [[return select(2, store.set("a", 1))]]))
      return #replica.commands > 0
    end)
    for _, words in ipairs(replica.commands) do assert.is_true(words[1] == "ROLE" or words[1] == "PING", words[1]) end
    me:close()
    assert.has_nothing_left(g)
  end)

  -- A primary that can be silent, and a sentinel that names `self.primary`.
  local function primary(delay)
    return redis.told(function(words, client, self)
      local text = words[1] == "ROLE" and "*3\r\n$6\r\nmaster\r\n:1\r\n*0\r\n" or words[1] == "PING" and "+PONG\r\n" or ":1\r\n"
      if self.is_silent then return end
      if not delay or words[1] == "ROLE" or words[1] == "PING" then return text end
      local timer = require "luv".new_timer()
      timer:start(delay, 0, function()
        timer:close()
        if not client:is_closing() then client:write(text) end
      end)
    end, { login = false })
  end
  local function sentinel_of(one)
    local self
    self = redis.told(function() return ("*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%d\r\n"):format(#tostring(self.primary.port), self.primary.port) end)
    self.primary = one
    return self
  end

  for _, options in ipairs { "{}", "{ sync = true }" } do
    it("looks for the primary after each operation without an answer, with " .. options, function()
      local one <close> = primary()
      local two <close> = primary()
      local sentinel <close> = sentinel_of(one)
      local g <close> = nodes.start("redis://main", { redis = { sentinels = { sentinel.at }, timeout = "600ms" } })
      local me = g:client "2026-07-28"
      local function set() return run(me, ([[local done, why = store.set("a", 1, %s) return why or done]]):format(options)) end
      assert.is_true(set())
      one.is_silent, sentinel.primary = true, two
      assert.equal("unknown", set())
      wait.for_fact("another operation", 5, function() return set() ~= "unavailable" end)
      assert.is_true(set())
      assert.is_true(#two.commands > 0)
      for _, client in ipairs(one.clients) do                      -- no reply will come any more
        if not client:is_closing() then client:close() end
      end
      me:close()
      assert.has_nothing_left(g)
    end)
  end

  it("does not look for the primary because too many requests wait here", function()
    local one <close> = primary(300)
    local sentinel <close> = sentinel_of(one)
    local g <close> = nodes.start("redis://main", { redis = { sentinels = { sentinel.at }, timeout = "10s" },
      constants = { redis_idle_ms = 5000, redis_requests = 16 } })
    local me = g:client "2026-07-28"
    assert.is_true(run(me, [[return store.set("a", 1)]]))
    local asked = #sentinel.commands
    local refused = run(me, [[
      sleep(0.6)
      local calls, refused = {}, 0
      for i = 1, 64 do
        calls[i] = function()
          local _, why = store.set("a", i)
          if why then refused = refused + 1 end
        end
      end
      parallel(calls)
      return store.set("a", 1) and refused]])
    assert.is_true(refused > 40, refused)
    assert.equal(asked, #sentinel.commands)
    me:close()
    assert.has_nothing_left(g)
  end)
end)
