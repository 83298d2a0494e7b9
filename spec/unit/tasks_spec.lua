local host = require "spec.helpers.host"
local json = host.json

local extension = "io.modelcontextprotocol/tasks"
local modern = { capabilities = { extensions = { [extension] = { x = 1 } }, elicitation = { form = { x = 1 } } } }
local legacy = { revision = "2025-11-25", has_session = true, capabilities = { elicitation = { form = { x = 1 } } } }

local scripts = {
  ["tools/plain.lua"] = 'return tool { "Plain.", function() return "plain" end }',
  ["tools/quick.lua"] = 'return tool { "Quick.", task = "optional", poll = 2 * seconds, function(_, call) return call.task or "no task" end }',
  ["tools/must.lua"] = 'return tool { "Must.", task = "required", function() return nil, "it failed" end }',
  ["tools/refused.lua"] = 'return tool { "Refused.", task = "optional", function() fail_request(-32602, "no", { a = 1 }) end }',
  ["tools/bug.lua"] = 'return tool { "Bug.", task = "optional", timeout = 5, function() error "oops" end }',
  ["tools/fields.lua"] = 'return tool { "Fields.", task = "optional", function() return { b = 1, a = json.array {} } end }',
  ["tools/ask.lua"] = [[
return tool { "Ask.", task = "optional", function(_, call)
  call:status "asking"
  local got, whys = call:ask { name = ask.elicit("Name?", { name = t.string }), sure = ask.elicit("Sure?", { yes = t.boolean }), roots = ask.roots() }
  if not got.name then return nil, whys.name end
  call:status "asked"
  local again = call:elicit("name", "And the last name?", { name = t.string })
  return got.name.name .. " " .. again.name .. " " .. tostring(got.sure and got.sure.yes) .. " " .. tostring(whys.roots)
end }]],
  ["tools/prepared.lua"] = [[
return tool {
  "Prepared.", task = "required", input = { n = t.integer { default = 1 } },
  prepare = function(args, call)
    local user, why = call:elicit("user", "Who?", { name = t.string })
    if not user then return nil, why end
    return { name = user.name, n = args.n }
  end,
  function(args, call) return (call.task and "task " or "") .. args.name .. args.n end,
}]],
}

local vm
local function start(files)
  vm = host.start(files or scripts)
  assert.is_nil(vm.errors, vm.errors and vm.errors[1])
  local n = 0
  vm.host.random.id = function()
    n = n + 1
    return ("%036x"):format(n)
  end
  vm.host.time.now = function() return vm.store.now end
end

local function with(fields, more)
  local all = {}
  for name, value in pairs(fields) do all[name] = value end
  for name, value in pairs(more or {}) do all[name] = value end
  return all
end

-- The result of a method, as JSON.
local function read(method, params, fields)
  local result, err = vm:call(method, params, fields)
  return result and json.decode(json.encode(result)), err
end

local function create(name, fields, more)
  local result, err = read("tools/call", with({ name = name, arguments = {}, task = fields.revision and {} or nil }, more), fields)
  return result, err
end

