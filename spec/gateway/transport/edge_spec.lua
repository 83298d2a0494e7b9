-- Checks that come before a request is handled, and data that no client may see: B-24, B-114, B-122, B-123, B-124.
local cjson = require "cjson"
local uv = require "luv"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

-- Sends raw bytes on a connection of their own: returns the status, and the answer.
local function raw(g, options, bytes)
  local connection <close> = client.connect(g, options)
  connection.asked = { bytes:match "^%a+" }
  connection:send_raw(bytes)
  local head = connection:read_head()
  return head.status, head
end

-- -- B-114 ------------------------------------------------------------------------------------------------------------

local targets = {
  "/mcp", "/sse", "/messages?session_id=" .. ("0"):rep(36), "/", "/nowhere", "/.well-known/oauth-protected-resource",
  "/.well-known/oauth-protected-resource/mcp", "/.well-known/other", "/mcp/", "/%6dcp", "/mcp/../sse", "//sse", "/status", "/healthz", "/reload", "*",
}

-- Hosts that the gateway does not serve, as whole header lines. PORT is the gateway's port.
local foreign = {
  "Host: evil.example", "Host: evil.example:PORT", "Host: 127.0.0.1.evil.example", "Host: 127.0.0.1.evil.example:PORT",
  "Host: localhost:1@evil", "Host: localhost:1@evil.example:PORT", "Host: localhost@evil.example", "Host: evil.example#localhost",
  "Host: evil.example/localhost", "Host: localhost.evil", "Host: evil.localhost.", "Host: ", "Host: localhost evil.example",
  "Host: localhost,evil.example", "Host: 127.1", "Host: 0", "Host: 0x7f000001", "Host: [::ffff:127.0.0.1]", "Host: [::1", "Host: ::1",
  "Host: localhost\r\nHost: evil.example", "Host: evil.example\r\nHost: localhost", "X-Forwarded-Host: localhost",
  "Host: evil.example\r\nX-Forwarded-Host: localhost", "Host: evil.example\r\nForwarded: host=localhost",
  "Host: localhost\r\nOrigin: http://evil", "Host: localhost\r\nOrigin: null", "Host: localhost\r\nOrigin: http://localhost.evil",
  "Host: localhost\r\nOrigin: http://evil.example:PORT", "Host: localhost\r\nOrigin: https://127.0.0.1.evil:9",
  "Host: localhost\r\nOrigin: http://localhost@evil", "Host: localhost\r\nOrigin: http://evil?localhost", "Host: localhost\r\nOrigin: localhost",
  "Host: localhost\r\nOrigin: ", "Host: localhost\r\nOrigin: http://localhost\r\nOrigin: http://evil",
  "Host: localhost\r\nOrigin: file://", "Host: localhost\r\nOrigin: moz-extension://x", "Host: evil.example\r\nOrigin: http://localhost",
}

local function knock(g, options, method, target, version, headers)
  local port = options.admin and g.admin_port or g.port
  return raw(g, options, ("%s %s HTTP/%s\r\n%s\r\nContent-Length: 0\r\n\r\n"):format(method, target, version, (headers:gsub("PORT", port))))
end

