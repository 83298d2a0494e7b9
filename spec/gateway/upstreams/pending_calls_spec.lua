-- Questions of older upstreams in calls of a client of 2026-07-28: the call is answered with the questions, and the
-- repeated call goes on with the same request upstream, on whatever worker. What a handler has called before a question
-- is not called again.
local cjson = require "cjson.safe"
local upstream = require "spec.helpers.upstream"

local FORM <const> = '{"message":"Name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}'
local SAMPLE <const> = '{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}],"maxTokens":10}'
local EVERYTHING <const> = { elicitation = { form = {}, url = {} }, sampling = { tools = {}, context = {} }, roots = {} }
local LEGACY <const> = { { "2024-11-05", "sse" }, { "2025-03-26", "http" }, { "2025-06-18", "stdio" }, { "2025-11-25", "http" } }
local ANN <const> = { action = "accept", content = { name = "Ann" } }

local function stub(options)
  local u = upstream.start(options or { revision = "2025-11-25" })
  u:offer("tools", { "ask", "echo", "hold", "talk", "counter" })
  return u
end

local function gate(u, options)
  options = options or {}
  options.workers = 2
  return upstream.gateway({ one = u }, options)
end

local function client(g, token)
  return g:client("2026-07-28", { capabilities = EVERYTHING, token = token })
end

-- The params of a call of `ask` with questions as JSON texts { method, params }.
local function asking(questions, more)
  local list = {}
  for i, one in ipairs(questions) do list[i] = { one[1], cjson.decode(one[2]) } end
  local params = { name = "one_ask", arguments = { questions = list } }
  for name, value in pairs(more or {}) do params[name] = value end
  return params
end

-- The params of a call, repeated after `result` with these answers.
local function repeated(params, result, answers, meta)
  local made = {}
  for name, value in pairs(params) do made[name] = value end
  made.requestState, made.inputResponses, made._meta = result.requestState, answers, meta
  return made
end

local function asked(result)
  assert.equal("input_required", result.resultType, cjson.encode(result))
  return result.inputRequests, result
end

local function gauge(g, value) g:wait_status(function(status) return status.gauges.upstream_pending == value end) end

for _, kind in ipairs(LEGACY) do
  describe("a question of an upstream of " .. kind[1] .. " over " .. kind[2] .. " in a stateless call", function()
    it("is answered by the repeated call, and the upstream saw one call", function()
      local u <close> = stub { revision = kind[1], transport = kind[2] }
      local g <close> = gate(u)
      for n = 1, 4 do -- the kernel chooses the worker of each connection, so that both workers get some
        local c <close> = client(g)
        local d <close> = client(g)
        local params = asking { { "elicitation/create", FORM }, { "roots/list", "{}" }, { "sampling/createMessage", SAMPLE } }
        local requests, result = asked(c:result("tools/call", params))
        assert.equal("Name?", requests["elicitation-1"].params.message)
        assert.equal("form", requests["elicitation-1"].params.mode)
        assert.equal("roots/list", requests["roots-1"].method)
        assert.equal(10, requests["sampling-1"].params.maxTokens)
        gauge(g, 1)
        local answers = { ["elicitation-1"] = ANN, ["roots-1"] = { roots = { { uri = "file:///a" } } },
          ["sampling-1"] = { role = "assistant", model = "m", content = { type = "text", text = "hello" } } }
        local last = d:result("tools/call", repeated(params, result, answers))
        assert.equal("complete", last.resultType)
        local got = cjson.decode(last.content[1].text)
        assert.same(ANN, got[1])
        assert.equal("file:///a", got[2].roots[1].uri)
        assert.equal("hello", got[3].content.text)
        assert.equal(n, u:ran "ask")
        gauge(g, 0)
      end
    end)
  end)
end

