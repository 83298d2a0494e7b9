-- auth.client_credentials: the gateway's own token from an authorization server: asked for as configured, by one worker
-- for all, renewed before its end and after a 401, kept through an outage, and ended by a refusal. Neither the secret
-- nor a token is ever shown.
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local stub = require "spec.helpers.stub"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local SECRET <const> = "s3cret: with %percent & more"

-- An authorization server. `state`: life of tokens in seconds, `answer(reply)` instead of tokens; counts in `asked`;
-- tokens that are good in `good`.
local function authorization_server(state)
  state.asked, state.good, state.forms, state.basic = 0, {}, {}, {}
  return stub.start(function(request, reply)
    if request.method == "GET" then
      if state.metadata then return state.metadata(request, reply) end
      return reply:send(404)
    end
    state.asked = state.asked + 1
    state.forms[state.asked], state.basic[state.asked] = request.body, request.headers.authorization or false
    if state.answer then return state.answer(reply) end
    local token = ("token-%d-hunter2"):format(state.asked)
    state.good[token] = true
    reply:json { access_token = token, token_type = "Bearer", expires_in = state.life or 3600 }
  end)
end

-- A stub upstream that answers only requests with a good token.
local function guarded(state, options)
  local u = upstream.start(options or { revision = "2025-11-25" })
  local function token_of(headers) return (headers.authorization or ""):match "^Bearer (.+)$" end
  u.guard = function(headers) return state.good[token_of(headers)] end
  u:when("*", function(x)
    local token = token_of(x.headers)
    x.entry.token = token
    if not state.good[token] then return upstream.faults.status(401)(x) end
    x:serve()
  end)
  return u
end

local function start(state, use, more, options)
  local as <close> = authorization_server(state)
  local u <close> = guarded(state, options)
  local credentials = { token_url = as.url .. "/token", client = "moonpool", secret = SECRET, scope = "jobs:run", audience = "https://jobs.example.com" }
  for key, value in pairs(more or {}) do
    credentials[key] = value
    if value == false then credentials[key] = nil end
  end
  if credentials.issuer == true then credentials.issuer = as.url end
  local g <close> = upstream.gateway({ one = u }, {
    workers = 2, entries = { one = { prefix = "", auth = { client_credentials = credentials } } }, config = { log = { level = "debug" } },
  })
  local me <close> = g:client "2026-07-28"
  use { as = as, u = u, g = g, me = me, state = state }
  local shown = g:log() .. g:admin("/status").body .. g:admin("/metrics").body
  assert.is_nil(shown:find("hunter2", 1, true))
  assert.is_nil(shown:find("s3cret", 1, true))
end

local function echo(it) return it.me:call("tools/call", { name = "echo", arguments = { n = 1 } }) end

local function listed(it)
  wait.for_fact("the list", 20, function()
    for _, tool in ipairs(it.me:result("tools/list", {}).tools) do
      if tool.name == "echo" then return true end
    end
  end)
end

