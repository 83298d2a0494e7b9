-- The rooms of the store: whatever a client or a script fills, what the operator orders and what other callers use goes
-- on. Each way to fill one is a row of `ways`.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local task_client = require "spec.helpers.task_client"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"

local scripts = {
  ["auth/main.lua"] = [[return auth { function(request) if request.bearer then return { id = request.bearer } end end }]],
  ["tools/fill.lua"] = [[return tool { "Fills the store.", function()
    local n, done = 0, nil
    for _, size in ipairs { 2000, 100, 1 } do
      repeat
        done = store.set("k" .. n, ("x"):rep(size))
        n = n + 1
      until not done
    end
    return "full" end }]],
  ["tools/ping.lua"] = 'return tool { "Answers.", input = { what = t.optional(t.string) }, function() return "pong" end }',
  ["tools/twice.lua"] = 'return tool { "Answers twice.", function() return "pong" end }',
  ["tools/daily.lua"] = 'return tool { "Answers twice a month.", function() return "pong" end }',
  ["tools/near.lua"] = 'return tool { "Answers each address once.", function() return "pong" end }',
  ["tools/large.lua"] = [[return tool { "A large task.", task = "optional", function() return ("x"):rep(100000) end }]],
  ["tools/harmful.lua"] = 'return tool { "Harms.", function() return "harm" end }',
  ["jobs/often.lua"] = 'return job { "Often.", every = 0.1, function() log.info "job ran" end }',
  ["policy/twice.lua"] = 'return limit { tools = { "twice" }, rate = 2, per = 1 * hours }',
  ["policy/daily.lua"] = 'return quota { tools = { "daily" }, most = 2, per = "month" }',
  ["policy/near.lua"] = 'return limit { tools = { "near" }, rate = 1, per = 1 * hours, by = "address" }',
  ["policy/address.lua"] = 'return limit { tools = { "ping" }, rate = 5, per = 1 * hours, by = "address" }',
  ["policy/month.lua"] = 'return quota { tools = { "ping" }, most = 5, per = "month", by = "address" }',
  ["policy/choice.lua"] = [[return quota { tools = { "ping" }, most = 5, per = "month", by = function(call) return call.args.what or call.address end }]],
}

local FLOOD <const> = 1100     -- entries: more than the smallest room of the store holds

local function config_of(more)
  local config = { listen = { address = "127.0.0.1:0", trusted_proxies = { "127.0.0.1" } }, store = { entries = 1000, bytes = "2MiB" } }
  for name, value in pairs(more or {}) do config[name] = value end
  return config
end

-- A client of the principal `name`, whose requests are from `c.address`.
local function caller(g, name, revision)
  local c = g:client(revision or "2026-07-28", { capabilities = task_client.CAN, token = name })
  local headers = c.headers
  function c:headers(message)
    local all = headers(self, message)
    all["X-Forwarded-For"] = self.address
    return all
  end
  return c
end

local function say(c, tool, arguments) return c:result("tools/call", { name = tool, arguments = arguments }).content[1].text end