describe("B-114 a web page whose host name resolves to this gateway (DNS rebinding)", function()
  for _, listener in ipairs { "plain", "TLS", "admin" } do
    it(("is refused at every path, by every method: %s"):format(listener), function()
      local g <close> = gateway.start { tls = listener == "TLS", scripts = { ["tools/x.lua"] = [[return tool { "X.", function() return "x" end }]] } }
      local options, count = { admin = listener == "admin" }, 0
      local function refused(status, what)
        count = count + 1
        -- A probe of the admin listener is answered whatever the Host is: it says "ok", or which methods there are, and
        -- nothing else.
        -- It also serves the address that the client has reached, in any spelling.
        if options.admin and what:find("[::ffff:127.0.0.1]", 1, true) then return end
        local is_probe = options.admin and what:find("/healthz", 1, true) and (not what:find("Origin:", 1, true) or what:find "Origin: http://localhost$")
        assert.truthy(status == 403 or status == 400 or is_probe and (status == 200 or status == 405), what .. " got " .. status)
      end
      for i, headers in ipairs(foreign) do
        for k, target in ipairs(targets) do
          for n, method in ipairs { "GET", "OPTIONS", "POST" } do
            if (i + k + n) % 4 == 0 or i <= 3 then -- every pair of the three, not every triple
              refused(knock(g, options, method, target, "1.1", headers), ("%s %s %s"):format(method, target, headers))
            end
          end
        end
        refused(knock(g, options, "GET", "/healthz", "1.0", headers), "GET /healthz HTTP/1.0 " .. headers)
      end
      refused(knock(g, options, "GET", "/healthz", "1.0", "X: y"), "GET /healthz HTTP/1.0 without Host")
      refused(knock(g, options, "GET", "/healthz", "1.1", "X: y"), "GET /healthz HTTP/1.1 without Host")
      for _, target in ipairs {
        "http://evil.example/healthz", "http://evil.example:PORT/mcp", "http://localhost@evil.example/sse", "http://evil.example", "https://evil.example/mcp",
      } do
        refused(knock(g, options, "GET", target:gsub("PORT", g.port), "1.1", "Host: localhost"), target)
      end
      assert.truthy(count > 300)
      local status = g:status()
      assert.equal(0, status.counters.sessions_opened)
      assert.equal(0, status.gauges.streams_open)
      assert.equal(0, status.counters.calls)
      assert.has_nothing_left(g)
    end)
  end

  it("finds a gateway without configuration on loopback only", function()
    local code, out = gateway.exec { "config" }
    assert.equal(0, code)
    assert.matches("\nlisten: 127%.0%.0%.1:7300 ", out)
    assert.matches("\n  listen: 127%.0%.0%.1:7301 ", out)
  end)
end)

-- -- B-123 ------------------------------------------------------------------------------------------------------------

describe("B-123 the admin's listener", function()
  it("reloads for programs and for pages of its own origin, not for pages of others", function()
    local g <close> = gateway.start { config = { scripts = { watch = false } }, scripts = {} }
    local admin = { admin = true }
    local own = "http://127.0.0.1:" .. g.admin_port
    local function post(headers, method)
      headers["Content-Length"] = 0
      return client.request(g, { method = method or "POST", path = "/reload", headers = headers }, admin).status
    end
    local function reloads()
      return g:status().scripts.generation
    end
    local file = io.open(g.dir .. "/scripts/late.lua", "w") -- luacheck: ignore
    file:close()
    uv.fs_mkdir(g.dir .. "/scripts/tools", 493)
    local function save(n)
      local tool <close> = assert(io.open(g.dir .. "/scripts/tools/new.lua", "w"))
      tool:write(("return tool { 'New %d.', function() return 'x' end }"):format(n))
    end
    save(0)
    os.remove(g.dir .. "/scripts/late.lua")
    for _, headers in ipairs {
      { Origin = "http://evil.example" }, { Origin = "null" }, { Origin = "http://localhost:3000" }, { Origin = "http://127.0.0.1" },
      { Origin = "http://127.0.0.1:1" }, { Origin = own:gsub("^http", "https") }, { Origin = own:gsub("127.0.0.1", "localhost") },
      { ["Sec-Fetch-Site"] = "cross-site" }, { ["Sec-Fetch-Site"] = "same-site" }, { Origin = own, ["Sec-Fetch-Site"] = "cross-site" },
      { Origin = "http://localhost:3000", ["Content-Type"] = "text/plain" }, { Origin = own .. "@evil.example" },
    } do
      assert.equal(403, post(headers), cjson.encode(headers))
    end
    for _, method in ipairs { "GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH" } do
      assert.equal(405, post({}, method), method)
      assert.equal(405, post({ Origin = own }, method), method)
    end
    assert.equal(1, reloads())
    assert.equal(200, post {})
    assert.equal(2, reloads())
    save(1)
    assert.equal(200, post { Origin = own, ["Sec-Fetch-Site"] = "same-origin" })
    assert.equal(3, reloads())
    assert.has_nothing_left(g)
  end)

  it("sends no CORS header that lets a page read it", function()
    local g <close> = gateway.start {}
    for _, path in ipairs { "/status", "/healthz", "/reload", "/nowhere" } do
      local response = client.request(g, { path = path, headers = { Origin = "http://127.0.0.1:" .. g.admin_port } }, { admin = true })
      assert.is_nil(response.headers["access-control-allow-origin"])
    end
    assert.has_nothing_left(g)
  end)
end)

