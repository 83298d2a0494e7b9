-- Lists and switches that interrupt each other. The engine can preempt Lua code at any instruction; here a hook runs
-- one of the two inside the other, before each instruction in turn. What C does is one step, so the imitations of C are
-- not interrupted.
local host = require "spec.helpers.host"

local scripts = {
  ["tools/open.lua"] = 'return tool { "Open.", function() return "open" end }',
  ["tools/flips.lua"] = 'return tool { "Flips.", function() return "flips" end }',
  ["tools/other.lua"] = 'return tool { "Flips, too.", enabled = false, function() return "other" end }',
  ["tools/scoped.lua"] = 'return tool { "Scoped.", scopes = { "ops" }, function() return "scoped" end }',
  ["prompts/open.lua"] = 'return prompt { "Open.", "hello" }',
  ["prompts/shown.lua"] = 'return prompt { "Shown to one.", visible = function(p) return p.id == "boss" end, "hello" }',
  ["resources/open.lua"] = 'return resource { "Open.", uri = "x:open", "text" }',
  ["resources/flips.lua"] = 'return resource { "Flips.", uri = "x:flips", "text" }',
  ["resources/any.lua"] = 'return resource { "Any.", uri = "x:{id}/a", scopes = { "ops" }, function(vars) return vars.id end }',
}

-- No list of these differs between principals, so C may keep the answers.
local public = {}
for _, path in ipairs { "tools/open.lua", "tools/flips.lua", "tools/other.lua", "resources/flips.lua" } do public[path] = scripts[path] end

local REVISION <const> = "2026-07-28"
local boss, guest = { id = "boss", scopes = { "ops" } }, { id = "guest" }

-- True if the function that the hook interrupts is of the folders that hold the lists, the rights and the MCP tasks.
-- The others of the library share no state with these.
local folders = { registry = true, access = true, methods = true, tasks = true }
local function is_library() return folders[debug.getinfo(3, "S").source:match "lua/moonpool/(%w+)/"] or false end

-- Runs f() as a coroutine and, before its n-th instruction, `between`, unless that instruction is of another folder.
-- Returns true unless f has fewer instructions, and whether `between` ran.
local function interrupted(n, f, between)
  local is_reached, has_run = false, false
  local co = coroutine.create(f)
  debug.sethook(co, function()
    is_reached = true
    debug.sethook(co)
    if not is_library() then return end
    has_run = true
    between()
  end, "", n)
  local ok, why = coroutine.resume(co)
  assert(ok, why)
  assert.equal("dead", coroutine.status(co))
  return is_reached, has_run
end

local function names(vm, method, member, name, who)
  local result, err = vm:read(method, {}, { principal = who, revision = REVISION })
  assert.is_nil(err)
  local list = {}
  for i, entry in ipairs(result[member]) do list[i] = entry[name] end
  return table.concat(list, " ")
end

local function tools(vm, who) return names(vm, "tools/list", "tools", "name", who) end

-- The lists, each as a set of names that a principal may see and a set that it must see.
local function check_rights(vm, first, second)
  for _, who in ipairs { first, second } do
    local is_boss = who == boss
    local seen = " " .. tools(vm, who) .. " "
    assert.truthy(seen:find(" open ", 1, true))
    assert.equal(is_boss, seen:find(" scoped ", 1, true) ~= nil)
    assert.equal(is_boss and "open shown" or "open", names(vm, "prompts/list", "prompts", "name", who))
    assert.equal(is_boss and "x:{id}/a" or "", names(vm, "resources/templates/list", "resourceTemplates", "uriTemplate", who))
    assert.truthy(names(vm, "resources/list", "resources", "uri", who):find "x:open")
  end
end

