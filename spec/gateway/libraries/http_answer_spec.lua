-- The requests that http.get and the related functions send, and their results for various answers.
local errand = require "spec.helpers.errand"
local gateway = require "spec.helpers.gateway"
local stub = require "spec.helpers.stub"
local wait = require "spec.helpers.wait"

local function gzip(text, level)
  local dir = os.tmpname()
  local file <close> = assert(io.open(dir, "wb"))
  file:write(text)
  file:flush()
  local _, out = gateway.run_program("/bin/sh", { "-c", ("gzip -n -c -%d %s"):format(level or 6, dir) })
  os.remove(dir)
  return out
end

describe("http.get", function()
  it("gives status, headers, body and JSON", function()
    local server <close> = stub.start(function(_, reply)
      reply:send(200, { { "X-Kind", "a" }, { "x-kind", "b" }, { "Set-Cookie", "a=1" }, { "Set-Cookie", "b=2" } }, '{"n":[1,2]}')
    end)
    local g <close> = errand.start { net = { server.at }, code = [[
      local res = try(http.get(args.url, { query = { q = "a b&c", page = 2, tags = { "x", "y" } }, headers = { ["X-Key"] = "k", ["x-none"] = "" } }))
      return { status = res.status, kind = res.headers["x-kind"], kinds = res:values "X-Kind", cookie = res.headers["set-cookie"],
        cookies = res:values "set-cookie", body = res.body, n = try(res:json()).n, url = res.url, nothing = #res:values "x-other" }
    ]] }
    local me = g:client "2026-07-28"
    assert.same({ status = 200, kind = "a, b", kinds = { "a", "b" }, cookie = "a=1", cookies = { "a=1", "b=2" }, body = '{"n":[1,2]}', n = { 1, 2 },
      url = server.url .. "/x?page=2&q=a%20b%26c&tags=x&tags=y", nothing = 0 }, errand.run(me, { url = server.url .. "/x#part" }))
    local asked = server.requests[1]
    assert.equal("page=2&q=a%20b%26c&tags=x&tags=y", asked.query)
    assert.equal("k", asked.headers["x-key"])
    assert.equal("", asked.headers["x-none"])
    assert.matches("^moonpool/%d", asked.headers["user-agent"])
    assert.is_nil(asked.headers.cookie)
    assert.equal("a=b&page=2", errand.run(me, { url = server.url .. "/x?a=b" }) and server.requests[2].query:match "^a=b&page=2")
    me:close()
    assert.has_nothing_left(g)
  end)

  it("returns any status, and says when the body is no JSON", function()
    local server <close> = stub.start(function(request, reply)
      if request.path == "/none" then reply:head(204):close() else reply:send(404, {}, "<html>") end
    end)
    local g <close> = errand.start { net = { server.at }, code = [[
      local res = try(http.get(args.url))
      local value, why = res:json()
      return { status = res.status, body = res.body, value = value, why = why }
    ]] }
    local me = g:client "2026-07-28"
    local got = errand.run(me, { url = server.url })
    assert.equal(404, got.status)
    assert.matches("the response is not JSON: ", got.why)
    assert.equal(204, errand.run(me, { url = server.url .. "/none" }).status)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("passes over announcements and trailers, and takes chunks in any pieces", function()
    local bytes = "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
      .. "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-a: 1\r\n\r\n5\r\nhello\r\n1;e=1\r\n!\r\n0\r\nx-late: 1\r\n\r\n"
    local server <close> = stub.start(function(_, reply)
      local list = {}
      for i = 1, #bytes do list[i] = bytes:sub(i, i) end
      reply:pieces(list)
    end)
    local g <close> = errand.start { net = { server.at }, code = [[local res = try(http.get(args.url)) return { body = res.body, headers = res.headers }]] }
    local me = g:client "2026-07-28"
    assert.same({ body = "hello!", headers = { ["transfer-encoding"] = "chunked", ["x-a"] = "1" } }, errand.run(me, { url = server.url }))
    me:close()
    assert.has_nothing_left(g)
  end)

  it("reads gzip, and no more of it than 'max' and limits.http.body allow", function()
    local small, bomb = gzip(("moon"):rep(1000)), gzip(("\0"):rep(16 << 20), 1)
    local server <close> = stub.start(function(request, reply)
      if request.path == "/odd" then return reply:send(200, { ["content-encoding"] = "rot13" }, "uryyb") end
      if request.path == "/lie" then return reply:send(200, { ["content-encoding"] = "gzip" }, "hello") end
      reply:send(200, { ["content-encoding"] = "gzip" }, request.path == "/bomb" and bomb or small)
    end)
    local g <close> = errand.start { net = { server.at }, code = [[
      local res, why = http.get(args.url, { max = args.n })
      return { body = res and res.body, why = why }
    ]], http = { body = "1MiB" } }
    local me = g:client "2026-07-28"
    assert.equal(("moon"):rep(1000), errand.run(me, { url = server.url }).body)
    assert.equal("gzip, deflate", server.requests[1].headers["accept-encoding"])
    assert.matches("^GET http://[%d.:]+/: the answer's body is larger than 100 bytes", errand.run(me, { url = server.url, n = 100 }).why)
    local rss = g:rss()
    for _ = 1, 3 do assert.matches("the answer's body is larger than 1048576 bytes", errand.run(me, { url = server.url .. "/bomb" }).why) end
    assert.is_true(g:rss() - rss < 16 << 20)
    assert.matches("invalid HTTP response", errand.run(me, { url = server.url .. "/odd" }).why)
    assert.matches("invalid HTTP response", errand.run(me, { url = server.url .. "/lie" }).why)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("holds no more than a worker may of bodies that scripts have not read yet", function()
    local server <close> = stub.start(function(_, reply) reply:send(200, {}, ("x"):rep(200000)) end)
    local g <close> = errand.start { net = { server.at }, constants = { http_held = 65536 }, code = [[return http.get(args.url)]] }
    local me = g:client "2026-07-28"
    assert.matches("the responses in flight are larger than", (errand.run(me, { url = server.url })))
    me:close()
    assert.has_nothing_left(g)
  end)

  it("says clearly how it failed, without the query", function()
    local server <close> = stub.start(function(request, reply)
      if request.path == "/half" then
        reply:head(200, { ["content-length"] = 10 }):raw "12345":later(5, function() reply:close() end)
      elseif request.path == "/nothing" then
        reply:close()
      elseif request.path == "/rubbish" then
        reply:raw "SSH-2.0-OpenSSH\r\n":later(5, function() reply:close() end)
      elseif request.path == "/long" then
        reply:raw("HTTP/1.1 200 OK\r\n" .. ("x-a: " .. ("y"):rep(1000) .. "\r\n"):rep(100) .. "\r\n")
      end
    end)
    local dead = stub.start(function() end)
    local closed = dead.at
    dead:__close()
    local g <close> = errand.start { net = { server.at, closed }, code = [[local res, why = http.get(args.url) return { why = why,
      got = res and res.status }]] }
    local me = g:client "2026-07-28"
    for path, what in pairs {
      ["/half?key=secret"] = "/half: the connection closed before the response was complete",
      ["/nothing"] = "/nothing: the server closed the connection without a response",
      ["/rubbish"] = "/rubbish: the server sent an invalid HTTP response",
      ["/long"] = "/long: the answer's headers are larger than 64 KiB",
    } do
      assert.equal("GET " .. server.url .. what, errand.run(me, { url = server.url .. path }).why)
    end
    assert.equal("GET http://" .. closed .. "/: connection refused (nothing listens at this port)", errand.run(me, { url = "http://" .. closed }).why)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("uses connections again, and closes them when they are idle", function()
    local server <close> = stub.start(function(_, reply) reply:json { ok = true } end)
    local g <close> = errand.start { net = { server.at }, constants = { http_idle_ms = 300 }, code = [[
      for _ = 1, 20 do try(http.get(args.url)) end
      return "done" ]] }
    local me = g:client "2026-07-28"
    assert.equal("done", (errand.run(me, { url = server.url })))
    assert.equal("done", (errand.run(me, { url = server.url })))
    assert.equal(40, #server.requests)
    assert.equal(1, server.accepted)
    wait.for_fact("the connection to be given up", 20, function() return server:open() == 0 end)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("waits beside 199 others, on no more connections than a host may have", function()
    local server <close> = stub.start(function(_, reply) reply:later(20, function() reply:json { ok = true } end) end)
    local g <close> = errand.start { net = { server.at }, constants = { http_per_host = 16 }, code = [[return try(http.get(args.url,
      { query = { n = args.n } })).status]] }
    local me = g:client "2026-07-28"
    local streams = {}
    for i = 1, 200 do streams[i] = errand.begin(me, { url = server.url, n = i }) end
    for _, stream in ipairs(streams) do
      assert.equal("200", stream:answer(10).result.content[1].text)
      stream:close()
    end
    assert.equal(200, #server.requests)
    assert.is_true(server.accepted <= 32, server.accepted .. " connections")
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is refused over the limit of a worker", function()
    local server <close> = stub.start(function(request, reply)
      if request.path == "/go" then reply:json {} end
    end)
    local g <close> = errand.start { net = { server.at }, constants = { http_requests = 2 }, code = [[return http.get(args.url)]] }
    local me = g:client "2026-07-28"
    local first, second = errand.begin(me, { url = server.url }), errand.begin(me, { url = server.url })
    server:wait_request(2)
    assert.matches("too many outgoing requests in flight %(the limit is 2", (errand.run(me, { url = server.url .. "/go" })))
    assert.equal(1, g:status().counters.refused.http)
    first:close()
    second:close()
    g:wait_status(function(status) return status.gauges.http_requests == 0 end)
    assert.is_falsy(select(2, errand.run(me, { url = server.url .. "/go" })))
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a request with a body", function()
  it("is sent as it is, or as JSON, with no header that the script did not set", function()
    local server <close> = stub.start(function(_, reply) reply:json { ok = true } end)
    local g <close> = errand.start { net = { server.at }, code = [[
      try(http.post(args.url, { json = { a = { 1, 2 }, none = json.empty_array } }))
      try(http.put(args.url, { body = "x\0y", headers = { ["Content-Type"] = "text/plain" } }))
      try(http.patch(args.url, { body = ("z"):rep(300000) }))
      try(http.delete(args.url))
      try(http.post(args.url))
      local head = try(http.head(args.url))
      local options = try(http.request { method = "OPTIONS", url = args.url })
      return { head = head.status, length = head.headers["content-length"], body = head.body, options = options.status }
    ]] }
    local me = g:client "2026-07-28"
    assert.same({ head = 200, length = "11", body = "", options = 200 }, errand.run(me, { url = server.url }))
    local said = {}
    for i, request in ipairs(server.requests) do
      said[i] = ("%s %s %s"):format(request.method, request.headers["content-type"], request.headers["content-length"])
    end
    assert.same({ "POST application/json 21", "PUT text/plain 3", "PATCH nil 300000", "DELETE nil nil", "POST nil 0", "HEAD nil nil", "OPTIONS nil nil" }, said)
    assert.equal("x\0y", server.requests[2].body)
    for _, request in ipairs(server.requests) do assert.is_nil(request.headers.expect) end
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a mistake in the arguments of http", function()
  it("is an error that names the correct form", function()
    local server <close> = stub.start(function(_, reply) reply:json {} end)
    local g <close> = errand.start { net = { server.at }, scripts = {
      ["tools/wrong.lua"] = [[return tool { "Is wrong.", input = { n = t.integer }, function(args)
        local wrong = {
          function() http.get() end, function() http.get("http://x/", { timeot = 1 }) end, function() http.get("http://x/", { timeout = 0 }) end,
          function() http.post("http://x/", { body = "x", json = {} }) end, function() http.get("http://x/", { headers = { Host = "y" } }) end,
          function() http.get("http://x/", { query = { a = print } }) end, function() http.request { method = "get x", url = "http://x/" } end,
          function() http.get("http://x/", { max = 1e12 }) end, function() http.request "http://x/" end, function() http.get("http://x/", { idle = 1 }) end,
        }
        local ok, why = pcall(wrong[args.n])
        return tostring(why)
      end }]],
    } }
    local me = g:client "2026-07-28"
    for n, what in ipairs {
      "http needs a URL, got a nil", "http has no option 'timeot'", "'timeout' must be above 0", "a request has a 'body' or 'json', not both",
      "the header 'host' is set by moonpool", "query field 'a' must be a string, a number or a boolean, got a function",
        "'method' must be a word such as GET",
      "'max' must be 1 to limits.http.body", "http.request needs a table", "http has no option 'idle'",
    } do
      local text = me:result("tools/call", { name = "wrong", arguments = { n = n } }).content[1].text
      assert.truthy(text:find(what, 1, true), text)
      assert.matches("^scripts/tools/wrong.lua:%d+: ", text)
    end
    assert.same({}, server.requests)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("and what arguments make wrong is a failure: line breaks in headers and URLs, credentials, other schemes (B-117)", function()
    local server <close> = stub.start(function(_, reply) reply:json {} end)
    local g <close> = errand.start { net = { server.at, "*:*" }, scripts = {
      ["tools/wrong.lua"] = [[return tool { "Is wrong.", input = { url = t.string, name = t.string { default = "x-a" },
        value = t.string { default = "" } }, function(args)
        local res, why = http.get(args.url, { headers = { [args.name] = args.value } })
        return { why = why }
      end }]],
    } }
    local me = g:client "2026-07-28"
    for _, row in ipairs {
      { { url = server.url, value = "a\r\nx-evil: 1" }, "the header 'x-a' contains a line break" }, { { url = server.url, value = "a\0" },
        "the header 'x-a' contains" },
      { { url = server.url, name = "x: y\r\nz" }, "a header's name" }, { { url = server.url .. "/\r\nx-evil: 1" }, "spaces or control characters" },
      { { url = server.url .. "/a b" }, "spaces or control characters" }, { { url = server.url .. "/\0" }, "spaces or control characters" },
      { { url = "file:///etc/passwd" }, "must be http or https" }, { { url = "gopher://127.0.0.1/" }, "must be http or https" }, { { url = "x" }, "not a URL" },
      { { url = "http://user:pw@" .. server.at }, "the URL contains credentials" }, { { url = "http://" .. server.at .. "@evil.test/" }, "credentials" },
      { { url = "" }, "not a URL" }, { { url = "/relative" }, "not a URL" }, { { url = "http://a.test:0/" }, "" }, { { url = "http://a.test:99999/" }, "" },
      { { url = "http://a.test../" }, "no valid host" }, { { url = "http://a..test/" }, "no valid host" }, { { url = "http://.a.test/" }, "no valid host" },
    } do
      local result = me:result("tools/call", { name = "wrong", arguments = row[1] })
      assert.truthy(result.structuredContent.why:find(row[2], 1, true), row[1].url .. ": " .. tostring(result.structuredContent.why))
    end
    assert.same({}, server.requests)
    me:close()
    assert.has_nothing_left(g)
  end)
end)
