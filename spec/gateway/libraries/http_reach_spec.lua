-- The addresses to which scripts may connect: those that the grants name, checked at the address of the connection
-- (B-115).
local errand = require "spec.helpers.errand"
local stub = require "spec.helpers.stub"

local code = [[local res, why = http.get(args.url, { timeout = 5 }) return { status = res and res.status, why = why }]]

local function server_here() return stub.start(function(_, reply) reply:json { ok = true } end) end

describe("a script without a grant", function()
  it("reaches nothing, and reads which line of YAML would change that", function()
    local server <close> = server_here()
    local g <close> = errand.start { code = code }
    local me = g:client "2026-07-28"
    local why = errand.run(me, { url = server.url .. "/x?key=secret" }).why
    assert.truthy(why:find(server.at, 1, true), why)
    assert.truthy(why:find("tools/run.lua", 1, true), why)
    assert.truthy(why:find("net: [", 1, true), why)
    assert.is_nil(why:find("secret", 1, true))
    assert.equal(0, server.accepted)
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("every spelling of an address", function()
  it("is the address: refused where another one is granted, and where names are", function()
    local server <close> = server_here()
    local g <close> = errand.start { net = { "127.0.0.2:" .. server.port, "*:*" }, code = code }
    local me = g:client "2026-07-28"
    for _, host in ipairs {
      "127.0.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1", "127.0.1", "127.0.0.1.", "[::1]", "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:1]",
      "[::127.0.0.1]", "localhost", "localhost.", "LOCALHOST", "a.localhost", "0.0.0.0", "0", "[::]", "169.254.169.254", "100.64.0.1", "10.0.0.1",
        "192.168.0.1",
      "224.0.0.1", "255.255.255.255", "[fe80::1]", "[fd00::1]", "%31%32%37.0.0.1", "\u{2460}27.0.0.1", "127\u{3002}0.0.1", "[::1%25lo]", "127.0.0.1%00.a.test",
    } do
      local got = errand.run(me, { url = "http://" .. host .. ":" .. server.port .. "/" })
      assert.is_nil(got.status, host)
      assert.is_string(got.why, host)
    end
    assert.equal(0, server.accepted)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is the address: allowed where it is granted", function()
    local server <close> = server_here()
    local g <close> = errand.start { net = { server.at }, code = code }
    local me = g:client "2026-07-28"
    for _, host in ipairs { "127.0.0.1", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "127.0.0.1." } do
      local got = errand.run(me, { url = "http://" .. host .. ":" .. server.port .. "/" })
      assert.equal(200, got.status, host .. ": " .. tostring(got.why))
    end
    assert.matches("no grant", errand.run(me, { url = "http://localhost:" .. server.port .. "/" }).why)
    assert.matches("no grant", errand.run(me, { url = "http://127.0.0.1:" .. server.port + 1 .. "/" }).why)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is this machine where its name is granted", function()
    local server <close> = server_here()
    local g <close> = errand.start { net = { "localhost:" .. server.port }, code = code }
    local me = g:client "2026-07-28"
    for _, host in ipairs { "localhost", "LocalHost", "localhost." } do
      local got = errand.run(me, { url = "http://" .. host .. ":" .. server.port .. "/" })
      assert.equal(200, got.status, host .. ": " .. tostring(got.why))
    end
    assert.matches("no grant", errand.run(me, { url = server.url }).why)
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a name that is granted", function()
  it("and leads to this machine is refused, before anything is connected, and without telling the address", function()
    local server <close> = server_here()
    local g <close> = errand.start { net = { "*.test:*" }, code = code,
      hosts = "a.test=127.0.0.1;b.test=::1;c.test=10.1.2.3;d.test=169.254.169.254;e.test=::ffff:127.0.0.1" }
    local me = g:client "2026-07-28"
    for i, name in ipairs { "a", "b", "c", "d", "e" } do
      local got = errand.run(me, { url = ("http://%s.test:%d/"):format(name, server.port) })
      assert.is_nil(got.status, name)
      assert.truthy(got.why:find("the host resolves to an address that no grant allows", 1, true), got.why)
      local why = got.why:gsub(":" .. server.port, "")         -- the port may contain the digits that are looked for
      assert.is_nil(why:find("127", 1, true) or why:find("10.1", 1, true) or why:find("169", 1, true))
      assert.equal(i, g:status().counters.refused.address)
    end
    assert.equal(0, server.accepted)
    g:wait_log("http refused", { why = "its address" })
    me:close()
    assert.has_nothing_left(g)
  end)

  it("and changes its answer between look-ups is judged by what is connected to", function()
    local server <close> = server_here()
    local g <close> = errand.start {
      net = { "flip.test:* private", "rebind.test:*" }, hosts = "flip.test=127.0.0.1;rebind.test=127.0.0.9,127.0.0.1", code = code,
      constants = { http_idle_ms = 0 },
    }
    local me = g:client "2026-07-28"
    assert.equal(200, errand.run(me, { url = ("http://flip.test:%d/"):format(server.port) }).status)
    for _ = 1, 3 do assert.matches("no grant allows", errand.run(me, { url = ("http://rebind.test:%d/"):format(server.port) }).why) end
    assert.equal(1, server.accepted)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("as private leads to this machine too, and not to link-local addresses", function()
    local server <close> = server_here()
    local g <close> = errand.start { net = { "*.test:* private" }, code = code, hosts = "a.test=127.0.0.1;d.test=169.254.169.254" }
    local me = g:client "2026-07-28"
    assert.equal(200, errand.run(me, { url = ("http://a.test:%d/"):format(server.port) }).status)
    assert.matches("no grant allows", errand.run(me, { url = "http://d.test/" }).why)
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("the environment and its proxies", function()
  it("are ignored", function()
    local server <close> = server_here()
    local proxy <close> = server_here()
    local gateway = require "spec.helpers.gateway"
    local g <close> = gateway.start {
      workers = 1, env = { http_proxy = proxy.url, all_proxy = proxy.url, HTTP_PROXY = proxy.url, NETRC = "/dev/null" },
      scripts = { ["tools/run.lua"] = "return tool { 'R', input = { url = t.string }, function(args) return { status = http.get(args.url).status } end }" },
      constants = { http_idle_ms = 5 }, config = { scripts = { allow = { net = { server.at } } } },
    }
    local me = g:client "2026-07-28"
    assert.equal(200, errand.run(me, { url = server.url }).status)
    assert.equal(1, #server.requests)
    assert.equal(0, proxy.accepted)
    me:close()
    assert.has_nothing_left(g)
  end)
end)