-- -- B-24, B-122 ------------------------------------------------------------------------------------------------------

local TOKEN = "s3cr3t-t0ken-of-ann"

local scripts = {
  ["auth/main.lua"] = ([[return auth { function(request)
    if request.bearer == "%s" then return { id = "ann", scopes = { "a" } } end
    if request.bearer == "bug" then error("a bug in /etc/moonpool with " .. request.bearer) end
    fail("nobody knows " .. tostring(request.bearer))
  end }]]):format(TOKEN),
  ["tools/bug.lua"] = [[return tool { "Has a bug.", function() local x = nil return x.y end }]],
  ["tools/raises.lua"] = [[return tool { "Raises.", function() error("at /srv/app/secret.db on 10.0.0.7:5432") end }]],
  ["tools/object.lua"] = [[return tool { "Raises a table.", function() error { path = "/srv/app" } end }]],
  ["tools/spins.lua"] = [[return tool { "Spins.", function() while true do end end }]],
  ["tools/grows.lua"] = [[return tool { "Grows.", function() local all = {} while true do all[#all + 1] = ("x"):rep(100000) .. #all end end }]],
  ["tools/slow.lua"] = [[return tool { "Is slow.", function() sleep(60) end }]],
  ["tools/large.lua"] = [[return tool { "Is large.", function() return ("x"):rep(2000000) end }]],
  ["tools/wrong.lua"] = [[return tool { "Keeps no promise.", output = { n = t.integer }, function() return { n = "x" } end }]],
  ["tools/typed.lua"] = [[return tool { "Wants a number.", input = { n = t.integer }, function(args) return args.n end }]],
  ["prompts/bug.lua"] = [[return prompt { "Has a bug.", function() error "in /srv" end }]],
  ["resources/bug.lua"] = [[return resource { "Has a bug.", uri = "bug://x", function() error "in /srv" end }]],
}

-- Texts that must not be in an answer to an unauthenticated client.
local inner = {
  "%.lua", "scripts/", "/srv", "/etc", "/tmp", "stack traceback", "%[string", "%[C%]", "lua_", "10%.0%.0%.7", ":5432", "0x%x%x%x%x", "upvalue", "field '",
  "core/", "moonpool%-", "errno", "OpenSSL", "127%.0%.0%.1:%d",
}

describe("B-24 and B-122 the text of answers, the log, /status and /healthz", function()
  local g, bodies, ids

  setup(function()
    g = gateway.start { scripts = scripts, config = {
      limits = { call = { time = "300ms", cpu = "100ms", memory = "2MiB", output = "64KiB" }, body = "64KiB" }, log = { level = "debug" },
    }, constants = { headers = 8192 } }
    bodies, ids = {}, {}
    local function keep(name, response)
      bodies[#bodies + 1] = { name, ("%d %s"):format(response.status, response.head .. response.body) }
      return response
    end
    for _, revision in ipairs { "2024-11-05", "2025-06-18", "2025-11-25", "2026-07-28" } do
      local me = g:client(revision, { token = TOKEN })
      ids[#ids + 1] = me.session or me.endpoint and me.endpoint:match "session_id=(%w+)"
      for _, call in ipairs {
        { "tools/call", { name = "bug", arguments = {} } }, { "tools/call", { name = "raises", arguments = {} } },
        { "tools/call", { name = "object", arguments = {} } }, { "tools/call", { name = "spins", arguments = {} } },
        { "tools/call", { name = "grows", arguments = {} } }, { "tools/call", { name = "slow", arguments = {} } },
        { "tools/call", { name = "large", arguments = {} } }, { "tools/call", { name = "wrong", arguments = {} } },
        { "tools/call", { name = "typed", arguments = { n = "x" } } }, { "tools/call", { name = "nobody", arguments = {} } },
        { "tools/call", { name = {} } }, { "prompts/get", { name = "bug" } }, { "resources/read", { uri = "bug://x" } },
        { "resources/read", { uri = "file:///etc/passwd" } }, { "no/such" }, { "tools/list", { cursor = "nonsense" } },
        { "completion/complete", { ref = { type = "ref/prompt", name = "nobody" }, argument = { name = "a", value = "" } } },
      } do
        local answer, response = me:call(call[1], call[2])
        bodies[#bodies + 1] = { revision .. " " .. call[1] .. " " .. cjson.encode(call[2] or {}),
          cjson.encode(answer or {}) .. (response and response.head or "") }
      end
      if me.delete then me:delete() end
      me:close()
    end
    local authorized = "Bearer " .. TOKEN
    for _, token in ipairs { "Bearer bug", "Bearer nobody", "Basic YTpi", "Bearer", "bearer " .. ("x"):rep(4000) } do
      keep("auth", wire.post(g, wire.initialize_message "2025-11-25", { Authorization = token }))
    end
    for _, body in ipairs { "{", "[", "[]", "null", "{}", '{"jsonrpc":"2.0"}', '{"jsonrpc":"2.0","id":null,"method":"x"}', "\0", ("["):rep(5000), "\xff" } do
      keep("body", wire.post(g, body, { Authorization = authorized }))
    end
    for _, session in ipairs { "x", ids[2], ids[2]:reverse(), ("0"):rep(36) } do
      keep("session", wire.post(g, wire.message(1, "ping"), { Authorization = authorized, ["Mcp-Session-Id"] = session }))
      keep("messages", wire.post(g, wire.message(1, "ping"), { Authorization = authorized }, "/messages?session_id=" .. session))
    end
    for _, path in ipairs { "/", "/nowhere", "/mcp", "/%00", "/messages", "/.well-known/oauth-protected-resource", "/scripts/tools/bug.lua" } do
      for _, method in ipairs { "GET", "PUT", "DELETE", "OPTIONS", "BREW" } do
        keep("path", wire.request(g, method, path, { Authorization = authorized }))
      end
    end
    keep("large", wire.post(g, ("x"):rep(100000), { Authorization = authorized }))
    keep("headers", wire.request(g, "GET", "/mcp", { X = ("x"):rep(10000) }))
    keep("host", wire.request(g, "GET", "/mcp", { Host = "evil.example" }))
    for _, path in ipairs { "/status", "/healthz", "/nowhere" } do
      keep("admin", client.request(g, { path = path }, { admin = true }))
    end
  end)

  teardown(function() g:stop() end)

  it("has no session id, no token and no key", function()
    assert.truthy(#bodies > 120)
    local all = { { "the log", g:log() } }
    for _, entry in ipairs(bodies) do
      if entry[1] ~= "initialize" then all[#all + 1] = entry end
    end
    for _, entry in ipairs(all) do
      for _, id in ipairs(ids) do
        assert.is_nil(entry[2]:find(id, 1, true), entry[1] .. ": " .. entry[2]:sub(1, 2000))
      end
      assert.is_nil(entry[2]:find(TOKEN, 1, true), entry[1] .. ": " .. entry[2])
    end
    assert.truthy(#ids >= 3)
  end)

  it("has no internal details in answers: the log has them, under the same number", function()
    for _, entry in ipairs(bodies) do
      if entry[1] ~= "admin" and not entry[1]:find "passwd" then
        for _, pattern in ipairs(inner) do
          assert.is_nil(entry[2]:find(pattern), ("%s: %s\nhas %s"):format(entry[1], entry[2], pattern))
        end
      end
    end
    local told = 0
    for _, entry in ipairs(bodies) do
      local number = entry[2]:match "internal error (%w+)"
      if number then
        told = told + 1
        wait.for_fact(number .. " in the log", 20, function() return g:log():find(number, 1, true) end)
      end
    end
    assert.truthy(told >= 12, told)
  end)
end)

-- -- B-124 ------------------------------------------------------------------------------------------------------------

describe("B-124 a name that a client sends for itself, a tool or a header", function()
  local evil = {
    "a\r\n2026-01-01T00:00:00.000Z info  forged who=root", "\27[2J\27]0;title\7", "\u{9b}31m", "\u{202e}gpj.exe", "a=b \"c\" \\",
    "\u{2028}x", "\127\8\8\8", "\1\2\3",
    ("x"):rep(1024 * 1024),
  }

  it("is in one log line per event, without control characters, and shortened", function()
    local g <close> = gateway.start { scripts = {
      ["tools/log.lua"] = [[return tool { "Logs.", input = { text = t.string }, function(args, call)
        log.warn("told", { text = args.text, [args.text:gsub("%W", ""):sub(1, 20) .. "x"] = args.text })
        log.info(args.text)
        print(args.text)
        error(args.text)
      end }]],
    }, config = { log = { level = "debug", audit = "audit.log", audit_arguments = "full" } } }
    for i, text in ipairs(evil) do
      local hello = wire.initialize_message "2025-11-25"
      hello.params.clientInfo = { name = text, version = text, title = text }
      local session = wire.post(g, hello).headers["mcp-session-id"]
      local function send(message)
        return wire.post(g, message, { ["Mcp-Session-Id"] = session })
      end
      send(wire.message(1, "tools/call", { name = text, arguments = {} }))
      send(wire.message(2, text, {}))
      send(wire.message(text, "tools/call", { name = "log", arguments = { text = text } }))
      send(wire.message(4, "resources/read", { uri = text }))
      send { jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = 99, reason = text } }
      if i < #evil then
        for _, name in ipairs { "User-Agent", "MCP-Protocol-Version", "Mcp-Session-Id", "Origin", "Authorization", "X-Forwarded-For" } do
          local connection <close> = client.connect(g)
          connection:send_raw(("GET /mcp HTTP/1.1\r\nHost: localhost\r\n%s: %s\r\n\r\n"):format(name, text))
          pcall(connection.read_head, connection)
        end
      end
      wire.request(g, "DELETE", "/mcp", { ["Mcp-Session-Id"] = session })
    end
    assert.truthy(g:is_alive())
    g:wait_log("told")
    local function check(text, what, longest)
      for line in text:gmatch "[^\n]+" do
        assert.truthy(#line < longest, what .. " has a line of " .. #line)
        assert.is_nil(line:find "[%z\1-\31\127]", what .. ": " .. ("%q"):format(line))
        assert.is_nil(line:find("\u{9b}", 1, true) or line:find("\u{2028}", 1, true) or line:find("\u{202e}", 1, true), what .. ": " .. line)
        assert.is_nil(line:find "^2026%-01%-01", line)
      end
    end
    g:stop()
    check(g:log(), "the log", 4096)
    for _, line in ipairs(g:log_lines()) do
      assert.is_nil(line.fields.who)
    end
    local file <close> = assert(io.open(g.dir .. "/audit.log"))
    for line in file:lines() do
      assert.is_table(cjson.decode(line))
      assert.is_nil(line:find "[%z\1-\31\127]")
      assert.is_nil(line:find("\u{9b}", 1, true) or line:find("\u{202e}", 1, true), line)
    end
  end)
end)
