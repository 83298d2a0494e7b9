-- Results `input_required` of upstreams of 2026-07-28: clients with sessions are asked on the stream of their call,
-- stateless ones get the questions with a sealed requestState. And the errors with which an upstream demands a
-- capability or a page.
-- cannot: that a request needs a capability (-32021); clients 2025-11-25; upstreams 2026-07-28: a result with `isError` names the capability
-- cannot: that a call needs a page first (-32042); clients 2024-11-05, 2025-06-18; upstreams 2025-11-25: a result with `isError` has the address
-- cannot: that a call needs a page first (-32042); clients 2026-07-28; upstreams 2025-11-25: `input_required`, or -32021 where the client opens no pages
local cjson = require "cjson.safe"
local raw = require "spec.helpers.upstream.raw"
local upstream = require "spec.helpers.upstream"

local EVERYTHING <const> = { elicitation = { form = {}, url = {} }, sampling = { tools = {}, context = {} }, roots = {} }
local FORM <const> = '{"method":"elicitation/create","params":{"mode":"form","message":"Name?","requestedSchema":{"type":"object","properties":{"name":'
  .. '{"type":"string"}}}}}'
local SAMPLING <const> = '{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}],"maxTokens":9}}'
local ROOTS <const> = '{"method":"roots/list","params":{}}'
local STATE <const> = '"s-\\u00e9-1"'
local META <const> = "io.modelcontextprotocol/"

