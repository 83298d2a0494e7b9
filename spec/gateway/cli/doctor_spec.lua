-- moonpool doctor: names the step at which the way to an upstream stops, for upstreams that are broken in each way;
-- changes nothing.
local certificates = require "spec.helpers.certificates"
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local stub = require "spec.helpers.stub"
local uv = require "luv"

local program = assert(uv.fs_realpath(gateway.binary))

-- Runs the command in a folder with a configuration. `entries`: members of `upstreams`.
local function doctor(entries, args, env)
  local dir = gateway.prepare { config = { admin = "off", upstreams = entries }, scripts = {} }
  local code, out, err = gateway.exec({ "doctor", table.unpack(args) }, { cwd = dir, env = env })
  os.execute("rm -rf '" .. dir .. "'")
  return code, out, err
end

-- Examines one entry. Returns the exit code, the report, and its steps by their names.
local function examine(entry, env)
  local code, out, err = doctor({ one = entry }, { "--json", "one" }, env)
  local report = assert(out ~= "" and cjson.decode(out), err)
  local steps = {}
  for _, step in ipairs(report.steps) do steps[step.step] = step end
  return code, report, steps
end

-- `moonpool check --connect` with one entry.
local function gateway_check(entry)
  local dir = gateway.prepare { config = { admin = "off", upstreams = { one = entry } }, scripts = {} }
  local code, out, err = gateway.exec({ "check", "--connect", "moonpool.yaml" }, { cwd = dir })
  os.execute("rm -rf '" .. dir .. "'")
  return code, out, err
end

-- A stub that answers each request as f(reply, request, body) says.
local function served(f) return stub.start(function(request, reply) f(reply, request) end) end

local function json_reply(reply, value) reply:send(200, { ["content-type"] = "application/json" }, cjson.encode(value)) end

-- A server of 2025-11-25 whose tools/list is answered by `list`.
local function older(list)
  return stub.start(function(request, reply)
    local message = request.body and request.body ~= "" and cjson.decode(request.body) or {}
    if message.method == "server/discover" then
      json_reply(reply, { jsonrpc = "2.0", id = message.id, error = { code = -32601, message = "unknown" } })
    elseif message.method == "initialize" then
      json_reply(reply, { jsonrpc = "2.0", id = message.id, result = { protocolVersion = "2025-11-25", capabilities = { tools = {} },
        serverInfo = { name = "older", version = "1" } } })
    elseif message.method == "tools/list" then
      list(reply, message)
    else
      reply:send(202)
    end
  end)
end