describe("a list and a switch that interrupt each other at any instruction", function()
  after_each(host.stop)

  -- Calls visit(n) for each instruction n until it returns false.
  local function each_instruction(visit)
    local n = 1
    while visit(n) do n = n + 1 end
    assert.is_true(n > 100, "few instructions: " .. n)
  end

  it("show each principal what it may see, while a switch is interrupted by lists", function()
    local vm = host.start(scripts)
    local switches = require "moonpool.registry.switches"
    local is_on = true
    each_instruction(function(n)
      is_on = not is_on
      local first, second = n % 4 < 2 and boss or guest, n % 4 < 2 and guest or boss
      local function flip() switches[is_on and "enable" or "disable"]("tool", "flips") end
      local more = interrupted(n, flip, function() check_rights(vm, first, second) end)
      assert.equal(is_on and "flips open" or "open", tools(vm, guest))
      assert.equal(is_on and "flips open scoped" or "open scoped", tools(vm, boss))
      check_rights(vm, second, first)
      return more
    end)
  end)

  -- Ends the running task before its n-th instruction, as the engine does. Returns true unless it has fewer.
  local function cancelled_at(n, f)
    local co, is_reached = coroutine.create(f), false
    debug.sethook(co, function()
      is_reached = true
      debug.sethook(co)
      error("cancelled", 0)
    end, "", n)
    coroutine.resume(co)
    coroutine.close(co)
    return is_reached
  end

  it("are told to clients, whenever the task of a switch is cancelled", function()
    local vm = host.start(public)
    local switches, registry = require "moonpool.registry.switches", require "moonpool.registry.registry"
    local is_on, changed = true, 0
    local ways = {
      function() switches[is_on and "disable" or "enable"]("tool", "flips") end,
      function() switches.operate("tool", "flips", not is_on, "{}") end,
    }
    for _, switch in ipairs(ways) do
      each_instruction(function(n)
        vm.published, vm.jobs = {}, {}
        local more = cancelled_at(n, switch)
        registry.refresh() -- as each worker does at the message "switched"
        local now = registry.is_on("tool", registry.all("tool").flips)
        if now ~= is_on then
          changed = changed + 1
          assert.is_true(vm.published[1] ~= nil and vm.published[1].topic == "tools", "no client is told: cancelled at " .. n)
        end
        is_on = now
        return more
      end)
    end
    assert.is_true(changed > 50, "few cancelled tasks had switched: " .. changed)
  end)

  it("leave no old list behind, while a list is interrupted by a switch", function()
    for _, set in ipairs { public, scripts } do
      local vm = host.start(set)
      local switches = require "moonpool.registry.switches"
      local is_on, kept = true, 0
      each_instruction(function(n)
        local function flip()
          is_on = not is_on
          switches[is_on and "enable" or "disable"]("tool", "flips")
        end
        -- a further switch, so that no list is in the cache
        switches[n % 2 == 0 and "enable" or "disable"]("tool", "other")
        local more = interrupted(n, function() tools(vm, guest) end, flip)
        local answer = vm.frozen["tools/list " .. REVISION .. " "]
        if answer then
          kept = kept + 1
          assert.equal(is_on, answer:find('"flips"', 1, true) ~= nil, "an old list is kept as bytes")
        end
        assert.equal((is_on and "flips open" or "open") .. (n % 2 == 0 and " other" or ""), tools(vm, guest))
        return more
      end)
      assert.equal(set == public, kept > 0)
    end
  end)

  it("leave no old text behind, while a read is interrupted by the switch of the resource", function()
    local vm = host.start(public)
    local switches = require "moonpool.registry.switches"
    each_instruction(function(n)
      switches.enable("resource", "flips")
      local more, has_run = interrupted(n, function() vm:call("resources/read", { uri = "x:flips" }) end, function()
        switches.disable("resource", "flips")
      end)
      if has_run then
        assert.is_nil(vm.frozen["resources/read " .. REVISION .. " x:flips"])
        assert.is_nil((vm:call("resources/read", { uri = "x:flips" })))
      end
      return more
    end)
  end)

  it("end with both switches, while one is interrupted by another, of the same thing and of others", function()
    local vm = host.start(public)
    local switches = require "moonpool.registry.switches"
    for _, name in ipairs { "other", "flips" } do
      each_instruction(function(n)
        switches.enable("tool", "flips")
        switches.disable("tool", "other")
        local during
        local more, has_run = interrupted(n, function() switches.disable("tool", "flips") end, function()
          switches.enable("tool", name)
          during = " " .. tools(vm, guest) .. " "
        end)
        local function is_listed(it) return (" " .. tools(vm, guest) .. " "):find(" " .. it .. " ", 1, true) ~= nil end
        if not has_run then return more end
        assert.truthy(during:find(" " .. name .. " ", 1, true), "the list is not right at once")
        assert.equal(switches.is_on("tool", { name = "flips" }), is_listed "flips")
        assert.equal(name == "other", is_listed "other")
        for _, row in ipairs(vm.plans) do assert.is_true(is_listed(row.name)) end
        return true
      end)
    end
  end)

  it("are right after a switch whose task is cancelled at any instruction, once the message of the switch has arrived", function()
    local vm = host.start(public)
    local switches = require "moonpool.registry.switches"
    local sent = {}
    vm.host.bus.broadcast = function(topic, text) sent[#sent + 1] = { topic, text } end
    each_instruction(function(n)
      local wants = n % 2 == 0
      switches[wants and "disable" or "enable"]("tool", "flips")
      sent = {}
      local gone = {}
      local more = interrupted(n, function()
        local ok, why = pcall(switches[wants and "enable" or "disable"], "tool", "flips")
        assert(ok or why == gone, why)
      end, function() error(gone, 0) end)
      for _, message in ipairs(sent) do vm.moonpool.deliver(message[1], message[2]) end
      assert.equal(switches.is_on("tool", { name = "flips" }), tools(vm, guest):find("flips", 1, true) ~= nil)
      return more
    end)
  end)
end)

-- Each MCP task here has a job that the spec runs, so that it can be interrupted.
describe("an MCP task whose job is interrupted at any instruction", function()
  local extension = "io.modelcontextprotocol/tasks"
  local as_client = { revision = REVISION, capabilities = { extensions = { [extension] = { x = 1 } } } }
  local final = { completed = true, failed = true, cancelled = true }
  local vm, job, id, published, gone

  -- Keeps the rule that the status of a record which has ended does not change, at every write to the store.
  local function guard(write)
    return function(key, ...)
      local before = vm.store.texts[key]
      local was = before and before:match '"status":"(%a+)"'
      local ok, why = write(key, ...)
      if final[was] then assert.equal(before, vm.store.texts[key], "a record that has ended has changed") end
      return ok, why
    end
  end

  local function status(of) return (vm.store.texts["task:" .. of] or ""):match '"status":"([%a_]+)"' end

  before_each(function()
    vm = host.start { ["tools/quick.lua"] = 'return tool { "Quick.", task = "optional", function(_, call) sleep(1) call:status "at work" return "ok" end }' }
    vm.host.store.set = guard(vm.host.store.set)
    vm.host.store.cas = guard(vm.host.store.cas)
    vm.host.time.now = function() return 0 end
    vm.host.job.stop = function(it) it.stopped = true end
    vm.host.job.spawn = function(call, f)
      job = { call = setmetatable({}, { __index = call }), f = f }
      return job
    end
    local n = 0
    vm.host.random.id = function()
      n = n + 1
      id = ("%036x"):format(n)
      return id
    end
    vm.host.topic.publish = function(_, _, before) published[#published + 1] = before:match '"status":"([%a_]+)"' end
    gone = {}
  end)
  after_each(host.stop)

  local function create()
    job, published, vm.slept = nil, {}, {}
    return vm:call("tools/call", { name = "quick" }, as_client)
  end

  local function cancel() vm.moonpool.deliver("task_message", '{"id":"' .. id .. '","cancel":true}') end

  local function run_job() pcall(job.f, job.call) end

  -- Ends the coroutine as the engine ends a task: the instruction that was preempted still runs, the next one raises an
  -- error.
  local function kill(co)
    debug.sethook(co, function()
      debug.sethook(co)
      -- outside of lua/moonpool, the job is over already
      if debug.getinfo(2, "S").source:find("lua/moonpool", 1, true) then error(gone, 0) end
    end, "", 1)
  end

  local function each_instruction(visit)
    local n = 1
    while visit(n) do n = n + 1 end
    assert.is_true(n > 100, "few instructions: " .. n)
  end

  local function check_end(first)
    local now = status(id)
    assert.is_true(final[now], "the record is " .. tostring(now) .. " for ever")
    if first then assert.equal(first, now) end
    assert.truthy((" " .. table.concat(published, " ") .. " "):find(" " .. now .. " ", 1, true), "no notification of the end")
  end

  it("keeps its first end, while a message cancels it", function()
    for _, kills in ipairs { false, true } do
      each_instruction(function(n)
        create()
        local first, co
        local more, has_run = interrupted(n, function()
          co = coroutine.running()
          run_job()
        end, function()
          cancel()
          first = status(id)
          assert.is_true(final[first])
          if kills then kill(co) end
        end)
        check_end(has_run and first or nil)
        return more
      end)
    end
  end)

  it("has ended after its job is killed", function()
    local seen = {}
    each_instruction(function(n)
      create()
      local co
      local more = interrupted(n, function()
        co = coroutine.running()
        run_job()
      end, function()
        if #vm.slept > 0 then kill(co) end -- before the first sleep, the job has not begun
      end)
      check_end()
      seen[status(id)] = true
      return more
    end)
    assert.is_true(seen.completed and seen.failed)
  end)

  it("is removed or runs, if the call that creates it is killed", function()
    each_instruction(function(n)
      id = ""
      local co
      local more = interrupted(n, function()
        co = coroutine.running()
        pcall(create)
      end, function() kill(co) end)
      if job then run_job() end
      local now = status(id)
      assert.is_true(now == nil or final[now], "the record is " .. tostring(now) .. " for ever")
      return more
    end)
  end)

  it("wakes every waiter, while waiters come and leave", function()
    create()
    local tasks = require "moonpool.tasks.tasks"
    local call = vm:new_call("tasks/get", {}, as_client)
    local function wait_briefly() assert.is_true(tasks.await(call, id, nil, function() return true end)) end
    local n = 1
    repeat
      local is_woken = false
      local more = interrupted(n, function()
        tasks.await(call, id, nil, function()
          vm.moonpool.deliver("task", id)
          return true
        end, function() is_woken = true end)
      end, wait_briefly)
      assert.is_true(is_woken)
      local may_end = false
      local waiter = coroutine.create(function() return tasks.await(call, id, nil, function() return may_end or nil end) end)
      local _, has_run = interrupted(n, wait_briefly, function() assert(coroutine.resume(waiter)) end)
      if has_run then
        assert.equal("suspended", coroutine.status(waiter))
        may_end = true
        vm.moonpool.deliver("task", id)
        assert.equal("dead", coroutine.status(waiter))
      end
      n = n + 1
    until not more
    assert.is_true(n > 30, "few instructions: " .. n)
  end)
end)

describe("a table that an auth script changes for another request, at any instruction", function()
  after_each(host.stop)

  it("gives no principal the rights of another afterwards", function()
    local vm = host.start { ["auth/shared.lua"] = [[
      local shared = { id = "x", scopes = {} }
      return auth { function(request)
        shared.id, shared.scopes[1] = request.bearer, request.bearer == "boss" and "ops" or "none"
        return shared
      end }]] }
    local function id_of(who)
      local seat = vm.moonpool.authenticate { bearer = who, headers = {} }
      return seat and seat.who
    end
    local n, principal = 1, require "moonpool.access.principal"
    repeat
      local a, b = "guest" .. n, "boss"
      local more = interrupted(n, function() id_of(a) end, function() id_of(b) end)
      for _, who in ipairs { a, b } do
        local p = id_of(who)
        assert.equal(who, p.id)
        assert.equal(who == "boss", (principal.allows(p, { "ops" })))
      end
      n = n + 1
    until not more
    assert.is_true(n > 100, "few instructions: " .. n)
  end)
end)

