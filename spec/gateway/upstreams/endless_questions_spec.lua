-- Upstreams that ask without end: each question is refused, or answered by a client at once, and the next one follows.
-- Such a call ends at 256 questions, and questions outside of calls get no more answers then.
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local FORM <const> = '{"message":"Name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}'
local KINDS <const> = { { "2025-11-25", "http" }, { "2024-11-05", "sse" }, { "2025-06-18", "stdio" }, { "2026-07-28", "stdio" } }
local MOST <const> = 20

-- A stub whose tool `nag` asks again after each answer.
local function nagging(revision, transport, method, params)
  local u = upstream.start { revision = revision, transport = transport }
  -- the tool only reads, so its calls may be repeated
  u:offer("tools", { '{"name":"nag","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}', "echo" })
  u.handlers.nag = function(x)
    local function ask() x:ask(method or "roots/list", params or "{}", ask) end
    ask()
  end
  return u
end

local function start(u, most)
  return upstream.gateway({ one = u }, { workers = 1, constants = { upstream_questions_per_request = MOST, upstream_questions_per_principal = most },
    entries = { one = { timeout_total = "10m" } } })
end

local function refused(g) return g:status().counters.refused.upstream_questions or 0 end

describe("an upstream that asks again after each refused question", function()
  for _, kind in ipairs(KINDS) do
    it("ends only its own call, and is told so: " .. kind[1] .. " over " .. kind[2], function()
      local u <close> = nagging(kind[1], kind[2])
      local g <close> = start(u)
      local c <close> = g:client "2025-11-25"
      local data, message = upstream.failure(c:call("tools/call", { name = "one_nag", arguments = {} }), "unknown", "questions")
      assert.equal("one", data.upstream)
      assert.truthy(message:find("more than 256 questions", 1, true), message)
      assert.equal(1, refused(g))
      assert.equal(1, u:ran "nag")
      u:wait { method = "notifications/cancelled" }
      assert.is_table(c:call("tools/call", { name = "one_echo", arguments = {} }).result)
    end)
  end

  it("ends the call of a client that answers each question, too", function()
    local u <close> = nagging("2025-11-25", "http", "elicitation/create", FORM)
    local g <close> = start(u, 100000)
    local c <close> = g:client("2025-11-25", { capabilities = { elicitation = { form = {} } } })
    local stream = c:open("tools/call", { name = "one_nag", arguments = {} })
    local answered, count = {}, 0
    wait.for_fact("the end of the call", 60, function()
      for _, one in ipairs(stream:messages()) do
        if one.error then return true end
        if one.method == "elicitation/create" and not answered[one.id] then
          answered[one.id], count = true, count + 1
          c:post { jsonrpc = "2.0", id = one.id, result = { action = "accept", content = { name = "Ann" } } }
        end
      end
    end)
    assert.is_true(count >= MOST, count .. " questions")
    upstream.failure(stream:answer(20), "unknown", "questions")
    assert.equal(1, refused(g))
    u:wait { method = "notifications/cancelled" }
  end)
end)

describe("an upstream that asks on while its call is parked", function()
  it("ends the call, which the client's next request learns", function()
    local u <close> = upstream.start { revision = "2025-11-25", transport = "stdio" }
    u:offer("tools", { "nag", "echo" })
    local nag
    u.handlers.nag = function(x)
      nag = x
      x:ask("elicitation/create", FORM, function() end)
    end
    local g <close> = start(u)
    local c <close> = g:client("2026-07-28", { capabilities = { elicitation = { form = {} } } })
    local result = c:result("tools/call", { name = "one_nag", arguments = {} })
    assert.equal("input_required", result.resultType)
    g:wait_status(function(status) return status.gauges.upstream_pending == 1 end)
    wait.for_fact("the end of the call", 60, function()
      for _ = 1, MOST do nag:ask("elicitation/create", FORM, function() end) end
      return #u:all { method = "notifications/cancelled" } > 0
    end)
    assert.equal(1, refused(g))
    local answers = {}
    for key in pairs(result.inputRequests) do answers[key] = { action = "accept", content = { name = "Ann" } } end
    upstream.failure(c:call("tools/call", { name = "one_nag", arguments = {}, inputResponses = answers, requestState = result.requestState }),
      "unknown", "questions")
    assert.is_table(c:call("tools/call", { name = "one_echo", arguments = {} }).result)
    g:wait_status(function(status) return status.gauges.upstream_pending == 0 end)
  end)
end)

describe("an upstream that asks a little in answer to each look at its task", function()
  for _, kind in ipairs { { "2025-11-25", "http" }, { "2025-11-25", "stdio" } } do
    it("ends the call, since the limit is one for all looks, over " .. kind[2], function()
      local u <close> = upstream.start { revision = kind[1], transport = kind[2], tasks = true }
      u.task_poll = 100
      u:offer("tools", { '{"name":"task_hold","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}', "echo" })
      u.handlers.task_hold = function(x) table.insert(u.held, x) end
      local asked = 0
      u:when("tasks/get", function(x)
        local left = MOST // 2
        local function ask()
          if left == 0 then return x:serve() end
          left, asked = left - 1, asked + 1
          x:ask("roots/list", "{}", ask)
        end
        ask()
      end)
      local g <close> = start(u)
      local c <close> = g:client "2025-06-18"
      upstream.failure(c:call("tools/call", { name = "one_task_hold", arguments = {} }, 60), "unknown", "questions")
      assert.equal(1, refused(g))
      assert.is_true(asked >= MOST, asked .. " questions")
      wait.for_fact("the end of the task", 20, function() return u.tasks[1].cancelled or #u:all { method = "tasks/cancel" } > 0 end)
      assert.is_table(c:call("tools/call", { name = "one_echo", arguments = {} }).result)
    end)
  end
end)

describe("an upstream that asks again and again outside of calls", function()
  for _, kind in ipairs { { "2024-11-05", "sse" }, { "2025-11-25", "stdio" }, { "2025-11-25", "http" } } do
    it("gets no more answers after a while, over " .. kind[2], function()
      local u <close> = upstream.start { revision = kind[1], transport = kind[2] }
      u.strict = false              -- the answers to its pings belong to no question of a call
      local g <close> = start(u)
      local c <close> = g:client "2025-11-25"
      assert.is_true(#c:result("tools/list").tools > 0)
      u:wait { method = "notifications/initialized" }
      if kind[2] == "http" then u:wait { kind = "http", method = "GET" } end
      local sent = 0
      wait.for_fact("a ping without an answer", 60, function()
        sent = sent + 1
        u:push(('{"jsonrpc":"2.0","id":"ping %d","method":"ping"}'):format(sent))
        return (g:status().counters.dropped.upstream_questions or 0) > 0
      end)
      assert.is_true(#u:all { kind = "response" } <= MOST)
      assert.is_table(c:call("tools/call", { name = "one_echo", arguments = {} }).result)
      assert.truthy(g:status().upstreams.one.error:find("outside of calls", 1, true))
    end)
  end
end)
