-- The libraries of scripts that never wait: store, digest, base64, uuid, time, uri, regex.
local code = require "spec.helpers.code"

describe("scripts' own libraries", function()
  local g, me
  lazy_setup(function()
    g = code.start { workers = 1 }
    me = g:client "2026-07-28"
  end)
  lazy_teardown(function()
    me:close()
    assert.has_nothing_left(g)
    g:stop()
  end)

  local function run(text) return code.run(me, text) end

  it("store: keep JSON values, out of reach of the library's own", function()
    assert.same({ true, { a = { 1, 2 } }, false, 5, 4, { "s:x", "v" }, { "v" }, 0 }, run [[
      local out = { store.set("v", { a = { 1, 2 } }, { ttl = 60 }), store.get "v", store.add("v", 1), store.incr("s:x", 5), store.incr("s:x", -1),
        store.list(), store.list("v") }
      store.delete "v" store.delete "s:x"
      out[8] = #store.list()
      return out]])
    assert.is_true(run "return store.get 'nothing' == nil")
    assert.same({ "code:1: store.incr: the value of 'a' is not a whole number, or the sum has more than 64 bits",
      "code:1: store.set: unknown option 'tll'" }, run [[
      store.set("a", "x") local _, one = pcall(store.incr, "a") local _, two = pcall(store.set, "a", 1, { tll = 1 }) store.delete "a"
      return { "code:1: " .. tostring(one):gsub("^.*: (store)", "%1"), "code:1: " .. tostring(two):gsub("^.*: (store)", "%1") }]])
  end)

  it("store: add nothing that has more than 64 bits, at either end", function()
    assert.same({ false, false, tostring(math.maxinteger), tostring(math.mininteger) }, run [[
      store.set("most", math.maxinteger) store.set("least", math.mininteger)
      local out = { (pcall(store.incr, "most")), (pcall(store.incr, "least", -1)), tostring(store.get "most"), tostring(store.get "least") }
      store.delete "most" store.delete "least"
      return out]])
  end)

  it("digest: hash as the standards' examples say", function()
    assert.same({
      "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "a9993e364706816aba3e25717850c26c9cd0d89d",
      "900150983cd24fb0d6963f7d28e17f72", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843", 64, true, false,
    }, run [[
      return { digest.sha256 "abc", digest.sha1 "abc", digest.md5 "abc", digest.hmac("sha256", "Jefe", "what do ya want for nothing?"),
        #digest.sha512("", "bytes"), digest.equal("a", "a"), digest.equal("a", "ab") }]])
  end)

  it("base64: both alphabets", function()
    assert.same({ "+/8=", "-_8", true, true, "the text is not Base64", "the text is not base64url" }, run [[
      local b = "\xfb\xff"
      return { base64.encode(b), base64.url_encode(b), base64.decode "+/8=" == b, base64.url_decode "-_8" == b,
        select(2, base64.decode "+/8"), select(2, base64.url_decode "+/8") }]])
  end)

  it("uuid: random ones, and ones in order", function()
    assert.is_true(run [[
      local one, two = uuid(), uuid.v4()
      local form = "^%x+%-%x%x%x%x%-V%x%x%x%-[89ab]%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x$"
      assert(one ~= two and #one == 36 and one:find((form:gsub("V", "4"))), one)
      local last = ""
      for _ = 1, 1000 do
        local id = uuid.v7()
        assert(id > last and id:find((form:gsub("V", "7"))), id)
        last = id
      end
      local ms = tonumber((last:sub(1, 8) .. last:sub(10, 13)), 16)
      return math.abs(ms / 1000 - time.now()) < 5]])
  end)

  it("time: RFC 3339 both ways", function()
    assert.same({ "1970-01-01T00:00:00Z", "2000-02-29T23:59:59.250Z", "0001-01-01T00:00:00Z", 951868799, 951868799.5, 0, 1782000000 - 3600, true }, run [[
      return { time.format(0), time.format(951868799.25), time.format(-62135596800), time.parse "2000-02-29T23:59:59Z", time.parse "2000-02-29t23:59:59.5z",
        time.parse "1970-01-01T01:30:00+01:30", time.parse "2026-06-21T01:00:00+01:00" + 0 - (time.parse "2026-06-21T00:00:00Z" - 1782000000) - 3600,
        time.monotonic() > 0 }]])
    for _, text in ipairs { "2023-02-29T00:00:00Z", "2023-01-01", "2023-01-01T24:00:00Z", "2023-01-01T00:00:00", "2023-01-01T00:00:00.Z", "x" } do
      assert.truthy(select(2, run("return time.parse '" .. text .. "'")):find "RFC 3339", text)
    end
    assert.is_true(run [[
      for _ = 1, 2000 do
        local at = math.random(-62135596800, 253402300799)
        assert(time.parse(time.format(at)) == at, at)
      end
      return true]])
  end)

  it("uri: parse, build, encode, join", function()
    assert.same({ scheme = "https", userinfo = "me", host = "example.com", port = 8443, path = "/a%20b", query = "x=1", fragment = "top" },
      run 'return uri.parse "HTTPS://me@Example.com:8443/a%20b?x=1#top"')
    assert.same({ "https://me@example.com:8443/a%20b?x=1#top", "mailto:a@b", "http://[::1]/p?a%20b=1&c=x&c=y", "a%2Fb%3D%C3%A9", "a/b=é" }, run [[
      return { uri.build(uri.parse "HTTPS://me@Example.com:8443/a%20b?x=1#top"),
        uri.build(uri.parse "mailto:a@b"), uri.build { scheme = "http", host = "[::1]", path = "p", query = { ["a b"] = 1, c = { "x", "y" } } },
        uri.encode "a/b=é", uri.decode "a%2Fb%3D%C3%A9" }]])
    for _, wrong in ipairs { "http://a b/", "http://a:99999/", "http://a:b/", "%zz", "http://[::1/" } do
      assert.truthy(select(2, run('return uri.parse "' .. wrong .. '"')), wrong)
    end
    -- RFC 3986, sections 5.4.1 and 5.4.2
    local rows = {
      ["g:h"] = "g:h", g = "http://a/b/c/g", ["./g"] = "http://a/b/c/g", ["g/"] = "http://a/b/c/g/", ["/g"] = "http://a/g", ["//g"] = "http://g",
      ["?y"] = "http://a/b/c/d;p?y", ["g?y"] = "http://a/b/c/g?y", ["#s"] = "http://a/b/c/d;p?q#s", ["g#s"] = "http://a/b/c/g#s",
      [";x"] = "http://a/b/c/;x", [""] = "http://a/b/c/d;p?q", ["."] = "http://a/b/c/", ["./"] = "http://a/b/c/", [".."] = "http://a/b/",
      ["../"] = "http://a/b/", ["../g"] = "http://a/b/g", ["../.."] = "http://a/", ["../../g"] = "http://a/g", ["../../../g"] = "http://a/g",
      ["/./g"] = "http://a/g", ["/../g"] = "http://a/g", ["g."] = "http://a/b/c/g.", ["..g"] = "http://a/b/c/..g", ["./../g"] = "http://a/b/g",
      ["./g/."] = "http://a/b/c/g/", ["g/./h"] = "http://a/b/c/g/h", ["g/../h"] = "http://a/b/c/h", ["g;x=1/../y"] = "http://a/b/c/y",
      ["g?y/./x"] = "http://a/b/c/g?y/./x",
    }
    for reference, wanted in pairs(rows) do
      assert.equal(wanted, run(('return uri.join("http://a/b/c/d;p?q", %q)'):format(reference)), reference)
    end
  end)

  it("regex: find, match, gmatch, gsub with captures, in time", function()
    assert.same({ 3, 6, "ab", "12", "é", { "1", "22", "333" }, "<a> <b>", 2, true, false, "A-a", "nil" }, run [[
      local re = try(regex.new "([a-z]+)([0-9]+)")
      local from, to, word, number = re:find("--ab12--")
      local all = {}
      for digits in regex.new("[0-9]+"):gmatch "1 22 333" do all[#all + 1] = digits end
      local text, count = regex.new("\\b([a-z])\\b"):gsub("a b cc", "<x>")
      text = regex.new("([a-z])"):gsub("a b", function(c) return "<" .. c .. ">" end)
      local first = regex.new("(x)?(é)")
      local none, e = first:match "é"
      return { from, to, word, number, e, all, text, count, regex.new("^ABC$", "i"):test "abc", regex.new("a"):test "b",
        (regex.new("(?<c>a)", "i"):gsub("A-a", "%0", 0)), tostring(none) }]])
    assert.same({ "", "a", "" }, run [[
      local seen = {}
      for text in regex.new("a*"):gmatch "éa" do seen[#seen + 1] = text end
      return seen]])
    assert.truthy(select(2, run 'return regex.new "("'):find "at byte")
    assert.equal("limit", select(2, run 'return regex.new("^(a+)+$"):match(("a"):rep(40) .. "!")'))
    assert.equal("not UTF-8", select(2, run 'return regex.new("a"):match "\\xff"'))
  end)

  it("regex: an expression with many groups works beside one with few", function()
    assert.same({ "b", 40, "40", "a" }, run [[
      local one, many = regex.new "(a)|(b)", regex.new(("(.)"):rep(40))
      local _, b = one:match "b"
      local all = { many:match(("x"):rep(39) .. "40") }
      return { b, #all, all[39] == "x" and all[40] .. "0", (one:match "a") }]])
  end)
end)

describe("the store of scripts", function()
  it("is one for all workers, and separate from the entries of the library", function()
    local g <close> = code.start { config = { store = { entries = 20, bytes = "4KiB" } } }
    local clients, seen = {}, {}
    for i = 1, 8 do
      clients[i] = g:client "2026-07-28"
      seen[i] = code.run(clients[i], "return store.incr 'n'")
    end
    assert.same({ 1, 2, 3, 4, 5, 6, 7, 8 }, seen)
    assert.equal("full", code.run(clients[1], "return select(2, store.set('big', ('x'):rep(5000)))"))
    assert.same({ "n" }, code.run(clients[2], "return store.list()"))
    code.run(clients[1], "store.delete 'n' return true")
    for _, client in ipairs(clients) do client:close() end
    assert.has_nothing_left(g)
  end)
end)
