-- Redirects are followed hop by hop, each within the grants (B-115), and take no credentials to another origin (B-116).
local errand = require "spec.helpers.errand"
local stub = require "spec.helpers.stub"

local code = [[
  local res, why = http.request { method = args.url:match "^(%u+) " or "GET", url = args.url:gsub("^%u+ ", ""), body = args.url:find "^P" and "b" or nil,
    follow = args.n == nil, headers = { authorization = "Bearer s", ["x-key"] = "k", accept = "text/plain", cookie = "c=1" } }
  return { status = res and res.status, url = res and res.url, location = res and res.headers.location, why = why }
]]

describe("a redirect", function()
  local server, other, outside, answers

  before_each(function()
    answers = {}
    server = stub.start(function(request, reply)
      local told = answers[request.path]
      if not told then return reply:json { ok = true } end
      reply:send(told[1], { location = told[2] }, "moved")
    end)
    other = stub.start(function(_, reply) reply:json { ok = true } end)
    outside = stub.start(function(_, reply) reply:json { secret = true } end)
  end)

  after_each(function()
    server:__close()
    other:__close()
    outside:__close()
  end)

  local function start(constants) return errand.start { net = { server.at, other.at }, code = code, constants = constants } end

  it("within an origin takes everything along", function()
    answers["/a"], answers["/d/e"] = { 302, "/d/e?x=1" }, { 307, "../f g" }
    local g <close> = start { http_idle_ms = 200 }
    local me = g:client "2026-07-28"
    assert.same({ status = 200, url = server.url .. "/f%20g" }, errand.run(me, { url = server.url .. "/a" }))
    for _, request in ipairs(server.requests) do
      assert.equal("Bearer s", request.headers.authorization)
      assert.equal("c=1", request.headers.cookie)
    end
    assert.equal("x=1", server.requests[2].query)
    assert.equal(1, server.accepted)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("to another granted origin sends neither credentials nor the script's own headers", function()
    answers["/a"] = { 308, other.url .. "/b" }
    local g <close> = start()
    local me = g:client "2026-07-28"
    assert.same({ status = 200, url = other.url .. "/b" }, errand.run(me, { url = "POST " .. server.url .. "/a" }))
    local got = other.requests[1]
    assert.equal("POST", got.method)
    assert.equal("b", got.body)
    assert.equal("text/plain", got.headers.accept)
    for _, name in ipairs { "authorization", "cookie", "x-key" } do assert.is_nil(got.headers[name], name) end
    me:close()
    assert.has_nothing_left(g)
  end)

  it("by 303, and by 301 and 302 of a POST, becomes a GET", function()
    local g <close> = start()
    local me = g:client "2026-07-28"
    for _, row in ipairs { { "POST", 303, "GET" }, { "POST", 301, "GET" }, { "POST", 302, "GET" }, { "PUT", 302, "PUT" }, { "PUT", 303, "GET" },
      { "PATCH", 307, "PATCH" }, { "HEAD", 303, "HEAD" } } do
      answers["/a"] = { row[2], "/b" }
      assert.equal(200, errand.run(me, { url = row[1] .. " " .. server.url .. "/a" }).status)
      local last = server.requests[#server.requests]
      assert.equal(row[3], last.method)
      assert.equal(row[3]:find "^P" and "b" or "", last.body)
    end
    me:close()
    assert.has_nothing_left(g)
  end)

  it("to where no grant leads is refused, and says which is missing", function()
    local g <close> = start()
    local me = g:client "2026-07-28"
    for _, to in ipairs {
      outside.url, "//" .. outside.at .. "/", outside.url:gsub("127.0.0.1", "2130706433"), outside.url:gsub("127.0.0.1", "0x7f.1"),
        outside.url:gsub("127.0.0.1", "[::ffff:127.0.0.1]"),
      outside.url:gsub("127.0.0.1", "localhost"), "http://169.254.169.254/latest/meta-data/", "http://100.64.0.1/", "http://[::1]:" .. outside.port .. "/",
    } do
      answers["/a"] = { 302, to }
      local got = errand.run(me, { url = server.url .. "/a" })
      assert.is_nil(got.status, to)
      assert.matches("no grant allows it", got.why)
      assert.matches("net", got.why)
    end
    assert.same({}, outside.requests)
    g:wait_log("http refused", { file = "tools/run.lua", why = "no grant" })
    me:close()
    assert.has_nothing_left(g)
  end)

  it("to a URL that is not http or https, or has credentials, is refused", function()
    local g <close> = start()
    local me = g:client "2026-07-28"
    for to, what in pairs { ["file:///etc/passwd"] = "must be http or https", ["gopher://" .. outside.at] = "must be http or https",
      ["http://u:p@" .. other.at] = "credentials", ["http://"] = "not a URL" } do
      answers["/a"] = { 302, to }
      local got = errand.run(me, { url = server.url .. "/a" })
      assert.truthy(got.why:find("the redirect cannot be followed: ", 1, true), got.why)
      assert.truthy(got.why:find(what, 1, true), got.why)
    end
    assert.same({}, other.requests)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is followed five times, and not at all when the script wants its answer", function()
    answers["/a"], answers["/b"] = { 302, "/b" }, { 302, "/a" }
    local g <close> = start()
    local me = g:client "2026-07-28"
    assert.equal("GET " .. server.url .. "/a: more than 5 redirects", errand.run(me, { url = server.url .. "/a" }).why)
    assert.equal(6, #server.requests)
    assert.same({ status = 302, url = server.url .. "/a", location = "/b" }, errand.run(me, { url = server.url .. "/a", n = 0 }))
    me:close()
    assert.has_nothing_left(g)
  end)
end)
