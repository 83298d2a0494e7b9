-- POST /api/call of the admin listener: an operator runs a tool inside a worker as a client would, and the lists of
-- tools, resources and prompts.
local client = require "spec.helpers.client"
local cjson = require "cjson.safe"
local collector = require "spec.helpers.collector"
local gateway = require "spec.helpers.gateway"
local stub = require "spec.helpers.stub"
local wait = require "spec.helpers.wait"

local token, view = ("o"):rep(32), ("v"):rep(32)
local revisions = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" }
local scripts = {
  ["tools/steps.lua"] = [[return tool { "Counts.", title = "Steps", input = { n = t.integer, password = t.optional(t.string) }, function(args, call)
    for i = 1, args.n do call:progress(i, args.n, "step " .. i) call:log("info", "said " .. i) end
    return args.n .. " for " .. call.principal.id end }]],
  ["tools/size.lua"] = [[return tool { "Asks.", function(args, call)
    local got, why = call:elicit("size", "Which size?", { size = t.one_of { "S", "M" } })
    return got and "size " .. got.size or "no: " .. why end }]],
  ["tools/model.lua"] = [[return tool { "Asks a model.", function(args, call)
    local got, why = call:sample("said", "Say something")
    return got and got.content.text or "no: " .. why end }]],
  ["tools/refund.lua"] = 'return tool { "Refunds.", destructive = true, scopes = { "orders:refund" }, function() return "done" end }',
  ["tools/hold.lua"] = 'return tool { "Holds.", function() log.info "holds" sleep(300) end }',
  ["tools/fails.lua"] = 'return tool { "Fails.", function() return nil, "no luck" end }',
  ["policy/no.lua"] = 'return policy { "Nobody refunds more.", tools = { "refund" }, function(call, next) return nil, "the policy says no" end }',
  ["resources/note.lua"] = 'return resource { "A note.", uri = "note://{name}", function(vars) return "note " .. vars.name end }',
  ["prompts/hello.lua"] = 'return prompt { "Greets.", args = { who = t.string }, function(args) return "Hello " .. args.who end }',
}

local function start(config, more)
  config = config or {}
  config.admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token }, view = { ann = view } } }
  config.log = { audit = "audit.log" }
  local options = { scripts = scripts, config = config }
  for key, value in pairs(more or {}) do options[key] = value end
  local g = gateway.start(options)
  wait.for_fact("the workers", 20, function() -- the admin listener answers before the workers do
    local headers = { Authorization = "Bearer " .. view }
    return client.request(g, { path = "/api/tools", headers = headers }, { admin = true }).status == 200
  end)
  return g
end

local function get(g, path, bearer)
  return client.request(g, { path = path, headers = { Authorization = "Bearer " .. (bearer or token) } }, { admin = true })
end

