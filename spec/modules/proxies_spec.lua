-- Which client a request or a connection is from, by what proxies and clients write: X-Forwarded-For, Forwarded, PROXY
-- headers.
local net = require("modules").net

local trusted = { "10.0.0.0/8", "2001:db8:1::/48", "127.0.0.1" }

local function client(common, rfc7239)
  if type(common) == "string" then common = { common } end
  if type(rfc7239) == "string" then rfc7239 = { rfc7239 } end
  return net.client(trusted, common or {}, rfc7239 or {})
end

describe("an item of trusted_proxies", function()
  it("is an address, a network or unix", function()
    for _, item in ipairs { "unix", "127.0.0.1", "::1", "10.0.0.0/8", "10.1.2.3/32", "0.0.0.0/0", "::/0", "fd00::/8", "2001:db8::1/128",
      "::ffff:10.0.0.0/104" } do
      assert.is_nil(net.proxy(item), item)
    end
  end)

  it("is refused with a reason", function()
    for item, why in pairs {
      ["10.0.0.1/8"] = "host bits", ["2001:db8::1/64"] = "host bits", ["::ffff:10.0.0.1/104"] = "host bits", ["::ffff:0:1/90"] = "host bits",
      ["10.0.0.0/33"] = "from 0 to 32", ["::/129"] = "from 0 to 128", ["10.0.0.0/"] = "from 0 to 32", ["10.0.0.0/08"] = "from 0 to 32",
      ["10.0.0.0/-1"] = "from 0 to 32", ["10.0.0.0/8/8"] = "from 0 to 32", ["10.0.0.0/+8"] = "from 0 to 32", ["10.0.0.0/8 "] = "from 0 to 32",
    } do
      assert.truthy(net.proxy(item):find(why, 1, true), item)
    end
    for _, item in ipairs { "", "Unix", "localhost", "10.0.0", "010.0.0.1", "10.0.0.1:80", "[::1]", "fe80::1%eth0", "10.0.0.1\0", "*", "/8", ("1"):rep(60) } do
      local why, hint = net.proxy(item)
      assert.equal("", why, item)
      assert.truthy(hint:find("as in 10.1.2.3", 1, true), item)
    end
  end)

  it("has the network in the hint", function()
    assert.equal("the network is 10.0.0.0/8; a single address has no '/'", (select(2, net.proxy "10.1.2.3/8")))
    assert.equal("the network is 2001:db8::/64; a single address has no '/'", (select(2, net.proxy "2001:db8::1/64")))
    assert.equal("the network is 192.168.128.0/17; a single address has no '/'", (select(2, net.proxy "192.168.255.1/17")))
  end)
end)

