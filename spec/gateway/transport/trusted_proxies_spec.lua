-- Behind proxies that trusted_proxies names, the client's address is the one that they give: in scripts, limits,
-- sessions, logs, audit and tap. No other peer can set an address.
local cjson = require "cjson"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local http2 = require "spec.helpers.http2"
local shell = require "spec.helpers.shell"
local wait = require "spec.helpers.wait"
local whereabouts = require "spec.helpers.whereabouts"
local wire = require "spec.helpers.wire"

local scripts, request, text_of = whereabouts.scripts, whereabouts.request, whereabouts.text_of

local FOR = "X-Forwarded-For"

-- A gateway that trusts these proxies at its address; `more`: other keys of the configuration.
local function start(proxies, more, options)
  local config = { listen = { { address = "127.0.0.1:0", trusted_proxies = proxies } }, auth = "none" }
  for key, value in pairs(more or {}) do config[key] = value end
  options = options or {}
  options.config, options.scripts = config, options.scripts or scripts
  return gateway.start(options)
end

-- What a tool says to a client with these headers, on a connection of its own. `options`: those of client.connect.
local function ask(g, given, options, tool)
  local c <close> = client.connect(options and options.path or g, options)
  return text_of(c:request(request(tool or "where", given)))
end

-- How many requests with such headers were taken, ignored and unclear.
local function forwarded(g)
  local counts = g:status().counters.forwarded
  return { counts.taken, counts.ignored, counts.unclear }
end

gateway.cpu = nil -- the configuration is written anew here, and nothing but what a spec changes may differ

