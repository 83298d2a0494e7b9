-- The addresses that a `net` grant allows, and where in the network they may lead.
package.path = "./lua/?.lua;./lua/?/init.lua;" .. package.path

local net = require("modules").net

describe("a net grant", function()
  local reach, before

  setup(function()
    before = package.loaded["moonpool.host"]
    package.loaded["moonpool.host"] = { http = { address = net.canonical } }
    package.loaded["moonpool.lib.http.reach"] = nil
    reach = require "moonpool.lib.http.reach"
  end)

  teardown(function()
    package.loaded["moonpool.host"], package.loaded["moonpool.lib.http.reach"] = before, nil
  end)

  local function find(texts, host, port)
    local list = {}
    for _, text in ipairs(texts) do list[#list + 1] = assert(reach.parse(text)) end
    return reach.find(list, { host = host, port = port })
  end

  it("opens a host and its port", function()
    assert.equal("public", find({ "api.example.com:443" }, "api.example.com", 443))
    assert.is_nil(find({ "api.example.com:443" }, "api.example.com", 80))
    assert.is_nil(find({ "api.example.com:443" }, "example.com", 443))
    assert.is_nil(find({ "api.example.com:443" }, "api.example.com.evil.test", 443))
    assert.equal("public", find({ "API.Example.com." }, "api.example.com", 443))
  end)

  it("without a port opens 80 and 443, with * every one", function()
    for port, expected in pairs { [80] = "public", [443] = "public" } do assert.equal(expected, find({ "a.test" }, "a.test", port)) end
    assert.is_nil(find({ "a.test" }, "a.test", 8080))
    assert.equal("public", find({ "a.test:*" }, "a.test", 8080))
  end)

  it("opens names below a domain, and not the domain", function()
    assert.equal("public", find({ "*.example.com" }, "a.b.example.com", 443))
    assert.is_nil(find({ "*.example.com" }, "example.com", 443))
    assert.is_nil(find({ "*.example.com" }, "badexample.com", 443))
    assert.is_nil(find({ "*.0.0.1" }, "127.0.0.1", 80))
    assert.equal("public", find({ "*" }, "example.com", 443))
  end)

  it("leads to the address that it names", function()
    assert.equal("127.0.0.1", find({ "127.0.0.1:8080" }, "127.0.0.1", 8080))
    assert.equal("::1", find({ "[0:0::1]:8080" }, "::1", 8080))
    assert.is_nil(find({ "127.0.0.1:8080" }, "::ffff:127.0.0.1", 8080))
    assert.equal("public", find({ "*:*" }, "127.0.0.1", 8080)) -- 127.0.0.1 does not match
  end)

  it("leads to this machine by its name, and to private networks where it says so", function()
    assert.equal("loopback", find({ "localhost:8080" }, "localhost", 8080))
    assert.equal("loopback", find({ "*.localhost:8080" }, "a.localhost", 8080))
    assert.equal("public", find({ "*:*" }, "localhost", 8080))
    assert.equal("private", find({ "db.internal:8080 private" }, "db.internal", 8080))
    assert.equal("private", find({ "*.internal:* private", "db.internal:8080" }, "db.internal", 8080))
  end)

  it("that is none opens nothing", function()
    for _, text in ipairs {
      "https://a.test", "a.test:99999", "a.test:x", "::1", "[zz]:1", "a.test public", "127.0.0.1 private", "127.1:80", "a..b", "*a.test", "a/b",
      "user@a.test",
    } do
      assert.is_nil(reach.parse(text), text)
    end
  end)
end)