local function required(requests, state)
  local members = { '"resultType":"input_required"' }
  if requests then members[#members + 1] = '"inputRequests":' .. requests end
  if state then members[#members + 1] = '"requestState":' .. state end
  return "{" .. table.concat(members, ",") .. "}"
end

local function done(x, text) return x:complete(('{"content":[{"type":"text","text":%s}]}'):format(raw.quote(text))) end

-- An upstream whose tool `need` answers the n-th request of a call with `answers[n]`, a result or a function of the
-- exchange, and then with its params.
local function needing(answers, options)
  options = options or {}
  options.revision = "2026-07-28"
  local u = upstream.start(options)
  u:offer("tools", { "need", "echo" })
  local n = 0
  u.handlers.need = function(x, reply)
    n = n + 1
    local answer = answers[n] or answers.always
    if type(answer) == "function" then return answer(x, reply) end
    if answer then return reply(answer) end
    n = 0
    reply(done(x, raw.at(x.text, "params", "inputResponses") or "none"))
  end
  return u
end

local function answer(c, question, result, err) return c:post { jsonrpc = "2.0", id = question.id, result = result, error = err } end

local function calls(u) return u:all { method = "tools/call" } end

describe("questions of a stateless upstream", function()
  for _, transport in ipairs { "http", "stdio" } do
    it("reach a client with a session, and the upstream gets the answers and its state (" .. transport .. ")", function()
      local u <close> = needing({ required(('{"a":%s,"b":%s,"c":%s}'):format(FORM, SAMPLING, ROOTS), STATE) }, { transport = transport })
      local g <close> = upstream.gateway({ one = u }, { workers = 2 })
      local c <close> = g:client("2025-11-25", { capabilities = EVERYTHING })
      local stream = c:open("tools/call", { name = "one_need", arguments = { x = 1 } })
      local form = stream:wait_event("elicitation/create").json
      assert.equal("Name?", form.params.message)
      answer(c, stream:wait_event("roots/list").json, { roots = {} })
      answer(c, stream:wait_event("sampling/createMessage").json, { role = "assistant", model = "m", content = { type = "text", text = "hey" } })
      answer(c, form, { action = "accept", content = { name = "Ann" } })
      local got = cjson.decode(upstream.text(stream:answer(20)))
      assert.same({ action = "accept", content = { name = "Ann" } }, got.a)
      assert.equal("hey", got.b.content.text)
      assert.same({ roots = {} }, got.c)
      local first, second = calls(u)[1], calls(u)[2]
      assert.same(EVERYTHING, first.json.params._meta[META .. "clientCapabilities"])
      assert.is_nil(first.json.params.requestState)
      assert.equal("s-é-1", second.json.params.requestState)
      assert.same({ x = 1 }, second.json.params.arguments)
      assert.are_not.equal(first.json.id, second.json.id)
      assert.is_true(u:ran "need" == 2)
    end)
  end

  it("that are declined, cancelled, or fail are answered so; those of sampling and roots end the call", function()
    local u <close> = needing({ required(('{"a":%s,"b":%s,"c":%s}'):format(FORM, FORM, FORM)) })
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client("2025-11-25", { capabilities = EVERYTHING })
    local stream = c:open("tools/call", { name = "one_need", arguments = {} })
    local events = {}
    for i = 1, 3 do
      events[i] = stream:wait_event(function(event)
        local json = event.json
        if not json or json.method ~= "elicitation/create" then return false end
        for k = 1, i - 1 do
          if events[k].id == json.id then return false end
        end
        return true
      end).json
    end
    answer(c, events[1], { action = "decline" })
    answer(c, events[2], { action = "cancel" })
    answer(c, events[3], nil, { code = -32603, message = "no window" })
    local got = cjson.decode(upstream.text(stream:answer(20)))
    assert.same({ a = { action = "decline" }, b = { action = "cancel" }, c = { action = "cancel" } }, got)

    for _, kind in ipairs { SAMPLING, ROOTS } do
      local other <close> = needing { required('{"a":' .. kind .. "}") }
      local h <close> = upstream.gateway { one = other }
      local d <close> = h:client("2025-11-25", { capabilities = EVERYTHING })
      local call = d:open("tools/call", { name = "one_need", arguments = {} })
      answer(d, call:wait_event(cjson.decode(kind).method).json, nil, { code = -1, message = "User rejected" })
      local result = call:answer(20).result
      assert.is_true(result.isError)
      assert.truthy(result.content[1].text:find("User rejected", 1, true))
      assert.equal(1, other:ran "need")
    end
  end)

  it("may come ten times, and no oftener", function()
    local u <close> = needing { always = required('{"a":' .. FORM .. "}", STATE) }
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client("2025-11-25", { capabilities = EVERYTHING })
    local stream = c:open("tools/call", { name = "one_need", arguments = {} })
    local seen = {}
    for _ = 1, 10 do
      local form = stream:wait_event(function(event)
        return event.json and event.json.method == "elicitation/create" and not seen[event.json.id]
      end).json
      seen[form.id] = true
      answer(c, form, { action = "accept", content = { name = "x" } })
    end
    upstream.failure(stream:answer(20), "unknown", "asks")
    assert.equal(11, u:ran "need")
  end)

  it("may be none but a state: the upstream is asked again with it", function()
    local u <close> = needing { required(nil, '"one"'), required(nil, '"two"') }
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client("2025-11-25", { capabilities = EVERYTHING })
    assert.equal("none", upstream.text(c:call("tools/call", { name = "one_need", arguments = {} })))
    assert.equal("one", calls(u)[2].json.params.requestState)
    assert.equal("two", calls(u)[3].json.params.requestState)
    assert.is_nil(calls(u)[3].json.params.inputResponses)
  end)

  it("that show a page are repeated without asking again until the upstream is done, and then the client is notified", function()
    local page = required('{"p":{"method":"elicitation/create","params":{"mode":"url","message":"Sign in","url":"https://example.com/in"}}}', STATE)
    local u <close> = needing { page, page }
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client("2025-11-25", { capabilities = EVERYTHING })
    local stream = c:open("tools/call", { name = "one_need", arguments = {} })
    local asked = stream:wait_event("elicitation/create").json
    assert.equal("https://example.com/in", asked.params.url)
    answer(c, asked, { action = "accept" })
    assert.equal('{"p":{"action":"accept"}}', upstream.text(stream:answer(20)))
    assert.equal(asked.params.elicitationId, stream:wait_event("notifications/elicitation/complete").json.params.elicitationId)
    local count = 0
    for _, message in ipairs(stream:messages()) do count = count + (message.method == "elicitation/create" and 1 or 0) end
    assert.equal(1, count)
  end)

  it("are no result for a client that declared nothing, nor ones of a kind that it did not declare", function()
    for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
      for _, capabilities in ipairs { {}, { roots = {} } } do
        local u <close> = needing { always = required('{"a":' .. FORM .. "}", STATE) }
        local g <close> = upstream.gateway { one = u }
        local c <close> = g:client(revision, { capabilities = capabilities })
        upstream.failure(c:call("tools/call", { name = "one_need", arguments = {} }), "unknown", "asks")
        assert.same(capabilities, calls(u)[1].json.params._meta[META .. "clientCapabilities"])
      end
    end
  end)

  it("end with `timeout_total` if the client does not answer", function()
    local u <close> = needing { required('{"a":' .. FORM .. "}") }
    local g <close> = upstream.gateway({ one = u }, { entries = { one = { timeout_total = "2s" } } })
    local c <close> = g:client("2025-11-25", { capabilities = EVERYTHING })
    local stream = c:open("tools/call", { name = "one_need", arguments = {} })
    local form = stream:wait_event("elicitation/create").json
    upstream.failure(stream:answer(20), "unknown", "total")
    assert.equal(form.id, stream:wait_event("notifications/cancelled").json.params.requestId)
    g:wait_status(function(status) return status.gauges.requests_in_flight == 0 and status.gauges.tasks == 0 end)
  end)
end)

describe("questions of a stateless upstream to a stateless client", function()
  local function ask(c, more)
    local params = { name = "one_need", arguments = { x = 1 } }
    for name, value in pairs(more or {}) do params[name] = value end
    return c:call("tools/call", params)
  end

  for _, transport in ipairs { "http", "stdio" } do
    it("keep their keys, and the state comes back to the upstream as it was (" .. transport .. ")", function()
      local u <close> = needing({ required(('{"a b":%s,"c":%s}'):format(FORM, ROOTS), STATE), required('{"d":' .. FORM .. "}") }, { transport = transport })
      local g <close> = upstream.gateway({ one = u }, { workers = 2 })
      local c <close> = g:client("2026-07-28", { capabilities = EVERYTHING })
      local first = ask(c).result
      assert.equal("input_required", first.resultType)
      assert.equal("Name?", first.inputRequests["a b"].params.message)
      assert.equal("roots/list", first.inputRequests.c.method)
      assert.is_nil(first.requestState:find("[^%w_-]"), "the state is readable: " .. first.requestState)
      local second = ask(c, { requestState = first.requestState,
        inputResponses = { ["a b"] = { action = "accept", content = { name = "Ann" } }, c = { roots = {} }, other = { x = 1 } } }).result
      assert.equal("input_required", second.resultType)
      assert.same({ d = cjson.decode(FORM) }, second.inputRequests)
      local sent = calls(u)[2].json.params
      assert.equal("s-é-1", sent.requestState)
      assert.same({ ["a b"] = { action = "accept", content = { name = "Ann" } }, c = { roots = {} } }, sent.inputResponses)
      local last = ask(c, { requestState = second.requestState, inputResponses = { d = { action = "decline" } } })
      assert.equal('{"d":{"action":"decline"}}', upstream.text(last))
      assert.is_nil(calls(u)[3].json.params.requestState)
      assert.same(EVERYTHING, calls(u)[1].json.params._meta[META .. "clientCapabilities"])
    end)
  end

  it("have a state that is worth nothing for another tool, other arguments, or changed", function()
    local u <close> = needing { always = required('{"a":' .. FORM .. "}", STATE) }
    u:offer("tools", { "need", "echo" })
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client("2026-07-28", { capabilities = EVERYTHING })
    local state = ask(c).result.requestState
    local answers = { a = { action = "accept", content = { name = "x" } } }
    local before = #calls(u)
    for _, more in ipairs {
      { name = "one_echo" }, { arguments = { x = 2 } }, { requestState = state:sub(1, -5) .. "AAAA" }, { requestState = "s-é-1" },
    } do
      local params = { requestState = state, inputResponses = answers }
      for name, value in pairs(more) do params[name] = value end
      assert.equal(-32602, ask(c, params).error.code)
    end
    assert.equal(before, #calls(u))
  end)

  it("work for prompts and resources, too", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    local function first(x)
      x.params._meta = nil
      if x.params.inputResponses then return x:serve() end
      x:result(required('{"a":' .. FORM .. "}", STATE))
    end
    u:when("prompts/get", first)
    u:when("resources/read", first)
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client("2026-07-28", { capabilities = EVERYTHING })
    for _, request in ipairs { { "prompts/get", { name = "one_plain" } }, { "resources/read", { uri = "stub://text" } } } do
      local asked = c:result(request[1], request[2])
      assert.equal("input_required", asked.resultType)
      request[2].requestState, request[2].inputResponses = asked.requestState, { a = { action = "decline" } }
      assert.equal("complete", c:result(request[1], request[2]).resultType)
    end
  end)
end)

describe("`ask` of an upstream's script", function()
  it("refuses questions of a stateless upstream, which gets that as the answer", function()
    local both = required(('{"a":%s,"r":%s}'):format(FORM, ROOTS), STATE)
    local hook = 'return upstream { ask = function(question) if question.method == "roots/list" then return question end end }'
    for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
      local u <close> = needing { required('{"a":' .. FORM .. "}", STATE), both }
      local g <close> = upstream.gateway({ one = u }, { scripts = { ["upstreams/one.lua"] = hook } })
      local c <close> = g:client(revision, { capabilities = EVERYTHING })
      local params = { name = "one_need", arguments = {} }
      local text
      if revision == "2026-07-28" then
        local asked = c:result("tools/call", params)
        assert.same({ r = cjson.decode(ROOTS) }, asked.inputRequests)
        params.requestState, params.inputResponses = asked.requestState, { r = { roots = {} } }
        text = upstream.text(c:call("tools/call", params))
      else
        local stream = c:open("tools/call", params)
        answer(c, stream:wait_event("roots/list").json, { roots = {} })
        text = upstream.text(stream:answer(20))
      end
      assert.same({ a = { action = "cancel" }, r = { roots = {} } }, cjson.decode(text))
      assert.same({ a = { action = "cancel" } }, calls(u)[2].json.params.inputResponses)
    end
  end)
end)

describe("an upstream that demands a capability", function()
  local DATA <const> = '{"requiredCapabilities":{"elicitation":{"url":{}}}}'

  it("is told about to a client with a session as text, and to a stateless client as it is", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    u:offer("tools", { "need" })
    u.handlers.need = function(x) x:error(-32021, "Missing capability", DATA) end
    local g <close> = upstream.gateway { one = u }
    local old <close> = g:client("2025-11-25", { capabilities = {} })
    local result = old:call("tools/call", { name = "one_need", arguments = {} }).result
    assert.is_true(result.isError)
    assert.truthy(result.content[1].text:find("elicitation.url", 1, true))
    local new <close> = g:client("2026-07-28", { capabilities = {} })
    local err = new:call("tools/call", { name = "one_need", arguments = {} }).error
    assert.equal(-32021, err.code)
    assert.same(cjson.decode(DATA), err.data)
  end)
end)

describe("an upstream with sessions that demands a page", function()
  local DATA <const> = '{"elicitations":[{"mode":"url","message":"Sign in","url":"https://example.com/in","elicitationId":"e1"}]}'

  local function demanding()
    local u = upstream.start { revision = "2025-11-25" }
    u:offer("tools", { "need" })
    u.is_signed_in = false
    u.handlers.need = function(x, reply)
      if u.is_signed_in then return reply(done(x, "in")) end
      x:error(-32042, "URL elicitation required", DATA)
    end
    return u
  end

  it("asks a stateless client for it, whose repeated request is sent again", function()
    local u <close> = demanding()
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client("2026-07-28", { capabilities = EVERYTHING })
    local params = { name = "one_need", arguments = {} }
    local asked = c:result("tools/call", params)
    assert.equal("input_required", asked.resultType)
    local key, question = next(asked.inputRequests)
    assert.same({ mode = "url", message = "Sign in", url = "https://example.com/in" }, question.params)
    params.requestState, params.inputResponses = asked.requestState, { [key] = { action = "accept" } }
    u.is_signed_in = true
    assert.equal("in", upstream.text(c:call("tools/call", params)))
    params.inputResponses[key].action = "decline"
    local refused = c:result("tools/call", params)
    assert.is_true(refused.isError)
    assert.equal(2, u:ran "need")
  end)

  it("is an error for clients of 2025-11-25 that can open pages, -32021 for stateless ones that cannot, and a text for the others", function()
    local u <close> = demanding()
    local g <close> = upstream.gateway { one = u }
    local params = { name = "one_need", arguments = {} }
    local can <close> = g:client("2025-11-25", { capabilities = EVERYTHING })
    local err = can:call("tools/call", params).error
    assert.equal(-32042, err.code)
    assert.same(cjson.decode(DATA), err.data)
    local cannot <close> = g:client("2026-07-28", { capabilities = {} })
    assert.equal(-32021, cannot:call("tools/call", params).error.code)
    for _, revision in ipairs { "2024-11-05", "2025-06-18", "2025-11-25" } do
      local c <close> = g:client(revision, { capabilities = {} })
      local result = c:call("tools/call", params).result
      assert.is_true(result.isError)
      assert.truthy(result.content[1].text:find("https://example.com/in", 1, true))
    end
  end)
end)
