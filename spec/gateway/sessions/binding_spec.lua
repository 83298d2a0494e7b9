-- A principal's sessions, streams, replay, calls, questions, tasks, states and cursors belong to it. For any other
-- principal they do not exist, byte for byte (A-13; rows B-30, B-32, B-33, B-35). A new token of the same principal can
-- use them.
-- proves: what a principal opens is its own 2025-03-26.. http
-- proves: client tasks/list 2025-11-25 http
-- proves: server tasks.list 2025-11-25 http
local credentials = require "spec.helpers.credentials"
local gateway = require "spec.helpers.gateway"
local resume = require "spec.helpers.resume"
local wire = require "spec.helpers.wire"

local scripts = {
  ["auth/main.lua"] = credentials.script, ["tools/who.lua"] = credentials.who,
  ["tools/slow.lua"] = [[return tool { "Slow.", function(_, call)
    call:progress(1)
    while not store.get("go") do sleep(0.005) end
    return call.principal.id
  end }]],
  ["tools/go.lua"] = [[return tool { "Go.", function() store.set("go", true) return "gone" end }]],
  ["tools/ask.lua"] = [[return tool { "Asks.", function(_, call)
    local yes, why = call:elicit("sure", "Sure?", { name = t.string })
    return yes and yes.name or why
  end }]],
  ["tools/task.lua"] = [[return tool { "A task.", task = "optional", function() sleep(20) return 1 end }]],
}
for path, text in pairs(resume.scripts) do
  scripts[path] = scripts[path] or text
end

local unknown = ("0123456789abcdef"):rep(2) .. "0123"
local stateful = { "2025-03-26", "2025-06-18", "2025-11-25" }

local function start(config)
  return gateway.start { scripts = scripts, config = config }
end

local function leave(...)
  for _, me in ipairs { ... } do
    if me.delete and me.session then me:delete() end
    me:close()
  end
end

-- The bytes of an answer without the date, which does not depend on the session.
local function bytes(response)
  return response.status .. " " .. response.head:gsub("[Dd]ate: [^\r]*\r\n", "") .. response.body
end

-- The requests that name a session, as `token` sends them.
local function probes(revision, id, token)
  local headers = {
    Authorization = "Bearer " .. token, ["Mcp-Session-Id"] = id, Accept = wire.both, ["Content-Type"] = "application/json",
    ["MCP-Protocol-Version"] = revision ~= "2025-03-26" and revision or false,
  }
  local function over(more)
    local all = {}
    for name, value in pairs(headers) do all[name] = value end
    for name, value in pairs(more or {}) do all[name] = value end
    return all
  end
  local function post(body) return { method = "POST", path = "/mcp", headers = over(), body = body } end
  return {
    post(wire.message(1, "tools/call", { name = "who" })), post(wire.message(1, "nothing")), post(wire.initialize_message(revision)),
    post { jsonrpc = "2.0", method = "notifications/initialized" }, post { jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = 1 } },
    post { jsonrpc = "2.0", id = "ask-0-1", result = {} }, post { wire.message(1, "ping") },
    { method = "GET", path = "/mcp", headers = over { Accept = "text/event-stream" } },
    { method = "GET", path = "/mcp", headers = over { Accept = "text/event-stream", ["Last-Event-ID"] = "0-0" } },
    { method = "DELETE", path = "/mcp", headers = over() },
  }
end

