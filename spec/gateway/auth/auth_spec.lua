-- Authentication comes first: without valid credentials every path and every revision get the same 401, and nothing is
-- created (A-1 to A-4, A-7; rows B-18, B-71).
-- proves: authentication before everything else 2024-11-05 sse
-- proves: authentication before everything else 2025-03-26.. http
local credentials = require "spec.helpers.credentials"
local gateway = require "spec.helpers.gateway"
local stdio = require "spec.helpers.stdio"
local wire = require "spec.helpers.wire"

local revisions = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" }
local scripts = { ["auth/main.lua"] = credentials.script, ["tools/who.lua"] = credentials.who }

local function with(token, more)
  local headers = { Authorization = token, ["Content-Type"] = "application/json", Accept = wire.both }
  for name, value in pairs(more or {}) do
    headers[name] = value
  end
  return headers
end

-- A gateway whose only auth script is `text`, or with several scripts by name.
local function guarded(given)
  local all = { ["tools/who.lua"] = credentials.who }
  if type(given) == "string" then
    given = { main = given }
  end
  for name, text in pairs(given) do
    all["auth/" .. name .. ".lua"] = text
  end
  return gateway.start { scripts = all }
end

local function modern_call(name, arguments)
  local message = wire.message(1, "tools/call", { name = name, arguments = arguments, _meta = wire.meta() })
  return message, wire.mirrored(message)
end

-- The body of a tools/call at 2026-07-28 that returns the caller's id (the tool `who`).
local function ask_who(g, headers)
  local message, mirrored = modern_call "who"
  for name, value in pairs(headers or {}) do
    mirrored[name] = value
  end
  return wire.post(g, message, mirrored)
end

local function told(response)
  assert.equal(200, response.status, response.body)
  return response:json().result.content[1].text
end

