-- Outgoing requests that take too long, and requests whose call is cancelled: each is closed within the turn, and no
-- other task waits for it.
local errand = require "spec.helpers.errand"
local stub = require "spec.helpers.stub"
local wait = require "spec.helpers.wait"

local code = [[local res, why = http.get(args.url, { timeout = (args.n or 60000) / 1000 }) return { status = res and res.status, why = why }]]

-- Answers by path: never, only a head, a body that arrives slowly.
local function answer(request, reply)
  if request.path == "/head" then
    reply:raw "HTTP/1.1 200 OK\r\nx-a: 1\r\n"
  elseif request.path == "/body" then
    reply:head(200, { ["content-length"] = 1000 }):raw "some"
  elseif request.path == "/drip" then
    reply:head(200, { ["transfer-encoding"] = "chunked" })
    local function drip()
      reply:chunk("x"):later(10, drip)
    end
    drip()
  end
end

local paths = { "/never", "/head", "/body", "/drip" }

describe("an answer that takes too long", function()
  it("is given up in time, wherever it hangs", function()
    local server <close> = stub.start(answer)
    local g <close> = errand.start { net = { server.at }, code = code }
    local me = g:client "2026-07-28"
    for i, path in ipairs(paths) do
      local took, got = wait.timed(errand.run, me, { url = server.url .. path, n = 500 })
      assert.equal("GET " .. server.url .. path .. ": no answer within 0.5 s", got.why)
      assert.is_true(took >= wait.least(0.5) and took < 10, path .. " took " .. took)
      wait.for_fact("the connection to be closed", 10, function() return server.left == i end)
    end
    me:close()
    assert.has_nothing_left(g)
  end)

  it("has limits.http.time when the script says nothing", function()
    local server <close> = stub.start(answer)
    local g <close> = errand.start { net = { server.at }, code = "return http.get(args.url)", http = { time = "100ms" } }
    local me = g:client "2026-07-28"
    assert.matches("no answer within 0.1 s", (errand.run(me, { url = server.url })))
    me:close()
    assert.has_nothing_left(g)
  end)

  it("has one time for all its redirects", function()
    local server <close> = stub.start(function(_, reply) reply:later(60, function() reply:send(302, { location = "/next" }) end) end)
    local g <close> = errand.start { net = { server.at }, code = code }
    local me = g:client "2026-07-28"
    assert.matches("no answer within 0.15 s", errand.run(me, { url = server.url, n = 150 }).why)
    assert.is_true(#server.requests <= 5, "most of ten redirects were not followed any more")
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a request whose call is cancelled", function()
  for _, path in ipairs(paths) do
    it("is aborted with the call, at " .. path, function()
      local server <close> = stub.start(answer)
      local g <close> = errand.start { net = { server.at }, code = code }
      local me = g:client "2026-07-28"
      local streams = {}
      for i = 1, 10 do streams[i] = errand.begin(me, { url = server.url .. path }) end
      server:wait_request(10)
      assert.equal(10, g:status().gauges.http_requests)
      for i, stream in ipairs(streams) do
        if i % 2 == 0 then stream:reset() else stream:close() end
      end
      wait.for_fact("the connections to be closed", 10, function() return server.left == 10 end)
      -- the gauge changes only after the connection is closed
      g:wait_status(function(status) return status.gauges.http_requests == 0 end)
      me:close()
      assert.has_nothing_left(g)
    end)
  end

  it("by its client of an older revision too, and by its own deadline", function()
    local server <close> = stub.start(answer)
    local g <close> = errand.start { net = { server.at }, scripts = {
      ["tools/run.lua"] = [[return tool { "R", timeout = 1, input = { url = t.string }, function(args)
        local gate <close> = closing(function() log.info "closed" end)
        return (try(http.get(args.url)).status)
      end }]],
    } }
    local me = g:client "2025-11-25"
    local stream = errand.begin(me, { url = server.url })
    server:wait_request(1)
    g:wait_log "closed"
    wait.for_fact("the connection to be closed", 10, function() return server.left == 1 end)
    stream:close()
    me:delete()
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is not waited for while its name is looked up, nor is a timeout", function()
    local g <close> = errand.start { net = { "slow.test:*", "127.0.0.1:1" }, code = code, hosts = "slow.test=!4" }
    local me = g:client "2026-07-28"
    -- Each request has ended while its name look-up, which takes 4 s, still runs; on a busy machine 50 ms may be over
    -- before that has begun.
    assert.matches("no answer within", errand.run(me, { url = "http://slow.test/", n = 500 }).why)
    assert.equal(1, g:status().gauges.lookups)
    local stream = errand.begin(me, { url = "http://slow.test/" })
    g:wait_status(function(status) return status.gauges.http_requests == 1 end)
    stream:close()
    g:wait_status(function(status) return status.gauges.http_requests == 0 end)
    errand.run(me, { url = "http://127.0.0.1:1/" })
    assert.is_true(g:status().gauges.lookups > 0)
    me:close()
    assert.has_nothing_left(g) -- getaddrinfo of the cancelled request holds a descriptor until it ends
  end)

  it("leaves its look-up behind, of which there are so many and no more", function()
    local g <close> = errand.start { net = { "*.slow.test:*", "127.0.0.1:1" }, code = code, workers = 2, constants = { http_lookups = 3 },
      hosts = "a.slow.test=!8;b.slow.test=!8;c.slow.test=!8;d.slow.test=!8" }
    local me = g:client "2026-07-28"
    for n, name in ipairs { "a", "b", "c" } do
      assert.matches("no answer within", errand.run(me, { url = "http://" .. name .. ".slow.test/", n = 500 }).why)
      g:wait_status(function(status) return status.gauges.lookups == n end)
    end
    assert.matches("too many name lookups in flight", errand.run(me, { url = "http://d.slow.test/", n = 100 }).why)
    assert.is_nil((errand.run(me, { url = "http://127.0.0.1:1/" }).why or ""):match "lookups")
    assert.equal(1, g:status().counters.refused.lookups)
    g:wait_status(function(status) return status.gauges.lookups == 0 end, 20)
    assert.matches("no answer within", errand.run(me, { url = "http://d.slow.test/", n = 100 }).why)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("at the end of the gateway ends with it", function()
    local server <close> = stub.start(answer)
    local g <close> = errand.start { net = { server.at }, code = code, workers = 2 }
    local me = g:client "2026-07-28"
    for _, path in ipairs(paths) do errand.begin(me, { url = server.url .. path }) end
    server:wait_request(4)
    g:signal "sigterm"
    g:wait_log "draining"
    g:signal "sigterm"
    assert.equal(0, (g:wait_exit(5)))
    me:close()
  end)
end)

describe("a host name that does not resolve", function()
  it("is told as such", function()
    local g <close> = errand.start { net = { "*.test:*" }, code = code, hosts = "none.test=!0" }
    local me = g:client "2026-07-28"
    assert.equal("GET http://none.test/: host not found (DNS)", errand.run(me, { url = "http://none.test/?q=1" }).why)
    me:close()
    assert.has_nothing_left(g)
  end)
end)