describe("trusted_proxies", function()
  it("give the client's address, and every other peer has its own", function()
    local g <close> = start { "127.0.0.1", "10.0.0.0/8", "2001:db8:1::/48" }
    for name, row in pairs {
      ["no header"] = { {}, "127.0.0.1" },
      ["one address"] = { { { FOR, "203.0.113.7" } }, "203.0.113.7" },
      ["an address that the client wrote before it"] = { { { FOR, "1.2.3.4, 203.0.113.7" } }, "203.0.113.7" },
      ["a header that the client wrote before it"] = { { { FOR, "1.2.3.4" }, { FOR, "203.0.113.7" } }, "203.0.113.7" },
      ["a second proxy"] = { { { FOR, "203.0.113.7, 10.9.8.7" } }, "203.0.113.7" },
      ["IPv6"] = { { { FOR, "[2001:DB8::7]:4711" } }, "2001:db8::7" },
      ["Forwarded"] = { { { "Forwarded", 'for=1.2.3.4, for="[2001:db8::7]:1";proto=https' } }, "2001:db8::7" },
      ["both, which agree"] = { { { FOR, "203.0.113.7" }, { "Forwarded", "for=203.0.113.7" } }, "203.0.113.7" },
      ["both, one by the client"] = { { { FOR, "203.0.113.7" }, { "Forwarded", "for=1.2.3.4" } }, "127.0.0.1" },
      ["unknown"] = { { { FOR, "1.2.3.4, unknown" } }, "127.0.0.1" },
      ["garbage"] = { { { FOR, "1.2.3.4, \254\255, 10.1.1.1" } }, "10.1.1.1" },
      ["other headers of that kind"] = { { { "X-Real-IP", "1.2.3.4" }, { "X-Client-IP", "1.2.3.4" }, { "True-Client-IP", "1.2.3.4" } }, "127.0.0.1" },
    } do
      assert.equal(row[2], ask(g, row[1]), name)
    end
    assert.same({ 7, 0, 3 }, forwarded(g))
    for _, header in ipairs { FOR, "Forwarded" } do
      assert.equal("127.0.0.2", ask(g, { { header, header == FOR and "203.0.113.7" or "for=203.0.113.7" } }, { from = "127.0.0.2" }))
    end
    assert.equal("127.0.0.2", ask(g, { { FOR, "203.0.113.7, 127.0.0.1" } }, { from = "127.0.0.2" }))
    assert.same({ 7, 3, 3 }, forwarded(g))
  end)

  it("are none by default: a header is ignored, counted, and named in the log once", function()
    local g <close> = gateway.start { scripts = scripts }
    for _ = 1, 3 do assert.equal("127.0.0.1", ask(g, { { FOR, "203.0.113.7" } })) end
    assert.same({ 0, 3, 0 }, forwarded(g))
    local line = g:wait_log("address of a client ignored", { address = "127.0.0.1" })
    assert.truthy(line.fields.hint:find("trusted_proxies", 1, true))
    local count = 0
    for _, one in ipairs(g:log_lines()) do count = count + (one.event == "address of a client ignored" and 1 or 0) end
    assert.equal(1, count)
  end)

  it("give each request of a kept connection its own client", function()
    local g <close> = start { "127.0.0.1" }
    local c <close> = client.connect(g)
    for _, address in ipairs { "203.0.113.7", "203.0.113.8", "2001:db8::9" } do
      assert.equal(address, text_of(c:request(request("where", { { FOR, address } }))))
    end
    assert.equal("127.0.0.1", text_of(c:request(request "where")))
  end)

  it("give each stream of HTTP/2 its own client, at once", function()
    local g <close> = gateway.start { scripts = scripts, config = { auth = "none",
      listen = { { address = "127.0.0.1:0", http2 = "on", trusted_proxies = { "127.0.0.1" } } } } }
    local p <close> = http2.connect(g)
    local body, ids = whereabouts.body(), {}
    for i = 1, 8 do
      local headers = wire.mirrored(body)
      headers["x-forwarded-for"] = "203.0.113." .. i
      ids[i] = p:post(body, headers)
    end
    for i = 1, 8 do assert.truthy(p:answer(ids[i]).data:find('"203.0.113.' .. i .. '"', 1, true)) end
    local stranger <close> = http2.connect(g, { from = "127.0.0.2" })
    for _, line in ipairs { "203.0.113.7", "203.0.113.7, 127.0.0.1", "127.0.0.1" } do
      local headers = wire.mirrored(body)
      headers["x-forwarded-for"], headers.forwarded = line, "for=203.0.113.7"
      assert.truthy(stranger:call(body, headers).data:find('"127.0.0.2"', 1, true))
    end
    assert.same({ 8, 3, 0 }, forwarded(g))
  end)

  it("are found in headers of any length, which are read no further than a chain of proxies goes", function()
    local g <close> = start { "127.0.0.1", "10.0.0.0/8" }
    for line, address in pairs {
      [("198.51.100.1, "):rep(1000) .. "203.0.113.7"] = "203.0.113.7", [("10.1.1.1, "):rep(1000) .. "10.1.1.1"] = "10.1.1.1",
      [("\\\""):rep(20000)] = "127.0.0.1", [(","):rep(50000)] = "127.0.0.1", ["fe80::1%eth0"] = "127.0.0.1",
    } do
      assert.equal(address, ask(g, { { FOR, line } }), line:sub(1, 40))
    end
    assert.equal("127.0.0.1", ask(g, { { "Forwarded", "for=10.1.1.1;" .. ("for=;"):rep(10000) } }))
    local many = {}
    for i = 1, 1000 do many[i] = { FOR, "10.1.1.1" } end
    local c <close> = client.connect(g)
    assert.equal(400, c:request(request("where", many)).status)
  end)

  it("have one spelling, and so has every peer: an IPv4 client of an IPv6 socket is the client that it is at any other", function()
    local g <close> = start(nil, { listen = { { address = "[::]:0", trusted_proxies = { "127.0.0.1" } } } })
    assert.equal("127.0.0.2", ask(g, { { FOR, "203.0.113.7" } }, { from = "127.0.0.2" }))
    assert.equal("127.0.0.1", ask(g))
    assert.equal("203.0.113.7", ask(g, { { FOR, "::ffff:203.0.113.7" } }))
  end)

  it("give it over TLS, too", function()
    local here = require "spec.helpers.certificates".here()
    local tls = { certificate = "c.pem", key = "k.pem" }
    local g <close> = start(nil, { listen = { { address = "127.0.0.1:0", trusted_proxies = "127.0.0.1", tls = tls } } },
      { files = { ["c.pem"] = here.certificate, ["k.pem"] = here.key } })
    assert.equal("203.0.113.7", ask(g, { { FOR, "203.0.113.7" } }, { tls = { name = "localhost", ca = g.dir .. "/c.pem" } }))
  end)

  it("give each client its own limits", function()
    local g <close> = start { "127.0.0.1" }
    for _, address in ipairs { "203.0.113.7", "203.0.113.8" } do
      for i = 1, 3 do
        assert.equal(i < 3, ask(g, { { FOR, address .. ":" .. i } }, nil, "twice") == "ran", address .. i)
      end
    end
    -- a client with one IPv6 address has its whole network of 64 bits: these addresses count as one client
    for i = 1, 3 do
      assert.equal(i < 3, ask(g, { { FOR, "2001:db8:0:7::" .. i } }, nil, "twice") == "ran", i)
    end
    assert.equal("ran", ask(g, { { FOR, "2001:db8:0:8::1" } }, nil, "twice"))
    -- an address that the client itself has added changes nothing: all these requests count for 203.0.113.7
    for i = 1, 5 do
      assert.not_equal("ran", ask(g, { { FOR, "198.51.100." .. i }, { FOR, "203.0.113.7" } }, nil, "twice"))
    end
  end)

  it("give each client its own sessions", function()
    local g <close> = start({ "127.0.0.1" }, { sessions = { per_principal = 2 } })
    local function open(address) return wire.post(g, wire.initialize_message "2025-11-25", { [FOR] = address }).status end
    assert.same({ 200, 200, 429 }, { open "203.0.113.7", open "1.1.1.1, 203.0.113.7", open "203.0.113.7" })
    assert.same({ 200, 200, 429 }, { open "203.0.113.8", open "203.0.113.8", open "203.0.113.8" })
    local streams = {}
    for i = 1, 3 do
      streams[i] = client.connect(g):send { path = "/sse", headers = { Accept = "text/event-stream", [FOR] = "203.0.113.9" } }
    end
    local statuses = {}
    for i = 1, 3 do statuses[i] = streams[i]:read_head().status end
    table.sort(statuses)
    assert.same({ 200, 200, 429 }, statuses)
    for i = 1, 3 do streams[i]:close() end
  end)

  it("give what log, audit and tap have", function()
    local token = ("o"):rep(32)
    local g <close> = start({ "127.0.0.1" }, { log = { level = "debug", audit = "audit.log" },
      admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } } })
    local tap <close> = client.connect(g, { admin = true })
    tap:send { path = "/api/tap", headers = { Authorization = "Bearer " .. token } }
    assert.equal(200, tap:read_head().status)
    ask(g, { { FOR, "203.0.113.7" } })
    assert.equal(404, client.request(g, { path = "/nowhere", headers = { [FOR] = "203.0.113.8" } }).status)
    assert.equal(403, client.request(g, { path = "/mcp", headers = { [FOR] = "203.0.113.9", Host = "evil.example" } }).status)
    g:wait_log("request", { name = "where", address = "203.0.113.7" })
    g:wait_log("refused", { cause = "path", address = "203.0.113.8" })
    g:wait_log("refused", { cause = "host", address = "203.0.113.9" })
    wait.for_fact("audit lines", 20, function()
      local text = g:file "audit.log"
      return text:find('"address":"203.0.113.7"', 1, true) and text:find('"address":"203.0.113.9"', 1, true)
    end)
    tap:wait_event(function(event) return event.data and event.data:find('"address":"203.0.113.7"', 1, true) end)
  end)

  it("are known to auth scripts apart from the client", function()
    local g <close> = start({ "127.0.0.1" }, { auth = { mode = "scripts" } }, { scripts = {
      ["auth/main.lua"] = [[return auth { function(request) return { id = request.peer .. "/" .. request.address } end }]],
      ["tools/where.lua"] = [[return tool { "Who.", function(_, call) return call.principal.id end }]],
    } })
    assert.equal("127.0.0.1/203.0.113.7", ask(g, { { FOR, "203.0.113.7" } }))
    assert.equal("127.0.0.2/127.0.0.2", ask(g, { { FOR, "203.0.113.7" } }, { from = "127.0.0.2" }))
  end)

  it("are changed by a reload, without a restart, also where listen has changed", function()
    local g <close> = start({ "10.0.0.1" }, { workers = 2 })
    local kept <close> = client.connect(g)
    local function on_kept() return text_of(kept:request(request("where", { { FOR, "203.0.113.7" } }))) end
    assert.equal("127.0.0.1", on_kept())
    local function save(listen)
      shell.write(g.dir .. "/moonpool.yaml",
        cjson.encode { listen = listen, admin = { listen = "127.0.0.1:0" }, workers = 2, auth = "none", overload = { wait = "off" } })
    end
    save { { address = "127.0.0.1:0", trusted_proxies = { "127.0.0.1" } } }
    g:wait_log("reloaded", { changes = "~ moonpool.yaml (listen.trusted_proxies)" })
    for _ = 1, 8 do assert.equal("203.0.113.7", ask(g, { { FOR, "203.0.113.7" } })) end
    assert.equal("203.0.113.7", on_kept())
    save { "127.0.0.1:1", { address = "127.0.0.1:0", trusted_proxies = { "10.0.0.1", "127.0.0.0/8" } } }
    g:wait_log("reloaded", { changes = "~ moonpool.yaml (listen.trusted_proxies)  needs a restart: listen" })
    assert.equal("203.0.113.7", ask(g, { { FOR, "203.0.113.7" } }, { from = "127.0.0.9" }))
    -- a listening address with a change that needs a restart keeps its trusted_proxies until then
    save { { address = "127.0.0.1:0", http2 = "on" } }
    assert.same({ 200, "nothing changed  needs a restart: listen\n" }, { g:admin("/reload", "POST").status, g:admin("/reload", "POST").body })
    assert.equal("203.0.113.7", ask(g, { { FOR, "203.0.113.7" } }, { from = "127.0.0.9" }))
    save { "127.0.0.1:0" }
    g:wait_log("reloaded", { changes = "~ moonpool.yaml (listen.trusted_proxies)", generation = 4 })
    assert.equal("127.0.0.1", ask(g, { { FOR, "203.0.113.7" } }))
    assert.equal("127.0.0.1", on_kept())
  end)

  it("make a gateway one that other machines can reach: it needs auth scripts, or auth: none", function()
    local dir = gateway.prepare { scripts = scripts, config = { listen = { { address = "127.0.0.1:0", trusted_proxies = "127.0.0.1" } } } }
    local code, _, err = gateway.exec({ "check" }, { cwd = dir })
    assert.equal(78, code)
    assert.truthy(err:find("127.0.0.1:0 is reachable from other machines through 'trusted_proxies', but", 1, true), err)
    os.execute("rm -r '" .. dir .. "'")
  end)
end)

describe("a Unix socket", function()
  local function with(proxies, use)
    local path = gateway.new_folder() .. "/mcp.sock"
    local listen = { "127.0.0.1:0", { address = "unix:" .. path, trusted_proxies = proxies } }
    local g <close> = gateway.start { scripts = scripts, config = { listen = listen, auth = "none" } }
    use(g, { path = path })
  end

  it("has trusted peers where `unix` is in trusted_proxies", function()
    with({ "unix", "10.0.0.0/8" }, function(g, there)
      assert.equal("203.0.113.7", ask(g, { { FOR, "1.2.3.4, 203.0.113.7, 10.1.2.3" } }, there))
      assert.equal("unix", ask(g, {}, there))
      assert.equal("unix", ask(g, { { FOR, "unknown" } }, there))
      assert.equal("127.0.0.1", ask(g, { { FOR, "203.0.113.7" } })) -- the second address trusts no proxy
    end)
  end)

  it("has none else", function()
    with({ "0.0.0.0/0", "::/0" }, function(g, there)
      assert.equal("unix", ask(g, { { FOR, "203.0.113.7" } }, there))
      assert.same({ 0, 1, 0 }, forwarded(g))
    end)
  end)
end)
