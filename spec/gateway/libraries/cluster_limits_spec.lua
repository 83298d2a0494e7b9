-- limit { … } and quota { … } of several gateways that share a server: one bucket and one count for all of them, and what
-- is admitted while the server does not answer.
local uv = require "luv"
local nodes = require "spec.helpers.nodes"
local proxy = require "spec.helpers.proxy"
local redis = require "spec.helpers.redis"
local wait = require "spec.helpers.wait"

if not redis.find() then
  pending "redis-tools is not installed"
  return
end

local RATE <const>, BURST <const> = 40, 20

local function scripts()
  local made = {}
  for _, name in ipairs { "fast", "slow", "twice", "daily", "hourly", "few", "local_one", "refused", "allowed", "plain" } do
    made["tools/" .. name .. ".lua"] = ([[return tool { "Runs: %s.", function() return "ran" end }]]):format(name)
  end
  for name, text in pairs {
    fast = [[limit { tools = { "fast" }, rate = 40, per = 1, burst = 20, by = "all" }]],
    slow = [[limit { tools = { "slow" }, rate = 1, per = 1 * hours, by = { "all", function() return ("long"):rep(100) end } }]],
    twice = [[limit { tools = { "twice" }, rate = 3, per = 1 * hours, by = "all" }]],
    twice_more = [[limit { tools = { "twice" }, rate = 5, per = 1 * hours, by = "tool", order = 1 }]],
    daily = [[quota { tools = { "daily" }, most = 50, per = "day", by = "all" }]],
    hourly = [[quota { tools = { "hourly" }, most = 3, per = "hour" }]],
    few = [[quota { tools = { "few" }, most = 3, per = "month", by = "all", away = "local" }]],
    local_one = [[limit { tools = { "local_one" }, rate = 2, per = 1 * hours, by = "all" }]],
    refused = [[limit { tools = { "refused" }, rate = 20, per = 1 * hours, by = "all", away = "refuse" }]],
    allowed = [[limit { tools = { "allowed" }, rate = 1, per = 1 * hours, by = "all", away = "allow" }]],
  } do
    made["policy/" .. name .. ".lua"] = "return " .. text
  end
  return made
end

local function start(at, more)
  more = more or {}
  more.scripts = scripts()
  return nodes.start(at, more)
end

-- "ran", or why a call was refused.
local function read(answer) return answer.result and answer.result.content[1].text or answer.error.message end

local function call(me, name) return read(me:call("tools/call", { name = name })) end