for _, revision in ipairs(stateful) do
  describe("a session of " .. revision, function()
    it("answers other principals, byte for byte, as for an unknown, an ended or a malformed session id (B-32)", function()
      local g <close> = start()
      local ann, gone = g:client(revision, { token = "ann-1" }), g:client(revision, { token = "ann-1" })
      gone:delete()
      local connection <close> = g:connect()
      local foreign, strange, ended = probes(revision, ann.session, "bob-1"), probes(revision, unknown, "bob-1"), probes(revision, gone.session, "bob-1")
      local mine = probes(revision, gone.session, "ann-1")
      for i = 1, #foreign do
        local seen = bytes(connection:request(foreign[i]))
        assert.equal(seen, bytes(connection:request(strange[i])))
        assert.equal(seen, bytes(connection:request(ended[i])))
        assert.equal(seen, bytes(connection:request(mine[i])))
        assert.truthy(seen:find(i == 7 and "^400" or "^404"), seen)
      end
      assert.equal("user:ann", (credentials.ask(ann)))
      connection:close()
      leave(ann, gone)
      assert.has_nothing_left(g)
    end)

    it("accepts a new token of its principal, and no token of another principal (B-33)", function()
      local g <close> = start()
      local ann = g:client(revision, { token = "ann-1" })
      for i = 2, 5 do
        ann.token = "ann-" .. i
        assert.equal("user:ann", (credentials.ask(ann)))
        ann.token = "bob-" .. i
        assert.equal(404, select(2, credentials.ask(ann)))
        ann.token = "nobody-1"
        assert.equal(401, select(2, credentials.ask(ann)))
      end
      ann.token = "ann-9"
      local own = ann:get_stream()
      assert.equal(200, own:head().status)
      assert.equal(204, ann:delete().status)
      leave(ann)
      assert.has_nothing_left(g)
    end)

    it("is resumed by its principal alone", function()
      local g <close> = start()
      local ann = g:client(revision, { token = "ann-1" })
      local stream = resume.steps(ann, 3, 50)
      local at = stream:wait_event(resume.step(1)).id
      stream:hang_up()
      local function again(token)
        ann.token = token
        return resume.after(ann, at)
      end
      local refused = again "bob-1"
      assert.equal(404, refused:head().status)
      assert.is_nil(refused:head().sse)
      again("ann-2"):wait_event(stream.id)
      leave(ann)
      assert.has_nothing_left(g)
    end)

    it("has calls that no other principal can cancel, and questions that no other principal can answer (B-30, B-31)", function()
      local g <close> = start()
      local ann = g:client(revision, { token = "ann-1", capabilities = { elicitation = {} } })
      local bob = g:client(revision, { token = "bob-1" })
      local slow = ann:open("tools/call", { name = "slow", _meta = { progressToken = 1 } }):wait "notifications/progress"
      for _, session in ipairs { bob.session, ann.session } do
        local headers = bob:headers()
        headers["Mcp-Session-Id"] = session
        local note = { jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = slow.id } }
        assert.equal(session == bob.session and 202 or 404, wire.post(g, note, headers).status)
      end
      if revision ~= "2025-03-26" then
        local asked = ann:open("tools/call", { name = "ask" })
        local question = asked:wait_event("elicitation/create").json
        local answer = { jsonrpc = "2.0", id = question.id, result = { action = "accept", content = { name = "bob" } } }
        local headers = bob:headers()
        assert.equal(202, wire.post(g, answer, headers).status)
        headers["Mcp-Session-Id"] = ann.session
        assert.equal(404, wire.post(g, answer, headers).status)
        answer.result.content.name = "ann"
        assert.equal(202, ann:post(answer).status)
        assert.equal("ann", asked:answer().result.content[1].text)
      end
      bob:result("tools/call", { name = "go" })
      assert.equal("user:ann", slow:answer().result.content[1].text)
      slow:close()
      leave(ann, bob)
      assert.has_nothing_left(g)
    end)
  end)
end

describe("a session of 2024-11-05", function()
  it("accepts messages of its principal alone; for others its URL is that of an unknown session (B-32, B-33)", function()
    local g <close> = start()
    local ann, bob = g:client("2024-11-05", { token = "ann-1" }), g:client("2024-11-05", { token = "bob-1" })
    local gone = g:client("2024-11-05", { token = "ann-1" })
    leave(gone)
    g:wait_status(function(status) return status.gauges.sessions.sse == 2 end)
    local connection <close> = g:connect()
    local slow = ann:open("tools/call", { name = "slow", _meta = { progressToken = 1 } }):wait "notifications/progress"
    for _, body in ipairs {
      wire.message(1, "tools/call", { name = "who" }), wire.initialize_message "2024-11-05", { jsonrpc = "2.0", method = "notifications/initialized" },
      { jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = slow.id } }, { wire.message(1, "ping") }, "{",
    } do
      local function to(endpoint)
        local headers = { Authorization = "Bearer bob-1", ["Content-Type"] = "application/json" }
        return bytes(connection:request { method = "POST", path = endpoint, headers = headers, body = body })
      end
      local seen = to(ann.endpoint)
      assert.truthy(seen:find "^404")
      assert.equal(seen, to("/messages?session_id=" .. unknown))
      assert.equal(seen, to(gone.endpoint))
    end
    ann.token = "ann-2"
    ann:result("tools/call", { name = "go" })
    assert.equal("user:ann", slow:answer().result.content[1].text)
    assert.equal("user:bob", (credentials.ask(bob)))
    connection:close()
    leave(ann, bob)
    assert.has_nothing_left(g)
  end)
end)

describe("2026-07-28", function()
  local function retry(me, first, token)
    me.token = token
    local answers = { sure = { action = "accept", content = { name = "x" } } }
    return me:call("tools/call", { name = "ask", requestState = first.requestState, inputResponses = answers })
  end

  it("accepts requestState from its principal alone", function()
    local g <close> = start()
    local ann = g:client("2026-07-28", { token = "ann-1", capabilities = { elicitation = {} } })
    local first = ann:result("tools/call", { name = "ask" })
    assert.equal("input_required", first.resultType)
    local refused, response = retry(ann, first, "bob-1")
    assert.same({ 400, -32602 }, { response.status, refused.error.code })
    assert.equal("x", retry(ann, first, "ann-2").result.content[1].text)
    leave(ann)
    assert.has_nothing_left(g)
  end)

  it("finds a task for its principal alone; others get the answer for an unknown task (B-30)", function()
    local g <close> = start()
    local extension = { extensions = { ["io.modelcontextprotocol/tasks"] = {} } }
    local ann = g:client("2026-07-28", { token = "ann-1", capabilities = extension })
    local bob = g:client("2026-07-28", { token = "bob-1", capabilities = extension })
    local id = ann:result("tools/call", { name = "task" }).taskId
    for _, method in ipairs { "tasks/get", "tasks/cancel", "tasks/update" } do
      local function ask(it) return (bob:call(method, { taskId = it, inputResponses = {} })) end
      local foreign, random = ask(id), ask(unknown)
      assert.same(random.error, foreign.error)
      assert.equal(-32602, foreign.error.code)
    end
    ann.token = "ann-2"
    assert.equal("working", ann:result("tasks/get", { taskId = id }).status)
    ann:result("tasks/cancel", { taskId = id })
    leave(ann, bob)
    assert.has_nothing_left(g)
  end)
end)