describe("the client of a request from a trusted proxy", function()
  it("is the right-most address of X-Forwarded-For that is no trusted proxy's", function()
    for line, address in pairs {
      ["203.0.113.7"] = "203.0.113.7", ["1.2.3.4, 203.0.113.7"] = "203.0.113.7", ["1.2.3.4,203.0.113.7,10.1.2.3"] = "203.0.113.7",
      ["203.0.113.7, 10.1.2.3, 2001:db8:1::9"] = "203.0.113.7", ["\t203.0.113.7 \t,  10.1.2.3 "] = "203.0.113.7",
      ["203.0.113.7:4711"] = "203.0.113.7", ["[2001:db8::7]"] = "2001:db8::7", ["[2001:db8::7]:4711"] = "2001:db8::7",
      ["2001:DB8:0:0::7"] = "2001:db8::7", ["::ffff:203.0.113.7"] = "203.0.113.7", ["::ffff:10.1.2.3"] = "10.1.2.3",
      ["203.0.113.7, ::ffff:10.1.2.3"] = "203.0.113.7", ["10.9.9.9, 10.1.2.3"] = "10.9.9.9",
    } do
      assert.same({ address, false }, { client(line) }, line)
    end
  end)

  it("is that of Forwarded", function()
    for line, address in pairs {
      ["for=203.0.113.7"] = "203.0.113.7", ["for=1.2.3.4, for=203.0.113.7"] = "203.0.113.7", ['For="203.0.113.7:4711"'] = "203.0.113.7",
      ['FOR="[2001:db8::7]:4711";proto=https;by=10.1.2.3'] = "2001:db8::7", ['by="a,b";for=203.0.113.7;host="x;y\\"z"'] = "203.0.113.7",
      ["for=203.0.113.7;by=_me, for=10.1.2.3"] = "203.0.113.7", [" proto=http ; for = 203.0.113.7 "] = "203.0.113.7",
      ['for=203.0.113.7, for="10.1.2.3:80";secret="for=9.9.9.9, for=8.8.8.8"'] = "203.0.113.7",
    } do
      assert.same({ address, false }, { client(nil, line) }, line)
    end
  end)

  it("is found over several header lines, from the last one", function()
    assert.same({ "203.0.113.7", false }, { client { "1.2.3.4", "203.0.113.7", "10.1.2.3" } })
    assert.same({ "203.0.113.7", false }, { client { "1.2.3.4, 203.0.113.7", "10.3.3.3, 10.1.2.3" } })
    assert.same({ "203.0.113.7", false }, { client(nil, { "for=1.2.3.4", "for=203.0.113.7", 'for="10.1.2.3"' }) })
  end)

  it("is the last address that a trusted proxy wrote, where the next one is none", function()
    for line, address in pairs {
      ["203.0.113.7, unknown"] = "", ["203.0.113.7, unknown, 10.1.2.3"] = "10.1.2.3", ["203.0.113.7, _hidden, 10.1.2.3"] = "10.1.2.3",
      ["203.0.113.7, , 10.1.2.3"] = "10.1.2.3", ["203.0.113.7,"] = "", [""] = "", [" "] = "", [","] = "",
      ["203.0.113.7, 10.1.2.3.4, 10.1.2.3"] = "10.1.2.3", ["203.0.113.7, 10.1.2.3:99999, 10.1.2.4"] = "10.1.2.4",
      ["203.0.113.7 10.1.2.3"] = "", ["203.0.113.7;10.1.2.3"] = "", ['"203.0.113.7"'] = "", ["[203.0.113.7]"] = "", ["[::1"] = "", ["[::1]x"] = "",
      ["[::1]:"] = "", ["203.0.113.7:"] = "", ["203.0.113.7:0x1"] = "", ["fe80::1%eth0"] = "", ["0x7f.1"] = "", ["127.1"] = "", ["203.0.113.07"] = "",
      ["203.0.113.7\0"] = "", ["203.0.113.7\0, 10.1.2.3"] = "10.1.2.3", [("9"):rep(4000)] = "", [("a, "):rep(4000)] = "",
    } do
      assert.same({ address, true }, { client(line) }, line)
    end
    for line, address in pairs {
      ["for=unknown"] = "", ["for=203.0.113.7, for=_hidden, for=10.1.2.3"] = "10.1.2.3", ["for=203.0.113.7, by=x, for=10.1.2.3"] = "10.1.2.3",
      ["for=203.0.113.7;for=1.2.3.4"] = "", ["for"] = "", ["for="] = "", ['for="'] = "", ['for="203.0.113.7'] = "", ['for="203.0.113.7\\"'] = "",
      ["203.0.113.7"] = "", ["xfor=203.0.113.7"] = "", ['for="203.0.113.7:_x"'] = "", ['for=203.0.113.7, "for=10.1.2.3"'] = "",
    } do
      assert.same({ address, true }, { client(nil, line) }, line)
    end
  end)

  it("is not changed by a quotation mark that the client leaves open", function()
    for _, forged in ipairs { 'for="', 'for="\\', 'for=1.2.3.4;x="', '"', "\\", 'for="1.2.3.4, for=10.0.0.1', "for=10.0.0.1;" } do
      assert.same({ "203.0.113.7", false }, { client(nil, forged .. ", for=203.0.113.7") }, forged)
      assert.same({ "2001:db8::7", false }, { client(nil, forged .. ', for="[2001:db8::7]:80";by="a,b", for=10.1.2.3') }, forged)
      assert.same({ "203.0.113.7", false }, { client(nil, { forged, "for=203.0.113.7" }) }, forged)
    end
  end)

  it("is looked for among a number of addresses that no chain of proxies has", function()
    assert.same({ "1.2.3.4", false }, { client("1.2.3.4" .. (", 10.0.0.1"):rep(31)) })
    assert.same({ "10.0.0.1", true }, { client("1.2.3.4" .. (", 10.0.0.1"):rep(32)) })
    assert.same({ "10.0.0.1", true }, { client(("10.0.0.1, "):rep(5000) .. "10.0.0.1") })
  end)

  it("is in neither of two headers that differ: one of them is the client's own", function()
    assert.same({ "203.0.113.7", false }, { client("203.0.113.7", "for=203.0.113.7") })
    assert.same({ "203.0.113.7", false }, { client("1.1.1.1, 203.0.113.7", 'for=2.2.2.2, for="203.0.113.7:80"') })
    for common, rfc7239 in pairs { ["203.0.113.7"] = "for=1.2.3.4", ["1.2.3.4"] = "for=203.0.113.7", ["203.0.113.8"] = "for=unknown",
      ["203.0.113.9, 10.1.2.3"] = "x" } do
      assert.same({ "", true }, { client(common, rfc7239) }, common)
    end
  end)
end)