local function post_of(path, body, more)
  body = type(body) == "string" and body or cjson.encode(body)
  local headers = { Authorization = "Bearer " .. token, ["moonpool-admin"] = "1", ["Content-Type"] = "application/json", ["Content-Length"] = #body }
  for name, value in pairs(more or {}) do headers[name] = value or nil end
  return { method = "POST", path = path, headers = headers, body = body }
end

local function post(g, path, body, more) return client.request(g, post_of(path, body, more), { admin = true }) end

-- The events of a run, as they come: a connection with wait_for(fact), and `run`, its name.
local function begin(g, body)
  local reader = client.connect(g, { admin = true })
  reader:send(post_of("/api/call", body))
  assert.equal(200, reader:read_head().status)
  local opened = reader:wait_event(function(event) return event.json and event.json.event == "call opened" end).json
  return reader, opened.run
end

local function wait_for(reader, fact)
  return reader:wait_event(function(event) return type(event.json) == "table" and fact(event.json) end, 30).json
end

local function closed(reader) return wait_for(reader, function(event) return event.event == "call closed" end) end
local function answer(reader) return wait_for(reader, function(event) return event.call ~= nil end) end

-- Runs a tool that asks no question: begins the run, and returns its answer and its last event.
local function run(g, body)
  local reader <close> = begin(g, body)
  local got, over = answer(reader), closed(reader)
  return got.message, over, reader:messages(), got
end

local function call_of(tool, arguments, more)
  local body = { method = "tools/call", params = { name = tool, arguments = arguments } }
  for key, value in pairs(more or {}) do body[key] = value end
  return body
end

local function audit(g)
  local file = io.open(g.dir .. "/audit.log")
  local text = file and file:read "a" or ""
  if file then file:close() end
  return text
end

describe("POST /api/call", function()
  it("runs a tool in every revision, with progress and logs as they come, and the audit names the caller", function()
    local g <close> = start { workers = 2 }
    for _, revision in ipairs(revisions) do
      local message, over, events, got = run(g, call_of("steps", { n = 2 }, { revision = revision }))
      assert.equal("2 for local", message.result.content[1].text, revision)
      assert.matches("^%x+$", got.call)
      assert.equal("number", type(got.ms))
      assert.same({ "answered", 0 }, { over.why, over.dropped })
      local seen = {}
      for _, event in ipairs(events) do
        if event.message and event.message.method then seen[#seen + 1] = event.message.method:match "[^/]*$" end
      end
      assert.same({ "progress", "message", "progress", "message", "steps" }, seen, revision)
      wait.for_fact("the line of the call", 10, function()
        return audit(g):find(('"event":"call","id":"%s","principal":"local"[^\n]*"caller":"token joe"[^\n]*"name":"steps","outcome":"ok"'):format(got.call))
      end)
    end
    assert.equal(#revisions, select(2, audit(g):gsub('"event":"call run by operator"[^\n]*"caller":"token joe","why":"tools/call steps"', "")))
    g:wait_status(function(now) return now.gauges.admin_runs == 0 and now.gauges.requests_in_flight == 0 end)
    assert.has_nothing_left(g)
  end)

  -- The steps in the events of a run: "NAME" or "OUTER > NAME (OBJECT)!", `!` where it has failed, in the order in
  -- which they began.
  local function steps_of(events)
    local found, steps = {}, nil
    for _, event in ipairs(events) do
      if event.message and event.message.method == "moonpool/steps" then
        assert.is_nil(steps, "steps twice")
        steps = event.message.params.steps
      end
    end
    for i, step in ipairs(steps) do
      local outer = steps[step.below + 1]
      assert.equal(i == 1, outer == nil)
      if outer then
        assert.truthy(step.began_us >= outer.began_us and step.began_us + step.took_us <= outer.began_us + outer.took_us + 1000)
      end
      local where = outer and i > 2 and outer.name .. " > " or ""
      found[i] = where .. step.name .. (step.object and " (" .. step.object .. ")" or "") .. (step.failed and "!" or "")
    end
    return found
  end

  it("gives the steps of the call and their times, without traces.otlp and with it", function()
    local contexts = 0
    local site <close> = stub.start(function(request, reply)
      if request.headers.traceparent then contexts = contexts + 1 end
      reply:json {}
    end)
    local c <close> = collector.start()
    local more = { scripts = {
      ["policy/all.lua"] = 'return policy { "All.", function(call, next) return next(call) end }',
      ["tools/works.lua"] = ([[return tool { "Works.", function()
        trace.span("outer", function()
          assert(http.get("http://127.0.0.1:%d/a?key=marked-secret"))
          local db = try(sqlite.open("notes.db", {}))
          try(db:exec("create table if not exists t (a)"))
        end)
        trace.span("broken", function() return nil, "no" end)
        return trace.id() or "no trace"
      end }]]):format(site.port),
    } }
    local expected = { "tools/call works", "policy all", "policy all > handler", "handler > outer", ("outer > GET (http://127.0.0.1:%d/a)"):format(site.port),
      "outer > CREATE notes.db (create table if not exists t (a))", "handler > broken!" }
    for mode, traces in pairs { off = false, unsampled = c:config { sample = 0, propagate = { "*" } }, sampled = c:config() } do
      local g <close> = start({ traces = traces or nil, scripts = { allow = { net = { "127.0.0.1:" .. site.port }, read = { "." }, write = { "." } } } }, more)
      for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
        local message, _, events = run(g, call_of("works", {}, { revision = revision }))
        assert.same(expected, steps_of(events), mode)
        assert.equal(mode == "sampled", message.result.content[1].text ~= "no trace")
        assert.is_nil(cjson.encode(events):find("marked-secret", 1, true))
      end
      local counted = g:status().counters.traces
      assert.equal(mode == "sampled", counted.recorded > 0, mode)
      assert.equal(0, counted.discarded)
    end
    assert.equal(0, contexts, "a call that is not recorded goes on")
    c:wait("tools/call works", 2)
  end)

  it("runs as a principal with scopes; scopes and policies decide as for a client", function()
    local g <close> = start()
    for _, revision in ipairs { "2025-06-18", "2026-07-28" } do
      local function refund(principal) return (run(g, call_of("refund", {}, { revision = revision, principal = principal }))) end
      assert.matches("unknown tool", refund({ id = "ann", scopes = {} }).error.message)
      assert.matches("unknown tool", refund("anonymous").error.message)
      for _, who in ipairs { { id = "ann", scopes = { "orders:*" } }, "local" } do
        local result = refund(who).result
        assert.is_true(result.isError)
        assert.equal("the policy says no", result.content[1].text)
      end
      assert.equal("1 for bob", (run(g, call_of("steps", { n = 1 }, { revision = revision, principal = "bob" }))).result.content[1].text)
    end
    wait.for_fact("the line of the denial", 10, function()
      return audit(g):find '"event":"call"[^\n]*"principal":"ann"[^\n]*"caller":"token joe"[^\n]*"outcome":"denied"[^\n]*"policy":"no"'
    end)
    local refused <close> = begin(g, call_of("steps", { n = 1 }, { principal = { id = "ann", scopes = { "two words" } } }))
    assert.matches("is not a scope", wait_for(refused, function(event) return event.message ~= nil end).message.error.message)
    assert.equal("refused", closed(refused).why)
    local reserved <close> = begin(g, call_of("steps", { n = 1 }, { principal = { id = "local" } }))
    assert.matches("is the id of", wait_for(reserved, function(event) return event.message ~= nil end).message.error.message)
    refused:close()
    reserved:close()
    assert.has_nothing_left(g)
  end)

  it("passes questions of the tool on, and their answers back: by its session, or by the request that is sent again", function()
    local g <close> = start { workers = 2 }
    local function question(reader, tail)
      return wait_for(reader, function(event) return event.message and event.message.method == tail end).message
    end
    local reader <close>, name = begin(g, call_of("size", {}, { revision = "2025-06-18" }))
    local asked = question(reader, "elicitation/create")
    assert.equal("Which size?", asked.params.message)
    assert.equal(404, post(g, "/api/answer/0000000000000000", { id = asked.id, result = {} }).status)
    assert.equal(400, post(g, "/api/answer/" .. name, { id = asked.id }).status)
    assert.equal(400, post(g, "/api/answer/" .. name, { size = "M" }).status)
    assert.equal(200, post(g, "/api/answer/" .. name, { id = asked.id, result = { action = "accept", content = { size = "M" } } }).status)
    assert.equal("size M", answer(reader).message.result.content[1].text)
    assert.equal("answered", closed(reader).why)
    assert.equal(404, post(g, "/api/answer/" .. name, { cancel = true }).status)

    local model <close>, second = begin(g, call_of("model", {}, { revision = "2025-11-25" }))
    local sampled = question(model, "sampling/createMessage")
    local said = { role = "assistant", model = "a person", content = { type = "text", text = "something" } }
    assert.equal(200, post(g, "/api/answer/" .. second, { id = sampled.id, result = said }).status)
    assert.equal("something", answer(model).message.result.content[1].text)

    local again <close>, third = begin(g, call_of("size", {}, { revision = "2026-07-28" }))
    local needed = answer(again).message.result
    assert.equal("input_required", needed.resultType)
    local key = next(needed.inputRequests)
    assert.equal("elicitation/create", needed.inputRequests[key].method)
    local params = { name = "size", arguments = {}, requestState = needed.requestState,
      inputResponses = { [key] = { action = "accept", content = { size = "S" } } } }
    assert.equal(200, post(g, "/api/answer/" .. third, { params = params }).status)
    local got = wait_for(again, function(event) return event.message and event.message.id == 2 end)
    assert.equal("size S", got.message.result.content[1].text)
    assert.equal("answered", closed(again).why)
    for _, one in ipairs { reader, model, again } do one:close() end
    assert.has_nothing_left(g)
  end)

  it("cancels when the operator says so and when the reader leaves", function()
    local g <close> = start()
    for i, revision in ipairs { "2025-06-18", "2026-07-28" } do
      local reader <close>, name = begin(g, call_of("hold", {}, { revision = revision }))
      wait.for_fact("the tool to run", 20, function() return select(2, g:log():gsub("holds", "")) >= 2 * i - 1 end)
      assert.equal(200, post(g, "/api/answer/" .. name, { cancel = true }).status)
      assert.equal("cancelled by an operator", closed(reader).why)
      local leaver = begin(g, call_of("hold", {}, { revision = revision }))
      wait.for_fact("the tool to run again", 20, function() return select(2, g:log():gsub("holds", "")) >= 2 * i end)
      leaver:close()
      reader:close()
      g:wait_status(function(now) return now.gauges.admin_runs == 0 and now.gauges.requests_in_flight == 0 end)
    end
    wait.for_fact("the lines of the calls", 10, function()
      return select(2, audit(g):gsub('"caller":"token joe"[^\n]*"name":"hold","outcome":"cancelled"', "")) == 4
    end)
    assert.has_nothing_left(g)
  end)

  it("reads resources, gets prompts and completes their arguments", function()
    local g <close> = start()
    for _, revision in ipairs(revisions) do
      local function text(method, params)
        return (run(g, { method = method, params = params, revision = revision })).result
      end
      assert.equal("note x", text("resources/read", { uri = "note://x" }).contents[1].text)
      assert.equal("Hello you", text("prompts/get", { name = "hello", arguments = { who = "you" } }).messages[1].content.text)
    end
  end)

  it("refuses what it does not understand, callers without the role, and more than 16 at once", function()
    local g <close> = start(nil, { constants = { admin_runs = 1 } })
    for body, why in pairs {
      [""] = "send an object", ["[]"] = "send an object", ["{}"] = "send an object", ['{"method":"tools/call"}'] = "send an object",
      ['{"method":"tools/call","params":[]}'] = "send an object", ['{"method":"tools/call","params":{},"more":1}'] = "send an object",
      ['{"method":"moonpool/inspect","params":{}}'] = "method is", ['{"method":"initialize","params":{}}'] = "method is",
      ['{"method":"tools/call","params":{},"revision":"1999-01-01"}'] = "revision is", ['{"method":"tools/call","params":{},"revision":7}'] = "revision is",
      ['{"method":"tools/call","params":{},"principal":7}'] = "a principal is", ['{"method":"tools/call","params":{},"principal":{}}'] = "a principal is",
    } do
      local refused = post(g, "/api/call", body)
      assert.equal(400, refused.status, body)
      assert.truthy(refused:json().error:find(why, 1, true), refused.body)
    end
    local body = call_of("hold", {})
    assert.equal(401, post(g, "/api/call", body, { Authorization = false }).status)
    assert.equal(403, post(g, "/api/call", body, { Authorization = "Bearer " .. view }).status)
    assert.equal(403, post(g, "/api/answer/0000000000000000", { cancel = true }, { Authorization = "Bearer " .. view }).status)
    assert.equal(400, post(g, "/api/call", body, { ["moonpool-admin"] = false }).status)
    assert.equal(400, post(g, "/api/call", body, { ["Content-Type"] = "text/plain" }).status)
    assert.equal(403, post(g, "/api/call", body, { Origin = "http://evil.example" }).status)
    assert.equal(405, get(g, "/api/call").status)
    local held <close>, name = begin(g, body)
    local full = post(g, "/api/call", body)
    assert.equal(503, full.status)
    assert.truthy(full:json().error:find("16 calls of operators run here", 1, true))
    assert.equal(1, g:status().counters.refused.admin_runs)
    assert.equal(200, post(g, "/api/answer/" .. name, { cancel = true }).status)
    closed(held)
    assert.equal("1 for local", (run(g, call_of("steps", { n = 1 }))).result.content[1].text)
  end)

  it("ends what runs longer than 15 minutes, what runs for a caller that has lost the role, and with the gateway", function()
    local g <close> = start(nil, { constants = { admin_run_ms = 1000 } })
    local reader <close> = begin(g, call_of("hold", {}))
    assert.matches("the time of a run is over", closed(reader).why)
    g:wait_status(function(now) return now.gauges.requests_in_flight == 0 end)
    local h <close> = start({ workers = 2 })
    local open = {}
    for i, revision in ipairs(revisions) do open[i] = begin(h, call_of("hold", {}, { revision = revision })) end
    wait.for_fact("the tools to run", 20, function() return select(2, h:log():gsub("holds", "")) >= #revisions end)
    assert.equal(0, (h:stop()))
    for _, one in ipairs(open) do one:close() end
  end)

  it("drops notifications for which the reader or the admin thread has no room, counts them, and ends", function()
    local sent <const> = 3000
    local g <close> = start({ limits = { stream_queue = "8KiB" } }, { scripts = {
      ["tools/floods.lua"] = [[return tool { "Floods.", function(_, call)
        local text <const> = ("x"):rep(1000)
        for _ = 1, 3000 do call:log("info", text) end
        return "flooded" end }]],
    } })
    local reader <close> = begin(g, call_of("floods", {}))
    local over, seen = closed(reader), 0
    for _, event in ipairs(reader:messages()) do
      if event.message and event.message.method == "notifications/message" then seen = seen + 1 end
    end
    assert.truthy(over.why == "answered" or over.why:find("limits.stream_queue", 1, true), over.why)
    assert.truthy(over.dropped > 0)
    -- the events of the steps are notifications, too, and are among those dropped
    assert.truthy(seen + over.dropped >= sent, seen .. " + " .. over.dropped)
    assert.equal(over.dropped, g:status().counters.dropped.admin_runs)
    reader:close()
    g:wait_status(function(now) return now.gauges.admin_runs == 0 end)
    assert.has_nothing_left(g)
  end)

  it("is no way for clients to the questions of the pages", function()
    local g <close> = start()
    local me = g:client "2026-07-28"
    assert.equal(-32601, me:call("moonpool/inspect", { what = "tools" }).error.code)
    me:close()
  end)
end)

describe("the lists of tools, resources and prompts", function()
  it("say where each thing comes from, what it is and how it fares, to the role view", function()
    local g <close> = start()
    local me = g:client "2026-07-28"
    for _ = 1, 3 do me:call("tools/call", { name = "steps", arguments = { n = 1 } }) end
    me:call("tools/call", { name = "fails", arguments = {} })
    me:close()
    local by_name, list = {}, nil
    wait.for_fact("all calls to be counted", 20, function() -- a call is counted after its answer was sent
      list = get(g, "/api/tools", view):json()
      for _, tool in ipairs(list.tools) do by_name[tool.name] = tool end
      return by_name.steps.calls == 3 and by_name.fails.calls == 1
    end)
    assert.equal(6, list.total)
    assert.is_nil(list.next)
    local steps = by_name.steps
    assert.same({ "Steps", "Counts.", "script", "tools/steps.lua", 3, 0 },
      { steps.title, steps.description, steps.origin, steps.from, steps.calls, steps.errors })
    assert.is_true(steps.p50_ms > 0 and steps.p99_ms >= steps.p50_ms)
    assert.is_true(by_name.refund.destructive)
    assert.is_nil(steps.destructive)
    assert.same({ 1, 1 }, { by_name.fails.calls, by_name.fails.errors })
    assert.equal("note://{name}", get(g, "/api/resources", view):json().resources[1].uri_template)
    assert.equal("hello", get(g, "/api/prompts", view):json().prompts[1].name)
    local calls = g:status().counters.calls
    local one = get(g, "/api/tool/fails", view):json()
    assert.equal("failed", one.failures[1].outcome)
    assert.matches("^%x+$", one.failures[1].call)
    wait.for_fact("the failed call in the log or the audit", 20, function()
      return g:log():find(one.failures[1].call, 1, true) or audit(g):find(one.failures[1].call, 1, true)
    end)
    for _, revision in ipairs(revisions) do assert.equal("fails", one.definitions[revision].name) end
    local refund = get(g, "/api/tool/refund", view):json()
    assert.same({ { "orders:refund" }, { "no" } }, { refund.scopes, refund.policies })
    assert.is_true(refund.annotations.destructiveHint)
    assert.equal("integer", get(g, "/api/tool/steps", view):json().input.properties.n.type)
    assert.equal("who", get(g, "/api/prompt/hello", view):json().arguments[1].name)
    assert.equal("note://{name}", get(g, "/api/resource?uri=note%3A%2F%2Fx", view):json().uri_template)
    assert.equal(calls, g:status().counters.calls)
    assert.is_nil(audit(g):find("moonpool/inspect", 1, true))
    assert.has_nothing_left(g)
  end)

  it("need a role, name what is near a wrong name, and refuse wrong questions", function()
    local g <close> = start()
    for _, path in ipairs { "/api/tools", "/api/resources", "/api/prompts", "/api/tool/steps", "/api/prompt/hello", "/api/resource?uri=note%3A%2F%2Fx" } do
      assert.equal(401, client.request(g, { path = path }, { admin = true }).status, path)
      assert.equal(200, get(g, path, view).status, path)
      assert.equal(405, post(g, path:gsub("%?.*", ""), "{}").status, path)
    end
    local unknown = get(g, "/api/tool/stepz")
    assert.equal(404, unknown.status)
    assert.matches("did you mean 'steps'", unknown:json().error)
    for _, path in ipairs {
      "/api/tools?page=-1", "/api/tools?page=x", "/api/tools?more=1", "/api/tools?search=%ff", "/api/tool/%zz", "/api/tool/%00",
      "/api/resource",
    } do
      assert.equal(400, get(g, path).status, path)
    end
    assert.equal(404, get(g, "/api/tool/" .. ("x"):rep(4000)).status)
    assert.same({}, get(g, "/api/tools?page=7"):json().tools)
    assert.equal(1, get(g, "/api/tools?search=STEP"):json().total)
    assert.equal(1, get(g, "/api/tools?search=st%65p"):json().total)
  end)

  it("come in pages of 200, with names that mean something to HTML as they are", function()
    local many = {}
    for i = 1, 450 do many[("tools/t%03d.lua"):format(i)] = 'return tool { "<img src=x onerror=alert(1)> \u{202e}", function() return "x" end }' end
    local g <close> = gateway.start { scripts = many, config = { admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } } } }
    local count, page = 0, 0
    repeat
      local answered = get(g, ("/api/tools?page=%d"):format(page))
      assert.equal(200, answered.status, answered.body)
      local list = answered:json()
      assert.is_true(#list.tools <= 200)
      assert.equal(450, list.total)
      for _, tool in ipairs(list.tools) do
        count = count + 1
        assert.equal(("t%03d"):format(count), tool.name)
        assert.equal("<img src=x onerror=alert(1)> \u{202e}", tool.description)
      end
      page = list.next
    until not page
    assert.equal(450, count)
  end)
end)