-- Calls a tool `count` times through each client, eight calls of a client at once. Returns how many ran, and the others' texts.
local function storm(clients, name, count)
  local ran, others, open = 0, {}, {}
  local function take(stream)
    local text = read(stream:answer(20))
    if text == "ran" then ran = ran + 1 else others[#others + 1] = text end
    stream:close()
  end
  for i = 1, count do
    for _, me in ipairs(clients) do open[#open + 1] = me:open("tools/call", { name = name }) end
    if i % 8 == 0 then
      for _, stream in ipairs(open) do take(stream) end
      open = {}
    end
  end
  for _, stream in ipairs(open) do take(stream) end
  return ran, others
end

-- The names of keys, with spaces for the zeros in them.
local function keys(server, pattern)
  local text = server:cli("EVAL", [[
    local names = {}
    for i, name in ipairs(redis.call("KEYS", ARGV[1])) do names[i] = string.gsub(name, "%z", " ") end
    table.sort(names)
    return table.concat(names, "\n")]], "0", pattern)
  return text
end

describe("limits and quotas of several gateways", function()
  local server, all, clients
  setup(function()
    server = redis.start { args = nodes.acl_args }
    all, clients = {}, {}
    for i = 1, 3 do
      all[i] = start("redis://moonpool@" .. server.at, { redis = { password = "pass" }, workers = i == 1 and 2 or 1 })
      clients[i] = all[i]:client "2026-07-28"
    end
    for _, me in ipairs(clients) do assert.equal("ran", call(me, "plain")) end
  end)
  teardown(function()
    for i = 1, 3 do all[i]:__close() end
    server:__close()
  end)

  it("admit the rate and the burst of one bucket, never more, under load on all of them", function()
    local began, ran, asked = uv.hrtime(), 0, 0
    while (uv.hrtime() - began) / 1e9 < 4 do
      ran = ran + storm(clients, "fast", 8)
      asked = asked + 24
    end
    local seconds = (uv.hrtime() - began) / 1e9
    local most = BURST + RATE * seconds
    assert.is_true(ran <= most, ("%d of %d calls ran, and %.1f may"):format(ran, asked, most))
    if asked > 3 * most then assert.is_true(ran >= BURST + RATE * (seconds - 1), ("%d ran, of %.1f"):format(ran, most)) end
    wait.for_fact("a full bucket to be forgotten", 5, function() return keys(server, "mp:spec:b:*fast*") == "" end)
  end)

  it("say when to come back, and take one token for all gateways", function()
    assert.equal("ran", call(clients[1], "slow"))
    for i = 1, 3 do assert.equal("too many calls of 'slow': try again in 60 minutes", call(clients[i], "slow")) end
    assert.matches("^mp:spec:b: slow  hash ", keys(server, "mp:spec:b:*slow*"))
  end)

  it("ask the server once for each limit, in their order", function()
    local function asked() return tonumber(server:cli("INFO", "commandstats"):match "cmdstat_evalsha:calls=(%d+)") end
    local before = asked()
    assert.equal(3, (storm(clients, "twice", 2)))
    assert.equal(6 + 3, asked() - before)
  end)

  it("are never emptier than empty, whatever the clock of the server has been", function()
    server:cli("EVAL", [[
      local time = redis.call("TIME")
      local key = "mp:spec:b:" .. string.char(0) .. "local_one" .. string.char(0)
      return redis.call("SET", key, string.format("%.0f", (time[1] + 86400 * 365) * 1000000))]], "0")
    for i = 1, 3 do assert.equal("too many calls of 'local_one': try again in 30 minutes", call(clients[i], "local_one")) end
  end)

  it("count a quota exactly, and each caller of it", function()
    local ran, others = storm(clients, "daily", 40)
    assert.equal(50, ran)
    for _, text in ipairs(others) do assert.matches("^the quota of 50 calls of 'daily' in one day is used up: try again in %d+ ", text) end
    assert.equal(3, (storm(clients, "hourly", 4)))
    local text = keys(server, "mp:spec:q:*daily*")
    assert.matches("^mp:spec:q:%d%d%d%d%-%d%d%-%d%d daily $", text)
    local rest = tonumber(server:cli("EVAL", [[return redis.call("TTL", redis.call("KEYS", "mp:spec:q:*daily*")[1])]], "0"))
    local left = 86400 - os.time() % 86400
    assert.is_true(math.abs(rest - left - 3600) < 30, ("%d, %d"):format(rest, left))
  end)

  it("begin anew in a server that was emptied, or has lost the scripts", function()
    server:cli "FLUSHALL"
    server:cli("SCRIPT", "FLUSH")
    assert.equal(50, (storm(clients, "daily", 24)))
    assert.equal("ran", call(clients[2], "slow"))
    assert.matches("^too many", call(clients[3], "slow"))
  end)

  it("are measured", function()
    local text = all[1]:admin("/metrics").body
    for _, name in ipairs { "limit", "quota" } do
      local count = text:match('moonpool_redis_duration_seconds_count{operation="' .. name .. '",outcome="ok"} (%d+)')
      assert.is_true(tonumber(count) > 0, name)
    end
  end)

  it("leave nothing behind", function()
    for i = 1, 3 do
      clients[i]:close()
      assert.has_nothing_left(all[i])
    end
  end)
end)

describe("while the server of limits and quotas does not answer, a gateway", function()
  -- The longest of `count` calls of a tool in seconds, and their texts.
  local function timed(me, name, count)
    local longest, texts = 0, {}
    for i = 1, count do
      local began = uv.hrtime()
      texts[i] = call(me, name)
      longest = math.max(longest, (uv.hrtime() - began) / 1e9)
    end
    return longest, texts
  end

  -- A gateway whose server answers no limit in 100 ms.
  local ways = {
    ["is not there"] = function(server) server:stop() end,
    ["stands still"] = function(server) server:kill "sigstop" end,
  }
  for text, stop in pairs(ways) do
    it("whose server " .. text .. " counts alone, refuses or admits, as it was configured", function()
      local server <close> = redis.start()
      local g <close> = start(server.at)
      local other <close> = start(server.at, { down = { limits = "refuse", quotas = "allow" } })
      local me, you = g:client "2026-07-28", other:client "2026-07-28"
      assert.equal("ran", call(me, "local_one"))
      assert.equal("ran", call(you, "daily"))
      stop(server)
      local longest, texts = timed(me, "local_one", 4)
      assert.same({ "ran", "ran", "too many calls of 'local_one': try again in 30 minutes" }, { texts[1], texts[2], texts[3] })
      assert.is_true(longest < 0.1 + 0.1 * wait.slower, longest)
      longest, texts = timed(me, "refused", 3)
      for i = 1, 3 do assert.equal("too many calls of 'refused': try again in a second", texts[i]) end
      assert.is_true(longest < 0.1 + 0.1 * wait.slower, longest)
      longest, texts = timed(me, "allowed", 3)
      assert.same({ "ran", "ran", "ran" }, texts)
      assert.is_true(longest < 0.1 + 0.1 * wait.slower, longest)
      for _ = 1, 2 do assert.equal("the quota of 'daily' cannot be counted: try again in a second", call(me, "daily")) end
      texts = select(2, timed(me, "few", 5))
      assert.same({ "ran", "ran", "ran" }, { texts[1], texts[2], texts[3] })
      assert.matches("^the quota of 3 calls of 'few' in one month is used up", texts[5])
      assert.equal("too many calls of 'fast': try again in a second", call(you, "fast"))
      assert.equal("ran", call(you, "daily"))
      assert.equal("ran", call(me, "plain"))
      server:kill "sigcont"
      if text == "is not there" then server:begin() end
      wait.for_fact("the server to count again", 10, function() return call(me, "daily") == "ran" end)
      me:close()
      you:close()
      local _, lines = g:log():gsub("limit not counted", "")
      assert.is_true(lines >= 2 and lines <= 4, lines)             -- one a minute for each policy
      server:kill "sigcont"
      assert.has_nothing_left(g)
    end)
  end

  it("that knows of another one admits half", function()
    local server <close> = redis.start()
    local constants = { fanout_ms = 200, redis_idle_ms = 60000 }
    local g <close> = start(server.at, { constants = constants })
    local other <close> = start(server.at, { constants = constants })
    for _, one in ipairs { g, other } do one:wait_log("gateways of the cluster counted", { count = 2 }) end
    server:stop()
    for _, one in ipairs { g, other } do
      local me = one:client "2026-07-28"
      assert.equal("ran", call(me, "local_one"))
      assert.equal("too many calls of 'local_one': try again in 60 minutes", call(me, "local_one"))
      assert.equal("ran", call(me, "few"))
      assert.matches("is used up", call(me, "few"))
      me:close()
    end
  end)

  it("whose server takes 200 ms counts limits alone, while its store and its quotas go on", function()
    local server <close> = redis.told(function(words, client)
      local timer = uv.new_timer()
      timer:start(200, 0, function()
        timer:close()
        if not client:is_closing() then client:write(words[1] == "PING" and "+PONG\r\n" or ":1\r\n") end
      end)
    end)
    local g <close> = start(server.at, { redis = { timeout = "2s" } })
    local me = g:client "2026-07-28"
    local longest, texts = timed(me, "local_one", 8)
    assert.same({ "ran", "ran" }, { texts[1], texts[2] })
    assert.matches("^too many", texts[8])
    assert.is_true(longest < 0.1 + 0.15 * wait.slower, longest)
    for _ = 1, 3 do assert.is_true(require "spec.helpers.code".run(me, [[return store.set("a", 1)]])) end
    me:close()
    assert.has_nothing_left(g)
  end)

  it("whose answers are lost never admits more than the quota, and fewer only by what is unknown", function()
    local server <close> = redis.start()
    local between <close> = proxy.start(server.port)
    local g <close> = start("127.0.0.1:" .. between.port)
    local other <close> = start(server.at)
    local me, you = g:client "2026-07-28", other:client "2026-07-28"
    local ran, refused = 0, 0
    local function try(one)
      local text = call(one, "daily")
      if text == "ran" then ran = ran + 1 elseif text:find "cannot be counted" then refused = refused + 1 end
      return text
    end
    for _ = 1, 10 do try(me) end
    between.swallows_answers = true
    for _ = 1, 8 do
      try(me)
      try(you)
    end
    between.swallows_answers = false
    between:cut()
    wait.for_fact("the server to be used again", 10, function() return try(me) == "ran" end)
    for _ = 1, 60 do try(you) end
    assert.is_true(ran <= 50, ran)
    assert.is_true(ran >= 50 - refused, ("%d ran, %d were refused"):format(ran, refused))
    assert.is_true(refused >= 3, refused)
    me:close()
    you:close()
    assert.has_nothing_left(g)
  end)

  local is_sanitized = os.getenv "ASAN_OPTIONS" or os.getenv "TSAN_OPTIONS"       -- sanitizers allow no preloaded library
  ;(is_sanitized and pending or it)("whose own clock is a year off counts by that of the server", function()
    local server <close> = redis.start()
    local g <close> = start(server.at)
    local off <close> = start(server.at, { clock = 365 * 86400 })
    local me, you = g:client "2026-07-28", off:client "2026-07-28"
    assert.equal("ran", call(you, "hourly"))
    assert.equal("ran", call(me, "hourly"))
    assert.equal("ran", call(you, "hourly"))
    assert.matches("is used up", call(me, "hourly"))
    assert.matches("is used up", call(you, "hourly"))
    me:close()
    you:close()
    assert.has_nothing_left(off)
  end)
end)