describe("tasks/list of 2025-11-25", function()
  it("lists the tasks of all sessions of the principal, and no tasks of another principal", function()
    local g <close> = start()
    local ann, other = g:client("2025-11-25", { token = "ann-1" }), g:client("2025-11-25", { token = "ann-2" })
    local bob = g:client("2025-11-25", { token = "bob-1" })
    assert.is_table(ann.server.capabilities.tasks.list)
    local id = ann:result("tools/call", { name = "task", task = { ttl = 60000 } }).task.taskId
    assert.equal(id, other:result("tasks/list", {}).tasks[1].taskId)
    assert.same({}, bob:result("tasks/list", {}).tasks)
    assert.equal(-32602, bob:call("tasks/cancel", { taskId = id }).error.code)
    other:result("tasks/cancel", { taskId = id })
    leave(ann, other, bob)
    assert.has_nothing_left(g)
  end)
end)

describe("a cursor", function()
  it("of a list that depends on the principal is valid for that principal alone", function()
    local many = {}
    for path, text in pairs(scripts) do many[path] = text end
    for i = 1, 120 do
      many[("tools/n%03d.lua"):format(i)] = "return tool { 'N.', scopes = { 'notes:read' }, function() return 1 end }"
    end
    local g <close> = gateway.start { scripts = many, config = { limits = { page = "8KiB" } } }
    local ann = g:client("2026-07-28", { token = "ann-1" })
    local cursor = ann:result("tools/list", {}).nextCursor
    ann.token = "bob-1"
    assert.equal(-32602, ann:call("tools/list", { cursor = cursor }).error.code)
    ann.token = "ann-2"
    assert.is_true(#ann:result("tools/list", { cursor = cursor }).tools > 0)
    leave(ann)
  end)
end)

describe("sessions.per_principal", function()
  it("counts the sessions of a principal across all clients", function()
    local g <close> = start { sessions = { per_principal = 2 } }
    local one, two = g:client("2025-11-25", { token = "ann-1" }), g:client("2024-11-05", { token = "ann-2" })
    local response = wire.post(g, wire.initialize_message "2025-11-25", { Authorization = "Bearer ann-3" })
    assert.equal(429, response.status)
    local bob = g:client("2025-11-25", { token = "bob-1" })
    leave(one)
    local three = g:client("2025-11-25", { token = "ann-4" })
    leave(two, three, bob)
    assert.has_nothing_left(g)
  end)
end)

describe("principal ids that look like syntax", function()
  it("are compared as bytes: principals with different ids share no session (B-35)", function()
    local subjects = { "a&user=b", "a#b", "a%00b", "*", "..", "a:b", "a@b", "a", "3:a", "a,b", "-", "é", "{\"id\":\"a\"}" }
    local list = {}
    for i, subject in ipairs(subjects) do list[i] = ("%q"):format(subject) end
    local g <close> = gateway.start { scripts = { ["tools/who.lua"] = credentials.who, ["auth/main.lua"] = ([[
      local subjects = { %s }
      return auth { function(request)
        local kind, i = try(request.bearer, "none"):match "^(%%a)(%%d+)$"
        local name = subjects[tonumber(i)]
        if kind == "s" then return { id = "x", issuer = "i", subject = name } end
        if kind == "c" then return { id = "x", issuer = "i", client = name } end
        return { id = name }
      end }]]):format(table.concat(list, ", ")) } }
    local clients = {}
    for i, subject in ipairs(subjects) do
      for _, kind in ipairs { "s", "c", "i" } do
        local me = g:client("2025-11-25", { token = kind .. i })
        clients[#clients + 1] = me
        if kind == "i" then assert.equal(subject, (credentials.ask(me))) end
      end
    end
    for i, me in ipairs(clients) do
      local token = me.token
      for _, step in ipairs { 1, 2, 3, 7 } do
        me.token = clients[(i + step - 1) % #clients + 1].token
        assert.equal(404, select(2, credentials.ask(me)), token .. " " .. me.token)
      end
      me.token = token
    end
    for _, id in ipairs { "*", "..", "a&user=b", clients[1].session .. "&", "%00", clients[1].session .. ":x", clients[1].session:upper() } do
      assert.equal(404, wire.post(g, wire.message(1, "ping"), { ["Mcp-Session-Id"] = id, Authorization = "Bearer s1" }).status)
    end
    leave(table.unpack(clients))
    assert.has_nothing_left(g)
  end)
end)
