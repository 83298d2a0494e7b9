-- What a reload leaves behind: calls end on the scripts they began with (B-87), sessions and streams stay (B-88), and
-- no old Lua state outlives its calls or its deadline (B-90).
local gateway = require "spec.helpers.gateway"
local memory = require "spec.helpers.memory"
local wait = require "spec.helpers.wait"

local function tool(version, body)
  return ([[local version = %q return tool { "Waits.", function(_, call) %s return version end }]]):format(version, body or "")
end
local waits = "call:progress(1) sleep(30)"

local function write(g, path, text)
  local file <close> = assert(io.open(g.dir .. "/scripts/" .. path, "wb"))
  file:write(text)
end

local function reload(g)
  local response = g:admin("/reload", "POST")
  assert.equal(200, response.status, response.body)
  return response.body
end

local function begin(c)
  local stream = c:open("tools/call", { name = "one", _meta = { progressToken = 1 } })
  return stream:wait "notifications/progress"
end

local function start(options)
  options.config = options.config or {}
  options.config.scripts = options.config.scripts or {}
  options.config.scripts.watch = "false"
  return gateway.start(options)
end

describe("calls under way at a reload", function()
  it("end on their scripts, each of three generations, whose states go with the last of them (B-87)", function()
    local version = [[call:progress(1) while not store.get "done" do sleep(0.01) end]]
    local g <close> = start { scripts = { ["tools/one.lua"] = tool("1", version), ["tools/done.lua"] = tool("done", 'store.set("done", true)') } }
    local c <close>, streams = g:client "2026-07-28", {}
    for n = 1, 3 do
      streams[n] = begin(c)
      write(g, "tools/one.lua", tool(tostring(n + 1), version))
      reload(g)
    end
    assert.is_true(g:status().gauges.vms > 2)
    c:result("tools/call", { name = "done" })
    for n = 1, 3 do assert.equal(tostring(n), streams[n]:answer().result.content[1].text) end
    assert.equal("4", c:result("tools/call", { name = "one" }).content[1].text)
    g:wait_status(function(status) return status.gauges.vms == 2 and status.gauges.vms_draining == 0 end)
    c:close()
    assert.has_nothing_left(g)
  end)

  it("are ended at scripts.drain, with an error, and so is background work (B-90)", function()
    local g <close> = start { scripts = { ["tools/one.lua"] = tool("1", waits), ["tools/later.lua"] = [[
return tool { "Later.", task = "optional", function() sleep(60) return "late" end }]] }, config = { scripts = { drain = "200ms" } } }
    local c <close> = g:client "2026-07-28"
    local old <close> = g:client "2025-11-25"
    local stream = begin(c)
    local task = old:result("tools/call", { name = "later", task = { ttl = 60000 } }).task
    assert.equal("working", task.status)
    g:wait_status(function(status) return status.gauges.jobs == 1 end)
    write(g, "tools/one.lua", tool "2")
    reload(g)
    assert.same({ code = -32603, message = "the scripts of this call were replaced by a reload: call again" }, stream:answer().error)
    local status = g:wait_status(function(now) return now.gauges.vms == 2 and now.gauges.jobs == 0 end)
    assert.equal(2, status.counters.tool_aborted.reload)
    assert.not_equal("working", old:result("tasks/get", { taskId = task.taskId }).status)
    old:delete()
    old:close()
    c:close()
    assert.has_nothing_left(g)
  end)

  it("are ended when there are more than 16 generations, the oldest first (B-90)", function()
    local g <close> = start { workers = 1, scripts = { ["tools/one.lua"] = tool("1", waits) }, constants = { generations = 2 } }
    local c <close>, streams = g:client "2026-07-28", {}
    for n = 1, 4 do
      streams[n] = begin(c)
      write(g, "tools/one.lua", tool(tostring(n + 1), waits))
      reload(g)
    end
    for n = 1, 2 do assert.truthy(streams[n]:answer().error.message:find("replaced by a reload", 1, true)) end
    local status = g:wait_status(function(now) return now.gauges.vms == 3 and now.gauges.vms_draining == 2 end)
    assert.equal(2, status.counters.tool_aborted.reload)
    for n = 3, 4 do streams[n]:hang_up() end
    g:wait_status(function(now) return now.gauges.vms == 1 end)
    c:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a hundred sessions and idle streams", function()
  it("stay through a hundred reloads, and leave no states and no memory (B-88, B-90)", function()
    local g <close> = start { env = memory.environment(), scripts = { ["tools/one.lua"] = tool "1" }, config = { sessions = { replay = { events = 8 } } } }
    local function at_rest() -- /status reads lua_bytes before vms, so once more after the last old state has gone
      g:wait_status(function(now) return now.gauges.vms == 2 end)
      return g:status()
    end
    local all, first = {}, nil
    for i = 1, 100 do
      all[i] = g:client(i % 2 == 0 and "2025-11-25" or "2024-11-05")
      all[i].own = all[i].stream or all[i]:get_stream().connection
      all[i].own:read_head()
    end
    for n = 2, 100 do
      write(g, "tools/one.lua", tool(tostring(n)))
      assert.equal("~ one (code)\n", reload(g))
      if n == 20 then first = { bytes = at_rest().gauges.lua_bytes, rss = memory.resting(g) } end
    end
    local status = at_rest()
    assert.equal(100, status.scripts.generation)
    assert.is_true(status.gauges.lua_bytes < first.bytes * 1.1, status.gauges.lua_bytes .. " " .. first.bytes)
    memory.assert_returned(g, first.rss)
    for _, c in ipairs(all) do
      assert.equal("100", c:result("tools/call", { name = "one" }).content[1].text)
      assert.is_false(c.own:is_closed_by_peer())
      for _, message in ipairs(c.own:messages()) do assert.is_nil(message.method) end
    end
    assert.same({ 50, 50 }, { status.gauges.sessions.sse, status.gauges.sessions.http })

    write(g, "tools/one.lua", tool "100") -- writes the same content again
    assert.equal("nothing changed\n", reload(g))
    assert.equal(100, g:status().scripts.generation)
    for _, c in ipairs(all) do
      if c.delete then c:delete() end
      c:close()
    end
    assert.has_nothing_left(g)
  end)
end)

describe("lists that change", function()
  it("are notified once per reload to clients that can see them, and a burst of saves is one reload (B-89)", function()
    local g <close> = gateway.start { scripts = { ["tools/one.lua"] = tool "1" } }
    local told = {}
    for i = 1, 5 do
      local c = g:client(i % 2 == 0 and "2025-11-25" or "2024-11-05")
      c.own = c.stream or c:get_stream().connection
      c.own:read_head()
      told[#told + 1] = c
    end
    local before = g:client("2024-11-05", { initialize = false }) -- this client has not even sent `initialize`
    local modern <close> = g:client "2026-07-28"
    local tools = modern:open("subscriptions/listen", { notifications = { toolsListChanged = true } }):wait "notifications/subscriptions/acknowledged"
    local prompts = modern:open("subscriptions/listen", { notifications = { promptsListChanged = true } }):wait "notifications/subscriptions/acknowledged"
    local function count(stream)
      local n = 0
      for _, message in ipairs(stream:messages()) do n = n + (message.method == "notifications/tools/list_changed" and 1 or 0) end
      return n
    end
    for i = 1, 50 do write(g, ("tools/more%d.lua"):format(i), tool "more") end
    g:wait_log("reloaded", { generation = 2 })
    for n = 1, 100 do
      write(g, "tools/last.lua", ('return tool { "Number %d.", function() end }'):format(n))
      wait.quietly(0.004)
    end
    wait.for_fact("the last save to be told", 20, function()
      return modern:result("tools/list").tools[1].description == "Number 100."
    end)
    -- the first worker lists it before /status has the generation, which changes once all workers have it
    assert.equal(200, g:admin("/reload", "POST").status)
    local most = g:wait_status(function(now) return now.gauges.vms == 2 end).scripts.generation - 1
    assert.is_true(most <= 3, most .. " reloads for a burst")
    for _, c in ipairs(told) do
      wait.for_fact("every notice", 20, function() return count(c.own) >= most end)
    end
    wait.for_fact("the listener's notices", 20, function() return count(tools) >= most end)
    wait.quietly(0.05)
    for _, c in ipairs(told) do assert.equal(most, count(c.own)) end
    assert.equal(most, count(tools))
    assert.equal(0, count(prompts))
    assert.equal(0, count(before.stream))
    for _, c in ipairs(told) do
      if c.delete then c:delete() end
      c:close()
    end
    before:close()
    modern:close()
    assert.has_nothing_left(g)
  end)
end)
