-- The addresses that an outgoing connection may use (B-115).
local net = require("modules").net

local loopback = { "127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1", "64:ff9b::7f00:1" }
local private = { "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "100.127.255.255", "fc00::1", "fd12::1", "::ffff:10.0.0.1",
  "64:ff9b::a00:1" }
local never = {
  "0.0.0.0", "0.1.2.3", "169.254.169.254", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1",
  "255.255.255.255", "::", "fe80::1", "fec0::1", "ff02::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "::7f00:1", "::ffff:169.254.169.254",
  "64:ff9b:1::1", "100::1",
}
local public = { "1.1.1.1", "8.8.8.8", "172.15.255.255", "172.32.0.1", "100.63.255.255", "100.128.0.1", "223.255.255.255", "2606:4700::1111",
  "2a00::1", "::ffff:8.8.8.8" }

local function all(kind, expected, list)
  for _, address in ipairs(list) do assert.equal(expected, net.reach(kind, address), kind .. " " .. address) end
end

describe("a public reach", function()
  it("has every public address, and no spelling of anything else", function()
    all("public", true, public)
    all("public", false, loopback)
    all("public", false, private)
    all("public", false, never)
  end)
end)

describe("a loopback reach", function()
  it("has this machine alone", function()
    all("loopback", true, loopback)
    for _, list in ipairs { public, private, never } do all("loopback", false, list) end
  end)
end)

describe("a private reach", function()
  it("has private networks too, and nothing link-local or reserved", function()
    for _, list in ipairs { public, private, loopback } do all("private", true, list) end
    all("private", false, never)
  end)
end)

describe("the reach of an address", function()
  it("has that address alone", function()
    assert.is_true(net.reach("169.254.1.1", "169.254.1.1"))
    assert.is_true(net.reach("::1", "0:0:0:0:0:0:0:1"))
    all("127.0.0.1", false, { "127.0.0.2", "::1", "::ffff:127.0.0.1", "8.8.8.8" })
    all("::1", false, { "127.0.0.1", "::2" })
  end)

  it("is an address in its usual form", function()
    assert.equal("::ffff:127.0.0.1", net.canonical "0:0:0:0:0:ffff:7f00:1")
    for _, text in ipairs { "127.1", "0x7f.1", "2130706433", "0177.0.0.1", "localhost", "1.2.3.4.5", "fe80::1%eth0", "" } do
      assert.is_nil(net.canonical(text), text)
    end
  end)
end)