local function topics_told(topic)
  local list = {}
  for _, row in ipairs(vm.published) do
    if row.topic == topic then list[#list + 1] = row end
  end
  return list
end

describe("tools with 'task'", function()
  before_each(function() start() end)
  after_each(host.stop)

  it("make a capability in 2025-11-25, an extension in 2026-07-28, and nothing elsewhere", function()
    local function declared(revision, more)
      return vm:call("initialize", { protocolVersion = revision }, with({ revision = "none", initialized = false }, more)).capabilities
    end
    assert.same({ cancel = {}, requests = { tools = { call = {} } } }, declared("2025-11-25").tasks)
    assert.same({}, declared("2025-11-25", { principal = "ann" }).tasks.list)
    for _, revision in ipairs { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25" } do
      assert.is_nil(declared(revision).extensions)
      if revision ~= "2025-11-25" then assert.is_nil(declared(revision).tasks) end
    end
    local found = vm:call("server/discover", {}).capabilities
    assert.same({ [extension] = {} }, found.extensions)
    assert.is_nil(found.tasks)
    assert.same({ taskSupport = "required" }, vm:list("2025-11-25").must.execution)
    assert.is_nil(vm:list("2025-11-25").plain.execution)
    assert.is_nil(vm:list("2026-07-28").must.execution)
    assert.is_nil(vm:list("2025-06-18").must.execution)
    start { ["tools/plain.lua"] = scripts["tools/plain.lua"] }
    assert.is_nil(declared("2025-11-25").tasks)
    assert.is_nil(vm:call("server/discover", {}).capabilities.extensions)
    assert.equal(-32601, select(2, vm:call("tasks/get", { taskId = "x" }, modern)).code)
    assert.equal("plain", vm:call("tools/call", { name = "plain", task = {} }, legacy).content[1].text)
  end)

  it("run as calls where there are no tasks, or no client asks for one", function()
    for _, revision in ipairs { "2024-11-05", "2025-03-26", "2025-06-18" } do
      assert.equal("no task", create("quick", { revision = revision }).content[1].text)
      assert.equal("it failed", create("must", { revision = revision }).content[1].text)
    end
    assert.equal("no task", vm:tool("quick", {}, legacy).content[1].text)
    assert.equal("no task", vm:call("tools/call", { name = "quick", task = { ttl = 5 } }).content[1].text)
    assert.equal("plain", vm:call("tools/call", { name = "plain", task = { ttl = 5 } }, modern).content[1].text)
    assert.same({}, vm.jobs)
  end)

  it("say so when they need a task, or make none", function()
    local _, err = vm:tool("must", {})
    assert.equal(-32021, err.code)
    assert.equal('{"extensions":{"io.modelcontextprotocol/tasks":{}}}', json.encode(err.data.requiredCapabilities))
    assert.equal(-32601, select(2, vm:tool("must", {}, legacy)).code)
    assert.equal(-32601, select(2, create("plain", legacy)).code)
    for _, task in ipairs { 5, { ttl = "x" }, { ttl = -1 } } do
      assert.equal(-32602, select(2, create("quick", legacy, { task = task })).code)
    end
  end)

  it("check their options", function()
    vm = host.start {
      ["tools/a.lua"] = 'return tool { "A.", task = "sometimes", function() end }',
      ["tools/b.lua"] = 'return tool { "B.", prepare = function() end, function() end }',
      ["tools/c.lua"] = 'return tool { "C.", task = "optional", poll = 0, function() end }',
    }
    assert.equal(3, #vm.errors)
    assert.truthy(vm.errors[1]:find("'task' must be \"optional\" or \"required\"", 1, true))
    assert.truthy(vm.errors[2]:find("'prepare' needs 'task' in the same tool", 1, true))
    assert.truthy(vm.errors[3]:find("'poll' must be", 1, true))
  end)
end)

describe("a task of 2026-07-28", function()
  before_each(function() start() end)
  after_each(host.stop)

  local function get(id, more) return read("tasks/get", { taskId = id }, with(modern, more)) end

  it("is made flat, is there at once, and ends with its result", function()
    local made = create("quick", modern)
    assert.equal("task", made.resultType)
    assert.equal(36, #made.taskId)
    assert.equal("working", made.status)
    assert.equal(3600000, made.ttlMs)
    assert.equal(2000, made.pollIntervalMs)
    assert.truthy(made.createdAt:find "^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%dZ$")
    for _, name in ipairs { "ttl", "pollInterval", "task", "requestState", "inputRequests", "result" } do assert.is_nil(made[name]) end
    local now = get(made.taskId)
    assert.equal("complete", now.resultType)
    assert.equal("completed", now.status)
    assert.equal(made.taskId, now.result.content[1].text)
    assert.equal("complete", now.result.resultType)
    assert.is_nil(now.error)
  end)

  it("is completed by an error that its model reads, failed by an error of the request", function()
    local failed = get(create("must", modern).taskId)
    assert.equal("completed", failed.status)
    assert.is_true(failed.result.isError)
    local refused = get(create("refused", modern).taskId)
    assert.equal("failed", refused.status)
    assert.same({ code = -32602, message = "no", data = { a = 1 } }, refused.error)
    assert.is_nil(refused.result)
    local bug = get(create("bug", modern).taskId)
    assert.equal("completed", bug.status)
    assert.truthy(bug.result.content[1].text:find "^internal error")
    assert.equal(5, vm.jobs[#vm.jobs].seconds)
  end)

  it("asks all it needs at once, by keys it uses once, and takes answers one by one", function()
    local id = create("ask", modern).taskId
    local now = get(id)
    assert.equal("input_required", now.status)
    assert.equal("asking", now.statusMessage)
    assert.equal("Name?", now.inputRequests.name.params.message)
    assert.equal("elicitation/create", now.inputRequests.sure.method)
    assert.is_nil(now.inputRequests.roots)                          -- this client has no capabilities
    local function update(responses)
      local result = read("tasks/update", { taskId = id, inputResponses = responses }, modern)
      assert.equal("complete", result.resultType)
      assert.is_nil(result.taskId)
      return get(id)
    end
    now = update { name = { action = "accept", content = { name = "Ann" } }, other = { action = "accept" } }
    assert.equal("input_required", now.status)
    assert.is_nil(now.inputRequests.name)
    assert.truthy(now.inputRequests.sure)
    now = update { name = { action = "decline" }, sure = { action = "accept", content = { yes = "nonsense" } } }
    assert.is_nil(now.inputRequests.sure)
    assert.equal("Sure?", now.inputRequests["sure-2"].params.message)
    now = update { ["sure-2"] = { action = "decline" } }
    assert.equal("asked", now.statusMessage)
    assert.equal("And the last name?", now.inputRequests["name-2"].params.message)
    assert.is_nil(now.inputRequests.name)
    now = update { ["name-2"] = { action = "accept", content = { name = "Lee" } } }
    assert.equal("completed", now.status)
    assert.equal("Ann Lee nil unsupported", now.result.content[1].text)
    assert.is_nil(now.inputRequests)
    assert.equal(-32602, select(2, read("tasks/update", { taskId = id, inputResponses = 5 }, modern)).code)
    assert.equal("complete", read("tasks/update", { taskId = id, inputResponses = { name = {} } }, modern).resultType)
  end)

  it("is cancelled, and its work with it; a second cancellation is no error", function()
    local id = create("ask", modern).taskId
    for _ = 1, 2 do
      local result = read("tasks/cancel", { taskId = id }, modern)
      assert.equal("complete", result.resultType)
      assert.is_nil(result.status)
      assert.equal("cancelled", get(id).status)
    end
    assert.equal("cancelled by its client", vm.jobs[1].stopped)
    assert.equal("dead", coroutine.status(vm.jobs[1].co))
    assert.is_nil(get(id).error)
  end)

  it("has failed when its time is over before it is done", function()
    local id = create("ask", modern).taskId
    coroutine.close(vm.jobs[1].co)
    local now = get(id)
    assert.equal("failed", now.status)
    assert.equal("the task was ended by the server", now.error.message)
  end)

  it("is known to its owner alone, and for its time", function()
    local mine = create("quick", with(modern, { principal = "ann" })).taskId
    assert.equal("completed", get(mine, { principal = "ann" }).status)
    local random = select(2, get(("0"):rep(36), { principal = "bob" }))
    assert.same({ code = -32602, message = "unknown task" }, random)
    for _, who in ipairs { "bob", "anonymous" } do
      for _, method in ipairs { "tasks/get", "tasks/update", "tasks/cancel" } do
        assert.same(random, select(2, read(method, { taskId = mine, inputResponses = {} }, with(modern, { principal = who }))))
      end
      vm:call("subscriptions/listen", { notifications = { taskIds = { mine } } }, with(modern, { principal = who }))
      assert.same({}, vm.listening)
    end
    vm:call("subscriptions/listen", { notifications = { taskIds = { mine } } }, with(modern, { principal = "ann" }))
    assert.same({ "task:" .. mine }, vm.listening)
    vm.store.now = 3601
    assert.same(random, select(2, get(mine, { principal = "ann" })))
    for _, id in ipairs { json.null, 5, "" } do assert.same(random, select(2, get(id))) end
  end)

  it("needs the extension declared on every request, and has no methods of 2025-11-25", function()
    local id = create("quick", modern).taskId
    for _, method in ipairs { "tasks/get", "tasks/update", "tasks/cancel" } do
      local _, err = read(method, { taskId = id, inputResponses = {} }, { capabilities = {} })
      assert.equal(-32021, err.code)
      assert.equal('{"extensions":{"io.modelcontextprotocol/tasks":{}}}', json.encode(err.data.requiredCapabilities))
    end
    for _, method in ipairs { "tasks/result", "tasks/list" } do assert.equal(-32601, select(2, read(method, { taskId = id }, modern)).code) end
  end)

  it("sends subscribers all of itself at each change", function()
    local id = create("ask", modern).taskId
    read("tasks/cancel", { taskId = id }, modern)
    local rows = topics_told("task:" .. id)
    local last = json.decode(rows[#rows].before .. '"me"' .. rows[#rows].after)
    assert.equal("notifications/tasks", last.method)
    assert.equal("me", last.params._meta["io.modelcontextprotocol/subscriptionId"])
    assert.equal("cancelled", last.params.status)
    local asking = json.decode(rows[2].before .. "1" .. rows[2].after)
    assert.equal("input_required", asking.params.status)
    assert.truthy(asking.params.inputRequests.name)
  end)

  it("is refused where no more run, or the cap of kept tasks is reached", function()
    vm.most_jobs = 0
    assert.equal(-32603, select(2, create("quick", modern)).code)
    vm.most_jobs = 1
    assert.same({}, vm.store.texts)
    vm.host.store.set = function() return nil, "full" end
    assert.equal(-32603, select(2, create("quick", modern)).code)
  end)

  it("begins when what is asked before it is answered", function()
    local first = create("prepared", modern)
    assert.equal("input_required", first.resultType)
    assert.is_nil(first.taskId)
    assert.same({}, vm.jobs)
    local answered = { user = { action = "accept", content = { name = "Al" } } }
    local second = create("prepared", modern, { requestState = first.requestState, inputResponses = answered })
    assert.equal("task", second.resultType)
    assert.is_nil(second.requestState)
    assert.equal("task Al1", get(second.taskId).result.content[1].text)
    local no = create("prepared", modern, { requestState = first.requestState, inputResponses = { user = { action = "decline" } } })
    assert.equal("declined", no.content[1].text)
  end)

  it("gives what the tool returned as it was written", function()
    local id = create("fields", modern).taskId
    local bytes = json.encode(vm:call("tasks/get", { taskId = id }, modern))
    assert.truthy(bytes:find('"structuredContent":{"a":[],"b":1}', 1, true))
  end)
end)

describe("a task of 2025-11-25", function()
  before_each(function() start() end)
  after_each(host.stop)

  local function get(id, more) return read("tasks/get", { taskId = id }, with(legacy, more)) end

  it("is made for as long as is asked and allowed, followed by its session, and its result can be had", function()
    local made = create("quick", legacy, { task = { ttl = 60000 } }).task
    assert.same({ taskId = made.taskId, status = "working", createdAt = made.createdAt, lastUpdatedAt = made.lastUpdatedAt, ttl = 60000,
      pollInterval = 2000 }, made)
    assert.is_true(vm.followed["task:" .. made.taskId])
    assert.equal(60, vm.jobs[1].seconds)
    assert.equal("completed", get(made.taskId).status)
    assert.is_nil(get(made.taskId).result)
    local result = read("tasks/result", { taskId = made.taskId }, legacy)
    assert.same({ content = { { type = "text", text = made.taskId } },
      _meta = { ["io.modelcontextprotocol/related-task"] = { taskId = made.taskId } } }, result)
    assert.equal(3600000, create("quick", legacy, { task = { ttl = 1e12 } }).task.ttl)
    assert.equal(3600000, create("quick", legacy, { task = { ttl = json.null } }).task.ttl)
    assert.equal(1000, create("quick", legacy, { task = { ttl = 0 } }).task.ttl)
    vm.store.now = 61
    assert.equal(-32602, select(2, get(made.taskId)).code)
  end)

  it("has failed when its result is an error, and then gives just that", function()
    local id = create("must", legacy).task.taskId
    assert.equal("failed", get(id).status)
    assert.is_true(read("tasks/result", { taskId = id }, legacy).isError)
    id = create("refused", legacy).task.taskId
    assert.equal("failed", get(id).status)
    assert.same({ code = -32602, message = "no", data = { a = 1 } }, select(2, read("tasks/result", { taskId = id }, legacy)))
    id = create("quick", legacy, { arguments = { x = 1 } }).task.taskId
    assert.equal("failed", get(id).status)
    assert.truthy(read("tasks/result", { taskId = id }, legacy).content[1].text:find("x", 1, true))
  end)

  it("asks its questions on the stream of tasks/result, which waits for the end", function()
    local id = create("ask", legacy).task.taskId
    assert.equal("input_required", get(id).status)
    local answers = { { action = "accept", content = { name = "Ann" } }, { action = "accept", content = { yes = "nonsense" } },
      { action = "accept", content = { name = "Lee" } } }
    vm.host.call.ask = function(_, method, params)
      vm.asked[#vm.asked + 1] = { method = method, params = params }
      return table.remove(answers, 1)
    end
    local result
    local co = coroutine.create(function() result = read("tasks/result", { taskId = id }, legacy) end)
    assert(coroutine.resume(co))
    assert.is_true(vm.last.is_unhurried)
    assert.same({ "Name?", "Sure?", "And the last name?" },
      { vm.asked[1].params.message, vm.asked[2].params.message, vm.asked[3].params.message })
    for _, asked in ipairs(vm.asked) do
      assert.equal(id, asked.params._meta["io.modelcontextprotocol/related-task"].taskId)
    end
    assert.equal("dead", coroutine.status(co))
    assert.equal("Ann Lee nil unsupported", result.content[1].text)
  end)

  it("withdraws a question that is no longer open, and none because the store does not answer for a moment", function()
    local id, withdrawn, found = create("ask", legacy).task.taskId, 0, vm.host.store.get
    local asked = false
    vm.host.call.withdraw = function() withdrawn = withdrawn + 1 end
    vm.host.call.ask = function()
      if asked then return false end
      asked = true
      vm.host.store.get = function() return nil, "unavailable" end
      require "moonpool.runtime.bus".deliver("task", id)
      assert.equal(0, withdrawn)
      vm.host.store.get = function() return nil end
      require "moonpool.runtime.bus".deliver("task", id)
      assert.equal(1, withdrawn)
      vm.host.store.get = found
      return false
    end
    assert(coroutine.resume(coroutine.create(function() read("tasks/result", { taskId = id }, legacy) end)))
    assert.is_true(asked)
  end)

  it("can be cancelled once", function()
    local id = create("ask", legacy).task.taskId
    local now = read("tasks/cancel", { taskId = id }, legacy)
    assert.equal("cancelled", now.status)
    assert.equal(id, now.taskId)
    assert.equal(-32602, select(2, read("tasks/cancel", { taskId = id }, legacy)).code)
    assert.equal("the task was cancelled", select(2, read("tasks/result", { taskId = id }, legacy)).message)
  end)

  it("belongs to its session where no principal is known, and is listed for principals", function()
    local id = create("quick", legacy).task.taskId
    assert.equal(-32602, select(2, get(id, { session_id = "s2" })).code)
    assert.equal(-32601, select(2, read("tasks/list", {}, legacy)).code)
    local ann = with(legacy, { principal = "ann" })
    local ids = {}
    for i = 1, 102 do ids[i] = create("quick", ann).task.taskId end
    create("quick", with(legacy, { principal = "anna" }))
    assert.equal("completed", get(ids[1], { principal = "ann", session_id = "s2" }).status)
    local seen, cursor = {}, nil
    repeat
      local page = read("tasks/list", { cursor = cursor }, ann)
      for _, task in ipairs(page.tasks) do seen[#seen + 1] = task.taskId end
      cursor = page.nextCursor
    until not cursor
    table.sort(ids)
    assert.same(ids, seen)
    assert.equal(-32602, select(2, read("tasks/list", { cursor = "x" }, ann)).code)
  end)

  it("notifies its session of each change", function()
    local id = create("ask", legacy).task.taskId
    local rows = topics_told("task:" .. id)
    local last = json.decode(rows[#rows].plain)
    assert.equal("notifications/tasks/status", last.method)
    assert.equal("input_required", last.params.status)
    assert.equal(id, last.params.taskId)
    assert.is_nil(last.params.inputRequests)
  end)
end)
