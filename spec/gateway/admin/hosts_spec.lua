-- Which values of Host and Origin the admin listener serves: names of its own, and any name for probes and for metrics
-- with a token.
local cjson = require "cjson"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local tokens = { metrics = { grafana = ("m"):rep(32) }, operate = { joe = ("o"):rep(32) } }
local bearer = { metrics = "Bearer " .. ("m"):rep(32), operate = "Bearer " .. ("o"):rep(32) }

-- Asks for a path with this Host, in which PORT is the listener's.
local function ask(g, path, host, headers, options)
  local all = { Host = host:gsub("PORT", g.admin_port), table.unpack(headers or {}) }
  for name, value in pairs(headers or {}) do all[name] = value end
  return client.request(g, { path = path, headers = all }, { admin = true, host = (options or {}).host })
end

local public = { hosts = { "mcp.example.com" } }

describe("the admin listener of a gateway whose hosts has a public name only", function()
  it("serves its address and the names of this machine, with and without a port", function()
    local g <close> = gateway.start { config = public }
    for _, host in ipairs { "127.0.0.1:PORT", "127.0.0.1", "localhost:PORT", "LocalHost", "[::1]", "[::1]:PORT", "localhost:9000" } do
      for _, path in ipairs { "/", "/healthz", "/readyz", "/metrics", "/status" } do
        assert.equal(200, ask(g, path, host).status, path .. " as " .. host)
      end
    end
    assert.has_nothing_left(g)
  end)

  it("refuses every other name, that of hosts too, and says where to add it", function()
    local g <close> = gateway.start { config = public }
    for _, host in ipairs {
      "evil.example", "mcp.example.com", "mcp.example.com:PORT", "127.0.0.2:PORT", "10.0.0.7:PORT", "[::2]", "localhost.evil.example", "localhost.",
    } do
      for _, path in ipairs { "/", "/metrics", "/status", "/nowhere", "/api/overview" } do
        assert.equal(403, ask(g, path, host).status, path .. " as " .. host)
      end
    end
    assert.truthy(ask(g, "/status", "evil.example").body:find('"admin.hosts"', 1, true))
    local line = g:wait_log("refused", { cause = "admin host", host = "mcp.example.com" })
    assert.truthy(line.fields.hint:find("admin.hosts", 1, true))
    assert.has_nothing_left(g)
  end)

  it("serves the commands of the terminal, the link of the dashboard and its sign-in", function()
    local dir = gateway.new_folder()
    local g <close> = gateway.start {
      config = { hosts = { "mcp.example.com" } }, env = { XDG_RUNTIME_DIR = dir }, scripts = { ["tools/one.lua"] = "--- One.\nreturn function() return 1 end" },
    }
    local admin = "127.0.0.1:" .. g.admin_port
    local function run(...)
      local code, out, err = gateway.exec({ ... }, { env = { XDG_RUNTIME_DIR = dir } })
      assert.equal(0, code, table.concat({ ... }, " ") .. ": " .. err)
      return out
    end
    assert.equal(g.pid, cjson.decode(run("status", "--json", "--admin", admin)).pid)
    assert.equal(g.pid, cjson.decode(run("status", "--json", "--admin", "localhost:" .. g.admin_port)).pid)
    run("reload", "--admin", admin)
    run("log", "--level", "debug", "--for", "1s", "--admin", admin)
    run("switch", "--admin", admin)
    run("upstreams", "--admin", admin)
    run("tap", "--for", "1s", "--admin", admin)
    run("profile", "--for", "1s", "--admin", admin)
    local link = run("dashboard", "--admin", admin)
    local origin, code = link:match "^(http://[^/]+)/#code=(%S+)\n$"
    local host = origin:match "//(.*)"
    assert.equal(200, ask(g, "/", host).status)
    local signed = client.request(g, {
      method = "POST", path = "/session", body = { code = code },
      headers = { Host = host, Origin = origin, ["moonpool-admin"] = "1", ["Sec-Fetch-Site"] = "same-origin" },
    }, { admin = true })
    assert.equal(200, signed.status, signed.body)
    assert.has_nothing_left(g)
    os.execute("rm -rf '" .. dir .. "'")
  end)
end)

