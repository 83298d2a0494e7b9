-- The store is in another process, which does not answer. A value that cannot be read is not taken for a value that
-- does not exist.
local host = require "spec.helpers.host"

local scripts = {
  ["tools/keep.lua"] = [[
return tool { "Keep.", input = { what = t.string }, function(args)
  local key = "k"
  local ways = {
    set = function() return store.set(key, 1) end, add = function() return store.add(key, 1) end, get = function() return store.get(key) end,
    delete = function() return store.delete(key) end, incr = function() return store.incr(key) end, list = function() return store.list() end,
    cas = function() return store.cas(key, 1, 2) end, none = function() return store.cas(key, nil, 2) end, table = function() return store.cas(key, {}, 2) end,
  }
  local value, why = ways[args.what]()
  return tostring(value) .. " " .. tostring(why)
end }]],
  ["tools/long.lua"] = 'return tool { "Long.", task = "optional", function() return "done" end }',
  ["tools/extra.lua"] = 'return tool { "Extra.", enabled = false, function() return "here" end }',
  ["tools/switch.lua"] = [[
return tool { "Switch.", input = { on = t.boolean }, function(args)
  (args.on and enable or disable)("tool", "extra")
  return "switched"
end }]],
}

local tasks = { revision = "2026-07-28", capabilities = { extensions = { ["io.modelcontextprotocol/tasks"] = { x = 1 } } } }