local function field(form, name)
  local value = ("&" .. form):match("&" .. name .. "=([^&]*)")
  return value and (value:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
end

describe("an upstream with client_credentials", function()
  it("gets a token with scope and audience, asked for once for 100 calls on all workers", function()
    start({}, function(it)
      listed(it)
      local clients, ids = {}, {}
      for i = 1, 10 do clients[i] = it.g:client "2026-07-28" end
      for _, c in ipairs(clients) do
        for n = 1, 10 do ids[#ids + 1] = upstream.text(c:call("tools/call", { name = "echo", arguments = { n = n } })) end
      end
      for _, c in ipairs(clients) do c:close() end
      assert.equal(100, #ids)
      assert.equal(1, it.state.asked)
      local form = it.state.forms[1]
      assert.same({ "client_credentials", "jobs:run", "https://jobs.example.com" },
        { field(form, "grant_type"), field(form, "scope"), field(form, "audience") })
      assert.is_nil(field(form, "client_secret"))
      local sent = require "spec.helpers.base64".decode(it.state.basic[1]:match "^Basic (.+)$")
      assert.equal("moonpool:s3cret%3A%20with%20%25percent%20%26%20more", sent)
    end)
  end)

  it("sends client and secret in the body where that is configured", function()
    start({}, function(it)
      listed(it)
      assert.is_false(it.state.basic[1])
      assert.same({ "moonpool", SECRET }, { field(it.state.forms[1], "client_id"), field(it.state.forms[1], "client_secret") })
    end, { method = "post" })
  end)

  it("finds the token endpoint by the issuer's metadata, and believes only those of that issuer", function()
    local state = {}
    state.metadata = function(request, reply)
      if request.path ~= "/.well-known/openid-configuration" then return reply:send(404) end
      local origin = "http://" .. request.headers.host
      reply:json { issuer = state.other or origin, token_endpoint = state.endpoint or origin .. "/token",
        token_endpoint_auth_methods_supported = { "client_secret_post" } }
    end
    start(state, function(it)
      listed(it)
      assert.equal("moonpool", field(state.forms[1], "client_id"))
    end, { issuer = true, token_url = false })
    state.other = "https://other.example.com"
    start(state, function(it)
      it.g:wait_log("no token for upstream", { why = "the issuer's metadata name another issuer" })
      assert.equal(0, state.asked)
    end, { issuer = true, token_url = false })
  end)

  it("renews a refused token once for all calls, and sends each call once more; none runs twice", function()
    start({}, function(it)
      listed(it)
      upstream.text(echo(it))
      for token in pairs(it.state.good) do it.state.good[token] = nil end
      local before = it.u:ran "echo"
      local streams = {}
      for n = 1, 20 do streams[n] = it.me:open("tools/call", { name = "echo", arguments = { n = n } }) end
      for _, stream in ipairs(streams) do
        upstream.text(stream:answer())
        stream:close()
      end
      assert.equal(before + 20, it.u:ran "echo")
      assert.equal(2, it.state.asked)
    end)
  end)

  it("sends its token on the GET streams of sessions, and another one when that is refused", function()
    start({}, function(it)
      listed(it)
      local function gets() return it.u:all { kind = "http", method = "GET" } end
      local function streams() -- The number of GET streams that were opened with a token that is valid now.
        local n = 0
        for _, entry in ipairs(gets()) do n = n + (it.u.guard(entry.headers) and 1 or 0) end
        return n
      end
      wait.for_fact("the stream", 20, function() return streams() == 1 end)
      for n = 2, 3 do
        for token in pairs(it.state.good) do it.state.good[token] = nil end
        it.u:end_streams()
        wait.for_fact("a stream with a new token", 30, function() return streams() == 1 end)
        assert.equal(n, it.state.asked)
      end
      local read = #it.u:all { method = "tools/list" }
      it.u:announce "notifications/tools/list_changed"
      it.u:wait({ method = "tools/list" }, read + 1)
      -- a session of a client that can be asked, whose questions may come on the stream
      local c <close> = it.g:client("2025-11-25", { capabilities = { elicitation = { [" "] = 1 } } })
      upstream.text(c:call("tools/call", { name = "echo", arguments = { n = 1 } }))
      wait.for_fact("two streams", 20, function() return streams() == 2 end)
      local own = gets()[#gets()].headers["mcp-session-id"]
      for token in pairs(it.state.good) do it.state.good[token] = nil end
      it.u:end_streams()
      wait.for_fact("the stream of the client's session to be refused", 30, function()
        local n = 0
        for _, entry in ipairs(gets()) do n = n + (entry.headers["mcp-session-id"] == own and 1 or 0) end
        return n == 2
      end)
      wait.for_fact("two streams with a new token", 30, function()
        upstream.text(c:call("tools/call", { name = "echo", arguments = { n = 1 } }))
        return streams() == 2
      end)
    end)
  end)

  it("sends its token with the request that listens, and another one when that is refused", function()
    start({}, function(it)
      listed(it)
      wait.for_fact("the request that listens", 20, function() return #it.u:listening() == 1 end)
      for n = 2, 3 do
        for token in pairs(it.state.good) do it.state.good[token] = nil end
        for _, x in ipairs(it.u:listening()) do x:result(x:complete "{}") end
        wait.for_fact("one that listens with a new token", 30, function() return #it.u:listening() == 1 end)
        assert.equal(n, it.state.asked)
      end
      it.u:announce "notifications/tools/list_changed"
      it.u:wait({ method = "tools/list" }, 2)
    end, nil, { revision = "2026-07-28" })
  end)

  it("is barred, with what to do, if new tokens are refused too, and asks neither server again and again", function()
    start({}, function(it)
      listed(it)
      it.state.good = setmetatable({}, { __newindex = function() end })
      local data, message = upstream.failure(echo(it), "not_run", "barred")
      assert.matches("refuses the credential of this gateway: its operator must renew it", message)
      local asked, came = it.state.asked, #it.u:all { kind = "request" }
      assert.equal(2, asked)
      for _ = 1, 10 do upstream.failure(echo(it), "not_run", "barred") end
      assert.equal(asked, it.state.asked)
      assert.equal(came, #it.u:all { kind = "request" })
      assert.is_true(data.retry_after == nil or data.retry_after > 0)
      assert.equal("barred", it.g:status().upstreams.one.state)
      assert.equal("the upstream refuses the token that the authorization server gave", it.g:status().upstreams.one.error)
    end)
  end)

  it("renews a token before its end, and goes on with one that is still good while the server does not answer", function()
    start({ life = 12 }, function(it)
      listed(it)
      upstream.text(echo(it))
      it.state.answer = function(reply) reply:send(503) end
      wait.for_fact("a renewal that failed", 40, function()
        upstream.text(echo(it))
        return it.state.asked > 1
      end)
      it.g:wait_log("no token for upstream", { why = "the authorization server answers with status 503" })
      upstream.text(echo(it))
      wait.for_fact("the end of the token", 40, function() return echo(it).error end)
      local _, message = upstream.failure(echo(it), "not_run", "credential")
      assert.equal("upstream 'one' cannot be called, as the authorization server gives no token at the moment; the call was not run", message)
      it.state.answer = nil
      wait.for_fact("another token", 30, function() return echo(it).result end)
    end)
  end)

  it("is barred where the token endpoint refuses the client, and says which error", function()
    for _, case in ipairs { { 401, "invalid_client" }, { 400, "invalid_grant" }, { 400, "unauthorized_client" } } do
      local state = {}
      state.answer = function(reply)
        reply:send(case[1], { ["content-type"] = "application/json" },
          cjson.encode { error = case[2], error_description = "the secret s3cret is wrong, hunter2" })
      end
      start(state, function(it)
        wait.for_fact("the state", 20, function() return it.g:status().upstreams.one.state == "barred" end)
        assert.equal(("the token endpoint answers %d %s"):format(case[1], case[2]), it.g:status().upstreams.one.error)
        local code, out = gateway.exec { "upstreams", "--admin", "127.0.0.1:" .. it.g.admin_port }
        assert.equal(1, code)
        assert.matches("one +barred", out)
        assert.equal(1, state.asked)
        assert.equal(0, #it.u.received)
      end)
    end
  end)

  it("does not use what is no bearer token, and tokens for others", function()
    local function part(value) return (require "spec.helpers.base64".encode(cjson.encode(value)):gsub("+", "-"):gsub("/", "_"):gsub("=", "")) end
    local other = table.concat({ part { alg = "none" }, part { aud = { "https://other.example.com" } }, "c2ln" }, ".")
    for _, case in ipairs {
      { { access_token = other, token_type = "Bearer" }, "the token endpoint gave a token for another audience" },
      { { access_token = "a b", token_type = "Bearer" }, "the token endpoint gave no token" },
      { { access_token = "a\r\nx-evil: 1", token_type = "Bearer" }, "the token endpoint gave no token" },
      { { access_token = "abc", token_type = "DPoP" }, "the token endpoint gave no bearer token" },
      { { token_type = "Bearer" }, "the token endpoint gave no token" },
    } do
      local state = {}
      state.answer = function(reply) reply:json(case[1]) end
      start(state, function(it)
        it.g:wait_log("no token for upstream", { why = case[2] })
        assert.equal(0, #it.u.received)
      end)
    end
  end)

  it("serves legacy and modern servers, and each request of a session has the token", function()
    for _, revision in ipairs { "2024-11-05", "2025-06-18", "2026-07-28" } do
      start({}, function(it)
        listed(it)
        upstream.text(echo(it))
        for _, entry in ipairs(it.u:all { kind = "request" }) do assert.equal("token-1-hunter2", entry.token, entry.method) end
      end, nil, { revision = revision, transport = revision == "2024-11-05" and "sse" or "http" })
    end
  end)
end)

describe("the configuration of tokens", function()
  local function check(auth, more)
    local entry = { url = "https://jobs.example.com/mcp", auth = auth }
    for key, value in pairs(more or {}) do entry[key] = value end
    local dir = gateway.prepare { config = { upstreams = { one = entry } } }
    local code, out, err = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })
    os.execute("rm -rf '" .. dir .. "'")
    return code, out .. err
  end

  it("is checked: what is missing, what excludes another, and secrets that would go over plain http", function()
    local full = { issuer = "https://id.example.com", client = "c", secret = "hunter2" }
    assert.equal(0, (check { client_credentials = full }))
    for text, case in pairs {
      ["'client_credentials' needs 'secret'"] = { { client_credentials = { issuer = "https://id.example.com", client = "c" } } },
      ["'client_credentials' needs 'issuer' or 'token_url'"] = { { client_credentials = { client = "c", secret = "hunter2" } } },
      ["'client_credentials' has both 'issuer' and 'token_url'"] =
        { { client_credentials = { issuer = "https://a.example", token_url = "https://a.example/t", client = "c", secret = "hunter2" } } },
      ["'auth' has 'bearer' and 'client_credentials'"] = { { bearer = "hunter2", client_credentials = full } },
      ["it must begin with https://, as secrets are sent to it"] =
        { { client_credentials = { issuer = "http://id.example.com", client = "c", secret = "hunter2" } } },
    } do
      local code, said = check(case[1], case[2])
      assert.equal(78, code, text)
      assert.truthy(said:find(text, 1, true), said)
    end
  end)
end)
