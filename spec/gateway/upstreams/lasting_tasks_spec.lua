-- Tasks of upstreams that outlast what they began with: a reload of the list of upstreams, and the token of their
-- caller.
local cjson = require "cjson.safe"
local exchanging = require "spec.helpers.exchanging"
local task_client = require "spec.helpers.task_client"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local post, result, wait_task = task_client.post, task_client.result, task_client.wait

local function start(revision)
  local u = upstream.start { revision = revision, tasks = true }
  u.handlers.task_hold = function(x) table.insert(u.held, x) end
  u:offer("tools", { '{"name":"task_hold","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}}', "plain" })
  return u
end

local function reload(g, change)
  local file <close> = assert(io.open(g.dir .. "/moonpool.yaml"))
  local config = cjson.decode(file:read "a")
  change(config.upstreams)
  local out <close> = assert(io.open(g.dir .. "/moonpool.yaml", "w"))
  out:write(cjson.encode(config))
  out:close()
  assert.equal(200, g:admin("/reload", "POST").status)
end

local function settled(g) g:wait_status(function(status) return status.gauges.jobs == 0 and status.gauges.upstream_exchanges == 0 end) end

local function wait_cancelled(u, count)
  wait.for_fact("the upstream's task to be cancelled", 20, function()
    u:all {}
    local n = 0
    for _, task in ipairs(u.tasks) do n = n + (task.cancelled and 1 or 0) end
    return n >= count
  end)
end

for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
  describe("a task of an upstream of " .. revision .. ", when the list of upstreams is reloaded", function()
    it("goes on, whatever changes beside its upstream, or of it but for the connection", function()
      local u <close> = start(revision)
      local other <close> = upstream.start { revision = "2025-06-18" }
      local g <close> = upstream.gateway({ one = u }, { workers = 2, config = { scripts = { watch = "false" } } })
      local c <close> = g:client("2026-07-28", { capabilities = task_client.CAN })
      local function begin() return result(g, c, "tools/call", { name = "one_task_hold", arguments = {} }).taskId end
      local ids = { begin() }
      for _, change in ipairs {
        function() end, function(all) all.two = { url = other.url } end, function(all) all.one.timeout = "45s" end,
        function(all) all.one.describe = { task_hold = "Another." } end, function(all) all.two = nil end,
      } do
        reload(g, change)
        ids[#ids + 1] = begin()
      end
      for _, id in ipairs(ids) do assert.equal("working", result(g, c, "tasks/get", { taskId = id }).status) end
      u:wait_held(#ids)
      u:release()
      for _, id in ipairs(ids) do assert.equal("released", wait_task(g, c, id, "completed").result.content[1].text) end
      assert.equal(#ids, u:ran "task_hold")
      settled(g)
    end)

    it("ends honestly when its upstream is removed, or when `scripts.drain` is over", function()
      local u <close> = start(revision)
      local g <close> = upstream.gateway({ one = u }, { workers = 2, config = { scripts = { watch = "false", drain = "1s" } } })
      local c <close> = g:client("2026-07-28", { capabilities = task_client.CAN })
      local id = result(g, c, "tools/call", { name = "one_task_hold", arguments = {} }).taskId
      reload(g, function(all) all.one.describe = { task_hold = "Another." } end)
      assert.is_table(wait_task(g, c, id, "failed").error)
      wait_cancelled(u, 1)
      local second = result(g, c, "tools/call", { name = "one_task_hold", arguments = {} }).taskId
      reload(g, function(all) all.one = nil end)
      assert.is_table(wait_task(g, c, second, "failed").error)
      assert.equal(-32602, post(g, c, "tools/call", { name = "one_task_hold", arguments = {} }).error.code)
      assert.equal(2, u:ran "task_hold")
      settled(g)
    end)
  end)

  describe("a task of an upstream of " .. revision .. " that gets a token of each caller", function()
    it("is asked about, answered and cancelled with the token of its own caller, also with one that was renewed", function()
      local state = {}
      state.on_request = function(x)
        if x.method ~= "tools/list" then return false end
        x:result(x:complete('{"tools":[{"name":"task_hold","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}}]}', true))
        return true
      end
      exchanging.start(state, function(it)
        it.u.handlers.task_hold = function(x) table.insert(it.u.held, x) end
        local people, owner = {}, {}
        for i, sub in ipairs { "ann", "bob", "ann", "bob" } do
          local c = it.client(sub, "2026-07-28", nil, { capabilities = task_client.CAN })
          people[i] = { sub = sub, c = c, id = result(it.g, c, "tools/call", { name = "crm_task_hold", arguments = { who = sub } }).taskId }
        end
        it.u:wait_held(4)
        for _, entry in ipairs(it.u:all { kind = "request", method = "tools/call" }) do assert.equal(entry.json.params.arguments.who, entry.sub) end
        for i, entry in ipairs(it.u:all { kind = "request", method = "tools/call" }) do owner[it.u.tasks[i].id] = entry.sub end
        for token, sub in pairs(it.state.good) do -- the upstream refuses ann's token from now on, so it is got anew
          if sub == "ann" then it.state.good[token] = nil end
        end
        for _, one in ipairs(people) do
          local other = one.sub == "ann" and people[2] or people[1]
          assert.equal("working", result(it.g, one.c, "tasks/get", { taskId = one.id }).status)
          assert.equal(-32602, post(it.g, other.c, "tasks/get", { taskId = one.id }).error.code)
        end
        result(it.g, people[4].c, "tasks/cancel", { taskId = people[4].id })
        wait_cancelled(it.u, 1)
        it.u:release()
        for i = 1, 3 do assert.equal("released", wait_task(it.g, people[i].c, people[i].id, "completed").result.content[1].text) end
        for _, entry in ipairs(it.u:all { kind = "request" }) do
          local id = entry.json.params and entry.json.params.taskId
          if id and entry.sub then assert.equal(owner[id], entry.sub, entry.method) end
        end
        assert.same({ 2, 1 }, { exchanging.asked(it.state, "ann"), exchanging.asked(it.state, "bob") })
        for _, one in ipairs(people) do one.c:close() end
        settled(it.g)
      end, { options = { revision = revision, tasks = true } })
    end)
  end)
end
