-- What one process of an upgraded gateway says reaches the sessions of the others: each at most once, and never at the
-- cost of who says it.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local uv = require "luv"
local upgrading = require "spec.helpers.upgrading"
local task_client = require "spec.helpers.task_client"
local wait = require "spec.helpers.wait"

local token = ("o"):rep(32)
local UPDATED, CHANGED = "notifications/resources/updated", "notifications/tools/list_changed"
local PAGE = "pages://home"

local scripts = {
  ["resources/home.lua"] = 'return resource { "Home.", uri = "pages://home", function() return "home" end }',
  ["tools/touch.lua"] = [[return tool { "Touches.", input = { times = t.integer { default = 1 } }, function(a)
    for _ = 1, a.times do resource_updated "pages://home" end
  end }]],
  ["tools/extra.lua"] = 'return tool { "Extra.", function() return "extra" end }',
  ["tools/toggle.lua"] = [[return tool { "Toggles.", input = { on = t.boolean }, function(a)
    if a.on then enable("tool", "extra") else disable("tool", "extra") end
  end }]],
  ["tools/slow.lua"] = [[return tool { "Slow.", task = "optional", function(_, call)
    call:status "at work"
    while not store.get "go" do sleep(0.05) end
    return "done"
  end }]],
  ["tools/steps.lua"] = [[return tool { "Has steps.", task = "optional", timeout = 120, function(_, call)
    while not store.get "go" do sleep(0.05) end
    call:status "half of it"
    local said, whys = call:ask { name = ask.elicit("Name?", { name = t.string }) }
    return try(said.name, whys.name).name
  end }]],
  ["tools/go.lua"] = 'return tool { "Go.", function() return tostring(store.set("go", "1")) end }',
}

local function start()
  return upgrading.start_quick { scripts = scripts, workers = 2, config = { admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } } } }
end

local function count(stream, method)
  local n = 0
  for _, message in ipairs(stream:messages()) do n = n + (message.method == method and 1 or 0) end
  return n
end

local function call(c, name, arguments) return c:result("tools/call", { name = name, arguments = arguments or {} }) end

-- A client of the newest process, with its stream, that follows the page.
local function member(g)
  local c = g:client "2025-06-18"
  local stream = c:get_stream()
  c:result("resources/subscribe", { uri = PAGE })
  return { client = c, stream = stream }
end

local function close_all(members)
  for _, one in ipairs(members) do
    one.stream:close()
    one.client:close()
  end
end

local function await(members, method, number)
  for i, one in ipairs(members) do
    wait.for_fact(("%s no. %d at the session in process %d"):format(method, number, i), 20, function() return count(one.stream, method) >= number end)
  end
end

local function status(g)
  return client.request(g, { path = "/status", headers = { Authorization = "Bearer " .. token } }, { admin = true }):json()
end

local function has_extra(c)
  for _, tool in ipairs(c:result("tools/list", {}).tools) do
    if tool.name == "extra" then return true end
  end
  return false
end