describe("probes of an orchestrator", function()
  it("are answered whatever the Host is", function()
    local g <close> = gateway.start { config = { hosts = { "mcp.example.com" }, admin = { listen = "0.0.0.0:0", tokens = tokens } } }
    for _, host in ipairs { "10.244.1.17:PORT", "moonpool.default.svc:7301", "evil.example", "[fd00::7]:PORT", "any thing" } do
      assert.equal("ok\n", ask(g, "/healthz", host).body, host)
      assert.equal("ready\n", ask(g, "/readyz", host).body, host)
      local post = { method = "POST", path = "/readyz", headers = { Host = "evil.example", ["Content-Length"] = 0 } }
      assert.equal(405, client.request(g, post, { admin = true }).status)
    end
  end)

  it("are refused as pages of other origins, as everything is", function()
    local g <close> = gateway.start { config = public }
    for _, path in ipairs { "/healthz", "/readyz", "/metrics", "/status", "/" } do
      for _, origin in ipairs { "http://evil.example", "https://mcp.example.com", "null" } do
        assert.equal(403, ask(g, path, "localhost", { Origin = origin }).status, path .. " from " .. origin)
        assert.equal(403, ask(g, path, "evil.example", { Origin = origin }).status, path .. " from " .. origin)
      end
    end
    assert.has_nothing_left(g)
  end)

  it("of pages that cors.origins lets read answers of clients are refused, too", function()
    local g <close> = gateway.start { config = { cors = { origins = { "https://app.example" } } } }
    assert.equal(403, ask(g, "/status", "localhost", { Origin = "https://app.example" }).status)
    assert.has_nothing_left(g)
  end)
end)

describe("/metrics with a token", function()
  it("answers whatever the Host is, and nothing else does", function()
    for _, listen in ipairs { "0.0.0.0:0", "127.0.0.1:0" } do
      local g <close> = gateway.start { config = { hosts = { "mcp.example.com" }, admin = { listen = listen, tokens = tokens } } }
      for _, host in ipairs { "10.244.1.17:PORT", "moonpool.default.svc:7301", "evil.example" } do
        assert.equal(200, ask(g, "/metrics", host, { Authorization = bearer.metrics }).status, host)
        assert.equal(200, ask(g, "/metrics", host, { Authorization = bearer.operate }).status, host)
        assert.equal(403, ask(g, "/metrics", host).status, host)
        assert.equal(403, ask(g, "/status", host, { Authorization = bearer.operate }).status, host)
        assert.equal(403, ask(g, "/", host, { Authorization = bearer.operate }).status, host)
        assert.equal(403, ask(g, "/api/overview", host, { Authorization = bearer.operate }).status, host)
      end
    end
  end)

  it("counts the wrong tokens of foreign Hosts, too", function()
    local g <close> = gateway.start { config = { admin = { listen = "0.0.0.0:0", tokens = tokens } } }
    for _ = 1, 10 do
      assert.equal(401, ask(g, "/metrics", "evil.example", { Authorization = "Bearer " .. ("x"):rep(32) }).status)
    end
    assert.equal(429, ask(g, "/metrics", "evil.example", { Authorization = bearer.metrics }).status)
  end)
end)

