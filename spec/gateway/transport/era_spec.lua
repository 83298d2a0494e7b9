-- The revision of a message follows from that message alone: its headers, its _meta, its session. One connection may
-- carry messages of all revisions.
-- Methods of older revisions do not exist in the newest (B-56).
-- proves: every revision at one endpoint 2025-03-26.. http
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local wire = require "spec.helpers.wire"

local scripts = {
  ["tools/add.lua"] = "--- Add.\n---@param a number\n---@param b number\nreturn function(a, b) return a + b end",
  ["tools/who.lua"] = 'return tool { "Who calls.", function(_, call) return call.revision end }',
}

local MODERN, NEWER, OLD = "2026-07-28", "2031-01-01", "2025-06-18"
local UNKNOWN, NONSENSE = "1999-01-01", "nonsense"

local function legacy(method, params, id)
  return wire.message(id or 1, method, params)
end

-- A request of 2026-07-28; `version` is the version in its _meta (false: none).
local function modern(method, params, version)
  local copy = {}
  for name, value in pairs(params or {}) do
    copy[name] = value
  end
  local message = wire.message(1, method, copy)
  message.params._meta = wire.meta(version or nil)
  if version == false then
    message.params._meta = { progressToken = 1 }
  end
  return message
end

local function without(message, member)
  message.params._meta["io.modelcontextprotocol/" .. member] = nil
  return message
end

local function with(message, member, value)
  message.params._meta["io.modelcontextprotocol/" .. member] = value
  return message
end

local function note(method, params)
  return { jsonrpc = "2.0", method = method, params = params }
end

local add = { name = "add", arguments = { a = 1, b = 2 } }
local answer = { jsonrpc = "2.0", id = 77, result = {} }

-- The headers of a stateless request, some of them changed.
local function mirrored(method, name, more)
  local headers = { ["MCP-Protocol-Version"] = MODERN, ["Mcp-Method"] = method, ["Mcp-Name"] = name or false }
  for header, value in pairs(more or {}) do
    headers[header] = value
  end
  return headers
end

local function version(of, more)
  local headers = { ["MCP-Protocol-Version"] = of }
  for header, value in pairs(more or {}) do
    headers[header] = value
  end
  return headers
end

local SESSION = {} -- replaced by the id of a live session that negotiated 2025-06-18
local function live(more)
  local headers = { ["Mcp-Session-Id"] = SESSION }
  for header, value in pairs(more or {}) do
    headers[header] = value
  end
  return headers
end

local DEAD = ("ab"):rep(18)
local V = "MCP-Protocol-Version"