describe("with sessions in three processes", function()
  it("updates of resources, switches of scripts and of operators reach each session once, from each process", function()
    local g <close> = start()
    local members = {}
    for i = 1, 3 do
      members[i] = member(g)
      if i < 3 then g:must_upgrade_by_signal() end
    end
    assert.equal(2, #g:older())
    for i, one in ipairs(members) do
      call(one.client, "touch")
      await(members, UPDATED, i)
    end
    for i, one in ipairs(members) do
      call(one.client, "toggle", { on = i % 2 == 0 })
      await(members, CHANGED, i)
      for _, other in ipairs(members) do
        wait.for_fact("the list", 20, function() return has_extra(other.client) == (i % 2 == 0) end)
      end
    end
    for i, on in ipairs { true, false, true } do
      if i > 1 then
        local code, _, err = gateway.exec({ "switch", "--admin", "127.0.0.1:" .. g.admin_port, on and "on" or "off", "tool", "extra" },
          { env = { MOONPOOL_ADMIN_TOKEN = token } })
        assert.equal(0, code, err)
      else
        call(members[1].client, "toggle", { on = true })
      end
      await(members, CHANGED, 3 + i)
    end
    call(members[2].client, "touch")
    await(members, UPDATED, 4)
    for _, one in ipairs(members) do assert.same({ 4, 6 }, { count(one.stream, UPDATED), count(one.stream, CHANGED) }) end
    close_all(members)
  end)
end)

describe("a task of an older process", function()
  it("tells its end to who listens in the newest", function()
    local g <close> = start()
    local c <close> = g:client("2026-07-28", { capabilities = task_client.CAN })
    local made = task_client.result(g, c, "tools/call", { name = "slow", arguments = {} })
    g:must_upgrade_by_signal()
    local listening <close> = c:open("subscriptions/listen", { notifications = { taskIds = { made.taskId } } })
    listening:wait_event("notifications/subscriptions/acknowledged", 20)
    local d <close> = g:client "2025-06-18"
    call(d, "go")
    wait.for_fact("the end of the task", 20, function()
      for _, message in ipairs(listening:messages()) do
        if message.method == "notifications/tasks" and message.params.status == "completed" then return true end
      end
    end)
  end)
end)

describe("tasks of two older processes", function()
  it("tell each change once to who listens in the newest, also those that come of an answer", function()
    local g <close> = start()
    local c <close> = g:client("2026-07-28", { capabilities = task_client.CAN })
    local ids = {}
    for i = 1, 2 do
      ids[i] = task_client.result(g, c, "tools/call", { name = "steps", arguments = {} }).taskId
      g:must_upgrade_by_signal()
    end
    c.kept = nil
    local listening <close> = c:open("subscriptions/listen", { notifications = { taskIds = ids } })
    listening:wait_event("notifications/subscriptions/acknowledged", 20)
    local function told(id)
      local found = {}
      for _, message in ipairs(listening:messages()) do
        if message.method == "notifications/tasks" and message.params.taskId == id then found[#found + 1] = message.params.status end
      end
      return table.concat(found, " ")
    end
    local d <close> = g:client "2025-06-18"
    call(d, "go")
    for _, id in ipairs(ids) do
      task_client.wait(g, c, id, "input_required")
      task_client.result(g, c, "tasks/update", { taskId = id, inputResponses = { name = { action = "accept", content = { name = "Ann" } } } })
      task_client.wait(g, c, id, "completed")
    end
    for _, id in ipairs(ids) do
      wait.for_fact(function() return "all changes, not " .. told(id) end, 20, function() return told(id):find "completed" end)
      local asked, ended = select(2, told(id):gsub("input_required", "")), select(2, told(id):gsub("completed", ""))
      assert.same({ 1, 1 }, { asked, ended }, told(id))
      -- "working" comes before each of these; one is missing if it could not be stored while the store was away.
      assert.equal("input_required completed", (told(id):gsub("working ", "", 2)), told(id))
    end
  end)
end)

describe("an older process that stands still", function()
  it("costs the newest nothing; what it has no room for is dropped and counted, and it goes on afterwards", function()
    local g <close> = start()
    local members = { member(g) }
    local old = g.pid
    g:must_upgrade_by_signal()
    members[2] = member(g)
    uv.kill(old, "sigstop")
    local _ <close> = setmetatable({}, { __close = function() uv.kill(old, "sigcont") end })
    for _ = 1, 5 do call(members[2].client, "touch", { times = 4000 }) end
    wait.for_fact("dropped messages", 20, function() return (status(g).counters.dropped.news or 0) > 0 end)
    uv.kill(old, "sigcont")
    local on = false
    wait.for_fact("a switch after it", 20, function()
      call(members[2].client, "toggle", { on = on })
      on = not on
      return count(members[1].stream, UPDATED) > 0 and count(members[1].stream, CHANGED) > 0
    end)
    close_all(members)
  end)
end)