describe("a stateless call that is parked", function()
  it("asks three rounds, with progress in each by the token of that request", function()
    local u <close> = stub()
    local g <close> = gate(u)
    u.handlers.talk = function(x, reply)
      local round = 0
      local function next_round(json)
        if json and not json.result.content then return end
        round = round + 1
        x:report(round, 4)
        if round == 4 then return reply(x:complete '{"content":[{"type":"text","text":"done"}]}') end
        x:ask("elicitation/create", FORM:gsub("Name", "Name " .. round), next_round)
      end
      next_round()
    end
    local params, result = { name = "one_talk", arguments = { x = 1 } }, nil
    for round = 1, 4 do
      local c <close> = client(g)
      local stream = c:open("tools/call", repeated(params, result or {}, round > 1 and { ["elicitation-1"] = ANN } or nil, { progressToken = "t" .. round }))
      local answer = stream:answer()
      local progress = {}
      for _, message in ipairs(stream:messages()) do
        if message.method == "notifications/progress" then
          assert.equal("t" .. round, message.params.progressToken)
          progress[#progress + 1] = message.params.progress
        end
      end
      assert.same({ round }, progress)
      result = answer.result
      if round < 4 then assert.equal("Name " .. round .. "?", asked(result)["elicitation-1"].params.message) end
    end
    assert.equal("done", result.content[1].text)
    assert.equal(1, u:ran "talk")
  end)

  it("asks again for answers that are missing, by the same keys", function()
    local u <close> = stub()
    local g <close> = gate(u)
    local c <close> = client(g)
    local params = asking { { "elicitation/create", FORM }, { "elicitation/create", FORM }, { "roots/list", "{}" } }
    local requests, first = asked(c:result("tools/call", params))
    assert.is_truthy(requests["elicitation-1"] and requests["elicitation-2"] and requests["roots-1"])
    local again, second = asked(c:result("tools/call", repeated(params, first, { ["elicitation-1"] = ANN, ["roots-1"] = { roots = 1 }, other = ANN })))
    assert.is_nil(again["elicitation-1"])
    assert.is_truthy(again["elicitation-2"] and again["roots-1"])
    local last = c:result("tools/call", repeated(params, second, { ["elicitation-2"] = { action = "decline" }, ["roots-1"] = { roots = {} } }))
    assert.matches("decline", last.content[1].text)
    assert.equal(1, u:ran "ask")
  end)

  it("is given the answer that came meanwhile, and the failure of an upstream that went away", function()
    local u <close> = stub()
    local g <close> = gate(u)
    local calls = {}
    u.handlers.talk = function(x)
      calls[#calls + 1] = x
      x:ask("elicitation/create", FORM, function() end)
    end
    local c <close> = client(g)
    local params = { name = "one_talk", arguments = { x = 1 } }
    local _, result = asked(c:result("tools/call", params))
    calls[1]:result '{"content":[{"type":"text","text":"early"}]}'
    g:wait_status(function(status) return status.gauges.upstream_exchanges == 0 end)
    assert.equal("early", c:result("tools/call", repeated(params, result, { ["elicitation-1"] = ANN })).content[1].text)
    _, result = asked(c:result("tools/call", params))
    calls[2]:drop()
    gauge(g, 0)
    local answer = c:call("tools/call", repeated(params, result, { ["elicitation-1"] = ANN }))
    assert.equal("upstream 'one' went away before it answered; whether the call ran is not known", answer.error.message)
    assert.equal(2, u:ran "talk")
  end)

  it("goes on without an answer to a question that its upstream has taken back", function()
    local u <close> = stub()
    local g <close> = gate(u)
    local call
    local id
    u.handlers.talk = function(x)
      call = x
      id = x:ask("elicitation/create", FORM, function() end)
    end
    local c <close> = client(g)
    local params = { name = "one_talk", arguments = { x = 1 } }
    local _, result = asked(c:result("tools/call", params))
    call:emit(('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}'):format(id))
    local stream = c:open("tools/call", repeated(params, result, nil))
    g:wait_status(function(status) return status.gauges.upstream_pending == 0 end)
    call:result '{"content":[{"type":"text","text":"went on"}]}'
    assert.equal("went on", stream:answer().result.content[1].text)
  end)

  it("is worth nothing to another principal or request, once used, forged or too old, and goes on all the same", function()
    local u <close> = stub()
    local g <close> = gate(u, {
      scripts = { ["auth/keys.lua"] = [[
        return auth { function(request) return ({ a = { id = "ann" }, b = { id = "bob" } })[request.bearer] end }]] },
    })
    local ann <close> = client(g, "a")
    local bob <close> = client(g, "b")
    local params = asking { { "elicitation/create", FORM } }
    local answers = { ["elicitation-1"] = ANN }
    local _, result = asked(ann:result("tools/call", params))
    local errors = {}
    local function refused(who, given)
      local answer = who:call("tools/call", given)
      assert.equal(-32602, answer.error and answer.error.code, cjson.encode(answer))
      errors[answer.error.message] = true
    end
    refused(bob, repeated(params, result, answers))
    local other = asking { { "roots/list", "{}" } }
    refused(ann, repeated(other, result, answers))
    refused(ann, repeated(params, { requestState = result.requestState:gsub("^.", function(c) return c == "_" and "-" or "_" end) }, answers))
    refused(ann, repeated(params, { requestState = "x" }, answers))
    gauge(g, 1)
    local last = ann:result("tools/call", repeated(params, result, answers))
    assert.matches("Ann", last.content[1].text)
    refused(ann, repeated(params, result, answers))
    assert.is_nil(next(errors, next(errors)))
    assert.equal(1, u:ran "ask")
  end)

  it("ends when its client never comes back: the upstream gets an answer and is cancelled", function()
    local u <close> = stub()
    local g <close> = gate(u, { constants = { upstream_pending_ms = 1000 } })
    local c <close> = client(g)
    local params = asking { { "elicitation/create", FORM }, { "sampling/createMessage", SAMPLE } }
    local _, result = asked(c:result("tools/call", params))
    u:wait({ kind = "response" }, 2)
    u:wait { method = "notifications/cancelled" }
    local actions = {}
    for _, entry in ipairs(u:all { kind = "response" }) do actions[entry.json.result and entry.json.result.action or "error"] = true end
    assert.same({ cancel = true, error = true }, actions)
    gauge(g, 0)
    local answer = c:call("tools/call", repeated(params, result, { ["elicitation-1"] = ANN }))
    assert.equal(-32602, answer.error.code)
  end)

  it("refuses the question where too many wait, and the call goes on", function()
    local u <close> = stub()
    local g <close> = gate(u, { constants = { upstream_pending = 1 } })
    local c <close> = client(g)
    local params = asking { { "elicitation/create", FORM } }
    asked(c:result("tools/call", params))
    assert.equal('[{"action":"cancel"}]', c:result("tools/call", params).content[1].text)
    assert.equal(2, u:ran "ask")
  end)
end)

describe("a handler that calls upstreams", function()
  local tool = [[
    return tool { "Asks between calls.", read_only = READ_ONLY, input = { n = t.integer }, function(args, call)
      local one = upstream "one"
      local first = try(one:call("counter", {}))
      local many = parallel { function() return one:call("echo", { a = args.n }) end, function() return one:call("echo", { b = args.n }) end }
      local said = try(call:elicit("name", "Name?", { name = t.string }))
      local second = try(one:call("counter", {}))
      local sure = try(call:elicit("sure", "Sure?", { sure = t.boolean }))
      return ("%s %s %s %s %s"):format(first.text, said.name, second.text, tostring(sure.sure), type(many[1]))
    end }]]

  local function run(g, name, before_last)
    local c <close> = client(g)
    local d <close> = client(g)
    local params = { name = name, arguments = { n = 7 } }
    local _, first = asked(c:result("tools/call", params))
    local _, second = asked(d:result("tools/call", repeated(params, first, { name = { action = "accept", content = { name = "Ann" } } })))
    if before_last then before_last(second) end
    return c:call("tools/call", repeated(params, second, { sure = { action = "accept", content = { sure = true } } })), params, second
  end

  for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
    it("of " .. revision .. " and then asks its client calls each once", function()
      local u <close> = stub { revision = revision }
      local g <close> = gate(u, {
        scripts = { ["tools/mixed.lua"] = tool:gsub("READ_ONLY", "false"), ["tools/reader.lua"] = tool:gsub("READ_ONLY", "true") },
      })
      local answer, params, state = run(g, "mixed")
      assert.matches("^%d Ann %d true", answer.result and answer.result.content and answer.result.content[1].text or cjson.encode(answer))
      assert.equal(2, u:ran "counter")
      assert.equal(2, u:ran "echo")
      gauge(g, 0)
      -- The call is repeated once more, when the gateway no longer keeps the results of its calls: it fails instead of
      -- calling the upstream's tools a second time, unless these only read.
      local c <close> = client(g)
      local again = c:call("tools/call", repeated(params, state, { sure = { action = "accept", content = { sure = true } } }))
      assert.equal(-32602, again.error.code)
      assert.equal(2, u:ran "counter")
      local _, read, kept = run(g, "reader")
      assert.matches("Ann", c:result("tools/call", repeated(read, kept, { sure = { action = "accept", content = { sure = true } } })).content[1].text)
      assert.equal(6, u:ran "counter")
    end)
  end

  it("that run while another part asks takes them up", function()
    -- The second part sleeps first: a handler must call in the same order in each run, and on a busy machine the first
    -- part can be preempted before its call.
    local u <close> = stub()
    local g <close> = gate(u, { scripts = { ["tools/both.lua"] = [[
      return tool { "Asks beside a call.", function(_, call)
        local held, said
        parallel { function() held = upstream("one"):call("hold", { key = "k" }) end,
          function() sleep(0.2) upstream("one"):call("echo", {}) said = try(call:elicit("name", "Name?", { name = t.string })) end }
        return held.text .. " " .. said.name
      end }]] } })
    local c <close> = client(g)
    local d <close> = client(g)
    local params = { name = "both", arguments = {} }
    local _, first = asked(c:result("tools/call", params))
    -- on a slow machine the handler asks before the first part has sent its request, which the repeated call then sends
    g:wait_status(function(status) return status.gauges.upstream_pending >= 1 end)
    local stream = d:open("tools/call", repeated(params, first, { name = ANN }))
    gauge(g, 0)
    u:release "k"
    assert.equal("released Ann", stream:answer().result.content[1].text)
    assert.equal(1, u:ran "hold")
    assert.equal(1, u:ran "echo")
  end)

  it("which ask goes on with them, also where it asks something itself", function()
    local u <close> = stub()
    local g <close> = gate(u, { scripts = { ["tools/relay.lua"] = [[
      return tool { "Passes a question on.", function(_, call)
        local one = upstream "one"
        local before = try(one:call("echo", { n = 1 })).text
        local json = require "cjson"
        local form = json.decode '{"message":"Name?","requestedSchema":{"type":"object","properties":{}}}'
        local got = try(one:call("ask", { questions = { { "elicitation/create", form } } })).text
        local said = try(call:elicit("sure", "Sure?", { sure = t.boolean }))
        return before .. got .. tostring(said.sure)
      end }]] } })
    local c <close> = client(g)
    local d <close> = client(g)
    local params = { name = "relay", arguments = {} }
    local requests, first = asked(c:result("tools/call", params))
    assert.equal("Name?", requests["elicitation-1"].params.message)
    local more, second = asked(d:result("tools/call", repeated(params, first, { ["elicitation-1"] = ANN })))
    assert.equal("Sure?", more.sure.params.message)
    local last = c:result("tools/call", repeated(params, second, { sure = { action = "accept", content = { sure = false } } }))
    assert.matches('"name":"Ann".*false$', last.content[1].text)
    assert.equal(1, u:ran "ask")
    assert.equal(1, u:ran "echo")
    gauge(g, 0)
  end)
end)

describe("questions while several stateless calls share a program", function()
  it("reach a client of theirs, the call that asked goes on, and later calls take turns", function()
    local u <close> = stub { revision = "2025-06-18", transport = "stdio" }
    local g <close> = gate(u)
    local c <close> = client(g)
    local function hold(key) return { name = "one_hold", arguments = { key = key } } end
    local function finish(x, text) x:result(x:complete('{"content":[{"type":"text","text":"' .. text .. '"}]}')) end
    local a = c:open("tools/call", hold "a")
    local first = u:wait_held(1, "a")[1]
    local b = c:open("tools/call", hold "b")
    local second = u:wait_held(1, "b")[1]
    first:ask("elicitation/create", FORM, function(json) finish(first, json.result.content.name) end)
    -- the question comes to the newest call, whose client's answer goes to the call that asked
    local result = b:answer(20).result
    local requests = asked(result)
    assert.equal("Name?", requests["elicitation-1"].params.message)
    local again = c:open("tools/call", repeated(hold "b", result, { ["elicitation-1"] = ANN }))
    assert.equal("Ann", upstream.text(a:answer(20)))
    finish(second, "b")
    assert.equal("b", upstream.text(again:answer(20)))
    g:wait_log("calls take turns", { upstream = "one" })
    -- from now on one call runs at a time, on whatever worker
    local one = c:open("tools/call", hold "c")
    local third = u:wait_held(1, "c")[1]
    local two = c:open("tools/call", hold "d")
    g:wait_status(function(status) return status.gauges.calls_waiting == 1 end)
    u:all {}
    for _, x in ipairs(u.held) do assert.not_equal("d", x.arguments.key) end
    third:ask("elicitation/create", FORM, function(json) finish(third, json.result.content.name) end)
    result = one:answer(20).result
    asked(result)
    -- the fourth call runs: a call whose client is being asked has given up its turn
    local fourth = u:wait_held(1, "d")[1]
    one = c:open("tools/call", repeated(hold "c", result, { ["elicitation-1"] = ANN }))
    assert.equal("Ann", upstream.text(one:answer(20)))
    finish(fourth, "d")
    assert.equal("d", upstream.text(two:answer(20)))
    assert.equal(4, u:ran "hold")
    g:wait_status(function(status) return status.gauges.calls_waiting == 0 and status.gauges.upstream_pending == 0 end)
  end)
end)