-- Each row: the rule, a name, the headers, the body, the HTTP status, the JSON-RPC error's code ("result": none), and a
-- further check of (the answer, the HTTP response).
local rows = {
  -- D-1: a stateful handshake
  { "D-1", "a bare initialize", {}, wire.initialize_message(OLD), 200, "result", function(told, response)
    assert.equal(OLD, told.result.protocolVersion)
    assert.truthy(response.headers["mcp-session-id"]:match "^[\33-\126]+$")
  end },
  { "D-1", "initialize with the header of its version", version(OLD), wire.initialize_message(OLD), 200, "result" },
  { "D-1", "initialize with the header of another old version", version "2025-03-26", wire.initialize_message(OLD), 200, "result" },
  { "L-3", "a bare initialize that asks for the newest version", {}, wire.initialize_message(MODERN), 200, "result", function(told)
    assert.equal("2025-11-25", told.result.protocolVersion)
  end },
  { "W-8", "a bare initialize that asks for a version of the future", {}, wire.initialize_message(NEWER), 200, "result", function(told)
    assert.equal("2025-11-25", told.result.protocolVersion)
  end },
  { "W-8", "a bare initialize that asks for nonsense", {}, wire.initialize_message(NONSENSE), 200, "result", function(told)
    assert.equal("2025-11-25", told.result.protocolVersion)
  end },
  { "S-16", "initialize with a dead session", { ["Mcp-Session-Id"] = DEAD }, wire.initialize_message(OLD), 404, -32600 },
  { "S-16", "initialize in a live session", live(), wire.initialize_message(OLD), 400, -32600 },
  { "L-1", "initialize without params", {}, legacy "initialize", 200, -32602 },
  { "L-1", "initialize whose version is a number", {}, legacy("initialize", { protocolVersion = 1 }), 200, -32602 },

  -- D-2, D-3: stateful messages, in a session or not
  { "D-2", "a request in its session", live { [V] = OLD }, legacy "tools/list", 200, "result" },
  { "D-2", "a request without a session", version(OLD), legacy "tools/list", 400, -32600 },
  { "D-2", "a request with a dead session", version(OLD, { ["Mcp-Session-Id"] = DEAD }), legacy "tools/list", 404, -32600 },
  { "D-3", "a request in its session, without the header", live(), legacy "tools/list", 200, "result" },
  { "D-3", "a request without session and header", {}, legacy "tools/list", 400, -32600 },
  { "S-21", "a request in its session, with another old version", live { [V] = "2025-11-25" }, legacy "tools/list", 400, -32600 },
  { "S-21", "a request in its session, with two versions", live { { V, OLD }, { V, OLD } }, legacy "tools/list", 400, -32600 },
  { "S-4", "a notification in its session", live { [V] = OLD }, note "notifications/initialized", 202 },
  { "D-14", "a legacy notification without a session", version(OLD), note "notifications/initialized", 400, -32600 },
  { "D-15", "a legacy notification with mirrored headers that are wrong", live { ["Mcp-Method"] = "x", ["Mcp-Name"] = "y" },
    note "notifications/initialized", 202 },
  { "D-15", "a legacy request with mirrored headers that are wrong", live { ["Mcp-Method"] = "x", ["Mcp-Name"] = "y" },
    legacy("tools/call", add), 200, "result" },

  -- D-4: the headers say stateless, the body does not
  { "D-4", "a request with a modern header and no _meta", version(MODERN), legacy "tools/list", 400, -32602, function(told)
    assert.same({ MODERN }, told.error.data.supported)
  end },
  { "D-4", "a request with an unknown header and no _meta", version(UNKNOWN), legacy "tools/list", 400, -32602 },
  { "D-4", "a bare initialize with a modern header", version(MODERN), wire.initialize_message(OLD), 400, -32602, function(told)
    assert.same({ MODERN }, told.error.data.supported)
  end },
  { "D-4", "a request with a modern header and a dead session", version(MODERN, { ["Mcp-Session-Id"] = DEAD }), legacy "tools/list", 400, -32602 },
  { "D-4", "a request with a modern header and a _meta without a version", mirrored "tools/list", modern("tools/list", {}, false), 400, -32602 },

  -- D-5: the checks of a stateless message, in order
  { "D-5", "a modern request", mirrored "tools/list", modern "tools/list", 200, "result", function(told, response)
    assert.equal("complete", told.result.resultType)
    assert.is_nil(response.headers["mcp-session-id"])
  end },
  { "D-5", "a modern call", mirrored("tools/call", "add"), modern("tools/call", add), 200, "result", function(told)
    assert.equal("3", told.result.content[1].text)
  end },
  { "M-20", "no capabilities", mirrored "tools/list", without(modern "tools/list", "clientCapabilities"), 400, -32602 },
  { "M-20", "capabilities that are a list", mirrored "tools/list", with(modern "tools/list", "clientCapabilities", { "x" }), 400, -32602 },
  { "M-20", "a version that is a number", mirrored "tools/list", with(modern "tools/list", "protocolVersion", 20260728), 400, -32602 },
  { "M-20", "no clientInfo, which is fine", mirrored "tools/list", modern "tools/list", 200, "result" },
  { "M-21", "no version header", { ["Mcp-Method"] = "tools/list" }, modern "tools/list", 400, -32020 },
  { "W-10", "a version header that differs", mirrored("tools/list", nil, { [V] = OLD }), modern "tools/list", 400, -32020 },
  { "W-10", "a version header that differs, and is unknown", mirrored("tools/list", nil, { [V] = NEWER }), modern "tools/list", 400, -32020 },
  { "H-2", "two version headers", mirrored("tools/list", nil, { [V] = false, { V, MODERN }, { V, MODERN } }), modern "tools/list", 400, -32020 },
  { "M-21", "no Mcp-Method", mirrored("tools/list", nil, { ["Mcp-Method"] = false }), modern "tools/list", 400, -32020 },
  { "H-1", "a Mcp-Method in capitals", mirrored "TOOLS/LIST", modern "tools/list", 400, -32020 },
  { "H-1", "a Mcp-Method with white space around it", mirrored "  tools/list  ", modern "tools/list", 200, "result" },
  { "H-1", "header names in other cases", { ["MCP-PROTOCOL-VERSION"] = MODERN, ["mcp-method"] = "tools/list" }, modern "tools/list", 200, "result" },
  { "H-2", "two Mcp-Method", mirrored("x", nil, { ["Mcp-Method"] = false, { "Mcp-Method", "tools/list" }, { "Mcp-Method", "tools/list" } }),
    modern "tools/list", 400, -32020 },
  { "M-21", "no Mcp-Name", mirrored "tools/call", modern("tools/call", add), 400, -32020 },
  { "H-2", "a Mcp-Name that differs", mirrored("tools/call", "sub"), modern("tools/call", add), 400, -32020 },
  { "H-2", "two Mcp-Name", mirrored("tools/call", nil, { { "Mcp-Name", "add" }, { "Mcp-Name", "add" } }), modern("tools/call", add), 400, -32020 },
  { "H-1", "a Mcp-Name with white space around it", mirrored("tools/call", "\t add "), modern("tools/call", add), 200, "result" },
  { "H-3", "a Mcp-Name where none is needed", mirrored("tools/list", "whatever"), modern "tools/list", 200, "result" },
  { "H-5", "a Mcp-Name in Base64", mirrored("tools/call", "=?base64?YWRk?="), modern("tools/call", add), 200, "result" },
  { "H-5", "a Mcp-Name in Base64 of something else", mirrored("tools/call", "=?base64?YWRl?="), modern("tools/call", add), 400, -32020 },
  { "H-5", "a Mcp-Name in Base64 without its padding", mirrored("tools/call", "=?base64?YWQ?="), modern("tools/call", { name = "ad" }), 400, -32020 },
  { "H-5", "a Mcp-Name in Base64 with wrong letters", mirrored("tools/call", "=?base64?YW-k?="), modern("tools/call", add), 400, -32020 },
  { "H-5", "a Mcp-Name marked in capitals, which is its literal self", mirrored("tools/call", "=?BASE64?YWRk?="), modern("tools/call", add), 400, -32020 },
  { "M-22", "an unknown version", mirrored("tools/list", nil, { [V] = NEWER }), modern("tools/list", {}, NEWER), 400, -32022, function(told)
    assert.same({ supported = { MODERN }, requested = NEWER }, told.error.data)
  end },
  { "D-18", "an old version told the modern way", mirrored("tools/list", nil, { [V] = OLD }), modern("tools/list", {}, OLD), 400, -32022, function(told)
    assert.same({ supported = { MODERN }, requested = OLD }, told.error.data)
  end },
  { "M-23", "an unknown method", mirrored "no/such", modern "no/such", 404, -32601 },
  { "D-5", "initialize told the modern way", mirrored "initialize", modern("initialize", wire.initialize_message(MODERN).params), 404, -32601 },
  { "M-23", "ping told the modern way", mirrored "ping", modern "ping", 404, -32601 },
  { "M-23", "logging/setLevel told the modern way", mirrored "logging/setLevel", modern("logging/setLevel", { level = "info" }), 404, -32601 },
  { "M-24", "an unknown tool", mirrored("tools/call", "nope"), modern("tools/call", { name = "nope" }), 400, -32602 },
  { "O-3", "an unknown log level", mirrored "tools/list", with(modern "tools/list", "logLevel", "loud"), 400, -32602 },
  { "M-20", "a version that is not the first thing wrong: the lower step decides", version(OLD),
    without(modern("tools/list", {}, NEWER), "clientCapabilities"), 400, -32602 },
  { "M-21", "an unknown version whose headers differ: the lower step decides", mirrored("tools/list", nil, { [V] = MODERN }),
    modern("tools/list", {}, NEWER), 400, -32020 },
  { "M-22", "an unknown method of an unknown version: the lower step decides", mirrored("no/such", nil, { [V] = NEWER }),
    modern("no/such", {}, NEWER), 400, -32022 },

  -- D-8, D-11, D-12: stateless messages in a session
  { "D-8", "a modern header in a live session", live { [V] = MODERN }, legacy "tools/list", 400, -32600 },
  { "D-8", "an unknown header in a live session", live { [V] = NONSENSE }, legacy "tools/list", 400, -32600 },
  { "D-8", "a modern header on a notification in a live session", live { [V] = MODERN }, note "notifications/initialized", 400, -32600 },
  { "D-11", "a modern request with the header of a live session", mirrored("tools/call", "who", { ["Mcp-Session-Id"] = SESSION }),
    modern("tools/call", { name = "who" }), 200, "result", function(told, response)
      assert.equal(MODERN, told.result.content[1].text)
      assert.is_nil(response.headers["mcp-session-id"])
    end },
  { "M-2", "a modern request with a dead session and a Last-Event-ID", mirrored("tools/list", nil, { ["Mcp-Session-Id"] = DEAD, ["Last-Event-ID"] = "9" }),
    modern "tools/list", 200, "result" },
  { "D-11", "a request of the session afterwards", live(), legacy("tools/call", { name = "who" }), 200, "result", function(told)
    assert.equal(OLD, told.result.content[1].text)
  end },

  -- D-14: notifications
  { "D-14", "a modern notification", {}, note("notifications/x", { _meta = wire.meta() }), 202 },
  { "D-14", "a modern notification of an unknown version", {}, note("notifications/x", { _meta = wire.meta(NEWER) }), 202 },
  { "D-14", "a notification with a modern header alone", version(MODERN), note "notifications/x", 202 },
  { "W-17", "a modern notifications/cancelled", version(MODERN), note("notifications/cancelled", { requestId = 1, _meta = wire.meta() }), 202 },

  -- D-9: batches; W-3: responses; W-5: bodies that are not messages
  { "D-9", "a list in a session", live { [V] = OLD }, { legacy "ping", legacy("ping", nil, 2) }, 400, -32600 },
  { "D-9", "a list that says it is modern", version(MODERN), { modern "tools/list" }, 400, -32600 },
  { "D-9", "an empty list", live(), "[]", 400, -32600 },
  { "W-3", "an answer nobody asked for, in a session", live(), answer, 202 },
  { "W-3", "an error nobody asked for, in a session", live(), { jsonrpc = "2.0", id = 7, error = { code = 1, message = "x" } }, 202 },
  { "M-4", "an answer that says it is modern", version(MODERN), answer, 400, -32600 },
  { "S-12", "an answer without a session", {}, answer, 400, -32600 },
  { "W-5", "no JSON, in a session", live(), "{", 400, -32700 },
  { "W-5", "no JSON, and modern", mirrored "tools/list", '{"jsonrpc":"2.0","id":1,}', 400, -32700 },
  { "W-5", "nothing at all", {}, "", 400, -32700 },
  { "W-5", "a string", {}, '"x"', 400, -32600 },
  { "W-5", "no version of JSON-RPC", live(), { id = 1, method = "ping" }, 400, -32600 },
  { "W-5", "another version of JSON-RPC", live(), { jsonrpc = "1.0", id = 1, method = "ping" }, 400, -32600 },
  { "W-5", "a method that is no string", live(), { jsonrpc = "2.0", id = 1, method = 7 }, 400, -32600 },
  { "W-5", "an empty method", live(), { jsonrpc = "2.0", id = 1, method = "" }, 400, -32600 },
  { "G-6", "params that are a list", live(), { jsonrpc = "2.0", id = 1, method = "ping", params = { 1 } }, 400, -32600 },
  { "G-5", "a method beside a result", live(), { jsonrpc = "2.0", id = 1, method = "ping", result = {} }, 400, -32600 },
  { "W-5", "the same key twice", live(), '{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', 400, -32600 },
  { "W-5", "the same key twice, once in disguise", live(), [[{"jsonrpc":"2.0","id":1,"method":"ping","m\u0065thod":"tools/list"}]], 400, -32600 },
  { "G-6", "members that nobody knows", live(), { jsonrpc = "2.0", id = 1, method = "ping", later = { 1 }, params = { later = true } }, 200, "result" },

  -- W-19: unknown methods of the older revisions
  { "W-19", "an unknown method, in a session", live(), legacy "no/such", 200, -32601 },
  { "W-19", "server/discover, in a session", live(), legacy "server/discover", 200, -32601 },
  { "G-5", "an unknown notification, in a session", live(), note "notifications/no/such", 202 },
}

