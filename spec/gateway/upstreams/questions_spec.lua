-- Questions of upstreams to clients of revisions with sessions: elicitation, sampling and roots reach the client whose
-- call asks, in its revision, and its answers go back. A client is asked nothing that it did not declare, and an
-- upstream is told no other capabilities.
-- cannot: a form with a list of choices; clients 2025-06-18; upstreams 2025-11-25: the gateway answers `cancel`, and the call goes on
local cjson = require "cjson.safe"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local FORM <const> = '{"message":"Name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}'
local EVERYTHING <const> = { elicitation = { form = {}, url = {} }, sampling = { tools = {}, context = {} }, roots = {} }
local LEGACY <const> = { { "2024-11-05", "sse" }, { "2025-03-26", "http" }, { "2025-06-18", "stdio" }, { "2025-11-25", "http" }, { "2025-11-25", "stdio" } }

local function asking(options)
  local u = upstream.start(options)
  u:offer("tools", { "ask", "echo", "hold" })
  return u
end

-- Opens a call of the tool `ask` with questions as JSON texts { method, params }.
local function open_ask(c, questions, name)
  local list = {}
  for i, one in ipairs(questions) do list[i] = { one[1], cjson.decode(one[2]) } end
  return c:open("tools/call", { name = name or "one_ask", arguments = { questions = list } })
end

local function answer(c, question, result, err)
  return c:post { jsonrpc = "2.0", id = question.id, result = result, error = err }
end

local function answers(stream) return cjson.decode(upstream.text(stream:answer(20))) end

