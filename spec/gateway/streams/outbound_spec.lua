-- Data that leaves the gateway: nothing that a client sent only for the gateway (B-34), nothing that belongs to another
-- client (B-29), nothing that an argument smuggles into an address (B-117), and a secret only to its destination.
local cjson = require "cjson"
local credentials = require "spec.helpers.credentials"
local errand = require "spec.helpers.errand"
local gateway = require "spec.helpers.gateway"
local stub = require "spec.helpers.stub"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

describe("B-34 what a client sent", function()
  local mine = {
    Authorization = "Bearer t0ken-of-the-client", Cookie = "sid=c00kie", ["X-Forwarded-For"] = "203.0.113.9", Forwarded = "for=203.0.113.9",
    ["X-Api-Key"] = "k3y", ["Proxy-Authorization"] = "Basic cHJveHk=", ["Mcp-Param-Region"] = "eu-1", ["User-Agent"] = "curious/1", Via = "1.1 here",
    Referer = "http://localhost/page", traceparent = "00-" .. ("a"):rep(32) .. "-" .. ("b"):rep(16) .. "-01",
  }

  it("goes to no server that a script sends requests to, at any revision", function()
    local server <close> = stub.start(function(_, reply) reply:json { ok = true } end)
    local g <close> = errand.start { net = { server.at }, code = [[
      http.get(args.url)
      http.post(args.url, { json = { a = 1 } })
      http.request({ method = "PUT", url = args.url, headers = { authorization = "Bearer own" }, body = "x" })
      return {}]] }
    local function send(message, more)
      local headers = {}
      for name, value in pairs(mine) do headers[name] = value end
      for name, value in pairs(more) do headers[name] = value end
      return wire.post(g, message, headers)
    end
    local call = { name = "run", arguments = { url = server.url .. "/x" } }
    local session
    for _, revision in ipairs { "2025-03-26", "2025-06-18", "2025-11-25" } do
      session = send(wire.initialize_message(revision), {}).headers["mcp-session-id"]
      assert.equal(200, send(wire.message(1, "tools/call", call), { ["Mcp-Session-Id"] = session }).status)
      assert.equal(204, wire.request(g, "DELETE", "/mcp", { ["Mcp-Session-Id"] = session }).status)
    end
    call._meta = wire.meta()
    local message = wire.message(1, "tools/call", call)
    assert.equal(200, send(message, wire.mirrored(message)).status)
    assert.equal(12, #server.requests)
    local known = { host = true, accept = true, ["accept-encoding"] = true, ["user-agent"] = true, ["content-type"] = true, ["content-length"] = true,
      authorization = true }
    for _, request in ipairs(server.requests) do
      for name, value in pairs(request.headers) do
        assert.is_true(known[name], name)
        for _, text in ipairs { "t0ken", "c00kie", "203.0.113.9", "k3y", "cHJveHk", "eu-1", "curious", session } do
          assert.is_nil(tostring(value):find(text, 1, true), name .. ": " .. tostring(value))
        end
      end
      assert.equal(request.method == "PUT" and "Bearer own" or nil, request.headers.authorization)
    end
    assert.has_nothing_left(g)
  end)
end)

describe("B-29 a cookie or session that another server sets for one user", function()
  it("is not sent with requests of another user, and a cancelled call ends alone", function()
    local server <close> = stub.start(function(request, reply)
      local name = request.path:match "^/([^/]+)"
      local head = { ["set-cookie"] = "sid=" .. name, ["mcp-session-id"] = "upstream-" .. name, ["content-type"] = "text/plain" }
      if request.path:find "/slow" then return reply:later(300, function() reply:send(200, head, "slow " .. name) end) end
      reply:send(200, head, name)
    end)
    local g <close> = gateway.start { workers = 1, constants = { http_idle_ms = 5 }, config = { scripts = { allow = { net = { server.at } } } }, scripts = {
      ["auth/main.lua"] = credentials.script,
      ["tools/fetch.lua"] = [[return tool { "Fetches.", input = { url = t.string, way = t.string }, function(args, call)
        return try(http.get(args.url .. "/" .. call.principal.id:match "%l+$" .. args.way)).body
      end }]],
    } }
    local ann, bob = g:client("2026-07-28", { token = "ann-1" }), g:client("2026-07-28", { token = "bob-1" })
    local function params(way) return { name = "fetch", arguments = { url = server.url, way = way } } end
    for _ = 1, 5 do
      assert.equal("ann", ann:result("tools/call", params "").content[1].text)
      assert.equal("bob", bob:result("tools/call", params "").content[1].text)
    end
    for _, request in ipairs(server.requests) do
      for _, name in ipairs { "cookie", "mcp-session-id", "authorization" } do assert.is_nil(request.headers[name]) end
    end
    local slow, other = ann:open("tools/call", params "/slow"), bob:open("tools/call", params "/slow")
    wait.for_fact("both to have asked", 20, function() return #server.requests == 12 end)
    slow:hang_up()
    assert.equal("slow bob", other:answer().result.content[1].text)
    ann:close()
    bob:close()
    assert.has_nothing_left(g)
  end)
end)

describe("B-117 an argument in a URL", function()
  local evil = {
    "../../admin", "a?b=c", "a#b", "%2e%2e", "%2e%2e%2fadmin", "a/b", "..", ".", "a&admin=1", "a=b", "a\r\nHost: evil", "a\0b", "a b", "a+b", "a;b",
    "//evil.example/", "http://evil.example/", "@evil.example", "\\..\\x", "\u{e9}\u{2025}", "%", "%zz", "", ("x"):rep(2000), "\127", "\"'<>`{|}^",
  }

  it("stays one path segment or one query field, as uri and http encode it", function()
    local server <close> = stub.start(function(_, reply) reply:json { ok = true } end)
    local g <close> = errand.start { net = { server.at }, scripts = { ["tools/find.lua"] = [[
      return tool { "Finds.", input = { base = t.string, text = t.string { default = "" } }, function(args)
        local one = try(http.get(args.base .. "/items/" .. uri.encode(args.text) .. "/end"))
        local two = try(http.get(args.base .. "/find", { query = { q = args.text, [args.text] = "v" } }))
        local three = try(http.get(args.base .. "/made?" .. uri.query { q = args.text }))
        return { decoded = uri.decode(uri.encode(args.text)) == args.text, same = uri.query(uri.query { q = args.text }).q == args.text }
      end }]] } }
    local me = g:client "2026-07-28"
    local function decoded(text)
      return (text:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
    end
    for _, text in ipairs(evil) do
      local before = #server.requests
      local result = me:result("tools/call", { name = "find", arguments = { base = server.url, text = text } })
      assert.same({ decoded = true, same = true }, result.structuredContent, text .. " " .. cjson.encode(result))
      assert.equal(before + 3, #server.requests)
      local one, two, three = server.requests[before + 1].target, server.requests[before + 2].target,
        server.requests[before + 3].target
      for _, path in ipairs { one, two, three } do
        assert.is_nil(path:find "[%c %z\128-\255\"<>\\^`{|}#]", path)
      end
      if text ~= "." and text ~= ".." then -- "." and ".." are not path segments: the next test has them
        assert.equal(text, decoded(one:match "^/items/([^/?]*)/end$" or one), one)
      end
      assert.equal(text, decoded(three:match "^/made%?q=([^&=]*)$" or three), three)
      local fields = 0
      for name, value in two:match "^/find%?(.*)$":gmatch "([^&=]*)=([^&=]*)" do
        fields = fields + 1
        assert.truthy(decoded(name) == text and value == "v" or name == "q" and decoded(value) == text, two)
      end
      assert.equal(text == "q" and 1 or 2, fields)
    end
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is refused in a header's name or value if it contains a line break, also in a secret or a list", function()
    local server <close> = stub.start(function(_, reply) reply:json { ok = true } end)
    local g <close> = gateway.start {
      workers = 1, env = { EVIL = "a\r\nx-evil: 1" },
      scripts = { ["tools/run.lua"] = [[return tool { "R.", input = { url = t.string, text = t.string, how = t.string }, function(args)
        local headers = ({ value = { ["x-a"] = args.text }, name = { [args.text] = "a" }, list = { ["x-a"] = { "fine", args.text } },
          secret = { ["x-a"] = secret "EVIL" }, joined = { ["x-a"] = "Bearer " .. secret "EVIL" } })[args.how]
        local res, why = http.get(args.url, { headers = headers })
        return { status = res and res.status, why = why }
      end }]] },
      constants = { http_idle_ms = 5 }, config = { scripts = { allow = { net = { server.at }, env = { "EVIL" } } } },
    }
    local me = g:client "2026-07-28"
    for _, text in ipairs { "a\r\nx-evil: 1", "a\nx-evil: 1", "a\rb", "a\0b", "\r\n\r\nGET /admin HTTP/1.1", "a\27b", "a\127b" } do
      for _, how in ipairs { "value", "name", "list", "secret", "joined" } do
        local got = me:result("tools/call", { name = "run", arguments = { url = server.url, text = text, how = how } }).structuredContent
        assert.is_nil(got.status, how)
        assert.matches("header", got.why)
        assert.is_nil(got.why:find "%c")
      end
    end
    assert.same({}, server.requests)
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a secret", function()
  local KEY = "t0p-s3cret-value"

  -- Ways in which a script may leak a secret.
  local slips = {
    result = "return token", nested = "return { a = { b = { token, c = token } } }", text = "return tostring(token)",
    joined = "return 'a' .. tostring(token .. 'b')", format = "return ('%s %10s'):format(token, token)", raised = "error(token)",
    raised_text = "error('bad ' .. tostring(token))", raised_joined = "error('bad ' .. token)", raised_table = "error({ token = token })",
    failed = "fail('refused: ' .. tostring(token))", failed_joined = "fail('refused: ' .. token)", asserted = "assert(false, token)",
    tried = "try(nil, token)", key = "return { [token] = 1 }", called = "return token()", indexed = "return token.x", arithmetic = "return token + 1",
    compared = "return token < token", length = "return #token", number = "return tonumber(token)", upper = "return string.upper(token)",
    sub = "return string.sub(token, 1, 3)", rep = "return string.rep(token, 2)", gsub = "return ('x'):gsub('x', token)",
    concat = "return table.concat({ token }, ',')", iterated = "for k, v in pairs(token) do return v end",
    encoded = "return json.encode { token, k = token }", base64 = "return base64.encode(token)", digest = "return digest.sha256(token)",
    query = "return uri.query { q = token }", encode = "return uri.encode(token)", printed = "print(token, { token }) return 'ok'",
    logged = "log.warn('using ' .. tostring(token), { token = token, list = { token } }) return 'ok'",
    logged_event = "log.warn('with ' .. token) return 'ok'",
    progressed = "call:progress(1, 2, tostring(token)) call:progress(2, 2, token) return 'ok'",
    stored = "store.set('k', token) return store.get('k')", raw = "return rawget(token, 1)", metatable = "return getmetatable(token)",
    upvalue = "local f = function() return token.y.z end return f()", content = "return content.text(token)",
    deep = "local function a() local x = token error('deep') end a()", coroutine_raised = "return coroutine.wrap(function() error(token) end)()",
    url = "return http.get('http://127.0.0.1:1/' .. token)", query_sent = "return http.get('http://127.0.0.1:1/', { query = { k = token } })",
    written = "return fs.write('x', token)", byte = "return string.byte(token, 1, -1)", packed = "return string.pack('z', token)",
    sorted = "local list = { token, token } table.sort(list) return list", unpacked = "return select('#', table.unpack({ token }))",
    equal = "return token == '" .. KEY .. "'",
  }

  it("is in no result, no error, no message, no trace, no log and no audit", function()
    local scripts = {}
    for name, code in pairs(slips) do
      scripts["tools/" .. name .. ".lua"] = ("local token = secret 'KEY'\nreturn tool { 'Slips.', function(args, call)\n%s\nend }"):format(code)
    end
    scripts["prompts/slip.lua"] = "local token = secret 'KEY'\nreturn prompt { 'Slips.', function() return token end }"
    scripts["resources/slip.lua"] = "local token = secret 'KEY'\nreturn resource { 'Slips.', uri = 'x://slip', function() return { token = token } end }"
    local g <close> = gateway.start {
      scripts = scripts, env = { KEY = KEY },
      config = { scripts = { allow = { env = { "KEY" }, net = { "127.0.0.1:1" } } }, log = { level = "debug", audit = "audit.log", audit_arguments = "full" } },
    }
    local said = {}
    for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
      local me = g:client(revision)
      for name in pairs(slips) do
        local call = me:open("tools/call", { name = name, arguments = {}, _meta = { progressToken = "p" } })
        said[#said + 1] = name .. ": " .. cjson.encode((call:answer(10))) .. cjson.encode(call:messages())
      end
      for _, call in ipairs { { "prompts/get", { name = "slip" } }, { "resources/read", { uri = "x://slip" } }, { "tools/list" } } do
        said[#said + 1] = call[1] .. ": " .. cjson.encode((me:call(call[1], call[2])))
      end
      if me.delete then me:delete() end
      me:close()
    end
    g:stop()
    local file <close> = assert(io.open(g.dir .. "/audit.log"))
    said[#said + 1] = "log: " .. g:log()
    said[#said + 1] = "audit: " .. file:read "a"
    assert.truthy(#said > 90)
    for _, text in ipairs(said) do
      for _, piece in ipairs { KEY, KEY:upper(), KEY:sub(1, 6), KEY:sub(-6), "dDBwLXMzY3JldC12YWx1ZQ", "t0p%2Ds3cret" } do
        assert.is_nil(text:find(piece, 1, true), text:sub(1, 500))
      end
    end
  end)
end)