local function is_answer_to(message, told)
  if type(message) == "table" and message.method and message.id then
    assert.equal(message.id, told.id)
  end
end

describe("a POST to the endpoint", function()
  local g, session, connection

  setup(function()
    g = gateway.start { scripts = scripts }
    session = wire.initialize(g, OLD)
    connection = client.connect(g)
  end)

  teardown(function()
    connection:close()
    g:stop()
  end)

  for _, row in ipairs(rows) do
    local rule, what, headers, body, status, code, more = table.unpack(row, 1, 7)
    it(("that is %s (%s)"):format(what, rule), function()
      local all = { Accept = wire.both, ["Content-Type"] = "application/json" }
      for name, value in pairs(headers) do
        all[name] = value == SESSION and session or value
      end
      -- one connection for all: it must not keep any state
      local response = connection:request { method = "POST", path = "/mcp", headers = all, body = body }
      local told = response:json()
      assert.equal(status, response.status, response.body)
      if status == 202 then
        assert.equal("", response.body)
      else
        assert.equal("application/json", response.headers["content-type"])
        assert.equal("2.0", told.jsonrpc)
        assert.equal(code, told.error and told.error.code or "result", response.body)
        if code ~= -32700 and type(body) == "table" then
          is_answer_to(body, told)
        end
      end
      if more then
        more(told, response)
      end
      local new = response.headers["mcp-session-id"]
      if new then
        assert.equal("initialize", body.method)
        assert.equal(204, wire.request(g, "DELETE", "/mcp", { ["Mcp-Session-Id"] = new }).status)
      end
    end)
  end

  it("leaves no session and no call, for any revision and outcome", function()
    connection:close()
    assert.equal(204, wire.request(g, "DELETE", "/mcp", { ["Mcp-Session-Id"] = session }).status)
    assert.has_nothing_left(g)
  end)
end)

