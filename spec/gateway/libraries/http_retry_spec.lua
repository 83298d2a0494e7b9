-- Repeated requests: `retry` of http, and requests that libcurl itself would send twice.
local granted = require "spec.helpers.granted"
local stub = require "spec.helpers.stub"
local wait = require "spec.helpers.wait"

local code = [[
  local options = args.text and json.decode(args.text) or {}
  local method, path = args.path:match "^(%u+) (.*)$"
  local began = time.monotonic()
  options.method, options.url = method, BASE .. path
  local res, why = http.request(options)
  return { status = res and res.status, body = res and res.body, why = why, seconds = time.monotonic() - began }]]

local function with(answer, check, constants)
  local server <close> = stub.start(answer)
  local g <close> = granted.start {
    scripts = { ["tools/run.lua"] = ("local BASE = %q\n"):format(server.url) .. granted.tool(code) }, allow = { net = { server.at } }, constants = constants,
  }
  local me = g:client "2026-07-28"
  check(function(line, options) return granted.run(me, { path = line, text = options }) end, server, g, me)
  me:close()
  assert.has_nothing_left(g)
end

-- Answers request number i with `list[i]`, and further requests with the last one.
local function in_turn(list)
  local n = 0
  return function(_, reply)
    n = math.min(n + 1, #list)
    local what = list[n]
    if what == "close" then return reply:close() end
    reply:send(what[1], what[2], what[3] or "")
  end
end

local at_once = { http_idle_ms = 5 }

describe("retry of http", function()
  it("repeats idempotent requests until an answer arrives", function()
    for _, method in ipairs { "GET", "PUT", "DELETE", "OPTIONS" } do
      with(in_turn { { 503 }, "close", { 200, nil, "there" } }, function(run, server)
        local got = run(method .. " /", '{"retry":3}')
        assert.equal(200, got.status)
        assert.equal(3, #server.requests)
        assert.is_true(got.seconds >= wait.least(0.1))
      end, at_once)
    end
  end)

  it("does not without the option, and as often as it says", function()
    with(in_turn { { 503 } }, function(run, server)
      assert.equal(503, run("GET /").status)
      assert.equal(1, #server.requests)
      assert.equal(503, run("GET /", '{"retry":2}').status)
      assert.equal(4, #server.requests)
    end, at_once)
  end)

  it("does not repeat a request after any other status", function()
    for _, status in ipairs { 200, 400, 404, 500 } do
      with(in_turn { { status } }, function(run, server)
        assert.equal(status, run("GET /", '{"retry":3}').status)
        assert.equal(1, #server.requests)
      end, at_once)
    end
  end)

  it("sends a POST again only with an Idempotency-Key, or with the option for it", function()
    for options, count in pairs {
      ['{"retry":2,"body":"x"}'] = 1, ['{"retry":2,"body":"x","headers":{"Idempotency-Key":"k"}}'] = 3, ['{"retry":2,"body":"x","retry_unsafe":true}'] = 3,
    } do
      for _, answer in ipairs { { 503 }, "close" } do
        with(in_turn { answer }, function(run, server)
          run("POST /", options)
          assert.equal(count, #server.requests, options)
        end, at_once)
      end
    end
  end)

  it("sends any request again that no server has seen", function()
    local server = stub.start(in_turn { { 200 } })
    local at, url = server.at, server.url
    server:__close()
    local g <close> = granted.start { scripts = { ["tools/run.lua"] = ("local BASE = %q\n"):format(url) .. granted.tool(code) }, allow = { net = { at } } }
    local me = g:client "2026-07-28"
    local got = granted.run(me, { path = "POST /", text = '{"retry":1,"body":"x"}' })
    assert.matches("connection refused", got.why)
    assert.is_true(got.seconds >= wait.least(0.1), "it has waited once")
    me:close()
  end)

  it("waits as long as Retry-After says, if the timeout allows it", function()
    with(in_turn { { 429, { ["retry-after"] = "1" } }, { 200 } }, function(run, server)
      local got = run("GET /", '{"retry":1}')
      assert.equal(200, got.status)
      assert.is_true(got.seconds >= wait.least(1))
      assert.equal(2, #server.requests)
    end, at_once)
    with(in_turn { { 429, { ["retry-after"] = "3600" } }, { 200 } }, function(run, server)
      assert.equal(429, run("GET /", '{"retry":5,"timeout":5}').status)
      assert.equal(1, #server.requests)
    end, at_once)
    with(in_turn { { 503, { ["retry-after"] = os.date("!%a, %d %b %Y %H:%M:%S GMT", os.time() - 5) } }, { 200 } }, function(run)
      assert.equal(200, run("GET /", '{"retry":1}').status)
    end, at_once)
  end)

  it("names the mistake in its options", function()
    with(in_turn { { 200 } }, function(run)
      for _, options in ipairs { '{"retry":11}', '{"retry":-1}', '{"retry":1.5}' } do
        assert.matches("internal error", (run("GET /", options)))
      end
    end)
  end)
end)

-- The first answer leaves the connection open; it is closed when the second request has been read.
local function closing_kept()
  local seen = {}
  return function(request, reply)
    seen[request.connection] = (seen[request.connection] or 0) + 1
    if seen[request.connection] == 2 then return reply:close() end
    reply:send(200, nil, "one")
  end
end

local kept = { http_idle_ms = 500 }

describe("a kept connection that closes without an answer", function()
  it("makes a POST fail, which is not sent twice", function()
    with(closing_kept(), function(run, server)
      assert.equal(200, run("POST /", '{"body":"x"}').status)
      local got = run("POST /", '{"body":"x"}')
      assert.equal(1, server.requests[2].connection, "the connection was kept")
      assert.matches("the server closed a kept connection without a response", got.why)
      assert.equal(2, #server.requests)
      assert.equal(200, run("PATCH /", '{"body":"x"}').status)
    end, kept)
  end)

  it("does not hurt a GET, nor a POST that may be sent twice", function()
    for line, options in pairs { ["GET /"] = "{}", ["POST /"] = '{"body":"x","headers":{"idempotency-key":"1"}}' } do
      with(closing_kept(), function(run, server)
        assert.equal(200, run(line, options).status)
        assert.equal(200, run(line, options).status)
        assert.equal(3, #server.requests)
      end, kept)
    end
  end)
end)
