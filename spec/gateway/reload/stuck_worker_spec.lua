-- A reload while a worker does not turn: the other workers have the new scripts at once, and the stuck worker has them
-- when it turns.
local gateway = require "spec.helpers.gateway"
local blocking = require "spec.helpers.blocking"
local wait = require "spec.helpers.wait"

local function scripts(answer)
  return {
    ["tools/block.lua"] = blocking.tool,
    ["tools/ping.lua"] = ('return tool { "Answers.", function() return %q end }'):format(answer),
  }
end

local function save(g, path, text)
  local file <close> = assert(io.open(g.dir .. "/" .. path, "w"))
  file:write(text)
end

local function answer_with(g, text) save(g, "scripts/tools/ping.lua", scripts(text)["tools/ping.lua"]) end

local function config(values) return require "cjson".encode(values) end

-- Three workers; one of them is stuck in a call of `me`.
local function start(limits)
  local values = { listen = "127.0.0.1:0", admin = { listen = "127.0.0.1:0" }, workers = 3, limits = limits or {},
    scripts = { path = "scripts", trust = "full", watch = false } }
  values.limits.call = { time = "1h", cpu = "1h" }
  local g = gateway.start { constants = { stuck_ms = 500 }, scripts = scripts "first", config = config(values) }
  g.values = values
  g.me = g:client "2026-07-28"
  g.blocked = blocking.open(g, g.me)
  g:wait_status(function(now) return now.gauges.workers_stuck == 1 end, 20)
  return g
end

local function unblock(g)
  blocking.release(g)
  assert.equal("done", g.blocked:answer(20).result.content[1].text)
end

local function release(g)
  unblock(g)
  g:wait_log("thread recovered", {}, 20) -- before this line is logged, a reload does not wait for the worker
end

local function ping(g)
  local me <close> = g:client "2026-07-28"
  return me:result("tools/call", { name = "ping" }).content[1].text
end

local function assert_all_answer(g, text)
  for _ = 1, 20 do assert.equal(text, ping(g)) end
end

describe("a reload while the event loop of one of three workers does not run", function()
  it("reaches the other workers at once; the answer, the log and /status name the worker that serves earlier scripts", function()
    local g <close> = start()
    answer_with(g, "second")
    local response = g:admin("/reload", "POST")
    assert.equal(202, response.status)
    assert.truthy(response.body:find "^~ ping")
    local number = response.body:match "not everywhere yet: worker (%d) serves generation 1 until its loop runs\n"
    assert.truthy(number, response.body)
    assert.same({ { worker = tonumber(number), generation = 1 } }, g:status().scripts.behind)
    assert.equal(2, g:status().scripts.generation)
    local line = g:wait_log("worker not reloaded", { worker = number, generation = 1 })
    assert.equal("warn", line.level)
    assert_all_answer(g, "second")

    -- Further reloads do not wait for the stuck worker either, whatever causes them.
    answer_with(g, "third")
    g:signal "sighup"
    g:wait_log("reloaded", { generation = 3 }, 10)
    assert_all_answer(g, "third")
    assert.equal(200, g:admin("/reload", "POST").status) -- a reload by request, though no file has changed
    for i = 4, 6 do
      answer_with(g, "number " .. i)
      assert.equal(202, g:admin("/reload", "POST").status)
    end
    assert_all_answer(g, "number 6")
    assert.equal(1, g:status().scripts.behind[1].generation)
    -- the earlier generations of the two other workers have ended
    g:wait_status(function(now) return now.gauges.vms_draining <= 2 end)

    release(g)
    g:wait_log("worker reloaded", { worker = number, generation = 6 })
    assert.is_nil(g:status().scripts.behind)
    assert.equal("number 6", g.me:result("tools/call", { name = "ping" }).content[1].text)
    answer_with(g, "last")
    assert.equal(200, g:admin("/reload", "POST").status)
    assert_all_answer(g, "last")
    g.me:close()
    g:wait_status(function(now) return now.gauges.vms == 3 and now.gauges.vms_draining == 0 end)
    assert.has_nothing_left(g)
  end)

  it("notifies the clients of the other workers of new tools", function()
    local g <close> = start()
    local other = g:client "2025-11-25"
    local stream = other:get_stream()
    assert.equal(200, stream:head().status)
    save(g, "scripts/tools/new.lua", 'return tool { "New.", function() return "new" end }')
    assert.equal(202, g:admin("/reload", "POST").status)
    stream.connection:wait_event("notifications/tools/list_changed", 10)
    assert.equal("new", other:result("tools/call", { name = "new" }).content[1].text)
    release(g)
    other:delete()
    other:close()
    g.me:close()
    assert.has_nothing_left(g)
  end)

  it("changes the configuration of the other workers, also several times", function()
    local g <close> = start()
    for i = 1, 3 do
      g.values.limits.calls_in_flight = 100 + i
      save(g, "moonpool.yaml", config(g.values))
      assert.equal(202, g:admin("/reload", "POST").status)
      assert_all_answer(g, "first")
    end
    release(g)
    g:wait_log("worker reloaded", { generation = 4 })
    g.values.limits.calls_in_flight = 200
    save(g, "moonpool.yaml", config(g.values))
    assert.equal(200, g:admin("/reload", "POST").status)
    assert_all_answer(g, "first")
    g.me:close()
    assert.has_nothing_left(g)
  end)

  it("is refused when 32 configurations wait for the stuck worker, and repeated when its loop runs again", function()
    local g <close> = start()
    for i = 1, 33 do
      g.values.limits.calls_in_flight = 100 + i
      save(g, "moonpool.yaml", config(g.values))
      local response = g:admin("/reload", "POST")
      assert.equal(i <= 32 and 202 or 422, response.status)
      if i == 33 then assert.truthy(response.body:find("many changed configurations wait for a worker", 1, true), response.body) end
    end
    assert.equal(33, g:status().scripts.generation)
    release(g)
    g:wait_log("reloaded", { generation = 34 }, 20)
    assert_all_answer(g, "first")
    g.me:close()
    g:wait_status(function(now) return now.gauges.vms == 3 and now.gauges.vms_draining == 0 end)
    assert.has_nothing_left(g)
  end)

  it("refuses scripts with errors", function()
    local g <close> = start()
    save(g, "scripts/tools/ping.lua", "return tool {")
    assert.equal(422, g:admin("/reload", "POST").status)
    assert.is_nil(g:status().scripts.behind)
    assert_all_answer(g, "first")
    release(g)
    g.me:close()
  end)

  it("does not delay SIGTERM, also while the reload waits", function()
    for _, waits in ipairs { true, false } do
      local g = start { drain = "300ms" }
      local ok <close> = setmetatable({}, { __close = function() g.me:close() end }) -- luacheck: ignore 211
      answer_with(g, "second")
      if waits then
        g:signal "sighup"
        wait.for_fact("the other workers to have the new scripts", 20, function() return ping(g) == "second" end)
      else
        assert.equal(202, g:admin("/reload", "POST").status)
      end
      g:signal "sigterm"
      assert.same({ 1, 0 }, { g:wait_exit(10) })
      assert.truthy(g:log():find('ended by force   thread="worker %d"'), g:log())
    end
  end)

  it("ends when the worker has switched, if the worker's loop runs again soon after SIGTERM", function()
    local g = start { drain = "20s" }
    answer_with(g, "second")
    assert.equal(202, g:admin("/reload", "POST").status)
    g:signal "sigterm"
    g:wait_log "draining"
    unblock(g)
    assert.equal(0, (g:wait_exit(20)))
    g.me:close()
  end)
end)