-- Each row: the rule, the method, the path, the headers, the status, the Allow header.
local methods = {
  { "D-6", "GET", "/mcp", { [V] = MODERN }, 405, "POST" },
  { "D-6", "DELETE", "/mcp", { [V] = MODERN }, 405, "POST" },
  { "D-6", "GET", "/mcp", live { [V] = MODERN }, 405, "POST" },
  { "W-14", "GET", "/mcp", { [V] = MODERN, ["Last-Event-ID"] = "1" }, 405, "POST" },
  { "D-7", "GET", "/mcp", { [V] = NONSENSE }, 400 },
  { "D-7", "DELETE", "/mcp", { [V] = NEWER }, 400 },
  { "D-7", "GET", "/mcp", {}, 400 },
  { "D-7", "DELETE", "/mcp", { [V] = OLD }, 400 },
  { "D-7", "GET", "/mcp", { [V] = OLD, ["Mcp-Session-Id"] = DEAD }, 404 },
  { "D-7", "DELETE", "/mcp", { ["Mcp-Session-Id"] = DEAD }, 404 },
  { "S-21", "GET", "/mcp", live { [V] = "2025-11-25" }, 400 },
  { "S-21", "DELETE", "/mcp", live { [V] = "2025-11-25" }, 400 },
  { "W-14", "GET", "/mcp", live { ["Last-Event-ID"] = "s7-1" }, 400 },
  { "S-23", "GET", "/mcp", live { Accept = "application/json" }, 406 },
  { "W-23", "PUT", "/mcp", {}, 405, "GET, POST, DELETE" },
  { "W-23", "PATCH", "/mcp", {}, 405, "GET, POST, DELETE" },
  { "W-23", "HEAD", "/mcp", {}, 405, "GET, POST, DELETE" },
  { "W-23", "OPTIONS", "/mcp", {}, 405, "GET, POST, DELETE" },
  { "W-23", "PUT", "/mcp", { [V] = MODERN }, 405, "POST" },
  { "W-15", "DELETE", "/sse", {}, 405, "GET" },
  { "W-23", "POST", "/sse", {}, 405, "GET" },
  { "W-23", "HEAD", "/sse", {}, 405, "GET" },
  { "W-23", "OPTIONS", "/sse", {}, 405, "GET" },
  { "W-23", "GET", "/messages", {}, 405, "POST" },
  { "W-23", "OPTIONS", "/messages?session_id=" .. DEAD, {}, 405, "POST" },
  { "W-15", "DELETE", "/messages?session_id=" .. DEAD, {}, 405, "POST" },
  { "-", "GET", "/", {}, 404 },
  { "-", "GET", "/mcp/", {}, 400 },
  { "-", "GET", "/mcp//", {}, 404 },
  { "-", "GET", "/status", {}, 404 },
  { "-", "POST", "/MCP", {}, 404 },
}