describe("moonpool doctor", function()
  local function fails(entry, at, text, env)
    local code, report, steps = examine(entry, env)
    assert.same({ 1, false, at }, { code, report.ok, report.stopped_at }, cjson.encode(report))
    assert.equal("failed", steps[at].state)
    assert.truthy(steps[at].text:find(text, 1, true), steps[at].text)
    assert.is_string(steps[at].hint, "no hint for " .. at)
    local is_after = false
    for _, step in ipairs(report.steps) do
      if is_after then assert.equal("not reached", step.state) end
      is_after = is_after or step.step == at
    end
    return steps
  end

  it("walks all steps of a server that works", function()
    local g <close> = gateway.start { scripts = { ["tools/one.lua"] = [[return tool { "One.", function() return "1" end }]] } }
    local code, report, steps = examine(g.url)
    assert.same({ 0, true }, { code, report.ok }, cjson.encode(report))
    assert.is_nil(steps.tls)
    assert.truthy(steps.probe.text:find("2026-07-28 over http, moonpool", 1, true))
    assert.same({ "none is sent, and none is needed", "1 tool" }, { steps.token.text, steps.list.text })
    local _, out = doctor({}, { g.url })
    assert.truthy(out:find("  list           ok           1 tool\n", 1, true), out)
    code, out = doctor({ one = g.url }, { "one" })
    assert.equal(0, code)
    assert.truthy(out:find("^one\n  address        ok           127.0.0.1\n"), out)
    assert.has_nothing_left(g)
  end)

  it("does not wait for the end of an event stream where the metadata would be, as go-sdk's server of HTTP+SSE has", function()
    local up = older(function(reply, message) json_reply(reply, { jsonrpc = "2.0", id = message.id, result = { tools = {} } }) end)
    local asked = 0
    local server <close> = stub.start(function(request, reply)
      if request.method == "POST" then return up.answer(request, reply) end
      asked = asked + 1
      reply:head(200, { { "content-type", "text/event-stream" }, { "transfer-encoding", "chunked" } })
      reply:chunk "event: endpoint\ndata: /x\n\n"
    end)
    local began = uv.hrtime()
    local code, report, steps = examine(server.url .. "/mcp")
    assert.same({ 0, true }, { code, report.ok }, cjson.encode(report))
    assert.equal("the server describes none", steps.authorization.text)
    assert.is_true(asked >= 2 and uv.hrtime() - began < 9e9)
    up:__close()
  end)

  it("names the address: a name that does not exist, and one that is not public", function()
    local hosts = {
      LD_PRELOAD = uv.fs_realpath(gateway.binary:match "^(.*)/" .. "/resolver.so"), MOONPOOL_HOSTS = "internal.example=127.0.0.1",
      ASAN_OPTIONS = (os.getenv "ASAN_OPTIONS" or "") .. ":verify_asan_link_order=0",
    }
    fails("http://name.invalid/mcp", "address", "host not found", hosts)
    local server <close> = served(function(reply) reply:send(500) end)
    local steps = fails("http://internal.example:" .. server.port .. "/mcp", "address", "not public", hosts)
    assert.truthy(steps.address.hint:find("private: true", 1, true))
    assert.equal(0, #server.requests)
  end)

  it("names the connection: nothing listens", function()
    local port
    do
      local server <close> = served(function(reply) reply:send(500) end)
      port = server.port
    end
    fails("http://127.0.0.1:" .. port .. "/mcp", "connect", "connection refused")
  end)

  it("names TLS: a certificate that is not trusted, and a server without TLS", function()
    local here = certificates.here()
    local g <close> = gateway.start { config = { listen = { { address = "127.0.0.1:0", tls = { certificate = "cert.pem", key = "key.pem" } } } },
      files = { ["cert.pem"] = here.certificate, ["key.pem"] = here.key } }
    local steps = fails("https://127.0.0.1:" .. g.port .. "/mcp", "tls", "certificate")
    assert.truthy(steps.tls.hint:find("tls: {ca: FILE}", 1, true))
    local plain <close> = gateway.start {}
    fails("https://127.0.0.1:" .. plain.port .. "/mcp", "tls", "SSL")
  end)

  it("names the probe: HTML, 404, 500, silence, a closed connection, no shared revision", function()
    local html <close> = served(function(reply) reply:send(200, { ["content-type"] = "text/html" }, "<html>") end)
    fails(html.url .. "/mcp", "probe", "not MCP")
    local missing <close> = served(function(reply) reply:send(404) end)
    local steps = fails(missing.url .. "/none", "probe", "status 404")
    assert.truthy(steps.probe.hint:find("/mcp", 1, true))
    local broken <close> = served(function(reply) reply:send(500) end)
    fails(broken.url .. "/mcp", "probe", "status 500")
    local silent <close> = served(function() end)
    fails({ url = silent.url .. "/mcp", open = "300ms" }, "probe", "did not answer within")
    local closed <close> = served(function(reply) reply:close() end)
    fails(closed.url .. "/mcp", "probe", "closed the connection")
    local stranger <close> = served(function(reply, request)
      local message = cjson.decode(request.body)
      json_reply(reply, { jsonrpc = "2.0", id = message.id, result = { protocolVersion = "2031-01-01", supportedVersions = { "2031-01-01" } } })
    end)
    fails(stranger.url .. "/mcp", "probe", "revision")
  end)

  it("names the token, after a look at what the server says about authorization", function()
    local asked = {}
    local server <close> = stub.start(function(request, reply)
      asked[#asked + 1] = request.method .. " " .. request.path .. " " .. (request.headers.authorization or "-")
      if request.path == "/.well-known/oauth-protected-resource/mcp" then
        return json_reply(reply, { resource = "http://" .. request.headers.host .. "/mcp", authorization_servers = { "https://id.example.com" },
          scopes_supported = { "files:read" } })
      end
      reply:send(401, { ["www-authenticate"] = 'Bearer resource_metadata="http://elsewhere.invalid/x"' })
    end)
    local steps = fails(server.url .. "/mcp", "token", "none is configured")
    assert.same({ "ok", "answers with status 401" }, { steps.probe.state, steps.probe.text })
    assert.same({ "ok", "tokens are from https://id.example.com; scopes: files:read" }, { steps.authorization.state, steps.authorization.text })
    asked = {}
    steps = fails({ url = server.url .. "/mcp", auth = { bearer = "${TOKEN:?set it}" } }, "token", "auth.bearer: refused", { TOKEN = "hunter2" })
    assert.is_nil(cjson.encode(steps):find "hunter2")
    assert.same({ "POST /mcp Bearer hunter2", "GET /.well-known/oauth-protected-resource/mcp -" }, asked)
    local forbidden <close> = served(function(reply) reply:send(403, { ["content-type"] = "text/plain" }, "\n This host is\27 not served.\nMore.") end)
    steps = fails({ url = forbidden.url .. "/mcp", auth = { bearer = "x" } }, "token", "accepted, but it may not do this")
    assert.equal("auth.bearer: accepted, but it may not do this (status 403); it says: This host is  not served.", steps.token.text)
  end)

  -- A server that wants a token of an authorization server, and both servers.
  local function with_tokens(answer, use)
    local as <close> = stub.start(function(request, reply)
      if answer then return answer(reply) end
      local subject = request.body:match "subject_token=([^&]+)"
      json_reply(reply, { access_token = "good-hunter2" .. (subject or ""), token_type = "Bearer", expires_in = 60,
        issued_token_type = subject and "urn:ietf:params:oauth:token-type:access_token" or nil })
    end)
    local server <close> = older(function(reply, message)
      json_reply(reply, { jsonrpc = "2.0", id = message.id, result = { tools = { { name = "good", inputSchema = { type = "object" } } } } })
    end)
    local guard = server.answer
    local seen = {}
    server.answer = function(request, reply)
      local token = request.headers.authorization
      if request.method == "POST" then seen[#seen + 1] = token or "-" end
      if not (token or ""):find "^Bearer good" then return reply:send(401) end
      return guard(request, reply)
    end
    local credentials = { token_url = as.url .. "/token", client = "c", secret = "hunter3", audience = "a" }
    use(server.url .. "/mcp", credentials, seen)
  end

  it("gets a token of client_credentials as the gateway does, and says at which server it stops", function()
    with_tokens(nil, function(url, credentials, seen)
      local code, report, steps = examine { url = url, auth = { client_credentials = credentials } }
      assert.same({ 0, true }, { code, report.ok }, cjson.encode(report))
      assert.same({ "auth.client_credentials: the authorization server gives a token, and the server accepts it", "1 tool" },
        { steps.token.text, steps.list.text })
      assert.is_nil(cjson.encode(report):find "hunter")
      for _, token in ipairs(seen) do assert.equal("Bearer good-hunter2", token) end
    end)
    with_tokens(function(reply) reply:send(401, { ["content-type"] = "application/json" }, '{"error":"invalid_client"}') end, function(url, credentials)
      local steps = fails({ url = url, auth = { client_credentials = credentials } }, "token",
        "auth.client_credentials: the token endpoint answers 401 invalid_client")
      assert.truthy(steps.token.hint:find("client, secret", 1, true))
    end)
    with_tokens(function(reply) json_reply(reply, { access_token = "other", token_type = "Bearer" }) end, function(url, credentials)
      fails({ url = url, auth = { client_credentials = credentials } }, "token",
        "the authorization server gives a token, and the server refuses it (status 401)")
    end)
  end)

  it("exchanges the token of a caller that it is given, and says that it needs one", function()
    with_tokens(nil, function(url, credentials, seen)
      local entry = { url = url, auth = { exchange = credentials } }
      local steps = fails(entry, "token", "auth.exchange: it exchanges the token of each caller, and none is given here")
      assert.truthy(steps.token.hint:find("--bearer-env", 1, true))
      local code, out, err = doctor({ one = entry }, { "one", "-b", "TOKEN" }, { TOKEN = "hunter4" })
      assert.same({ 0, "" }, { code, err })
      assert.truthy(out:find("the server accepts it", 1, true), out)
      assert.is_nil(out:find "hunter")
      assert.equal("Bearer good-hunter2hunter4", seen[#seen])
      code, out, err = doctor({ one = url }, { "one", "-b", "TOKEN" }, { TOKEN = "hunter4" })
      assert.same({ 2, "" }, { code, out })
      assert.truthy(err:find("--bearer-env is for a URL, or an upstream with auth.exchange", 1, true), err)
      code, out = gateway_check(entry)
      assert.equal(0, code)
      assert.truthy(out:find("one: it lists for each caller alone (auth.exchange): nothing is read here", 1, true), out)
    end)
    with_tokens(function(reply) reply:send(400, { ["content-type"] = "application/json" }, '{"error":"invalid_grant"}') end, function(url, credentials)
      local code, out = doctor({ one = { url = url, auth = { exchange = credentials } } }, { "one", "-b", "TOKEN" }, { TOKEN = "hunter4" })
      assert.equal(1, code)
      assert.truthy(out:find("token          failed       auth.exchange: the token endpoint answers 400 invalid_grant", 1, true), out)
    end)
  end)

  it("doubts metadata that describe another resource", function()
    local server <close> = stub.start(function(request, reply)
      if request.method == "GET" then
        return json_reply(reply, { resource = "https://another.example.com/mcp", authorization_servers = { "https://id.example.com" } })
      end
      reply:send(401)
    end)
    local _, _, steps = examine(server.url .. "/mcp")
    assert.equal("doubt", steps.authorization.state)
    assert.truthy(steps.authorization.text:find("another resource: https://another.example.com/mcp", 1, true))
  end)

  it("names the list: none in time, and one that cannot be read", function()
    local slow <close> = older(function() end)
    local steps = fails({ url = slow.url .. "/mcp", timeout = "300ms" }, "list", "did not answer within")
    assert.truthy(steps.probe.text:find("2025-11-25 over http, older 1", 1, true))
    local cut <close> = older(function(reply) reply:send(200, { ["content-type"] = "application/json" }, "{") end)
    fails(cut.url .. "/mcp", "list", "not MCP")
    local odd <close> = older(function(reply, message)
      json_reply(reply, { jsonrpc = "2.0", id = message.id, result = { tools = { { name = "good", inputSchema = { type = "object" } }, { name = 1 } } } })
    end)
    local code, _, doubted = examine(odd.url .. "/mcp")
    assert.same({ 0, "doubt" }, { code, doubted.list.state })
    assert.truthy(doubted.list.text:find("1 tool; 1 left out", 1, true), doubted.list.text)
  end)

  it("names the program: one that does not exist, and one that ends", function()
    fails({ command = { "/nowhere/at/all" } }, "program", "No such file")
    fails({ command = { "sh", "-c", "exit 3" } }, "program", "exit 3")
    local code, _, steps = examine { command = { program, "stdio", "--log-level", "error" }, process = { cwd = uv.fs_realpath "examples/hello" } }
    assert.same({ 0, "ok" }, { code, steps.list.state })
  end)

  it("says what is wrong with its arguments, and with the configuration", function()
    for what, args in pairs {
      ["doctor takes the name of an upstream, or a URL"] = {}, ["--header is for a URL"] = { "one", "-H", "x: y" },
      ["the environment variable X is not set"] = { "one", "-b", "X" },
      ["not a URL: 'ftp://x'"] = { "ftp://x" }, ["the environment variable NOBODY is not set"] = { "http://127.0.0.1:1/", "-b", "NOBODY" },
    } do
      local code, out, err = doctor({ one = "http://127.0.0.1:1/mcp" }, args)
      assert.same({ 2, "" }, { code, out }, what)
      assert.truthy(err:find(what, 1, true), err)
    end
    local code, _, err = doctor({ one = "http://127.0.0.1:1/mcp" }, { "onee" })
    assert.equal(1, code)
    assert.truthy(err:find("there is no upstream 'onee'\n  hint: did you mean 'one'?", 1, true), err)
    code = doctor({ one = "nothing" }, { "one" })
    assert.equal(78, code)
  end)
end)