local function address(i) return ("2001:db8:%x:%x::1"):format(i // 65536, i % 65536) end

local ways = {
  ["a script's loop of store.set"] = function(_, c) assert.equal("full", say(c, "fill")) end,
  ["addresses of one IPv6 network"] = function(_, c)
    for i = 1, FLOOD do
      c.address = address(i)
      assert.equal("pong", say(c, "ping", {}))
    end
    c.address = nil
  end,
  ["values that a caller chooses"] = function(_, c)
    for i = 1, FLOOD do
      c.address = address(i % 400)
      assert.equal("pong", say(c, "ping", { what = ("v"):rep(300) .. i }))
    end
    c.address = nil
  end,
  ["finished tasks of one client"] = function(g, c)
    local refused
    for _ = 1, 100 do
      local answer = task_client.post(g, c, "tools/call", { name = "large", arguments = {} })
      refused = answer.error ~= nil or task_client.wait_end(g, c, answer.result.taskId) == "failed"
      if refused then break end
    end
    assert.is_true(refused, "100 tasks of one client, and room for more")
  end,
}

function task_client.wait_end(g, c, id)
  local status
  wait.for_fact("the end of a task", 20, function()
    status = task_client.result(g, c, "tasks/get", { taskId = id }).status
    return status ~= "working"
  end)
  return status
end

local function runs_of_job(g) return select(2, g:log():gsub("job ran", "")) end

-- Asserts what must work for the principal `who` however full a room is.
local function goes_on(g, who)
  local c <close> = caller(g, who)
  for _, tool in ipairs { "twice", "daily" } do
    assert.equal("pong", say(c, tool))
    assert.equal("pong", say(c, tool))
    assert.matches("try again in", say(c, tool))
  end
  local made = task_client.result(g, c, "tools/call", { name = "large", arguments = {} })
  assert.equal("completed", task_client.wait_end(g, c, made.taskId))
  local session <close> = caller(g, who, "2025-06-18")
  assert.equal("harm", say(session, "harmful"))
  local before = runs_of_job(g)
  wait.for_fact("two more runs of the job", 20, function() return runs_of_job(g) >= before + 2 end)
  for _, path in ipairs { "/healthz", "/status", "/metrics" } do assert.equal(200, g:admin(path).status) end
  local code, out, err = gateway.exec({ "switch", "--admin", "127.0.0.1:" .. g.admin_port, "off", "tool", "harmful" }, { seconds = 30 })
  assert.equal(0, code, out .. err)
  assert.is_truthy(c:call("tools/call", { name = "harmful", arguments = {} }).error)
end

local function rooms(g)
  local status = g:status()
  return status.gauges.store_room_entries, status.counters.store_room_refused
end

describe("a store that is filled by", function()
  for what, fill in pairs(ways) do
    it(what .. " takes nothing from the operator and from other callers", function()
      local g <close> = gateway.start { workers = 1, scripts = scripts, config = config_of() }
      do
        local mallory <close> = caller(g, "mallory")
        fill(g, mallory)
      end
      goes_on(g, "ann")
      assert.equal(1, rooms(g).operator)
      wait.for_fact("a mark of the job that runs", 20, function() return rooms(g).gateway > 0 end)
    end)
  end

  it("all of them, one after the other, is handed over with its rooms, and counts them on", function()
    local g <close> = upgrading.start_quick { workers = 1, scripts = scripts, config = config_of() }
    do
      local mallory <close> = caller(g, "mallory")
      for _, fill in pairs(ways) do fill(g, mallory) end
    end
    local before = rooms(g)
    g:must_upgrade()
    local after, refused = nil, nil
    wait.for_fact("the store in the newer process", 20, function()
      after, refused = rooms(g)
      return after.scripts == before.scripts
    end)
    for _, room in ipairs { "quotas", "visitor_quotas", "visitor_limits", "tasks" } do assert.equal(before[room], after[room], room) end
    local mallory <close> = caller(g, "mallory")
    assert.equal("full", say(mallory, "fill"))
    assert.equal(before.scripts, rooms(g).scripts)
    assert.is_true(select(2, rooms(g)).scripts > (refused.scripts or 0))
    goes_on(g, "ann")
  end)

  it("addresses neither refuses a new address nor forgets one that has used its calls up", function()
    local g <close> = gateway.start { workers = 1, scripts = scripts, config = config_of { auth = "none" } }
    local c <close> = caller(g)
    c.address = "192.0.2.1"
    for _ = 1, 5 do assert.equal("pong", say(c, "ping", {})) end
    assert.matches("try again in", say(c, "ping", {}))
    ways["addresses of one IPv6 network"](g, c)
    c.address = "192.0.2.1"
    assert.matches("try again in", say(c, "ping", {}))
    c.address = "192.0.2.2"
    assert.equal("pong", say(c, "near"))
    assert.matches("try again in", say(c, "near"))
    local used = rooms(g)
    assert.is_true(used.visitor_limits <= 1000 and used.visitor_quotas <= 1000)
    assert.is_true(g:status().counters.evicted.counters > 0)
  end)
end)

describe("a file of the store with more rows than a room takes", function()
  it("is loaded whole, and its rows count in their room", function()
    local options = { workers = 1, scripts = scripts, config = config_of { store = { entries = 1000, bytes = "2MiB", file = "store.db" } } }
    local g = gateway.start(options)
    do
      local c <close> = caller(g, "ann")
      assert.equal("full", say(c, "fill"))
    end
    local before = rooms(g)
    g:stop()
    options.dir, options.config = g.dir, config_of { store = { entries = before.scripts + 50, bytes = "2MiB", file = "store.db" } }
    local again <close> = gateway.start(options)
    assert.equal(before.scripts, rooms(again).scripts)
    goes_on(again, "ann")
    assert.equal(before.scripts, rooms(again).scripts)
    assert.equal(200, client.request(again, { method = "GET", path = "/healthz" }, { admin = true }).status)
  end)

  it("is loaded with more counters than the whole store has entries", function()
    local function stored(entries) return config_of { store = { entries = entries, bytes = "2MiB", file = "store.db" } } end
    local options = { workers = 1, scripts = scripts, config = stored(1000) }
    local g = gateway.start(options)
    do
      local c <close> = caller(g, "ann")
      ways["addresses of one IPv6 network"](g, c)
    end
    local before = rooms(g)
    g:stop()
    options.dir, options.config = g.dir, stored(10)
    local again <close> = gateway.start(options)
    assert.equal(before.visitor_quotas, rooms(again).visitor_quotas)
    assert.is_true(before.visitor_quotas > 10)
  end)
end)
