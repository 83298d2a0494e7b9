-- Spans of the steps of a call: policies, requests, statements, programs, questions, requests to upstreams; how the
-- trace goes on; and what no span has.
local client = require "spec.helpers.client"
local cjson = require "cjson"
local collector = require "spec.helpers.collector"
local gateway = require "spec.helpers.gateway"
local postgres = require "spec.helpers.postgres"
local redis = require "spec.helpers.redis"
local stub = require "spec.helpers.stub"
local upstream = require "spec.helpers.upstream"

local REMOTE <const> = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
local SECRET <const> = "marked-secret"

local function gets(port, more)
  return ('return tool { "Gets.", input = { x = t.string }, function(args) local a, why = http.get("http://127.0.0.1:%d/a/b?key=" .. args.x, %s) '
    .. 'return a and tostring(a.status) or nil, why end }'):format(port, more or "nil")
end

local function start(c, scripts, more, allow, config)
  local all = { traces = c:config(more), scripts = { allow = allow } }
  for name, value in pairs(config or {}) do all[name] = value end
  return gateway.start { scripts = scripts, config = all, workers = 1 }
end

local function no_secret(c)
  assert.truthy(#c.bodies > 0)
  for _, body in ipairs(c.bodies) do assert.is_nil(body:find(SECRET, 1, true), "a span has a secret") end
end

describe("the span of a step", function()
  it("is there for policies around the handler", function()
    local c <close> = collector.start()
    local policy = 'return policy { order = %d, function(call, next) return next(call) end }'
    local g <close> = start(c, {
      ["tools/add.lua"] = 'return tool { "Adds.", input = { a = t.number }, function(args) return args.a + 1 end }',
      ["policy/outer.lua"] = policy:format(1), ["policy/inner.lua"] = policy:format(2),
    })
    local peer <close> = g:client "2026-07-28"
    peer:result("tools/call", { name = "add", arguments = { a = 1 } })
    local root = c:wait "tools/call add"
    local outer = c:below(root)["policy outer"]
    local inner = c:below(outer)["policy inner"]
    assert.truthy(c:below(inner).handler)
    assert.equal(1, outer.kind)
  end)

  it("is there for HTTP requests, which carry the trace to the hosts of traces.propagate alone", function()
    local c <close> = collector.start()
    local s <close> = stub.start(function(request, reply) reply:send(request.path == "/a/b" and 404 or 200, {}, "x") end)
    for _, goes_on in ipairs { true, false } do
      local g <close> = start(c, { ["tools/get.lua"] = gets(s.port) }, { propagate = goes_on and { "127.0.0.1" } or nil },
        { net = { "127.0.0.1:" .. s.port } })
      local peer <close> = g:client "2026-07-28"
      local n = #s.requests + 1
      peer:result("tools/call", { name = "get", arguments = { x = SECRET }, _meta = { traceparent = REMOTE, tracestate = "a=1" } })
      local root = c:wait("tools/call get", n)
      local span = c:below(c:below(root).handler).GET
      assert.equal(3, span.kind)
      assert.equal("GET", span.attributes["http.request.method"])
      assert.equal(("http://127.0.0.1:%d/a/b"):format(s.port), span.attributes["url.full"])
      assert.equal("127.0.0.1", span.attributes["server.address"])
      assert.equal(s.port, span.attributes["server.port"])
      assert.equal(404, span.attributes["http.response.status_code"])
      assert.equal("404", span.attributes["error.type"])
      local sent = s.requests[n].headers
      assert.equal(goes_on and ("00-0af7651916cd43dd8448eb211c80319c-%s-01"):format(span.spanId) or nil, sent.traceparent)
      assert.equal(goes_on and "a=1" or nil, sent.tracestate)
      c.spans, c.by_id = {}, {}
      c.spans[1] = goes_on and { name = "tools/call get" } or nil
    end
    no_secret(c)
  end)

  it("leaves the header traceparent of a script as it is", function()
    local c <close> = collector.start()
    local s <close> = stub.start(function(_, reply) reply:send(200, {}, "x") end)
    local g <close> = start(c, { ["tools/get.lua"] = gets(s.port, '{ headers = { Traceparent = "mine" } }') }, { propagate = { "*" } },
      { net = { "127.0.0.1:" .. s.port } })
    local peer <close> = g:client "2026-07-28"
    peer:result("tools/call", { name = "get", arguments = { x = "1" } })
    assert.equal("mine", s.requests[1].headers.traceparent)
  end)

  it("says why an HTTP request has failed", function()
    local c <close> = collector.start()
    local s <close> = stub.start(function() end)
    local g <close> = start(c, { ["tools/get.lua"] = gets(s.port, "{ timeout = 1 }") }, nil, { net = { "127.0.0.1:" .. s.port } })
    local peer <close> = g:client "2026-07-28"
    peer:result("tools/call", { name = "get", arguments = { x = "1" } })
    local span = c:below(c:below(c:wait "tools/call get").handler).GET
    assert.equal("timeout", span.attributes["error.type"])
    assert.equal(2, span.status.code)
  end)

  it("is there for SQL, without the values in it", function()
    local c <close> = collector.start()
    local g <close> = start(c, { ["tools/store.lua"] = [[return tool { "Stores.", input = { x = t.string }, function(args)
      local db = try(sqlite.open("data.db", { setup = "create table if not exists n (a, b)" }))
      try(db:exec("insert into n values (?, :two)", { args.x, 2 }))
      try(db:query("select a /* ]] .. SECRET .. [[ */ from n where a = '" .. args.x .. "' and b > 1.5e+3 -- " .. args.x))
      local _, why = db:query "select nothing"
      try(try(sqlite.open ":memory:"):query "select 1")
      return "stored"
    end }]] }, nil, { read = { "." }, write = { "." } })
    local peer <close> = g:client "2026-07-28"
    assert.equal("stored", peer:result("tools/call", { name = "store", arguments = { x = SECRET } }).content[1].text)
    local below = c:below(c:below(c:wait "tools/call store").handler)
    local insert, failed = below["INSERT data.db"], below["SELECT data.db"]
    assert.equal(3, insert.kind)
    assert.equal("sqlite", insert.attributes["db.system.name"])
    assert.equal("data.db", insert.attributes["db.namespace"])
    assert.equal("insert into n values (?, :two)", insert.attributes["db.query.text"])
    local texts = {}
    for _, span in ipairs(c:named "SELECT data.db") do texts[#texts + 1] = span.attributes["db.query.text"] end
    assert.equal("select a  from n where a = ? and b > ?  ", texts[1])
    assert.equal(2, failed.status.code)
    assert.equal(":memory:", below["SELECT :memory:"].attributes["db.namespace"])
    no_secret(c)
  end)

  it("is there for commands of Redis, without their keys and values", function()
    local c <close> = collector.start()
    local s <close> = redis.told(function(words)
      return words[1] == "GET" and "$-1\r\n" or words[1] == "SET" and "+OK\r\n" or "-ERR no " .. SECRET .. "\r\n"
    end)
    local g <close> = start(c, { ["tools/cache.lua"] = ([[return tool { "Caches.", input = { x = t.string }, function(args)
      local cache = try(redis.open { "redis://%s/0" })
      try(cache:set(args.x, args.x))
      cache:call(args.x, args.x)
      try(cache:pipeline { { "GET", args.x }, { "GET", args.x } })
      return "cached"
    end }]]):format(s.at) }, nil, { net = { s.at } })
    local peer <close> = g:client "2026-07-28"
    assert.equal("cached", peer:result("tools/call", { name = "cache", arguments = { x = SECRET } }).content[1].text)
    local below = c:below(c:below(c:wait "tools/call cache").handler)
    local set, other, both = below["SET " .. s.at], below["_other " .. s.at], below["PIPELINE " .. s.at]
    assert.equal(3, set.kind)
    assert.equal("redis", set.attributes["db.system.name"])
    assert.equal("SET", set.attributes["db.operation.name"])
    assert.equal("127.0.0.1", set.attributes["server.address"])
    assert.equal(s.port, set.attributes["server.port"])
    assert.equal("error", other.attributes["error.type"])
    assert.equal(2, both.attributes["db.operation.batch.size"])
    no_secret(c)
  end)

  postgres.it(it, pending)("is there for statements of PostgreSQL, without their values", function()
    local c <close> = collector.start()
    local s <close> = postgres.start()
    local g <close> = start(c, { ["tools/keep.lua"] = ([[return tool { "Keeps.", input = { x = t.string }, function(args)
      local db = try(postgres.open %q)
      try(db:row("select $1::text as a, $$" .. args.x .. "$$, $q$" .. args.x .. "$q$, e'\\'" .. args.x .. "', '" .. args.x .. "'", { args.x }))
      db:exec("insert into nowhere values ($1)", { args.x })
      try(db:pipeline(function(p) p:row("select $1", { args.x }) p:row("select $1", { args.x }) end))
      return "kept"
    end }]]):format(s.url) }, nil, { net = { s.at } })
    local peer <close> = g:client "2026-07-28"
    assert.equal("kept", peer:result("tools/call", { name = "keep", arguments = { x = SECRET } }).content[1].text)
    local below, place = c:below(c:below(c:wait "tools/call keep").handler), s.at .. "/postgres"
    local select, insert, both = below["SELECT " .. place], below["INSERT " .. place], below["PIPELINE " .. place]
    assert.equal("postgresql", select.attributes["db.system.name"])
    assert.equal("postgres", select.attributes["db.namespace"])
    assert.equal("select $1::text as a, ?, ?, ?, ?", select.attributes["db.query.text"])
    assert.equal(s.port, select.attributes["server.port"])
    assert.equal("42P01", insert.attributes["error.type"])
    assert.equal(2, both.attributes["db.operation.batch.size"])
    no_secret(c)
    local text = g:admin "/metrics".body
    local series = 'moonpool_db_client_duration_seconds_count{db_system_name="postgresql",database="' .. place .. '",outcome="error"} 1'
    assert.truthy(text:find(series, 1, true), text)
  end)

  it("is there for programs, without their arguments", function()
    local c <close> = collector.start()
    local g <close> = start(c, {
      ["tools/run.lua"] = 'return tool { "Runs.", input = { x = t.string }, '
        .. 'function(args) return tostring(exec({ "sh", "-c", "exit 3", args.x }).status) end }',
    }, nil, { run = { "sh" } })
    local peer <close> = g:client "2026-07-28"
    peer:result("tools/call", { name = "run", arguments = { x = SECRET } })
    local span = c:below(c:below(c:wait "tools/call run").handler)["exec sh"]
    assert.equal("sh", span.attributes["process.executable.name"])
    assert.equal(3, span.attributes["process.exit.code"])
    assert.equal("exit", span.attributes["error.type"])
    no_secret(c)
  end)

  it("is below the step that started it, in functions of parallel too", function()
    local c <close> = collector.start()
    local s <close> = stub.start(function(_, reply) reply:send(200, {}, "x") end)
    local g <close> = start(c, { ["tools/both.lua"] = ('return tool { "Gets.", function() '
      .. 'parallel { function() return http.get "http://127.0.0.1:%d/1" end, function() return http.get "http://127.0.0.1:%d/2" end } return "x" end }')
      :format(s.port, s.port) }, nil, { net = { "127.0.0.1:" .. s.port } })
    local peer <close> = g:client "2026-07-28"
    peer:result("tools/call", { name = "both" })
    local handler = c:below(c:wait "tools/call both").handler
    assert.equal(2, #c:named "GET")
    for _, span in ipairs(c:named "GET") do assert.equal(handler.spanId, span.parentSpanId) end
  end)

  it("is there for questions to the client", function()
    local c <close> = collector.start()
    local g <close> = start(c, { ["tools/ask.lua"] = [[return tool { "Asks.", function(_, call)
      local yes = call:elicit("sure", "]] .. SECRET .. [[?", { ok = t.boolean })
      return yes and "yes" or "no"
    end }]] })
    local peer <close> = g:client("2025-11-25", { capabilities = { elicitation = { form = { [" "] = 1 } } } })
    local stream = peer:open("tools/call", { name = "ask" })
    local id = stream:wait_event "elicitation/create".json.id
    peer:post { jsonrpc = "2.0", id = id, result = { action = "accept", content = { ok = true } } }
    local span = c:below(c:below(c:wait "tools/call ask").handler)["elicitation/create"]
    assert.equal(3, span.kind)
    assert.equal("elicitation/create", span.attributes["mcp.method.name"])
    no_secret(c)
  end)

  it("is there for authentication", function()
    local c <close> = collector.start()
    local g <close> = start(c, {
      ["auth/all.lua"] = 'return auth { function(request) sleep(0.01) return { id = "ann" } end }',
      ["tools/add.lua"] = 'return tool { "Adds.", input = { a = t.number }, function(args) return args.a + 1 end }',
    })
    local peer <close> = g:client "2026-07-28"
    peer.token = SECRET
    peer:result("tools/call", { name = "add", arguments = { a = 1 } })
    assert.equal(1, c:below(c:wait "tools/call add").auth.kind)
    no_secret(c)
  end)
end)

describe("the span of a request to an upstream", function()
  for _, mode in ipairs { "off", "on" } do
    for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
      it(("is there, and its context goes on to a server of %s, with call plans %s"):format(revision, mode), function()
        local c <close> = collector.start()
        local u <close> = upstream.start { revision = revision }
        local g <close> = upstream.gateway({ one = u }, { workers = 1, env = { MOONPOOL_PLANS = mode }, config = { traces = c:config { sample = 0 } } })
        local peer <close> = g:client "2026-07-28"
        for i = 1, 3 do
          peer:result("tools/call", { name = "one_echo", arguments = { text = SECRET },
            _meta = { traceparent = REMOTE, tracestate = "a=1", baggage = "b=2" } })
          local root = c:wait("tools/call one_echo", i)
          local below = c:below(root)
          local span = below["tools/call echo"] or c:below(below.handler)["tools/call echo"]
          assert.equal(3, span.kind)
          assert.equal("one", span.attributes["moonpool.upstream"])
          assert.equal(revision, span.attributes["mcp.protocol.version"])
          local entry = u:wait({ method = "tools/call" }, i)
          local expected = ("00-0af7651916cd43dd8448eb211c80319c-%s-01"):format(span.spanId)
          local meta = cjson.decode(entry.text).params._meta
          assert.equal(expected, entry.headers.traceparent)
          assert.equal(expected, meta.traceparent)
          assert.equal("a=1", meta.tracestate)
          assert.equal("a=1", entry.headers.tracestate)
          assert.equal("b=2", meta.baggage)
        end
        peer:result("tools/call", { name = "one_echo", arguments = { a = 1 }, _meta = { traceparent = REMOTE:sub(1, -2) .. "0" } })
        assert.equal(REMOTE:sub(1, -2) .. "0", u:wait({ method = "tools/call" }, 4).headers.traceparent)
        no_secret(c)
      end)
    end
  end
end)

describe("the span of a session's opening", function()
  for _, revision in ipairs { "2024-11-05", "2025-11-25" } do
    it("has the revision, the session and the time of authentication in " .. revision, function()
      local c <close> = collector.start()
      local g <close> = start(c, {
        ["auth/all.lua"] = 'return auth { function(request) sleep(0.01) return { id = "ann" } end }',
        ["tools/add.lua"] = 'return tool { "Adds.", input = { a = t.number }, function(args) return args.a + 1 end }',
      })
      local peer <close> = g:client(revision)
      peer.token = SECRET
      peer:result("tools/call", { name = "add", arguments = { a = 1 } })
      local span, called = c:wait "initialize", c:wait "tools/call add"
      assert.equal(2, span.kind)
      assert.equal(revision, span.attributes["mcp.protocol.version"])
      assert.truthy(span.attributes["mcp.session.id"]:find "^%x%x%x%x%x%x%x%x$")
      assert.equal(called.attributes["mcp.session.id"], span.attributes["mcp.session.id"])
      if revision ~= "2024-11-05" then assert.equal(1, c:below(span).auth.kind) end
      no_secret(c)
    end)
  end
end)

describe("the span of a scheduled job", function()
  local function start_job(c, body, more)
    return start(c, { ["jobs/tidy.lua"] = ('return job { "Tidies.", every = 0.1, timeout = 0.5, function(call) %s end }'):format(body) }, more)
  end

  it("has the steps of the job below it, and its id is in the lines of the log", function()
    local c <close> = collector.start()
    local g <close> = start_job(c, 'trace.span("count", function() end) log.info "tidied"')
    local span = c:wait "job tidy"
    assert.equal(1, span.kind)
    assert.equal("tidy", span.attributes["moonpool.job"])
    assert.is_nil(span.parentSpanId)
    assert.is_nil(span.status)
    assert.truthy(c:below(span).count)
    local fields = g:wait_log("tidied").fields
    assert.equal(16, #fields.call)
    assert.equal(32, #fields.trace_id)
    assert.truthy(c.by_id[fields.call] or c:wait("job tidy", 2))
  end)

  it("says that the job has failed, and not why", function()
    local c <close> = collector.start()
    local g <close> = start_job(c, 'return nil, "' .. SECRET .. '"', { sample = { ratio = 0, errors = "true" } })
    assert.equal(2, c:wait "job tidy".status.code)
    assert.truthy(g:wait_log "job failed")
    no_secret(c)
  end)

  it("says that the job has taken too long", function()
    local c <close> = collector.start()
    local _ <close> = start_job(c, "sleep(60)")
    local span = c:wait "job tidy"
    assert.equal("timeout", span.attributes["error.type"])
    assert.equal(2, span.status.code)
  end)

  it("is not there for jobs that traces.sample leaves out", function()
    local c <close> = collector.start()
    local g <close> = start_job(c, 'log.info "ran"', { sample = 0 })
    g:wait_log "ran"
    assert.equal(0, g:status().counters.traces.recorded)
    assert.equal(0, #c.spans)
  end)
end)

describe("the trace of a task", function()
  it("is one of its own, with a link to the call that started it", function()
    local c <close> = collector.start()
    local g <close> = start(c, { ["tools/slow.lua"] = 'return tool { "Works.", task = "optional", function() sleep(0.01) return "done" end }' })
    local peer <close> = g:client "2025-11-25"
    peer:result("tools/call", { name = "slow", task = { ttl = 60000 } })
    local call, task = c:wait "tools/call slow", c:wait "task"
    assert.equal(call.spanId, task.links[1].spanId)
    assert.equal(call.traceId, task.links[1].traceId)
    assert.not_equal(call.traceId, task.traceId)
    assert.equal(200, client.request(g, { method = "GET", path = "/healthz" }, { admin = true }).status)
  end)
end)