describe("the address of the admin listener", function()
  it("is the one that a client has reached, where it listens on all", function()
    local g <close> = gateway.start { config = { hosts = { "mcp.example.com" }, admin = { listen = "0.0.0.0:0", tokens = tokens } } }
    local headers = { Authorization = bearer.operate }
    assert.equal(200, ask(g, "/status", "127.0.0.9:PORT", headers, { host = "127.0.0.9" }).status)
    assert.equal(200, ask(g, "/status", "127.0.0.9", headers, { host = "127.0.0.9" }).status)
    assert.equal(403, ask(g, "/status", "127.0.0.8:PORT", headers, { host = "127.0.0.9" }).status)
    assert.equal(403, ask(g, "/status", "127.0.0.9.evil.example", headers, { host = "127.0.0.9" }).status)
  end)

  it("is the same in every spelling of IPv6, and over IPv6 sockets that take IPv4", function()
    local dir = gateway.prepare { config = "listen: 127.0.0.1:0\nadmin: {listen: '[::]:0', tokens: {operate: {joe: " .. ("o"):rep(32) .. "}}}\n" }
    local ok, g = pcall(gateway.start, { dir = dir })
    if not ok and g:find "IPv6" then pending "this machine has no IPv6" return end
    assert(ok, g)
    local _ <close> = g
    local port = tonumber(g.ready:match "admin=http://%[::%]:(%d+)")
    g.admin_port = port
    local headers = { Authorization = bearer.operate }
    for _, host in ipairs { "[::1]:PORT", "[0:0::1]", "[0:0:0:0:0:0:0:1]:PORT" } do
      assert.equal(200, ask(g, "/status", host, headers, { host = "::1" }).status, host)
    end
    assert.equal(200, ask(g, "/status", "127.0.0.9", headers, { host = "127.0.0.9" }).status)
    assert.equal(200, ask(g, "/status", "[::ffff:127.0.0.9]", headers, { host = "127.0.0.9" }).status)
    assert.equal(403, ask(g, "/status", "[::2]", headers, { host = "::1" }).status)
    assert.equal(403, ask(g, "/status", "::1", headers, { host = "::1" }).status)
  end)

  it("may be a Unix socket, which has the name localhost", function()
    local dir = gateway.prepare { config = "listen: 127.0.0.1:0\nhosts: [mcp.example.com]\nadmin: {listen: 'unix:${DIR}/admin.sock'}\n" }
    local g <close> = gateway.start { dir = dir, env = { DIR = dir } }
    local code, out = gateway.exec({ "status", "--json" }, { cwd = dir, env = { DIR = dir } })
    assert.equal(0, code)
    assert.equal(g.pid, cjson.decode(out).pid)
  end)
end)

describe("admin.hosts", function()
  it("adds names, for Host and for Origin, and a reload obeys it", function()
    local names = { "gateway.example.com", "*.ops.example.com" }
    local g <close> = gateway.start { config = { hosts = { "mcp.example.com" }, admin = { hosts = names, tokens = tokens } } }
    local origin = { Origin = "https://gateway.example.com" }
    assert.equal(200, ask(g, "/status", "gateway.example.com:PORT").status)
    assert.equal(200, ask(g, "/status", "GATEWAY.example.com", origin).status)
    assert.equal(200, ask(g, "/status", "eu.ops.example.com").status)
    assert.equal(200, ask(g, "/status", "localhost").status)
    assert.equal(403, ask(g, "/status", "ops.example.com").status)
    assert.equal(403, ask(g, "/api/overview", "localhost", { Origin = "https://gateway.example.com", Authorization = bearer.operate }).status)
    local file <close> = assert(io.open(g.dir .. "/moonpool.yaml", "rb"))
    local text = file:read("a"):gsub("gateway%.example%.com", "other.example.com")
    local out <close> = assert(io.open(g.dir .. "/moonpool.yaml", "wb"))
    out:write(text)
    out:close()
    g:signal "sighup"
    wait.for_fact("the reload", 20, function() return ask(g, "/status", "other.example.com").status == 200 end)
    assert.equal(403, ask(g, "/status", "gateway.example.com").status)
    assert.has_nothing_left(g)
  end)

  it("is not for clients", function()
    local g <close> = gateway.start { config = { admin = { hosts = { "gateway.example.com" } } } }
    local answer = client.request(g, { path = "/mcp", headers = { Host = "gateway.example.com" } })
    assert.equal(403, answer.status)
    assert.has_nothing_left(g)
  end)
end)

