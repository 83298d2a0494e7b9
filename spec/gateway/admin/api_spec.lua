-- /api of the admin listener: sessions and running calls, their end, the level of the log, draining.
local affinity = require "spec.helpers.affinity"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local blocking = require "spec.helpers.blocking"
local stub = require "spec.helpers.stub"
local wait = require "spec.helpers.wait"

local token = ("o"):rep(32)
local scripts = {
  ["tools/hold.lua"] = 'return tool { "Holds.", input = { n = t.integer }, function(args) log.info "holds" sleep(60) end }',
}

local function start(config)
  config = config or {}
  config.admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token }, view = { ann = ("v"):rep(32) } } }
  return gateway.start { scripts = scripts, config = config }
end

-- Sends a request with the header that changes need; `more` replaces headers (false: without).
local function api(g, method, path, body, more)
  local headers = { Authorization = "Bearer " .. token, ["moonpool-admin"] = "1", ["Content-Type"] = body and "application/json" }
  if method == "POST" then headers["Content-Length"] = #(body or "") end
  for name, value in pairs(more or {}) do headers[name] = value or nil end
  return client.request(g, { method = method, path = path, headers = headers, body = body }, { admin = true })
end

local function sessions(g)
  local all, page = {}, 0
  repeat
    local response = api(g, "GET", ("/api/sessions?page=%d"):format(page))
    assert.equal(200, response.status, response.body)
    local answer = response:json()
    table.move(answer.sessions, 1, #answer.sessions, #all + 1, all)
    page = answer.next
  until not page
  return all
end

local function calls(g)
  local answer = api(g, "GET", "/api/calls"):json()
  assert.equal(0, answer.workers_without_answer)
  return answer.calls
end

local function audit(g) return g:file "audit.log" end

describe("moonpool log", function()
  it("changes the level for a time, with the token of the variable", function()
    local g <close> = start { log = { level = "warn" } }
    local admin = "127.0.0.1:" .. g.admin_port
    local function run(...) return gateway.exec({ "log", "--admin", admin, ... }, { env = { MOONPOOL_ADMIN_TOKEN = token } }) end
    local code, out, err = run("--level", "debug", "--for", "1s")
    assert.same({ 0, "the level is debug for 1s\n", "" }, { code, out, err })
    wait.for_fact("the way back", 20, function() return g:log():find("log level +level=warn") end)
    for _, words in ipairs { {}, { "--level", "loud" }, { "--level", "info", "--for", "2d" }, { "--level", "info", "--for", "soon" } } do
      code, out, err = run(table.unpack(words))
      assert.same({ 2, "" }, { code, out }, err)
    end
    code, out, err = gateway.exec({ "log", "--admin", admin, "--level", "info" }, { env = { MOONPOOL_ADMIN_TOKEN = ("v"):rep(32) } })
    assert.same({ 1, "" }, { code, out })
    assert.match("this needs the role operate", err)
  end)
end)

describe("/api", function()
  it("needs a role even on a loopback address, and the header and JSON for changes", function()
    local g <close> = start()
    local view = "Bearer " .. ("v"):rep(32)
    for _, at in ipairs {
      { "GET", "/api/sessions" }, { "GET", "/api/calls" }, { "DELETE", "/api/session/12345678" }, { "DELETE", "/api/call/0-1" }, { "POST", "/api/log" },
      { "POST", "/api/drain" }, { "POST", "/api/upgrade" }, { "POST", "/api/log/reopen" },
    } do
      assert.equal(401, api(g, at[1], at[2], nil, { Authorization = false }).status, at[2])
      assert.equal(at[1] == "GET" and 200 or 403, api(g, at[1], at[2], nil, { Authorization = view }).status, at[2])
      assert.equal(405, api(g, "PUT", at[2]).status, at[2])
      if at[1] ~= "GET" then
        assert.equal(400, api(g, at[1], at[2], nil, { ["moonpool-admin"] = false }).status, at[2])
        assert.equal(400, api(g, at[1], at[2], "{}", { ["Content-Type"] = "text/plain", ["Content-Length"] = 2 }).status, at[2])
        assert.equal(403, api(g, at[1], at[2], nil, { Origin = "http://evil.example" }).status, at[2])
      end
    end
    assert.equal(404, api(g, "GET", "/api/nothing").status)
    assert.equal(404, api(g, "DELETE", "/api/session/").status)
    assert.is_false(g:status().draining)
    assert.has_nothing_left(g)
  end)

  it("lists sessions without their ids, and ends one: its client gets 404, its stream ends", function()
    local g <close> = start { log = { audit = "audit.log" } }
    local open = {}
    for _, revision in ipairs { "2025-03-26", "2025-11-25", "2024-11-05" } do
      local me = g:client(revision)
      me.listening = me.endpoint and me.stream or me:get_stream().connection
      me.listening:read_head()
      open[#open + 1] = me
    end
    local found = sessions(g)
    assert.equal(3, #found)
    local by_revision = {}
    for _, session in ipairs(found) do
      by_revision[session.revision] = session
      assert.matches("^%x%x%x%x%x%x%x%x$", session.session)
      assert.is_true(session.has_stream)
      assert.equal("127.0.0.1", session.address)
      assert.equal("anonymous", session.principal)
      assert.equal("string", type(session.client.name))
    end
    assert.equal("sse", by_revision["2024-11-05"].transport)
    for _, me in ipairs(open) do
      if me.session then assert.is_nil(api(g, "GET", "/api/sessions").body:find(me.session, 1, true)) end
    end
    assert.equal(404, api(g, "DELETE", "/api/session/00000000").status)
    for i, me in ipairs(open) do
      local mark = by_revision[({ "2025-03-26", "2025-11-25", "2024-11-05" })[i]].session
      assert.equal(200, api(g, "DELETE", "/api/session/" .. mark).status)
      me.listening:wait_end()
      assert.equal(404, api(g, "DELETE", "/api/session/" .. mark).status)
    end
    assert.same({}, sessions(g))
    assert.equal(3, g:status().counters.sessions_closed.operator)
    wait.for_fact("the lines of the audit", 20, function()
      return select(2, audit(g):gsub('"event":"session ended by operator"[^\n]*"caller":"token joe"', "")) >= 3
    end)
    for _, me in ipairs(open) do me:close() end
    assert.has_nothing_left(g)
  end)

  it("lists running calls of all workers, and cancels one: its client gets an error", function()
    local g <close> = start { workers = 2, log = { audit = "audit.log" } }
    local held = {}
    for _, revision in ipairs { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" } do
      local me = g:client(revision)
      held[#held + 1] = { me = me, pending = me:open("tools/call", { name = "hold", arguments = { n = #held } }) }
    end
    wait.for_fact("all calls to run", 10, function() return #calls(g) == #held end)
    local list = calls(g)
    for _, call in ipairs(list) do
      assert.matches("^%d+%-%d+$", call.call)
      assert.equal("tools/call", call.method)
      assert.equal("hold", call.name)
      assert.equal("number", type(call.running_ms))
    end
    assert.equal(404, api(g, "DELETE", "/api/call/0-999999").status)
    assert.equal(404, api(g, "DELETE", "/api/call/nonsense").status)
    assert.equal(404, api(g, "DELETE", "/api/call/99-1").status)
    assert.equal(404, api(g, "DELETE", "/api/call/0123456789abcdef").status)
    assert.equal(404, api(g, "DELETE", "/api/call/0000000000000000").status)
    assert.equal(#held, #calls(g))
    for i, call in ipairs(list) do
      assert.equal(200, api(g, "DELETE", "/api/call/" .. (i % 2 == 0 and call.id or call.call)).status)
      wait.for_fact("the audit's line of the call", 20, function()
        return audit(g):find(('"event":"call","id":"%s"[^\n]*"outcome":"cancelled"'):format(call.id))
      end)
    end
    for _, one in ipairs(held) do
      assert.equal("cancelled by an operator", one.pending:answer().error.message)
      one.me:close()
    end
    assert.equal(#held, g:status().counters.tool_aborted.operator)
    assert.same({}, calls(g))
  end)

  it("answers for the other workers while one is stuck", function()
    local g <close> = gateway.start {
      workers = 2, constants = { stuck_ms = 500 }, scripts = {
        ["tools/hold.lua"] = scripts["tools/hold.lua"],
        ["tools/block.lua"] = blocking.tool,
      },
      config = {
        scripts = { path = "scripts", trust = "full" },
        admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } },
      },
    }
    local blocked = g:client "2026-07-28"
    local pending = blocking.open(g, blocked)
    g:wait_status(function(now) return now.gauges.workers_stuck == 1 end, 20)
    local me = g:client "2026-07-28"
    me:open("tools/call", { name = "hold", arguments = { n = 1 } })
    g:wait_log "holds"
    local answer = api(g, "GET", "/api/calls"):json()
    assert.equal(1, answer.workers_without_answer)
    assert.equal(1, #answer.calls)
    assert.equal(200, api(g, "DELETE", "/api/call/" .. answer.calls[1].call).status)
    local worker = answer.calls[1].call:match "^0" and 1 or 0
    assert.equal(503, api(g, "DELETE", ("/api/call/%d-1"):format(worker)).status)
    blocking.release(g)
    pending:answer(20)
    me:close()
    blocked:close()
  end)

  it("changes the level of the log for a time", function()
    local g <close> = start()
    for body, why in pairs {
      [""] = "send an object", ["[]"] = "send an object", ["{}"] = "send an object", ['{"level":"loud"}'] = "level is debug",
      ['{"level":1}'] = "level is debug",
      ['{"level":"debug","seconds":0}'] = "from 1 to 86400", ['{"level":"debug","seconds":1e9}'] = "from 1 to 86400",
      ['{"levels":"debug"}'] = "the members are",
    } do
      local answer = api(g, "POST", "/api/log", body)
      assert.equal(400, answer.status, body)
      assert.truthy(answer.body:find(why, 1, true), answer.body)
    end
    local me = g:client "2026-07-28"
    assert.equal(200, api(g, "POST", "/api/log", '{"level":"debug","seconds":1}').status)
    me:call("tools/list", {})
    g:wait_log("request", { method = "tools/list" })
    wait.for_fact("the level to go back", 10, function()
      return select(2, g:log():gsub("log level", "")) >= 2
    end)
    me:call("prompts/list", {})
    me:call("tools/call", { name = "nothing" })
    assert.is_nil(g:log():find("method=prompts/list", 1, true))
    me:close()
  end)

  it("drains as SIGTERM does", function()
    local g <close> = start()
    assert.equal(202, api(g, "POST", "/api/drain").status)
    assert.equal(0, (g:wait_exit(10)))
  end)

  it("says by a command whether it is healthy, without a token", function()
    local g <close> = start()
    local admin = "127.0.0.1:" .. g.admin_port
    local code, out, err = gateway.exec { "status", "--healthy", "--admin", admin }
    assert.same({ 0, "ok\n", "" }, { code, out, err })
    code, out, err = gateway.exec { "status", "--healthy", "--json", "--admin", admin }
    assert.same({ 2, "" }, { code, out })
    assert.matches("exclude each other", err)
    g:stop()
    code, out, err = gateway.exec { "status", "--healthy", "--admin", admin }
    assert.same({ 1, "" }, { code, out })
    assert.matches("no gateway answers", err)
  end)

  it("waits for no health that nothing says, and shows no control characters of another program that listens there", function()
    local server <close> = stub.start(function(request, answer)
      if request.headers["moonpool-admin"] then
        answer:send(503, nil, "\27[2Jnot\nthis\7\n")
      else
        answer:raw "HTTP/1.1 200 OK\r\n\r\no"
      end
    end)
    local admin = "127.0.0.1:" .. server.port
    local code, out, err = gateway.exec({ "status", "--healthy", "--admin", admin }, { seconds = 60 })
    assert.same({ 1, "" }, { code, out })
    assert.matches("no gateway answers at " .. admin, err)
    code, out, err = gateway.exec { "drain", "--admin", admin }
    assert.same({ 1, "", "<U+001B>[2Jnot\nthis<U+0007>\n" }, { code, out, err })
  end)

  it("drains by a command, after limits.linger, and the SIGTERM that follows does not hurry it", function()
    for _, then_sent in ipairs { "sigterm", "sigint" } do
      local g <close> = start { limits = { linger = "10m", drain = "10m" }, log = { audit = "audit.log" } }
      local me <close> = g:client "2025-11-25"
      for _ = 1, 2 do
        local code, out, err = gateway.exec({ "drain", "--admin", "127.0.0.1:" .. g.admin_port }, { env = { MOONPOOL_ADMIN_TOKEN = token } })
        assert.same({ 0, "it drains\n", "" }, { code, out, err })
      end
      g:wait_log("draining", { why = "POST /api/drain" })
      g:wait_log("lingering", { ms = "600000" })
      assert.equal(503, g:admin("/readyz").status)
      local code, out, err = gateway.exec { "status", "--healthy", "--admin", "127.0.0.1:" .. g.admin_port }
      assert.same({ 1, "", "draining\n" }, { code, out, err })
      g:signal(then_sent)
      if then_sent == "sigterm" then
        g:wait_log("draining", { signal = "15" })
        assert.same({}, me:result "ping") -- the gateway still serves: it drains for limits.linger
        g:signal "sigterm"
      end
      assert.equal(0, (g:wait_exit(20)))
      assert.equal(then_sent == "sigterm", g:log():find("stopping now", 1, true) ~= nil)
      assert.equal(2, select(2, audit(g):gsub("drain requested", "")))
    end
  end)
  it("drains by POST, and takes a SIGTERM that comes before it has begun", function()
    local g <close> = start { limits = { linger = "10m", drain = "10m" } }
    -- The thread that takes signals runs only while nothing else wants its processor, so both wait for it together.
    local core = affinity.first_core()
    assert.equal(0, (gateway.run_program("/usr/bin/taskset", { "-c", "-p", core, affinity.thread(g.pid, "watchdog") })))
    assert.equal(0, (gateway.run_program("/usr/bin/chrt", { "-i", "-p", "0", affinity.thread(g.pid, "watchdog") })))
    local hog <close> = affinity.hog(core)
    assert.equal(202, api(g, "POST", "/api/drain").status)
    g:signal "sigterm"
    hog:kill()
    g:wait_log("draining", { why = "POST /api/drain" })
    g:wait_log("draining", { signal = "15" })
    assert.falsy(g:log():find("stopping now", 1, true))
    g:signal "sigint"
    assert.equal(0, (g:wait_exit(20)))
  end)
end)

describe("the admin listener of a gateway whose clients are authenticated", function()
  it("says whose each session is", function()
    local credentials = require "spec.helpers.credentials"
    local g <close> = gateway.start { scripts = { ["auth/a.lua"] = credentials.script },
      config = { admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } } } }
    local ann <close> = g:client("2025-11-25", { token = "ann-1" })
    local bob <close> = g:client("2025-06-18", { token = "bob-1" })
    local found = {}
    for _, session in ipairs(sessions(g)) do found[session.revision] = session.principal end
    assert.same({ ["2025-11-25"] = "user:ann", ["2025-06-18"] = "user:bob" }, found)
    assert.is_string(ann.session .. bob.session)
  end)
end)

describe("the admin listener of a gateway that is full of clients", function()
  it("answers, shows who fills it, and makes room: connections, sessions and calls are at their limits", function()
    local g <close> = start { limits = { connections = 6, calls_in_flight = 3 }, sessions = { max = 2 }, workers = 1 }
    local stateful, held, idle = {}, {}, {}
    for i = 1, 2 do stateful[i] = g:client "2025-11-25" end
    for i = 1, 3 do
      local me = g:client "2026-07-28"
      held[i] = { me = me, pending = me:open("tools/call", { name = "hold", arguments = { n = i } }) }
    end
    wait.for_fact("all calls to run", 20, function() return #calls(g) == 3 end)
    wait.for_fact("no room for connections", 20, function()
      idle[#idle + 1] = g:connect()
      return g:status().gauges.connections >= 6 or #idle >= 20
    end)
    for path, status in pairs { ["/healthz"] = 200, ["/readyz"] = 200, ["/status"] = 401, ["/metrics"] = 401 } do
      assert.truthy(({ [200] = true, [status] = true })[client.request(g, { path = path }, { admin = true }).status], path)
    end
    assert.equal(2, #sessions(g))
    assert.equal(200, api(g, "POST", "/api/log", '{"level":"info","seconds":1}').status)
    for _, one in ipairs(sessions(g)) do assert.equal(200, api(g, "DELETE", "/api/session/" .. one.session).status) end
    for _, call in ipairs(calls(g)) do assert.equal(200, api(g, "DELETE", "/api/call/" .. call.id).status) end
    for _, one in ipairs(held) do assert.equal("cancelled by an operator", one.pending:answer().error.message) end
    assert.same({}, sessions(g))
    assert.same({}, calls(g))
    for _, connection in ipairs(idle) do connection:close() end
    for _, list in ipairs { stateful, { held[1].me, held[2].me, held[3].me } } do
      for _, me in ipairs(list) do me:close() end
    end
  end)
end)
