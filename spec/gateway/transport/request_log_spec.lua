-- The log's lines about requests: one at debug for each request that is served, one at info for each that is refused,
-- and `run --trace`.
local client = require "spec.helpers.client"
local certificates = require "spec.helpers.certificates"
local gateway = require "spec.helpers.gateway"
local stdio = require "spec.helpers.stdio"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local scripts = {
  ["tools/echo.lua"] = [[return tool { "Echoes.", input = { text = t.string }, function(args)
    if args.text == "fail" then fail "as asked" end
    if args.text == "sleep" then sleep(60) end
    return args.text
  end }]],
  ["resources/bill.lua"] = [[return resource { "A bill.", uri = "bills://{id}", function() return "bill" end }]],
}

local function start(options)
  options = options or {}
  return gateway.start {
    scripts = options.scripts or scripts, args = options.args, config = options.config or { log = { level = "debug" } }, tls = options.tls,
    constants = options.constants }
end

local function events(g, event, fields)
  local found = {}
  for _, line in ipairs(g:log_lines()) do
    local same = line.event == event
    for key, value in pairs(fields or {}) do same = same and line.fields[key] == value end
    if same then found[#found + 1] = line end
  end
  return found
end

describe("log.level: debug", function()
  for _, revision in ipairs { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" } do
    it("has one line per request, with the principal, the method and the result: " .. revision, function()
      local g <close> = start()
      local c <close> = g:client(revision)
      c:call("tools/call", { name = "echo", arguments = { text = "a value that no log may hold" } })
      local line = g:wait_log("request", { method = "tools/call", name = "echo" })
      assert.equal("debug", line.level)
      local fields = line.fields
      assert.equal("ok", fields.outcome)
      assert.equal(revision, fields.revision)
      assert.equal(revision == "2024-11-05" and "sse" or "http", fields.transport)
      assert.equal("anonymous", fields.principal)
      assert.equal("127.0.0.1", fields.address)
      assert.match("^%S+ %S+$", fields.client)
      assert.is_true(tonumber(fields.ms) >= 0)
      assert.is_true(tonumber(fields["in"]) > 80)
      assert.is_true(tonumber(fields.out) > 40)
      if revision ~= "2024-11-05" then assert.equal("200", fields.status) end
      if c.session then
        assert.match("^%x%x%x%x%x%x%x%x$", fields.session)
        assert.is_nil(g:log():find(c.session, 1, true))
      end
      assert.is_nil(g:log():find("no log may hold", 1, true))
      c:call("tools/call", { name = "echo", arguments = { text = "fail" } })
      g:wait_log("request", { name = "echo", outcome = "failed" })
      c:call("tools/call", { name = "none" })
      g:wait_log("request", { name = "none", outcome = "error", code = "-32602" })
      c:call("resources/read", { uri = "bills://7" })
      g:wait_log("request", { method = "resources/read", name = "bills://7" })
      assert.equal(2, #events(g, "request", { method = "tools/call", name = "echo" }))
    end)
  end

  it("names the client of initialize, notifications, event streams and DELETE", function()
    local g <close> = start()
    local c <close> = g:client "2025-11-25"
    local line = g:wait_log("request", { method = "initialize" })
    assert.match("^%S+ %S+$", line.fields.client)
    g:wait_log("request", { method = "notifications/initialized", status = "202" })
    local stream <close> = c:get_stream()
    assert.equal(200, stream:head().status)
    g:wait_log("request", { method = "GET", status = "200" })
    assert.equal(204, c:delete().status)
    g:wait_log("request", { method = "DELETE", status = "204" })
  end)

  it("has one word for how a call ended before its answer", function()
    local g <close> = start { config = { log = { level = "debug" }, limits = { call = { time = "2s" } } } }
    local c <close> = g:client "2026-07-28"
    local function sleep() return { name = "echo", arguments = { text = "sleep" } } end
    c:open("tools/call", sleep()):hang_up()
    g:wait_log("call cancelled", { why = "disconnected" })
    g:wait_log("request", { outcome = "disconnected" })
    assert.equal("the call took too long", c:call("tools/call", sleep()).error.message)
    g:wait_log("call cancelled", { why = "timeout" })
    g:wait_log("request", { outcome = "timeout" })
  end)

  it("has the same lines over stdio", function()
    local s <close> = stdio.start { scripts = scripts, config = { log = { level = "debug" } }, args = { "--log-level", "debug" } }
    local c = s:client "2025-06-18"
    c:call("tools/call", { name = "echo", arguments = { text = "x" } })
    local line = s:wait_log("request", { method = "tools/call", name = "echo" })
    assert.equal("stdio", line.fields.transport)
    assert.equal("2025-06-18", line.fields.revision)
    assert.equal("spec 1", line.fields.client)
    assert.is_nil(line.fields.status)
    s:send { jsonrpc = "2.0", id = 9, method = 7 }
    s:wait_log("refused", { cause = "message" })
  end)

  it("is one line for any bytes that clients send", function()
    local g <close> = start()
    local c <close> = g:client "2025-06-18"
    c:call("tools/call", { name = "a\nb\27[31m" .. ("n"):rep(5000), arguments = {} })
    wait.for_fact("the line", 20, function() return #events(g, "request", { method = "tools/call" }) == 1 end)
    assert.is_nil(g:log():find("\27", 1, true))
    for line in g:log():gmatch "[^\n]+" do assert.is_true(#line < 4000) end
  end)
end)

describe("log.level: info", function()
  it("has no line for a request that is served", function()
    local g <close> = start { config = { log = { level = "info" } } }
    local c <close> = g:client "2025-11-25"
    c:call("tools/call", { name = "echo", arguments = { text = "x" } })
    c:delete()
    g:stop()
    assert.same({}, events(g, "request"))
    assert.same({}, events(g, "refused"))
  end)

  it("says why a request is refused, and what mends it", function()
    local g <close> = start { config = { log = { level = "info" }, cors = { origins = { "https://app.example" } } } }
    local function refused(cause, hint, fields)
      local line = g:wait_log("refused", { cause = cause })
      assert.equal("info", line.level)
      assert.is_truthy(line.fields.why)
      assert.match(hint, line.fields.hint)
      for name, value in pairs(fields or {}) do assert.equal(value, line.fields[name]) end
    end
    local ping = wire.message(1, "ping")
    wire.post(g, ping, { Host = "evil.example" })
    refused("host", "add this name to hosts", { host = "evil.example", status = "403", method = "POST", path = "/mcp", address = "127.0.0.1" })
    wire.post(g, ping, { Origin = "https://elsewhere.example" })
    refused("origin", "cors%.origins", { origin = "https://elsewhere.example" })
    wire.post(g, ping, { ["Mcp-Session-Id"] = ("a"):rep(36) })
    refused("session", "initialize", { status = "404" })
    assert.is_nil(g:log():find(("a"):rep(36), 1, true))
    wire.post(g, ping, { ["Content-Type"] = "text/plain" })
    refused("media type", "application/json", { status = "415" })
    wire.post(g, "{", nil)
    refused("message", "JSON%-RPC", { status = "400" })
    wire.post(g, ping, { ["MCP-Protocol-Version"] = "2030-01-01" })
    refused("revision", "2026%-07%-28", { version = "2030-01-01" })
    wire.request(g, "PUT", "/mcp")
    refused("method", "POST", { status = "405" })
    wire.request(g, "GET", "/nowhere")
    refused("path", "endpoints%.mcp", { path = "/nowhere" })
    g:admin("/status")
    client.request(g, { method = "GET", path = "/status", headers = { Host = "evil.example" } }, { admin = true })
    wait.for_fact("the admin's refusal", 20, function() return #events(g, "refused", { cause = "admin host", path = "/status" }) == 1 end)
  end)

  it("says why auth refuses, and never the token", function()
    local g <close> = start { config = { log = { level = "info" } }, scripts = {
      ["auth/keys.lua"] = [[return auth { function(request)
        if request.bearer == "good-token-1234" then return { id = "ann" } end
        return nil, "this key was revoked"
      end }]],
      ["tools/echo.lua"] = scripts["tools/echo.lua"],
    } }
    assert.equal(401, wire.post(g, wire.initialize_message "2025-06-18", { Authorization = "Bearer bad-token-5678" }).status)
    local line = g:wait_log("refused", { cause = "auth", status = "401" })
    assert.match("revoked", line.fields.why)
    assert.match("moonpool explain", line.fields.hint)
    assert.equal(401, wire.post(g, wire.initialize_message "2025-06-18").status)
    wait.for_fact("another line", 20, function() return #events(g, "refused", { cause = "auth" }) == 2 end)
    assert.is_nil(g:log():find("token-5678", 1, true))
  end)

  it("distinguishes a session of another principal from one that does not exist, which clients cannot", function()
    local g <close> = start { config = { log = { level = "info" } }, scripts = {
      ["auth/keys.lua"] = 'return auth { function(request) return { id = try(request.bearer, "no key") } end }',
      ["tools/echo.lua"] = scripts["tools/echo.lua"],
    } }
    local function as(who, headers)
      headers = headers or {}
      headers.Authorization = "Bearer " .. who
      return headers
    end
    local session = wire.post(g, wire.initialize_message "2025-06-18", as "ann").headers["mcp-session-id"]
    local foreign = wire.post(g, wire.message(2, "ping"), as("bob", { ["Mcp-Session-Id"] = session }))
    local unknown = wire.post(g, wire.message(2, "ping"), as("bob", { ["Mcp-Session-Id"] = ("b"):rep(36) }))
    assert.same({ 404, foreign.body }, { unknown.status, unknown.body })
    local line = g:wait_log("refused", { cause = "session", why = "the session is of another principal" })
    local hash = line.fields.session
    assert.equal(8, #hash)
    assert.is_nil(session:find(hash, 1, true))
    local other = wait.for_fact("the other line", 20, function() return events(g, "refused", { cause = "session" })[2] end)
    assert.matches("^no such session", other.fields.why)
    assert.equal(200, wire.post(g, wire.message(3, "ping"), as("ann", { ["Mcp-Session-Id"] = session })).status)
    wire.post(g, wire.message(2, "ping"), as "bob")
    wait.for_fact("a line about none", 20, function()
      return (events(g, "refused", { cause = "session" })[3] or { fields = { why = "" } }).fields.why:find "missing"
    end)
  end)

  it("says why TLS refuses", function()
    local g <close> = start { tls = true, config = { log = { level = "info" } } }
    local tls = g.tls
    g.tls = nil
    local connection <close> = g:connect()
    connection:send_raw "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    local line = g:wait_log("refused", { cause = "scheme", why = "plain HTTP was sent to a listener that speaks TLS: https:// is its scheme" })
    assert.equal("127.0.0.1", line.fields.address)
    assert.equal("the client's URL begins with https:// if the listener has tls in listen, else with http://", line.fields.hint)
    g.tls = tls
    assert.is_table(certificates)
  end)

  it("is not filled by a client that is refused again and again: a few lines per second and cause, the others counted", function()
    local g <close> = start { config = { log = { level = "info" } }, constants = { log_refusals = 3 } }
    local began = os.time()
    for _ = 1, 60 do wire.request(g, "GET", "/nowhere") end
    wire.post(g, wire.message(1, "ping"), { Host = "evil.example" })
    g:wait_log("refused", { cause = "host" })              -- another cause has a budget of its own
    local seconds = os.time() - began + 2
    assert.is_true(#events(g, "refused", { cause = "path" }) <= 3 * seconds)
    local dropped = g:status().counters.dropped.refusals
    assert.is_true(dropped > 0)
    local told = wait.for_fact("a line with the count", 10, function()
      wire.request(g, "GET", "/nowhere")
      for _, line in ipairs(events(g, "refused", { cause = "path" })) do
        if line.fields.suppressed then return tonumber(line.fields.suppressed) end
      end
    end)
    assert.is_true(told > 0)
  end)

  it("is bounded for any path", function()
    local other <close> = start { config = { log = { level = "info" } } }
    wire.request(other, "GET", "/" .. ("%1b"):rep(2000))
    local line = other:wait_log("refused", { cause = "path" })
    assert.is_true(#line.text < 3000)
  end)
end)

describe("moonpool run --trace", function()
  it("prints a line for people per request and refusal, at any log.level", function()
    local g <close> = start { args = { "--trace" }, config = { log = { level = "error" } } }
    local c <close> = g:client "2025-06-18"
    c:call("tools/call", { name = "echo", arguments = { text = "x" } })
    c:call("tools/call", { name = "echo", arguments = { text = "fail" } })
    wire.post(g, wire.message(1, "ping"), { Host = "evil.example\27[31m" })
    wire.post(g, wire.message(1, "ping"), { Host = "evil.example" })
    local function line(pattern)
      return wait.for_fact(function() return "the line " .. pattern .. " in\n" .. g:log() end, 20, function()
        for text in g:log():gmatch "[^\n]+" do
          if text:find(pattern) then return text end
        end
      end)
    end
    line "^%d%d:%d%d:%d%d%.%d%d%d  tools/call echo → ok  [%d.]+ ms  %S+ %S+, 2025%-06%-18, http$"
    line "tools/call echo → failed"
    line "refused host: .* host=evil%.example"
    line "hint: add this name to hosts"
    assert.is_nil(g:log():find("\27", 1, true))
    assert.same({}, events(g, "request"))
  end)
end)