describe("a question of an upstream", function()
  for _, kind in ipairs(LEGACY) do
    it("of " .. kind[1] .. " over " .. kind[2] .. " reaches the asking client, and its answer goes back", function()
      local u <close> = asking { revision = kind[1], transport = kind[2] }
      local g <close> = upstream.gateway({ one = u }, { workers = 2 })
      for _, revision in ipairs { "2025-06-18", "2025-11-25" } do
        local c <close> = g:client(revision, { capabilities = EVERYTHING })
        local stream = open_ask(c, { { "elicitation/create", FORM }, { "roots/list", "{}" },
          { "sampling/createMessage", '{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}],"maxTokens":10}' } })
        local form = stream:wait_event("elicitation/create").json
        assert.equal("Name?", form.params.message)
        assert.equal("string", form.params.requestedSchema.properties.name.type)
        assert.equal(revision == "2025-11-25" and "form" or nil, form.params.mode)
        assert.is_nil(tostring(form.id):find("^q%d"))
        local roots = stream:wait_event("roots/list").json
        local sampling = stream:wait_event("sampling/createMessage").json
        assert.equal(10, sampling.params.maxTokens)
        answer(c, sampling, { role = "assistant", content = { type = "text", text = "hello" }, model = "m" })
        answer(c, roots, nil, { code = -32001, message = "not now" })
        answer(c, form, { action = "accept", content = { name = "Ann" } })
        local got = answers(stream)
        assert.same({ action = "accept", content = { name = "Ann" } }, got[1])
        assert.equal(-32001, got[2].code)
        assert.equal("hello", got[3].content.text)
      end
    end)
  end

  it("keeps the bytes of the client's answer", function()
    local u <close> = asking { revision = "2025-11-25" }
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client("2025-11-25", { capabilities = EVERYTHING })
    local stream = open_ask(c, { { "elicitation/create", FORM } })
    local form = stream:wait_event("elicitation/create").json
    local bytes = '{"action":"accept","content":{"n":12345678901234567890123.50,"s":"\\u0041","z":1,"a":1e400}}'
    local connection <close> = g:connect()
    local headers = c:headers()
    headers["Content-Type"] = "application/json"
    local response = connection:request { method = "POST", path = "/mcp", headers = headers,
      body = ('{"jsonrpc":"2.0","id":%s,"result":%s}'):format(cjson.encode(form.id), bytes) }
    assert.equal(202, response.status)
    assert.equal("[" .. bytes .. "]", upstream.text(stream:answer(20)))
  end)

  it("of many calls at once is answered in any order, each its own", function()
    local u <close> = asking { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { workers = 2, entries = { one = { calls = 200 } } })
    local clients, streams, forms = {}, {}, {}
    for i = 1, 10 do clients[i] = g:client("2025-11-25", { capabilities = EVERYTHING }) end
    for n = 1, 100 do
      streams[n] = open_ask(clients[n % 10 + 1], { { "elicitation/create", (FORM:gsub("Name", "Name " .. n)) } })
    end
    for n = 1, 100 do
      forms[n] = streams[n]:wait_event("elicitation/create").json
      assert.equal("Name " .. n .. "?", forms[n].params.message)
    end
    for n = 100, 1, -1 do answer(clients[n % 10 + 1], forms[n], { action = "accept", content = { name = "n" .. n } }) end
    for n = 1, 100 do assert.equal("n" .. n, answers(streams[n])[1].content.name) end
    for _, c in ipairs(clients) do c:close() end
    assert.equal(100, u:ran "ask")
  end)

  it("is told in the client's revision, or answered for it where the revision cannot express it", function()
    local u <close> = asking { revision = "2025-11-25" }
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client("2025-06-18", { capabilities = { elicitation = {}, sampling = {} } })
    local stream = open_ask(c, {
      { "elicitation/create", '{"mode":"form","message":"Pick","requestedSchema":{"type":"object","properties":{"p":{"type":"string","default":"a",'
        .. '"oneOf":[{"const":"a","title":"A"}]}}}}' },
      { "elicitation/create", '{"message":"Many","requestedSchema":{"type":"object","properties":{"p":{"type":"array","items":{"enum":["a"]}}}}}' },
    })
    local form = stream:wait_event("elicitation/create").json
    assert.same({ type = "string", enum = { "a" }, enumNames = { "A" } }, form.params.requestedSchema.properties.p)
    answer(c, form, { action = "decline" })
    local got = answers(stream)
    assert.equal("decline", got[1].action)
    assert.equal("cancel", got[2].action)
  end)

  it("with a page has an id of the gateway's, and the notification that the page is done names it", function()
    local u <close> = asking { revision = "2025-11-25" }
    u.handlers.page = function(x, reply)
      x:ask("elicitation/create", '{"mode":"url","message":"Sign in","url":"https://example.com/in","elicitationId":"theirs"}', function()
        x:emit '{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"theirs"}}'
        reply(x:complete '{"content":[{"type":"text","text":"done"}]}')
      end)
    end
    u:offer("tools", { "page" })
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client("2025-11-25", { capabilities = EVERYTHING })
    local stream = c:open("tools/call", { name = "one_page", arguments = {} })
    local page = stream:wait_event("elicitation/create").json
    assert.equal("https://example.com/in", page.params.url)
    assert.are_not.equal("theirs", page.params.elicitationId)
    answer(c, page, { action = "accept" })
    assert.equal(page.params.elicitationId, stream:wait_event("notifications/elicitation/complete").json.params.elicitationId)
    assert.equal("done", upstream.text(stream:answer(20)))
  end)

  it("that the upstream takes back is taken back from the client", function()
    for _, transport in ipairs { "http", "stdio" } do
      local u <close> = asking { revision = "2025-11-25", transport = transport }
      u.handlers.ask = function(x, reply)
        local id = x:ask("elicitation/create", FORM, function() end)
        u.take_back = function()
          x:emit('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":' .. id .. "}}")
          reply(x:complete '{"content":[{"type":"text","text":"never mind"}]}')
        end
      end
      local g <close> = upstream.gateway { one = u }
      local c <close> = g:client("2025-11-25", { capabilities = EVERYTHING })
      local stream = c:open("tools/call", { name = "one_ask", arguments = {} })
      local form = stream:wait_event("elicitation/create").json
      u.take_back()
      assert.equal(form.id, stream:wait_event("notifications/cancelled").json.params.requestId)
      assert.equal("never mind", upstream.text(stream:answer(20)))
      answer(c, form, { action = "accept", content = {} })
      assert.equal(0, #u:all { kind = "response" })
    end
  end)

  it("stops the clock of `timeout`, not that of `timeout_total`", function()
    local u <close> = asking { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = { one = { timeout = "1s", timeout_total = "3s" } } })
    local c <close> = g:client("2025-11-25", { capabilities = EVERYTHING })
    local stream = open_ask(c, { { "elicitation/create", FORM } })
    local form = stream:wait_event("elicitation/create").json
    upstream.failure(stream:answer(20), "unknown", "total")
    assert.equal(form.id, stream:wait_event("notifications/cancelled").json.params.requestId)
  end)

  it("of a call that the client cancels is answered upstream, and the call is cancelled there", function()
    local u <close> = asking { revision = "2025-11-25", transport = "stdio" }
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client("2025-11-25", { capabilities = EVERYTHING })
    local stream = open_ask(c, { { "elicitation/create", FORM } })
    stream:wait_event "elicitation/create"
    c:notify("notifications/cancelled", { requestId = stream.id })
    assert.equal("cancel", u:wait({ kind = "response" }).json.result.action)
    local asked = u:wait { method = "tools/call" }
    assert.equal(asked.json.id, u:wait({ method = "notifications/cancelled" }).json.params.requestId)
  end)

  it("that came during another call of the same session is answered, and no call hangs", function()
    local u <close> = asking { revision = "2025-11-25", transport = "stdio" }
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client("2025-11-25", { capabilities = EVERYTHING })
    local first = c:open("tools/call", { name = "one_hold", arguments = { key = "a" } })
    local a = u:wait_held(1, "a")[1]
    local second = c:open("tools/call", { name = "one_hold", arguments = { key = "b" } })
    local b = u:wait_held(1, "b")[1]
    local result
    a:ask("elicitation/create", FORM, function(json)
      result = json.result
      a:result(a:complete('{"content":[{"type":"text","text":"' .. json.result.content.name .. '"}]}'))
    end)
    local form = second:wait_event("elicitation/create").json
    b:result(b:complete '{"content":[{"type":"text","text":"b"}]}')
    answer(c, form, { action = "accept", content = { name = "Ann" } })
    assert.equal("Ann", upstream.text(first:answer(20)))
    assert.equal("b", upstream.text(second:answer(20)))
    assert.equal("accept", result.action)
  end)
end)