describe("a PROXY header", function()
  local read = net.proxy_header
  local SIGNATURE = "\r\n\r\n\0\r\nQUIT\n"

  local function v2(command, family, rest, len) return SIGNATURE .. string.char(command, family) .. (">I2"):pack(len or #rest) .. rest end

  local four = "\203\0\113\7" .. "\10\0\0\1" .. "\x12\x34\x01\xbb"
  local six = "\x20\x01\x0d\xb8" .. ("\0"):rep(11) .. "\7" .. ("\0"):rep(16) .. "\x12\x34\x01\xbb"
  local mapped = ("\0"):rep(10) .. "\xff\xff\203\0\113\7" .. ("\0"):rep(16) .. "\x12\x34\x01\xbb"

  local whole = {
    ["PROXY TCP4 203.0.113.7 10.0.0.1 4711 443\r\n"] = "203.0.113.7",
    ["PROXY TCP6 2001:db8::7 ::1 4711 443\r\n"] = "2001:db8::7",
    ["PROXY TCP6 ::ffff:203.0.113.7 ::ffff:10.0.0.1 4711 443\r\n"] = "203.0.113.7",
    ["PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n"] = "255.255.255.255",
    ["PROXY UNKNOWN\r\n"] = false,
    ["PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n"] = false,
    [v2(0x21, 0x11, four)] = "203.0.113.7", [v2(0x21, 0x21, six)] = "2001:db8::7", [v2(0x21, 0x21, mapped)] = "203.0.113.7",
    [v2(0x21, 0x11, four .. "\x04\0\3abc" .. ("x"):rep(500))] = "203.0.113.7", -- fields behind the addresses
    [v2(0x21, 0x11, four .. ("x"):rep(4096 - 16 - 12))] = "203.0.113.7",
    [v2(0x21, 0x31, ("/run/a"):rep(36))] = false, [v2(0x21, 0, "")] = false, [v2(0x21, 0, "abc")] = false,
    [v2(0x20, 0, "")] = false, [v2(0x20, 0x11, four)] = false, [v2(0x20, 0xff, "abc")] = false,
  }

  it("gives the address of the client, and its own length", function()
    for header, address in pairs(whole) do
      assert.same({ "whole", #header, address or nil }, { read(header) }, header)
      assert.same({ "whole", #header, address or nil }, { read(header .. "GET / HTTP/1.1\r\n") }, header)
    end
  end)

  it("may come in pieces", function()
    for header in pairs(whole) do
      for len = 0, #header - 1 do assert.equal("partial", (read(header:sub(1, len)))) end
    end
  end)

  it("is refused at the first byte that none has", function()
    for _, text in ipairs { "GET / HTTP/1.1\r\n", "POST", "PROXx", "P ", "\22\3\1", "\0", "\r\n\r\nx", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      SIGNATURE:sub(1, 11) .. "x", " PROXY" } do
      assert.equal("broken", (read(text)), text)
    end
  end)

  it("is refused where it has something else than addresses", function()
    for _, line in ipairs { "TCP4 203.0.113.7 10.0.0.1 4711", "TCP4 203.0.113.7 10.0.0.1 4711 443 1", "TCP4  203.0.113.7 10.0.0.1 4711 443",
      "TCP4 203.0.113.7 10.0.0.1 04711 443", "TCP4 203.0.113.7 10.0.0.1 65536 443", "TCP4 203.0.113.7 10.0.0.1 -1 443",
      "TCP4 203.0.113 10.0.0.1 4711 443", "TCP4 ::1 ::1 4711 443", "TCP6 203.0.113.7 ::1 4711 443", "TCP4 203.0.113.7 nowhere 4711 443",
      "tcp4 203.0.113.7 10.0.0.1 4711 443", "UDP4 203.0.113.7 10.0.0.1 4711 443", "", "UNKNOWNX", "TCP4 203.0.113.7\0 10.0.0.1 4711 443",
      "TCP4 203.0.113.7 10.0.0.1 4711 443 ", "TCP4" } do
      assert.equal("broken", (read("PROXY " .. line .. "\r\n")), line)
    end
    assert.equal("broken", (read "PROXY TCP4 203.0.113.7 10.0.0.1 4711 443\n"))
    for _, header in ipairs { v2(0x21, 0x11, four:sub(1, 11)), v2(0x21, 0x21, four), v2(0x21, 0x31, four), v2(0x21, 0x12, four),
      v2(0x21, 0x22, six), v2(0x21, 0x41, four), v2(0x21, 0x10, four),
      v2(0x22, 0x11, four), v2(0x11, 0x11, four), v2(0x31, 0x11, four), v2(0x00, 0, "") } do
      assert.equal("broken", (read(header)), header)
    end
  end)

  it("is refused as soon as it is too long, before all of it is there", function()
    assert.equal("partial", (read("PROXY TCP4 " .. ("9"):rep(95))))
    assert.equal("broken", (read("PROXY TCP4 " .. ("9"):rep(96))))
    assert.equal("broken", (read(v2(0x21, 0x11, "", 65535))))
    assert.equal("broken", (read(v2(0x20, 0x11, "", 4097 - 16))))
    assert.equal("partial", (read(v2(0x21, 0x11, "", 4096 - 16))))
  end)
end)

describe("an address where clients are counted by address", function()
  it("is that of the client, and of IPv6 its network of 64 bits", function()
    for address, counted in pairs {
      ["203.0.113.7"] = "203.0.113.7", ["::ffff:203.0.113.7"] = "203.0.113.7", ["::ffff:cb00:7107"] = "203.0.113.7",
      ["2001:db8:1:2::7"] = "2001:db8:1:2::/64", ["2001:DB8:1:2:ffff:ffff:ffff:ffff"] = "2001:db8:1:2::/64", ["2001:db8:1:3::7"] = "2001:db8:1:3::/64",
      ["::1"] = "::/64", ["fd00:0:0:1::1"] = "fd00:0:0:1::/64", ["2001:db8:1:2:3:4:203.0.113.7"] = "2001:db8:1:2::/64",
    } do
      assert.equal(counted, net.counted(address), address)
    end
  end)

  it("is a whole link-local address, since all clients of a link have its network", function()
    for _, address in ipairs { "fe80::1", "fe80::2", "febf:1:2:3:4:5:6:7" } do assert.equal(address, net.counted(address)) end
    assert.equal("fec0::/64", net.counted "fec0::1")
  end)

  it("stays what it is if it is no address", function()
    for _, text in ipairs { "", "unix", ":", "2001:db8::g", "[2001:db8::1]", "fe80::1%eth0", ("1:"):rep(40), "10.0.0.1:80" } do
      assert.equal(text, net.counted(text))
    end
  end)
end)
