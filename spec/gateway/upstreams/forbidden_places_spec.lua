-- Places that an upstream, its authorization server or its definitions name: 80 spellings of addresses that are not
-- public, redirects and references. The gateway connects to none of them.
local gateway = require "spec.helpers.gateway"
local stub = require "spec.helpers.stub"
local upstream = require "spec.helpers.upstream"
local uv = require "luv"

-- A listener that counts connections, on IPv4 and, where the machine has it, IPv6.
local function canary()
  local self = { count = 0, servers = {} }
  local function listen(address, port)
    local server = uv.new_tcp()
    if not server:bind(address, port) then
      server:close()
      return
    end
    server:listen(16, function()
      self.count = self.count + 1
      local tcp = uv.new_tcp()
      server:accept(tcp)
      tcp:close()
    end)
    self.servers[#self.servers + 1] = server
    return server:getsockname().port
  end
  self.port = listen("127.0.0.1", 0)
  listen("::1", self.port)
  return setmetatable(self, { __close = function()
    for _, server in ipairs(self.servers) do server:close() end
  end })
end

-- Hosts as URLs spell them. All lead to this machine, to its network or to the address of a cloud's metadata.
local HOSTS <const> = {
  "127.0.0.1", "127.1", "127.0.1", "0x7f.0.0.1", "0x7f000001", "0X7F.1", "2130706433", "017700000001", "0177.0.0.1", "0177.1", "127.0.0.1.",
  "127.000.000.001", "127.255.255.254", "0.0.0.0", "0", "0x0", "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[0000::0001]", "[::ffff:127.0.0.1]",
  "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::127.0.0.1]", "[64:ff9b::7f00:1]", "[::ffff:0:127.0.0.1]",
  "[2002:7f00:1::]", "localhost", "LOCALHOST", "localhost.", "a.localhost", "%6c%6f%63alhost", "%31%32%37.0.0.1", "127%2e0%2e0%2e1",
  "\u{FF11}\u{FF12}\u{FF17}.0.0.1", "\u{2460}\u{2461}\u{2466}.0.0.1", "127\u{3002}0\u{3002}0\u{3002}1", "public@127.0.0.1",
  "93.184.216.34@127.0.0.1", "internal.example", "INTERNAL.example", "internal.example.", "both.example", "six.example", "mapped.example",
  "zero.example", "cloud.example", "lan.example", "link.example", "169.254.169.254", "0xa9fea9fe", "2852039166", "0251.0376.0251.0376",
  "169.254.43518", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[fd00:ec2::254]", "[fe80::1]", "100.100.100.200", "10.0.0.1", "012.0.0.1",
  "0xa.1", "167772161", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.1", "[fc00::1]", "[fd12:3456::1]", "100.64.0.1", "192.0.0.192",
  "198.18.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", "[ff02::1]", "[2001:db8::1]",
}

local NAMES <const> = "internal.example=127.0.0.1;INTERNAL.example=127.0.0.1;internal.example.=127.0.0.1;both.example=127.0.0.1,127.0.0.1;six.example=::1;"
  .. "mapped.example=::ffff:127.0.0.1;zero.example=0.0.0.0;cloud.example=169.254.169.254;lan.example=10.0.0.1;link.example=fe80::1;"
  .. "rebind.example=192.0.2.1,127.0.0.1"

local function environment()
  local folder = gateway.binary:match "^(.*)/"
  return { LD_PRELOAD = uv.fs_realpath(folder .. "/resolver.so"), MOONPOOL_HOSTS = NAMES, ASAN_OPTIONS = "verify_asan_link_order=0:detect_leaks=0" }
end

-- The spellings of token endpoints: each host by https and two by http.
local function spellings(port)
  local list = {}
  for _, host in ipairs(HOSTS) do list[#list + 1] = ("https://%s:%d/token"):format(host, port) end
  list[#list + 1] = ("http://127.0.0.1:%d/token"):format(port)
  list[#list + 1] = ("https://example.com\\@127.0.0.1:%d/token"):format(port)
  return list
end

local REFUSED <const> = {
  ["the authorization server's name leads to an address that is not public (private: true allows it)"] = true,
  ["the issuer's metadata name no token endpoint"] = true, ["the issuer's metadata name a token endpoint without https"] = true,
}

describe("a token endpoint that metadata name", function()
  it("is used in none of 80 spellings of places that are not public", function()
    local bird <close> = canary()
    local places = spellings(bird.port)
    assert.equal(80, #places)
    local as
    as = stub.start(function(request, reply)
      local n = tonumber(request.path:match "/%.well%-known/oauth%-authorization%-server/(%d+)$")
      if not n then return reply:send(404) end
      reply:json { issuer = as.url .. "/" .. n, token_endpoint = places[n] }
    end)
    local _ <close> = as
    local upstreams = {}
    for n = 1, #places do
      upstreams["u" .. n] = { url = "http://127.0.0.1:9/mcp", auth = { client_credentials = { issuer = as.url .. "/" .. n, client = "c", secret = "s" } } }
    end
    local g <close> = gateway.start { config = { upstreams = upstreams }, env = environment(), workers = 2 }
    for n, place in ipairs(places) do
      local line = g:wait_log("no token for upstream", { upstream = "u" .. n }, 60)
      assert.is_true(REFUSED[line.fields.why] == true, place .. ": " .. tostring(line.fields.why))
    end
    assert.equal(0, bird.count)
  end)
end)

describe("places of the configuration", function()
  it("that are names lead to no private address, also if a second answer of DNS does", function()
    local bird <close> = canary()
    local upstreams = {}
    for i, name in ipairs { "internal.example", "both.example", "mapped.example", "cloud.example", "rebind.example" } do
      local at = ("https://%s:%d"):format(name, bird.port)
      upstreams["url" .. i] = at .. "/mcp"
      upstreams["token" .. i] = { url = "http://127.0.0.1:9/mcp", auth = { client_credentials = { token_url = at .. "/token", client = "c", secret = "s" } } }
      upstreams["issuer" .. i] = { url = "http://127.0.0.1:9/mcp", auth = { client_credentials = { issuer = at, client = "c", secret = "s" } } }
    end
    local g <close> = gateway.start { config = { upstreams = upstreams }, env = environment() }
    for name in pairs(upstreams) do
      if name:find "^url" then
        g:wait_log("upstream lists cannot be read", { upstream = name }, 60)
      else
        g:wait_log("no token for upstream", { upstream = name }, 60)
      end
    end
    assert.equal(0, bird.count)
  end)

  it("that are addresses are written as addresses", function()
    for _, host in ipairs { "127.1", "0x7f.0.0.1", "0x7f000001", "2130706433", "017700000001", "0177.0.0.1", "127.0.0.1.", "127.000.000.001", "0",
      "169.254.43518" } do
      local dir = gateway.prepare { config = { upstreams = { one = "http://" .. host .. ":80/mcp" } } }
      local code, out, err = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })
      os.execute("rm -rf '" .. dir .. "'")
      assert.equal(78, code, host)
      assert.truthy((out .. err):find("the host is an address that is not written as such", 1, true), out .. err)
    end
  end)
end)

describe("redirects and references", function()
  it("of an upstream, a token endpoint and metadata are not followed", function()
    local bird <close> = canary()
    local away = ("http://127.0.0.1:%d/"):format(bird.port)
    local as <close> = stub.start(function(_, reply) reply:send(307, { location = away }) end)
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:when("*", function(x) upstream.faults.status(308, { location = away })(x) end)
    local upstreams = {
      one = u.entry or u, url = as.url .. "/mcp",
      token = { url = "http://127.0.0.1:9/mcp", auth = { client_credentials = { token_url = as.url .. "/token", client = "c", secret = "s" } } },
      issuer = { url = "http://127.0.0.1:9/mcp", auth = { client_credentials = { issuer = as.url, client = "c", secret = "s" } } },
    }
    local g <close> = gateway.start { config = { upstreams = upstreams } }
    for _, name in ipairs { "token", "issuer" } do
      g:wait_log("no token for upstream", { upstream = name, why = "the authorization server answers with a redirect, which is not followed" }, 60)
    end
    for _, name in ipairs { "one", "url" } do g:wait_log("upstream lists cannot be read", { upstream = name }, 60) end
    assert.equal(0, bird.count)
  end)

  it("in definitions are not fetched", function()
    local bird <close> = canary()
    local at = ("http://127.0.0.1:%d/"):format(bird.port)
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:offer("tools", {
      ('{"name":"a","inputSchema":{"$schema":"%sschema","$id":"%sid","type":"object","properties":{"n":{"type":"number"}}}}'):format(at, at),
      ('{"name":"b","icons":[{"src":"%sicon.png"}],"inputSchema":{"type":"object","properties":{"n":{"$ref":"%sref"}}}}'):format(at, at),
    })
    local g <close> = upstream.gateway { one = u }
    local me <close> = g:client "2026-07-28"
    local wait = require "spec.helpers.wait"
    wait.for_fact("the list", 20, function() return (g:status().upstreams.one.withheld or {})[1] end)
    me:call("tools/call", { name = "one_a", arguments = { n = 1 } })
    assert.equal("b", g:status().upstreams.one.withheld[1].name)
    assert.equal(0, bird.count)
  end)
end)