describe("without credentials", function()
  it("every path, method and revision answers the same 401", function()
    local g <close> = gateway.start { scripts = scripts }
    local ann = g:client("2025-11-25", { token = "ann-1" })
    local first
    local message, mirrored = modern_call "who"
    local bodies = {
      { wire.initialize_message "2025-11-25" }, { wire.initialize_message "2024-11-05" }, { message, mirrored }, { "{" }, { "[]" },
      { wire.message(2, "ping"), { ["Mcp-Session-Id"] = ann.session } }, { wire.message(2, "ping"), { ["Mcp-Session-Id"] = ("0"):rep(36) } },
      { "", { ["Content-Type"] = "text/plain" } },
    }
    for _, path in ipairs { "/mcp", "/sse", "/messages", "/messages?session_id=" .. ann.session, "/nothing", "/", "/.well-known/other", "/mcp/" } do
      for _, method in ipairs { "GET", "DELETE", "OPTIONS", "PUT" } do
        local response = wire.request(g, method, path, { ["Mcp-Session-Id"] = ann.session, Accept = "text/event-stream" })
        first = first or response.body
        assert.same({ 401, first }, { response.status, response.body })
        assert.truthy(response.headers["www-authenticate"])
      end
      for _, body in ipairs(bodies) do
        local response = wire.post(g, body[1], body[2], path)
        assert.same({ 401, first }, { response.status, response.body })
        assert.is_nil(response.headers["mcp-session-id"])
      end
    end
    assert.equal("user:ann", (credentials.ask(ann)))
    ann:delete()
    ann:close()
    assert.has_nothing_left(g)
  end)

  it("no session is made, however often it is tried (B-18)", function()
    local g <close> = gateway.start { scripts = scripts }
    local connection <close> = g:connect()
    for i = 1, 1000 do
      local token = ({ false, "Bearer nobody-1", "Bearer x" })[i % 3 + 1]
      local response = connection:request {
        method = "POST", path = i % 4 == 0 and "/sse" or "/mcp", headers = with(token), body = wire.initialize_message "2025-11-25",
      }
      assert.equal(401, response.status)
      assert.truthy(response.headers["www-authenticate"])
    end
    local status = g:status()
    assert.equal(0, status.counters.sessions_opened)
    assert.equal(1000, status.counters.refused.auth)
    connection:close()
    assert.has_nothing_left(g)
  end)

  it("the challenge says where credentials come from, and names a token that was sent", function()
    local g <close> = gateway.start { scripts = scripts }
    local metadata = ('resource_metadata="http://127.0.0.1:%d/.well-known/oauth-protected-resource/'):format(g.port)
    local function challenge(token, path)
      return wire.request(g, "POST", path or "/mcp", with(token)).headers["www-authenticate"]
    end
    assert.equal("Bearer " .. metadata .. 'mcp", scope="notes:read"', challenge(false))
    assert.equal('Bearer error="invalid_token", ' .. metadata .. 'mcp", scope="notes:read"', challenge "Bearer nobody-1")
    assert.equal("Bearer " .. metadata .. 'mcp", scope="notes:read"', challenge "Basic YTpi")
    assert.equal("Bearer " .. metadata .. 'sse", scope="notes:read"', challenge(false, "/sse"))
    assert.equal("Bearer " .. metadata .. 'sse", scope="notes:read"', challenge(false, "/messages"))
    assert.equal("Bearer " .. metadata .. 'mcp", scope="notes:read"', challenge(false, "/nothing"))
  end)

  it("the challenge has a realm where there is no issuer", function()
    local g <close> = guarded 'return auth { function() return nil end }'
    assert.equal('Bearer realm="moonpool"', ask_who(g).headers["www-authenticate"])
    local other <close> = guarded 'return auth { realm = "the orders", function() return nil end }'
    assert.equal('Bearer realm="the orders", error="invalid_token"', ask_who(other, { Authorization = "Bearer x" }).headers["www-authenticate"])
  end)

  it("the paths where clients look for an authorization server say that there is none, where no auth script has an issuer", function()
    local g <close> = guarded 'return auth { function() return nil end }'
    for _, name in ipairs { "oauth-protected-resource", "oauth-protected-resource/mcp", "oauth-authorization-server", "oauth-authorization-server/mcp",
      "openid-configuration", "other" } do
      for _, headers in ipairs { {}, { Authorization = "Bearer x" } } do
        local response = wire.request(g, "GET", "/.well-known/" .. name, headers)
        assert.same({ 404, nil }, { response.status, response.headers["www-authenticate"] })
      end
    end
    assert.equal(403, wire.request(g, "GET", "/.well-known/other", { Host = "evil.example" }).status)
    for _, path in ipairs { "/.well-known", "/.well-knowns/x", "/register", "/" } do assert.equal(401, wire.request(g, "GET", path).status) end
    local at <close> = gateway.start {
      config = { endpoints = { mcp = "/.well-known/mcp" } }, scripts = { ["auth/main.lua"] = "return auth { function() return nil end }" },
    }
    assert.equal(401, wire.request(at, "GET", "/.well-known/mcp").status)
    assert.equal(401, wire.request(at, "GET", "/.well-known/mcp/").status)
  end)

  it("a malformed Authorization is refused like any other, by the same process (B-71)", function()
    local g <close> = gateway.start { scripts = scripts }
    local odd = {
      "Bearer", "Bearer ", "bearer x", "BEARER\tann-1", "Bearer ann-1 ann-1", "Bearer ann-1,", "Bearer \"ann-1\"", "Bearerann-1", "Basic =", "Basic",
      "Basic YW5uLTE6", "ann-1", "Bearer =", "Bearer ä", "Digest username=\"ann-1\"", "Bearer a.b", "Bearer a.b.c", "Bearer a.b.c.d",
      "Bearer a.b.c.d.e", "Bearer e30.e30.", "Bearer " .. ("a"):rep(50000), "Negotiate " .. ("A"):rep(2000), "Bearer %00", "",
    }
    for _, value in ipairs(odd) do
      local response = ask_who(g, { Authorization = value })
      assert.equal(401, response.status, value:sub(1, 40))
      assert.truthy(response.headers["www-authenticate"])
    end
    -- a token twice, even if both are valid; in the query; larger than any header may be; with a NUL: the HTTP parser
    -- refuses the last two
    local message, mirrored = modern_call "who"
    local list = { { "Authorization", "Bearer ann-1" }, { "Authorization", "Bearer ann-1" }, { "Accept", wire.both }, { "Content-Type", "application/json" } }
    for name, value in pairs(mirrored) do
      list[#list + 1] = { name, value }
    end
    assert.equal(401, require("spec.helpers.client").request(g, { method = "POST", path = "/mcp", headers = list, body = message }).status)
    assert.equal(401, wire.post(g, message, mirrored, "/mcp?access_token=ann-1").status)
    for _, value in ipairs { "Bearer " .. ("a"):rep(100000), "Bearer ann-1\0", "Bearer ann-1\127" } do
      local ok, response = pcall(ask_who, g, { Authorization = value })
      assert.truthy(not ok or ({ [400] = true, [401] = true, [431] = true })[response.status])
    end
    assert.equal("user:ann", told(ask_who(g, { Authorization = "bEaReR   ann-1" })))
    assert.equal(g.pid, g:status().pid)
    assert.equal(0, g:status().counters.tool_faults)
    assert.has_nothing_left(g)
  end)
end)

for _, revision in ipairs(revisions) do
  describe("with valid credentials at " .. revision, function()
    it("calls see the principal of their own request", function()
      local g <close> = gateway.start { scripts = scripts }
      local ann, bob <const> = g:client(revision, { token = "ann-1" }), g:client(revision, { token = "bob-1" })
      assert.equal("user:ann", (credentials.ask(ann)))
      assert.equal("user:bob", (credentials.ask(bob)))
      ann.token = "ann-2"
      assert.equal("user:ann", (credentials.ask(ann)))
      for _, me in ipairs { ann, bob } do
        if me.delete and me.session then
          me:delete()
        end
        me:close()
      end
      assert.has_nothing_left(g)
    end)
  end)
end

describe("a batch", function()
  it("is authenticated once, and all of its calls have that principal", function()
    local g <close> = gateway.start { scripts = scripts }
    local ann = g:client("2025-03-26", { token = "ann-1" })
    local body = { wire.message(11, "tools/call", { name = "who" }), wire.message(12, "tools/call", { name = "who" }) }
    local answers = wire.post(g, body, ann:headers()):json()
    assert.equal("user:ann", answers[1].result.content[1].text)
    assert.equal("user:ann", answers[2].result.content[1].text)
    local headers = ann:headers()
    headers.Authorization = nil
    assert.equal(401, wire.post(g, body, headers).status)
    ann:delete()
    ann:close()
    assert.has_nothing_left(g)
  end)
end)

describe("several auth scripts", function()
  local key = [[return auth { function(request)
    local key = try(request.headers["X-Api-Key"], "no key")
    if key ~= "k" then return nil, "unknown key" end
    return { id = "robot" }
  end }]]

  it("run in the order of their paths; the first that returns a principal decides", function()
    local g <close> = guarded { ["10-key"] = key, ["20-token"] = credentials.script, ["a/last"] = [[return auth { function(request)
      if request.bearer == "ann-1" or request.headers["x-api-key"] then return { id = "too late" } end
      if request.bearer == "late" then return { id = "last" } end
    end }]] }
    assert.equal("robot", told(ask_who(g, { ["x-api-key"] = "k", Authorization = "Bearer ann-1" })))
    assert.equal("user:ann", told(ask_who(g, { ["x-api-key"] = "wrong", Authorization = "Bearer ann-1" })))
    assert.equal("last", told(ask_who(g, { Authorization = "Bearer late" })))
    assert.equal(401, ask_who(g, { Authorization = "Bearer x" }).status)
  end)

  it("authenticate no client after a script that has a bug", function()
    local g <close> = guarded { ["1"] = "return auth { function(request) return request.nothing.there end }", ["2"] = credentials.script }
    local response = ask_who(g, { Authorization = "Bearer ann-1" })
    assert.equal(500, response.status)
    local id = response:json().error.message:match "^internal error (%x+)$"
    assert.truthy(g:wait_log("auth failed", { id = id, name = "auth/1.lua" }).fields.why:find("auth/1.lua:1:", 1, true))
  end)
end)

describe("the value that an auth script returns", function()
  it("authenticates only if it is a principal", function()
    for _, value in ipairs {
      "true", "1", "'ann'", "{}", "{ id = 1 }", "{ id = '' }", "{ id = 'a', scopes = 'x' }", "{ id = 'a', scopes = { 'a b' } }", "{ id = 'a', admin = true }",
      "{ id = 'anonymous' }", "{ id = 'local' }", "{ id = 'a\\r\\nb' }", "{ id = 'a', claims = { f = print } }", "function() end",
    } do
      local g <close> = guarded("return auth { function() return " .. value .. " end }")
      local response = ask_who(g)
      assert.equal(500, response.status, value)
      assert.is_nil(response.body:find("ann", 1, true))
      g:wait_log("auth failed", { name = "auth/main.lua" })
    end
  end)

  it("is read once, also from a table that the script changes later", function()
    local g <close> = gateway.start { workers = 1, scripts = { ["auth/main.lua"] = [[
      local mine, claims = { scopes = {} }, {}
      return auth { function(request)
        local name, scope, n, more = request.bearer:match "^(%a+)%-(%a*)%-(%d+)%-?(%a*)$"
        mine.id, mine.scopes[1], mine.expires = name, scope ~= "" and scope or nil, os.time() + tonumber(n)
        mine.scopes[2] = mine.scopes[1] and more ~= "" and more or nil
        claims.n = n
        mine.claims = n == "500" and claims or nil
        return mine
      end }]], ["tools/who.lua"] = [[return tool { "Says.", function(_, call)
        local p = call.principal
        return p.id .. ":" .. table.concat(p.scopes, " ") .. ":" .. (p.claims and p.claims.n or "")
      end }]] } }
    for _ = 1, 3 do
      for token, seen in pairs {
        ["ann-a-100"] = "ann:a:", ["ann-b-100"] = "ann:b:", ["bob-a-100"] = "bob:a:", ["ann--100"] = "ann::", ["ann-a-500"] = "ann:a:500",
        ["ann-a-100-b"] = "ann:a b:", ["ann-a-900"] = "ann:a:",
      } do
        assert.equal(seen, told(ask_who(g, { Authorization = "Bearer " .. token })))
      end
    end
    assert.equal(401, ask_who(g, { Authorization = "Bearer ann-a-0" }).status)
  end)

  it("is refused when it has expired", function()
    local g <close> = gateway.start { scripts = scripts }
    assert.equal(401, ask_who(g, { Authorization = ("Bearer ann-1-%d"):format(os.time()) }).status)
    assert.equal(200, ask_who(g, { Authorization = ("Bearer ann-1-%d"):format(os.time() + 60) }).status)
  end)

  it("is 503 with Retry-After when the service that it asks cannot be reached", function()
    local g <close> = guarded { ["1"] = "return auth { function(r) if r.bearer ~= 'x' then return nil, 'the server is down', 7 end end }",
      ["2"] = "return auth { function(r) if r.bearer == 'good' then return { id = 'good' } end end }" }
    local response = ask_who(g)
    assert.same({ 503, "7" }, { response.status, response.headers["retry-after"] })
    assert.is_nil(response.headers["www-authenticate"])
    assert.is_nil(response.body:find("down", 1, true))
    assert.equal("good", told(ask_who(g, { Authorization = "Bearer good" })))
    assert.equal(401, ask_who(g, { Authorization = "Bearer x" }).status)
  end)
end)

describe("an auth script", function()
  it("sees the request: method, path, headers in any case, bearer, peer; and nothing after it", function()
    local script = [[
      local kept
      return auth { function(request)
        local before = kept
        kept = kept or request
        local over = before and select(2, pcall(function() return before.path end))
        local headers_over = before and select(2, pcall(function() return before.headers.accept end))
        return { id = "x", claims = {
          method = request.method, path = request.path, host = request.headers["HOST"], several = request.headers["X-Several"],
          none = request.headers.nothing == nil and request.tls == nil and request.other == nil, bearer = request.bearer, peer = request.peer,
          same = request.headers == request.headers, over = over, headers_over = headers_over, query = request.query,
          tell = tostring(pcall(function() request.path = "/" end)),
        } }
      end }]]
    local claims_of = [[return tool { "Claims.", function(_, call) return call.principal.claims end }]]
    local h <close> = gateway.start { workers = 1, scripts = { ["auth/main.lua"] = script, ["tools/who.lua"] = claims_of } }
    local message, mirrored = modern_call "who"
    local list = {
      { "Authorization", "Bearer a.b-c_d~e+f/g==" }, { "X-Several", "1" }, { "X-Several", " 2 " }, { "Accept", wire.both },
      { "Content-Type", "application/json" },
    }
    for name, value in pairs(mirrored) do
      list[#list + 1] = { name, value }
    end
    local function claims()
      local response = require("spec.helpers.client").request(h, { method = "POST", path = "/mcp?access_token=x", headers = list, body = message })
      return response:json().result.structuredContent
    end
    local seen = claims()
    assert.same({ "POST", "/mcp", "127.0.0.1:" .. h.port, "1, 2", true, "a.b-c_d~e+f/g==", "127.0.0.1", true, "false" },
      { seen.method, seen.path, seen.host, seen.several, seen.none, seen.bearer, seen.peer, seen.same, seen.tell })
    seen = claims()
    assert.truthy(seen.over:find("this request has ended", 1, true))
    assert.truthy(seen.headers_over:find("this request has ended", 1, true))
  end)

  it("may take long to run, but not for ever", function()
    local g <close> = gateway.start { config = { limits = { call = { cpu = "100ms" } } }, scripts = {
      ["auth/main.lua"] = [[return auth { function(request)
        if request.bearer == "endless" then while true do end end
        return { id = "quick" }
      end }]], ["tools/who.lua"] = credentials.who } }
    assert.equal(503, ask_who(g, { Authorization = "Bearer endless" }).status)
    assert.equal("quick", told(ask_who(g)))
    assert.has_nothing_left(g)
  end)
end)

describe("over stdio", function()
  it("no auth script runs: the user that started it is the principal `local`, and may do everything", function()
    local process <close> = stdio.start { scripts = { ["auth/main.lua"] = "return auth { function() return nil end }", ["tools/who.lua"] = credentials.who } }
    for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
      assert.equal("local", process:client(revision):result("tools/call", { name = "who" }).content[1].text)
    end
  end)
end)

describe("a script in auth/ that is wrong", function()
  local function complaint(text)
    local dir = gateway.prepare { scripts = { ["auth/main.lua"] = text } }
    local code, out, err = gateway.exec({ "check", dir .. "/moonpool.yaml" })
    return code, out .. err
  end

  it("is reported at load, with its line and the names that are allowed", function()
    for text, why in pairs {
      ["return auth { issuers = 'x', function() end }"] = "auth has no option 'issuers'",
      ["return auth { issuer = 'https://x' }"] = "auth needs a function",
      ["return auth { 'text' }"] = "the first item of auth must be its function",
      ["return auth(7)"] = "auth needs a table",
      ["return auth { issuer = 'http://far.example', function() end }"] = "'issuer' must be an https URL",
      ["return auth { issuer = 'https://x/?q', function() end }"] = "'issuer' must be an https URL",
      ["return auth { scopes_supported = { 'a b' }, function() end }"] = "'scopes_supported':",
      ["return auth { implies = { admin = 'read' }, function() end }"] = "'implies' gives 'admin' a list of scopes",
      ["return auth { realm = 'a\"b', function() end }"] = "'realm' must be plain text",
      ["return auth.keyes {}"] = "there is no auth.keyes",
      ["return function() end"] = "not an auth",
      ["return nil"] = "the file returns nothing",
    } do
      local code, said = complaint(text)
      assert.equal(78, code, text)
      assert.truthy(said:find(why, 1, true), text .. "\n" .. said)
    end
  end)
end)