describe("the capabilities that an upstream sees", function()
  local function seen(u, n)
    return u:wait({ method = "initialize" }, n).json.params.capabilities
  end

  for _, row in ipairs {
    { "2025-11-25", EVERYTHING, EVERYTHING },
    { "2025-11-25", { elicitation = {} }, { elicitation = { form = {} } } },
    { "2025-11-25", { elicitation = { url = {} } }, { elicitation = { url = {} } } },
    { "2025-11-25", { sampling = { tools = {} }, experimental = { x = {} }, tasks = {} }, { sampling = { tools = {} } } },
    { "2025-06-18", { elicitation = { url = {} }, sampling = { tools = {} } }, { elicitation = { form = {} }, sampling = {} } },
    { "2025-03-26", EVERYTHING, { sampling = {}, roots = {} } },
    { "2024-11-05", { roots = { listChanged = true } }, { roots = { listChanged = true } } },
    { "2024-11-05", { roots = { listChanged = false } }, { roots = {} } },
    { "2025-11-25", {}, {} },
  } do
    it("are those of a client of " .. row[1] .. " with " .. cjson.encode(row[2]), function()
      local u <close> = asking { revision = "2025-11-25" }
      local g <close> = upstream.gateway { one = u }
      local c <close> = g:client(row[1], { capabilities = row[2] })
      upstream.text(c:call("tools/call", { name = "one_echo", arguments = {} }))
      local call = u:wait { method = "tools/call" }
      assert.same(row[3], call.session.capabilities)
    end)
  end

  it("have the kinds that `asks` names, and a question of another kind is refused", function()
    local u <close> = asking { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = { one = { asks = { "roots" } } } })
    local c <close> = g:client("2025-11-25", { capabilities = EVERYTHING })
    local stream = open_ask(c, { { "elicitation/create", FORM }, { "roots/list", "{}" } })
    answer(c, stream:wait_event("roots/list").json, { roots = {} })
    local got = answers(stream)
    assert.equal(-32602, got[1].code)
    assert.same({ roots = {} }, got[2])
    assert.same({ roots = {} }, u:wait({ method = "tools/call" }).session.capabilities)
    assert.same({}, seen(u, 1))
  end)

  it("are none where all clients share a session, or `asks` is none", function()
    for _, entry in ipairs { { per = "gateway" }, { asks = "none" } } do
      local u <close> = asking { revision = "2025-11-25" }
      local g <close> = upstream.gateway({ one = u }, { entries = { one = entry } })
      local c <close> = g:client("2025-11-25", { capabilities = EVERYTHING })
      local stream = open_ask(c, { { "elicitation/create", FORM } })
      assert.equal(-32601, answers(stream)[1].code)
      for _, one in ipairs(u:all { method = "initialize" }) do assert.same({}, one.json.params.capabilities) end
    end
  end)