describe("the path of an endpoint with '/' at its end", function()
  it("is the same endpoint", function()
    local g <close> = gateway.start { scripts = { ["tools/hi.lua"] = 'return tool { "Hi.", function() return "hi" end }' } }
    local message = wire.message(1, "tools/call", { name = "hi", _meta = wire.meta(MODERN) })
    local response = wire.post(g, message, wire.mirrored(message), "/mcp/")
    assert.equal(200, response.status, response.body)
    assert.equal("hi", response:json().result.content[1].text)
    assert.equal("GET", wire.request(g, "POST", "/sse/").headers.allow)
    assert.equal("POST", wire.request(g, "GET", "/messages/").headers.allow)
  end)
end)

describe("a feature of stateful revisions (B-56)", function()
  it("is refused or ignored in a request of 2026-07-28, and is not in the answer", function()
    local g <close> = gateway.start { scripts = {
      ["tools/steps.lua"] = 'return tool { "Steps.", function(_, call) call:progress(1) sleep(0.01) call:progress(2) return call.has_session end }',
    } }
    local me = g:client(OLD)
    local stream = me:get_stream()
    assert.equal(200, stream:head().status)
    for _, id in ipairs { me.session, DEAD, "", "a b" } do
      for _, method in ipairs { "GET", "DELETE" } do
        local response = wire.request(g, method, "/mcp", { [V] = MODERN, ["Mcp-Session-Id"] = id, ["Last-Event-ID"] = "1", Accept = wire.both })
        assert.same({ 405, "POST" }, { response.status, response.headers.allow })
        assert.is_nil(response.headers["mcp-session-id"])
      end
      local message = modern("tools/call", { name = "steps" })
      message.params._meta.progressToken = "p"
      local connection <close> = client.connect(g)
      connection:send { method = "POST", path = "/mcp", body = message, headers = mirrored("tools/call", "steps", {
        Accept = wire.both, ["Mcp-Session-Id"] = id, ["Last-Event-ID"] = "1",
      }) }
      assert.equal("false", connection:wait_event(1).json.result.content[1].text)
      local response = connection:read_response()
      assert.is_nil(response.headers["mcp-session-id"])
      assert.equal(3, #connection:messages())
      assert.is_nil(("\n" .. response.body):find "\nid")
      assert.is_nil(("\n" .. response.body):find "\nretry")
    end
    assert.is_false(stream.connection:is_closed_by_peer()) -- the session is unchanged
    assert.same({}, me:result "ping")
    assert.equal(1, g:status().counters.sessions_opened)
    me:delete()
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("another method or path", function()
  local g, session

  setup(function()
    g = gateway.start {}
    session = wire.initialize(g, OLD)
  end)

  teardown(function()
    g:stop()
  end)

  for _, row in ipairs(methods) do
    local rule, method, path, headers, status, allow = table.unpack(row, 1, 6)
    local words = {}
    for name, value in pairs(headers) do
      words[#words + 1] = name .. ": " .. (value == SESSION and "(live)" or value)
    end
    table.sort(words)
    it(("is %d for %s %s %s (%s)"):format(status, method, path, table.concat(words, ", "), rule), function()
      local all = { Accept = wire.both }
      for name, value in pairs(headers) do
        all[name] = value == SESSION and session or value
      end
      local response = wire.request(g, method, path, all)
      assert.equal(status, response.status, response.body)
      assert.equal(allow, response.headers.allow)
    end)
  end

  it("does not change the session, and leaves no call", function()
    assert.equal(1, g:status().counters.sessions_opened)
    assert.equal(204, wire.request(g, "DELETE", "/mcp", { ["Mcp-Session-Id"] = session }).status)
    assert.has_nothing_left(g)
  end)
end)

-- W-1 to W-5, W-19 over HTTP+SSE, whose answers come on the stream. Each row: a name, the body, the POST's status, the
-- answer's code.
local posts = {
  { "a request (W-1)", legacy "ping", 202, "result" },
  { "a notification (W-2)", note "notifications/initialized", 202 },
  { "an answer nobody asked for (W-3)", answer, 202 },
  { "a list (W-4)", { legacy "ping" }, 400, -32600 },
  { "no JSON (W-5)", "{", 400, -32700 },
  { "no message (W-5)", "7", 400, -32600 },
  { "an unknown method (W-19)", legacy "no/such", 202, -32601 },
  { "a request with a version header, whatever that says (W-9)", legacy "ping", 202, "result", { [V] = NONSENSE } },
  { "a request with a modern header, which is nothing here (D-13)", legacy "ping", 202, "result", { [V] = MODERN, ["Mcp-Method"] = "x" } },
  { "a request without an Accept that would do (W-12)", legacy "ping", 202, "result", { Accept = "text/html" } },
  { "another content type", legacy "ping", 415, -32600, { ["Content-Type"] = "text/plain" } },
}

describe("a POST to an HTTP+SSE session", function()
  for _, row in ipairs(posts) do
    local what, body, status, code, headers = table.unpack(row, 1, 5)
    it("that is " .. what .. " is " .. status, function()
      local g <close> = gateway.start {}
      local me = g:client "2024-11-05"
      me.stream.events = {}
      local response = wire.post(g, body, headers, me.endpoint)
      assert.equal(status, response.status)
      local told = response:json()
      if status == 202 then
        assert.equal("", response.body)
        told = code and me.stream:wait_event(1).json
      end
      if code then
        assert.equal(code, told.error and told.error.code or "result")
      end
      assert.same({}, me:result "ping") -- no other message came before this one
      assert.equal(code and status == 202 and 2 or 1, #me.stream:messages())
      me:close()
      assert.has_nothing_left(g)
    end)
  end
end)