for why, gone in pairs { unavailable = true, unknown = "unknown" } do
describe("while the process that has the store does not answer" .. (why == "unknown" and ", and may do what it is asked for" or ""), function()
  local vm
  before_each(function()
    vm = host.start(scripts)
    assert.is_nil(vm.errors, vm.errors and vm.errors[1])
    vm.host.time.now = function() return vm.store.now end
    vm.host.time.sleep = function(seconds) vm.store.now = vm.store.now + seconds end
    vm.host.random.id = function() return ("%036x"):format(1) end
  end)
  after_each(host.stop)

  local function text_of(name, arguments) return vm:tool(name, arguments or {}, { revision = "2026-07-28" }).content[1].text end

  it("every function of the library says that it is unavailable", function()
    assert.equal("true nil", text_of("keep", { what = "set" }))
    vm.store.is_away = true
    for _, what in ipairs { "set", "add", "get", "delete", "incr", "list", "cas", "none", "table" } do
      assert.equal("nil unavailable", text_of("keep", { what = what }), what)
    end
    vm.store.is_away = "unknown"
    for _, what in ipairs { "set", "add", "delete", "incr", "cas", "none", "table" } do
      assert.equal("nil unknown", text_of("keep", { what = what }), what)
    end
    for _, what in ipairs { "get", "list" } do assert.equal("nil unavailable", text_of("keep", { what = what }), what) end
    vm.store.is_away = false
    assert.equal("1.0 nil", text_of("keep", { what = "get" }))
  end)

  -- Runs a call through a policy: "in", or why it is refused.
  local function through(made)
    local frozen = require "moonpool.runtime.frozen"
    local handler = frozen.content(made).spec[1]
    vm.host.call.count_limited = function() end
    local ok, value = pcall(handler, { kind = "tool", name = "it", phase = "prepare" }, function() return "in" end, { name = "p" })
    return ok and value or tostring((frozen.content(value) or { why = value }).why)
  end

  it("a limit and a quota let no call through, and say to try again soon", function()
    local limit = require "moonpool.things.limit"
    local rate, quota = limit.rate { rate = 5, by = "all" }, limit.quota { most = 5, by = "all" }
    assert.equal("in", through(rate))
    assert.equal("in", through(quota))
    vm.store.is_away = gone
    assert.truthy(through(rate):find("too many calls of 'it': try again in a second", 1, true))
    assert.truthy(through(quota):find("the quota of 'it' cannot be counted: try again in a second", 1, true))
    local whys = 0
    for _, line in ipairs(vm.logs) do
      if line.event == "limit not counted" and line.fields.why:find "^the process that has the store d[oi][ed]s? not answer" then whys = whys + 1 end
    end
    assert.equal(2, whys)
  end)

  it("no question of an upstream is put to a client, since it cannot be counted", function()
    local ask, class, principal = require "moonpool.upstream.ask", require "moonpool.upstream.class", require "moonpool.access.principal"
    local counted = 0
    class.allows = function() return true end
    vm.host.http.counted = function(address) return address end
    vm.host.call.count_question = function() counted = counted + 1 end
    local function refusal()
      return ask.refusal({ name = "up" }, { principal = principal.anonymous, address = "192.0.2.1" }, "", { method = "elicitation/create", params = {} }, 0)
    end
    assert.is_nil(refusal())
    vm.store.is_away = gone
    assert.equal("too many questions", refusal())
    assert.equal(1, counted)
    assert.equal("question not counted", vm.logs[#vm.logs].event)
    assert.equal(why, vm.logs[#vm.logs].fields.why)
  end)

  it("a call that needs a token of its upstream ends at once, and says why", function()
    local auth = require "moonpool.upstream.auth"
    local asked, record = 0, { name = "up", auth = { kind = "client_credentials", key = "k" } }
    vm.host.time.clock = vm.host.time.now
    vm.host.job.begin = function() asked = asked + 1 return true end
    vm.store.is_away = gone
    local began = vm.store.now
    local token, failure = auth.token(record)
    assert.is_nil(token)
    assert.same({ "credential", "the store takes no lock for getting a token: " .. why }, { failure.reason, failure.why })
    assert.same({ 0, began }, { asked, vm.store.now })
  end)

  it("a task is not unknown, none begins, and one that ends then has its result afterwards", function()
    local made = vm:call("tools/call", { name = "long", arguments = {} }, tasks)
    vm.store.is_away = gone
    local _, err = vm:call("tasks/get", { taskId = made.taskId }, tasks)
    assert.equal("the tasks cannot be reached for the moment: try again later", err.message)
    assert.equal(err.message, select(2, vm:call("tools/call", { name = "long", arguments = {} }, tasks)).message)
    vm.store.is_away = false
    assert.equal("completed", vm:call("tasks/get", { taskId = made.taskId }, tasks).status)
  end)

  it("a task that ends waits some seconds for it", function()
    vm.host.time.sleep = function(seconds)
      vm.store.now = vm.store.now + seconds
      if vm.store.now > 2 then vm.store.is_away = false end
    end
    local cas = vm.host.store.cas
    vm.host.store.cas = function(...)
      if vm.store.now == 0 then vm.store.is_away = gone end
      return cas(...)
    end
    local made = vm:call("tools/call", { name = "long", arguments = {} }, tasks)
    assert.equal("completed", vm:call("tasks/get", { taskId = made.taskId }, tasks).status)
    assert.is_true(vm.store.now > 2)
  end)

  it("a task that is cancelled is stopped, and its end stores that", function()
    for _, ends in ipairs { "by itself", "by a message" } do
      local job
      vm.host.job.stop = function(it) it.is_stopped = true end
      vm.host.job.spawn = function(call, f)
        job = { run = function() f(setmetatable({}, { __index = call })) end }
        return job
      end
      local made = vm:call("tools/call", { name = "long", arguments = {} }, tasks)
      vm.host.random.id = function() return ("%036x"):format(2) end -- the id of the next MCP task
      vm.host.time.sleep = function() error("not in a message", 0) end
      vm.store.is_away = gone
      vm.moonpool.deliver("task_message", ('{"id":"%s","cancel":true}'):format(made.taskId))
      vm.store.is_away = false
      assert.is_true(job.is_stopped)
      if ends == "by itself" then
        vm.host.call.name_task = function() error("stopped", 0) end -- ends the task where it runs, as the engine does
        assert.is_false(pcall(job.run))
      else
        vm.moonpool.deliver("ended", made.taskId)
      end
      assert.equal("cancelled", vm:call("tasks/get", { taskId = made.taskId }, tasks).status, ends)
    end
  end)

  it("switches stay as they were", function()
    text_of("switch", { on = true })
    assert.truthy(vm:list().extra)
    vm.store.is_away = gone
    require "moonpool.runtime.bus".deliver("missed", "")
    assert.truthy(vm:list().extra)
  end)

  -- From now on a task that sleeps waits for the spec.
  local function let_sleep() vm.host.time.sleep = function(seconds) coroutine.yield(seconds) end end

  it("a switch that cannot be read is read once it answers", function()
    let_sleep()
    assert.truthy(vm:list().keep)
    vm.host.store.set("kept:off:tool:keep", "{}") -- another process has stored the switch
    vm.store.is_away = gone
    require "moonpool.runtime.bus".deliver("switched", "tool:keep")
    require "moonpool.runtime.bus".deliver("missed", "")
    assert.truthy(vm:list().keep)
    assert.equal(1, #vm.jobs)
    assert(coroutine.resume(vm.jobs[1].co))
    assert.truthy(vm:list().keep)
    vm.store.is_away = false
    assert(coroutine.resume(vm.jobs[1].co))
    assert.is_nil(vm.jobs[1].failed)
    assert.is_nil(vm:list().keep)
    assert.equal(1, #vm.jobs)
  end)

  it("what was lost on the way from another process is read once it answers, and told to clients then", function()
    let_sleep()
    assert.truthy(vm:list().keep)
    vm.host.store.set("kept:off:tool:keep", "{}")
    vm.store.is_away = gone
    require "moonpool.runtime.bus".deliver("lost elsewhere", "")
    assert(coroutine.resume(vm.jobs[1].co))
    assert.same({}, vm.published)
    vm.store.is_away = false
    assert(coroutine.resume(vm.jobs[1].co))
    assert.is_nil(vm:list().keep)
    assert.equal(1, #vm.published)
    assert.equal("tools", vm.published[1].topic)
    require "moonpool.runtime.bus".deliver("lost elsewhere", "")
    assert.equal(1, #vm.published)
  end)

  it("an operator's switch waits for it, and so does a worker that follows one", function()
    local operator = require "moonpool.methods.operator"
    vm.host.time.clock = function() return 0 end
    local function ask(what, away)
      local until_then = vm.store.now + 0.2
      vm.host.time.sleep = function(seconds)
        vm.store.now = vm.store.now + seconds
        if away and vm.store.now >= until_then then vm.store.is_away = false end
      end
      vm.store.is_away = gone
      return operator.answer({ what = what, kind = "tool", name = "keep", on = false, by = "someone", is_kept = false })
    end
    assert.is_true(select(2, ask("switch", false)).message:find("the process that has the store does not answer", 1, true) ~= nil)
    assert.truthy(vm:list().keep)
    assert.equal("tool", ask("switch", true).kind)
    assert.is_nil(vm:list().keep)
    assert.equal("complete", ask("follow switch", true).resultType)
    assert.is_false(vm.store.is_away)
  end)
end)
end