end)

describe("the asker", function()
  it("is named before the text where there is more than one upstream", function()
    local u <close> = asking { revision = "2025-11-25" }
    local other <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway { one = u, two = other }
    local c <close> = g:client("2025-11-25", { capabilities = EVERYTHING })
    local stream = open_ask(c, { { "elicitation/create", FORM } })
    local form = stream:wait_event("elicitation/create").json
    assert.equal("one asks: Name?", form.params.message)
    answer(c, form, { action = "decline" })
    assert.equal("decline", answers(stream)[1].action)
  end)
end)

describe("what an operator allows", function()
  local SAMPLING <const> = '{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}],"maxTokens":10}'
  local HOOK <const> = [[return upstream { ask = function(question, call)
    if question.method == "sampling/createMessage" then return nil, "not from here" end
    if question.method == "roots/list" then error "broken" end
    question.params.message = "(" .. call.method .. ") " .. question.params.message
    return question
  end }]]

  it("is decided by `ask` of its script, which changes or refuses questions; one that fails refuses", function()
    local u <close> = asking { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { scripts = { ["upstreams/one.lua"] = HOOK }, config = { log = { audit = "audit.jsonl" } } })
    local c <close> = g:client("2025-11-25", { capabilities = EVERYTHING })
    local stream = open_ask(c, { { "elicitation/create", FORM }, { "sampling/createMessage", SAMPLING }, { "roots/list", "{}" } })
    local form = stream:wait_event("elicitation/create").json
    assert.equal("(tools/call) Name?", form.params.message)
    answer(c, form, { action = "accept", content = { name = "Ann" } })
    local got = answers(stream)
    assert.equal("accept", got[1].action)
    assert.equal("not from here", got[2].message)
    assert.equal(-32603, got[3].code)
    g:wait_log("ask function failed", { upstream = "one" })
    local line = wait.for_fact("an audit line", 20, function()
      local file <close> = io.open(g.dir .. "/audit.jsonl")
      return file and file:read("a"):match '[^\n]*"event":"question"[^\n]*'
    end)
    line = cjson.decode(line)
    assert.same({ "one", "sampling/createMessage", "denied", "not from here" }, { line.upstream, line.method, line.outcome, line.why })
  end)

  it("is limited in number: at once for a call, and in a minute for a client", function()
    local u <close> = asking { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { constants = { upstream_questions = 2, upstream_questions_per_principal = 3 } })
    local c <close> = g:client("2025-11-25", { capabilities = EVERYTHING })
    local stream = open_ask(c, { { "elicitation/create", FORM }, { "elicitation/create", FORM }, { "elicitation/create", FORM } })
    local seen = {}
    for _ = 1, 2 do
      local form = stream:wait_event(function(event)
        return event.json and event.json.method == "elicitation/create" and not seen[event.json.id]
      end).json
      seen[form.id] = true
      answer(c, form, { action = "decline" })
    end
    local got = answers(stream)
    assert.same({ "decline", "decline", "cancel" }, { got[1].action, got[2].action, got[3].action })
    stream = open_ask(c, { { "elicitation/create", FORM }, { "elicitation/create", FORM } })
    answer(c, stream:wait_event("elicitation/create").json, { action = "decline" })
    got = answers(stream)
    assert.same({ "decline", "cancel" }, { got[1].action, got[2].action })
    assert.equal(2, g:status().counters.refused.questions)
  end)
end)

describe("a question that belongs to no call", function()
  it("is answered also if the call's answer follows at once", function()
    local u <close> = asking { revision = "2025-11-25", transport = "stdio" }
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client("2025-11-25", { capabilities = EVERYTHING })
    u.handlers.echo = function(x, reply)
      x.session.child:write '{"jsonrpc":"2.0","id":"ping","method":"ping"}\n'
      reply(x:complete '{"content":[]}')
    end
    u.strict = false
    assert.is_table(c:call("tools/call", { name = "one_echo", arguments = {} }).result)
    wait.for_fact("an answer to ping", 20, function()
      for _, entry in ipairs(u:all { kind = "response" }) do
        if entry.json.id == "ping" then return true end
      end
    end)
  end)
end)
