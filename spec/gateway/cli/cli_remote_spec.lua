-- `moonpool call --url` at various gateways: HTTP+SSE, TLS in front, a token that is required; and at servers that are
-- not gateways.
local gateway = require "spec.helpers.gateway"
local nginx = require "spec.helpers.nginx"
local stub = require "spec.helpers.stub"
local uv = require "luv"

local scripts = {
  ["tools/count.lua"] = [[return tool { "Counts.", input = { to = t.integer { default = 2 } }, function(args, call)
    for i = 1, args.to do call:progress(i, args.to, "step " .. i) end
    return "counted" end }]],
}

scripts["tools/sure.lua"] = [[return tool { "Asks.", function(_, call)
  local yes, why = call:elicit("sure", "Really?", { confirm = t.boolean })
  return yes and tostring(yes.confirm), why end }]]
scripts["tools/big.lua"] = [[return tool { "Big.", function() return '{"n":12345678901234567890123}' end }]]

local function call(options, ...) return gateway.exec({ "call", ... }, options) end

local function has(text, ...)
  for _, part in ipairs { ... } do assert.truthy(text:find(part, 1, true), part .. " is not in: " .. text) end
end

local function sse_url(g) return "http://127.0.0.1:" .. g.port .. "/sse" end

describe("moonpool call --url", function()
  it("speaks HTTP+SSE when an option says so, or when the server has nothing else", function()
    local g <close> = gateway.start { scripts = scripts }
    for _, more in ipairs { { "-r", "2024-11-05" }, {} } do
      local code, out, err = call({}, "--url", sse_url(g), "count", "to=3", table.unpack(more))
      assert.same({ 0, "counted\n" }, { code, out }, err)
      has(err, "progress 3/3")
    end
    g:wait_status(function(status) return status.gauges.sessions.http == 0 end)
    assert.has_nothing_left(g)
  end)

  it("puts the server's questions to the user", function()
    local g <close> = gateway.start { scripts = scripts }
    for _, revision in ipairs { "2025-06-18", "2025-11-25", "2026-07-28" } do
      local code, out, err = call({}, "--url", g.url, "-r", revision, "sure", "--answer", 'sure={"confirm": true}')
      assert.same({ 0, "true\n" }, { code, out }, err)
      code, out, err = call({}, "--url", g.url, "-r", revision, "sure", "--answer", "decline")
      assert.same({ 1, "", "declined\n" }, { code, out, err })
      code, _, err = call({}, "--url", g.url, "-r", revision, "sure")
      assert.same({ 1, "unsupported\n" }, { code, err })
    end
    assert.has_nothing_left(g)
  end)

  it("prints numbers of any size as the server wrote them", function()
    local g <close> = gateway.start { scripts = scripts }
    local code, out, err = call({}, "--url", g.url, "big")
    assert.same({ 0, '{"n":12345678901234567890123}\n' }, { code, out }, err)
  end)

  it("sends any header of the user, also a cookie and other credentials than a token", function()
    local seen
    local server <close> = stub.start(function(request, reply)
      seen = request.headers
      reply:send(403, {}, "")
    end)
    local code, _, err = call({}, "--url", "http://127.0.0.1:" .. server.port .. "/mcp?a=$b", "count", "-H", "Cookie: a=${HOME}; b=1", "-H",
      "Authorization: Basic YTpi", "-H", "Origin: http://127.0.0.1:1")
    assert.same({ 1, "a=${HOME}; b=1", "Basic YTpi", "http://127.0.0.1:1" }, { code, seen.cookie, seen.authorization, seen.origin }, err)
    has(err, "the gateway answered with status 403", "hint: the principal lacks permission")
  end)

  it("sends them however many descriptors it inherits", function()
    local seen
    local server <close> = stub.start(function(request, reply)
      seen = request.headers
      reply:send(403, {}, "")
    end)
    -- The number of descriptors that are open beside 0, 1 and 2; the process of the spec may itself have inherited
    -- some.
    for count = 0, 9 do
      local descriptors = ""
      for fd = 3, 20 do descriptors = descriptors .. (fd < 3 + count and (" %d</dev/null"):format(fd) or (" %d<&-"):format(fd)) end
      seen = {}
      gateway.run_program("/bin/bash", { "-c", ("exec %s call -u http://127.0.0.1:%d/mcp count -H 'X-Api-Key: of %d' %s"):format(
        uv.fs_realpath(gateway.binary), server.port, count, descriptors) })
      assert.equal("of " .. count, seen["x-api-key"])
    end
  end)

  it("says what is wrong with an address that is no endpoint", function()
    local g <close> = gateway.start { scripts = scripts }
    local code, out, err = call({}, "--url", "http://127.0.0.1:" .. g.port .. "/nowhere", "count")
    assert.same({ 1, "" }, { code, out })
    has(err, "/nowhere: nothing is served at this path: MCP is at /mcp", "hint: the path of its endpoint is part of the URL")
    assert.has_nothing_left(g)
  end)

  it("goes to no other origin for the messages of HTTP+SSE", function()
    local asked = {}
    local server <close> = stub.start(function(request, reply)
      asked[#asked + 1] = request.method
      reply:head(200, { ["content-type"] = "text/event-stream" }):raw "event: endpoint\ndata: http://elsewhere.example/messages\n\n"
    end)
    local code, _, err = call({}, "--url", "http://127.0.0.1:" .. server.port .. "/sse", "-r", "2024-11-05", "count")
    assert.equal(1, code)
    has(err, "the stream's endpoint is no address of the same origin")
    assert.same({ "GET" }, asked)
  end)

  it("sends one request to a gateway that fails, and prints the failure", function()
    for _, status in ipairs { 500, 503, 429 } do
      local asked = 0
      local server <close> = stub.start(function(_, reply)
        asked = asked + 1
        reply:send(status, { ["content-type"] = "application/json" },
          '{"jsonrpc":"2.0","error":{"code":-32600,"message":"internal error 1a2b"}}')
      end)
      local code, _, err = call({}, "--url", "http://127.0.0.1:" .. server.port .. "/mcp", "count")
      assert.equal(1, code)
      has(err, "internal error 1a2b")
      assert.equal(1, asked)
    end
  end)

  it("sends a token that no command shows, and headers", function()
    local seen
    local server <close> = stub.start(function(request, reply)
      seen = request.headers
      reply:send(401, { ["www-authenticate"] = "Bearer" }, "")
    end)
    local url = "http://127.0.0.1:" .. server.port .. "/mcp"
    local file = os.tmpname()
    local handle <close> = assert(io.open(file, "wb"))
    handle:write "X-Team: blue\r\n\nX-Key: k 1\n"
    handle:flush()
    local code, out, err = call({ env = { TOKEN = "s3cret" } }, "--url", url, "count", "--bearer-env", "TOKEN", "-H", "X-One: 1", "--header", "@" .. file)
    os.remove(file)
    assert.same({ 1, "" }, { code, out })
    assert.same({ "Bearer s3cret", "1", "blue", "k 1" }, { seen.authorization, seen["x-one"], seen["x-team"], seen["x-key"] })
    has(err, "the gateway answered with status 401", "hint: the gateway requires authentication: --bearer-env NAME")
    assert.is_nil(err:find("s3cret", 1, true))
  end)

  for told, args in pairs {
    ["the environment variable NOBODY is not set"] = { "--url", "http://127.0.0.1:1/mcp", "--bearer-env", "NOBODY", "x" },
    ["--bearer-env is for a gateway at a URL"] = { "--bearer-env", "HOME", "x" },
    ["--url and a command exclude each other"] = { "--url", "http://127.0.0.1:1/mcp", "x", "--", "true" },
    ["a header needs a name"] = { "--url", "http://127.0.0.1:1/mcp", "-H", "X", "x" },
    ["the header host is moonpool's own"] = { "--url", "http://127.0.0.1:1/mcp", "-H", "Host: a", "x" },
    ["/nowhere/at/all: No such file"] = { "--url", "http://127.0.0.1:1/mcp", "-H", "@/nowhere/at/all", "x" },
  } do
    it("refuses: " .. told, function()
      local code, out, err = call({ env = { HOME = "/" } }, table.unpack(args))
      assert.same({ 2, "" }, { code, out })
      has(err, told)
    end)
  end
end)

describe("moonpool call -- COMMAND", function()
  local dir
  setup(function() dir = gateway.prepare { scripts = scripts } end)
  teardown(function() os.execute("rm -rf '" .. dir .. "'") end)

  local function exec(...) return gateway.exec({ ... }, { cwd = dir }) end
  local program = assert(uv.fs_realpath(gateway.binary))

  it("calls, reads and lists at a program, in every revision, and ends it", function()
    for _, revision in ipairs { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" } do
      local code, out, err = exec("call", "-r", revision, "count", "to=2", "--", program, "stdio", "--log-level", "error")
      assert.same({ 0, "counted\n" }, { code, out }, err)
      has(err, "progress 2/2")
    end
    local code, out, err = exec("list", "--", program, "stdio", "--log-level", "error")
    assert.same({ 0, "tool  big  Big.\ntool  count  Counts.\ntool  sure  Asks.\n" }, { code, out }, err)
    code, out, err = exec("call", "sure", "--answer", "sure=true", "--", program, "stdio", "--log-level", "error")
    assert.same({ 0, "true\n" }, { code, out }, err)
  end)

  it("says what is wrong with the program", function()
    local code, out, err = exec("call", "count", "--", "/nowhere/at/all")
    assert.same({ 1, "" }, { code, out })
    has(err, "/nowhere/at/all: No such file or directory")
    code, out, err = exec("call", "count", "--", "sh", "-c", "exit 3")
    assert.same({ 1, "" }, { code, out })
    has(err, "sh: the program ended: exit 3")
  end)
end)

describe("moonpool call --url https", function()
  local key, certificate, g, proxy, url

  setup(function()
    key, certificate = os.tmpname(), os.tmpname()
    local code, _, err = gateway.run_program("/usr/bin/openssl", { "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
      "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=spec", "-addext", "subjectAltName=DNS:localhost" })
    assert(code == 0, err)
    g = gateway.start { scripts = scripts }
    local probe = uv.new_tcp()
    probe:bind("127.0.0.1", 0)
    url = "https://localhost:" .. probe:getsockname().port
    probe:close()
    if nginx.find() then
      proxy = nginx.start(g, ("    listen 127.0.0.1:%s ssl;\n    ssl_certificate %s;\n    ssl_certificate_key %s;\n"
        .. "    location / { proxy_pass http://127.0.0.1:GATEWAY; proxy_http_version 1.1; proxy_buffering off; }"):format(url:match "%d+$", certificate, key))
    end
  end)

  teardown(function()
    if proxy then proxy:stop() end
    g:stop()
    os.remove(key)
    os.remove(certificate)
  end)

  it("calls in every revision where the certificate is trusted", function()
    if not proxy then return pending "nginx is not installed" end
    for _, revision in ipairs { "2025-03-26", "2025-11-25", "2026-07-28" } do
      local code, out, err = call({}, "--url", url .. "/mcp", "--ca", certificate, "-r", revision, "count")
      assert.same({ 0, "counted\n" }, { code, out }, err)
      has(err, "progress 2/2  step 2\n")
    end
    local code, out, err = call({}, "--url", url .. "/sse", "--ca", certificate, "-r", "2024-11-05", "count")
    assert.same({ 0, "counted\n" }, { code, out }, err)
  end)

  it("refuses a server whose certificate is not trusted, or is for another name", function()
    if not proxy then return pending "nginx is not installed" end
    local code, _, err = call({}, "--url", url .. "/mcp", "count")
    assert.equal(1, code)
    has(err, "the server's certificate is not trusted: self-signed certificate", "hint: use --ca FILE to name certificates to trust")
    code, _, err = call({}, "--url", url:gsub("localhost", "127.0.0.1") .. "/mcp", "--ca", certificate, "count")
    assert.equal(1, code)
    -- libcurl calls an IP address a host name here
    has(err, "the server's certificate is for another name: no alternative certificate subject name matches target ", "'127.0.0.1'")
    code, _, err = call({}, "--url", url .. "/mcp", "--ca", "/nowhere/at/all", "count")
    assert.equal(1, code)
    has(err, "cannot read certificates from /nowhere/at/all")
  end)

  it("says that what answers does not speak TLS", function()
    local code, _, err = call({}, "--url", "https://127.0.0.1:" .. g.port .. "/mcp", "count")
    assert.equal(1, code)
    has(err, "TLS: ")
  end)
end)
