-- Jobs of several gateways that share a server: each instant of a schedule is run once, whichever gateway dies, and what
-- runs is cancelled before others can have it.
local uv = require "luv"
local nodes = require "spec.helpers.nodes"
local proxy = require "spec.helpers.proxy"
local redis = require "spec.helpers.redis"
local wait = require "spec.helpers.wait"

if not redis.find() then
  pending "redis-tools is not installed"
  return
end

-- Text of a job that adds a line to the list `runs` in the server: its slot, as the server has it, the run's fence, and the
-- gateway; then `rest`. `options`: text of further options.
local function job(server, options, rest)
  return ([[
    local cache = try(redis.open { "redis://%s" })
    return job { "Counts.", %s, function(call, run)
      local slot = cache:call("HGET", "mp:spec:j:count", "slot") or 0
      try(cache:call("RPUSH", "runs", ("%%s %%d %%s"):format(slot, run.fence, env "NODE")))
      %s
    end }]]):format(server.at, options, rest or "")
end

local function start(server, text, more)
  more = more or {}
  more.scripts = { ["jobs/count.lua"] = text }
  more.config = { scripts = { allow = { net = { more.net or server.at }, env = { "NODE" } } } }
  return nodes.start(more.at or server.at, more)
end

-- The lines of the list: { { slot, fence, node }, … }.
local function runs(server, name)
  local list = {}
  for slot, fence, node in server:cli("LRANGE", name or "runs", "0", "-1"):gmatch "(%d+) (%d+) (%S+)" do
    list[#list + 1] = { slot = tonumber(slot), fence = tonumber(fence), node = node }
  end
  return list
end

-- No slot was run twice, and fences rise.
local function check(list)
  local seen, last = {}, 0
  for _, one in ipairs(list) do
    assert.is_nil(seen[one.slot], ("slot %d was run twice"):format(one.slot))
    assert.is_true(one.fence > last, ("fence %d after %d"):format(one.fence, last))
    seen[one.slot], last = true, one.fence
  end
end

local function wait_runs(server, count, seconds, name)
  wait.for_fact(count .. " runs", seconds, function() return #runs(server, name) >= count end)
end

local function node(name) return { NODE = name } end

describe("a job of several gateways", function()
  it("runs once for each instant, over gateways that are killed and started", function()
    local server <close> = redis.start()
    local text = job(server, "every = 0.4", "sleep(0.05)")
    local all = {}
    local function begin(i) all[i] = start(server, text, { env = node("n" .. i), workers = 2 }) end
    for i = 1, 3 do begin(i) end
    wait_runs(server, 5, 20)
    for i = 1, 3 do
      all[i]:kill()
      begin(i)
      wait_runs(server, #runs(server) + 3, 40)                     -- a killed one may have held the job
    end
    local list = runs(server)
    check(list)
    for i = 1, #list do assert.equal(0, list[i].slot % 400) end
    for i = 1, 3 do all[i]:__close() end
  end)

  it("runs elsewhere 15 s after the gateway that ran it was killed, and not earlier", function()
    local server <close> = redis.start()
    local text = job(server, "every = 0.5, timeout = 60", [[if env "NODE" == "first" then sleep(60) end]])
    local first = start(server, text, { env = node "first" })
    wait_runs(server, 1, 20)
    local second <close> = start(server, text, { env = node "second" })
    local held = server:cli("HGET", "mp:spec:j:count", "lease")
    wait.quietly(6, function() return #runs(server) > 1 and "it ran twice at once" end)
    assert.is_true(tonumber(server:cli("HGET", "mp:spec:j:count", "lease")) > tonumber(held))     -- it was prolonged
    local killed = uv.hrtime()
    first:kill()
    wait_runs(server, 2, 20)
    local seconds = (uv.hrtime() - killed) / 1e9
    assert.is_true(seconds > 9 and seconds < 15.5 + 2 * wait.slower, seconds)
    check(runs(server))
    assert.equal("second", runs(server)[2].node)
    assert.is_true(second:is_alive())
  end)

  it("is cancelled where the server does not confirm that it is held, and runs again when it answers", function()
    local server <close> = redis.start()
    local text = job(server, "every = 0.5, timeout = 60", [[if tonumber((cache:call("LLEN", "runs"))) == 1 then sleep(60) end]])
    local g <close> = start(server, text, { env = node "one" })
    wait_runs(server, 1, 20)
    local began = uv.hrtime()
    server:kill "sigstop"
    g:wait_log("scheduled job cancelled", { name = "count" }, 20)
    local seconds = (uv.hrtime() - began) / 1e9
    assert.is_true(seconds > 8 and seconds < 14 + wait.slower, seconds)
    assert.equal(1, g:status().counters.store_locks_lost)
    assert.truthy(g:log():find("the server of cluster did not confirm that in time", 1, true))
    server:kill "sigcont"
    wait_runs(server, 3, 20)
    check(runs(server))
  end)

  it("is cancelled where the server was emptied, and no instant is run again", function()
    local server <close> = redis.start()
    local text = job(server, "every = 0.5, timeout = 60", [[
      try(cache:call("RPUSH", "kept", run.fence))
      if tonumber((cache:call("LLEN", "kept"))) == 1 then sleep(60) end]])
    local g <close> = start(server, text, { env = node "one" })
    wait_runs(server, 1, 20)
    local before = runs(server)[1]
    local began = uv.hrtime()
    server:cli("DEL", "mp:spec:j:count")
    g:wait_log("scheduled job cancelled", { name = "count" }, 20)
    assert.is_true((uv.hrtime() - began) / 1e9 < 5 + 2 * wait.slower)
    wait_runs(server, 3, 20)
    check(runs(server))
    assert.is_true(runs(server)[2].slot > before.slot)
  end)

  it("is not run where the answer to its claim is lost", function()
    local server <close> = redis.start()
    local between <close> = proxy.start(server.port)
    local text = job(server, "every = 0.5")
    local lost <close> = start(server, text, { env = node "lost", at = "127.0.0.1:" .. between.port })
    wait_runs(server, 2, 20)
    between.swallows_answers = true
    wait.for_fact("an answer to be lost", 20, function() return lost:log():find("redis unavailable", 1, true) end)
    local count = #runs(server)
    wait.quietly(2, function() return #runs(server) > count + 1 and "it ran" end)     -- one may have been running
    between.swallows_answers = false
    between:cut()
    wait_runs(server, count + 2, 40)
    check(runs(server))
    assert.is_true(lost:is_alive())
  end)

  it("runs on each of them with where = \"every\", and a fence then, too", function()
    local server <close> = redis.start()
    local text = job(server, [[every = 0.2, where = "every"]])
    local first <close> = start(server, text, { env = node "first" })
    local second <close> = start(server, text, { env = node "second" })
    wait.for_fact("both to run it", 20, function()
      local seen = {}
      for _, one in ipairs(runs(server)) do seen[one.node] = true end
      return seen.first and seen.second
    end)
    assert.equal("", server:cli("HGET", "mp:spec:j:count", "slot"))
    assert.is_true(first:is_alive() and second:is_alive())
  end)

  it("with a time of day runs on one of them", function()
    local server <close> = redis.start()
    local text = job(server, [[every = "* * * * *"]])
    local first <close> = start(server, text, { env = node "first" })
    local second <close> = start(server, text, { env = node "second" })
    wait_runs(server, 1, 20)
    wait.quietly(6, function() return #runs(server) > 3 and "it ran too often" end)
    check(runs(server))
    for _, one in ipairs(runs(server)) do assert.equal(0, one.slot % 60000) end
    assert.is_true(first:is_alive() and second:is_alive())
  end)

  it("does not begin while the server is away", function()
    local server <close> = redis.start()
    local other <close> = redis.start()
    local text = job(other, "every = 0.2")
    local g <close> = start(server, text, { env = node "one", net = other.at })
    wait_runs(other, 2, 20)
    server:stop()
    local count = #runs(other)
    wait.quietly(2, function() return #runs(other) > count + 1 and "it ran" end)
    server:begin()
    wait_runs(other, count + 3, 20)
    assert.is_true(g:is_alive())
  end)
end)
