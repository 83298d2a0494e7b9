-- The thread that sends spans: a collector that is down, slow, busy or wrong, a full queue, the end of the gateway.
-- Calls never wait for any of it.
local cjson = require "cjson"
local collector = require "spec.helpers.collector"
local free_port = require "spec.helpers.free_port"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local scripts = {
  ["tools/add.lua"] = 'return tool { "Adds.", input = { a = t.number, b = t.number }, function(args) return args.a + args.b end }',
}

local function start(c, more, config, constants)
  local all = { traces = c:config(more), limits = { drain = "5s" } }
  for name, value in pairs(config or {}) do all[name] = value end
  return gateway.start { scripts = scripts, config = all, workers = 2, constants = constants }
end

local function call(g, times)
  local peer <close> = g:client "2026-07-28"
  for i = 1, times or 1 do
    assert.equal(tostring(i + 1), peer:result("tools/call", { name = "add", arguments = { a = i, b = 1 } }).content[1].text)
  end
end

local function counts(g) return g:status().counters.spans end

describe("the exporter", function()
  it("sends spans of many calls together, and each once", function()
    local c <close> = collector.start()
    local g <close> = start(c, nil, nil, { trace_interval_ms = 200 })
    call(g, 300)
    c:wait("tools/call add", 300)
    assert.equal(300, #c:named "handler")
    assert.truthy(#c.requests < 100, #c.requests .. " requests")
    g:wait_status(function(status) return status.counters.spans.sent == 600 and status.gauges.spans_queued == 0 end)
  end)

  it("compresses bodies", function()
    local c <close> = collector.start()
    local g <close> = start(c, nil, nil, { trace_interval_ms = 200 })
    call(g, 300)
    c:wait("tools/call add", 300)
    local plain, sent = 0, 0
    for _, request in ipairs(c.requests) do
      assert.equal("gzip", request.headers["content-encoding"])
      plain, sent = plain + #request.body, sent + request.sent_bytes
    end
    assert.truthy(sent < plain / 5, sent .. " of " .. plain .. " bytes")
    local bytes = g:status().counters.span_bytes
    assert.same({ plain = plain, sent = sent }, bytes)
  end)

  it("waits for a collector that answers late, within its queue, and then sends the rest", function()
    local c <close> = collector.start()
    local held
    c.answer = function(request, reply)
      held, c.answer = { request, reply }, nil
    end
    local g <close> = start(c, nil, nil, { trace_timeout_ms = 3600000, trace_queue = 40 })
    call(g)
    wait.for_fact("a request that is not answered", 20, function() return held end)
    call(g, 100)                               -- no call waits for the collector
    local status = g:wait_status(function(status) return status.counters.spans.dropped > 0 end)
    assert.truthy(status.gauges.spans_queued <= 40)
    assert.equal(1, #c.requests)
    held[2]:json {}
    g:wait_status(function(one) return one.gauges.spans_queued == 0 and one.counters.spans.sent + one.counters.spans.dropped == 202 end)
    call(g)
    local last = g:wait_status(function(one) return one.gauges.spans_queued == 0 and one.counters.spans.sent + one.counters.spans.dropped == 204 end)
    assert.equal(0, last.counters.spans.failed)
    assert.equal(0, last.counters.span_retries)
    c:wait "tools/call add"
  end)

  it("sends the headers of traces.headers, and shows their values nowhere", function()
    local c <close> = collector.start()
    local g <close> = start(c, { headers = { authorization = "Bearer marked-secret", ["x-scope-orgid"] = "one" } })
    call(g)
    c:wait "tools/call add"
    assert.equal("Bearer marked-secret", c.requests[1].headers.authorization)
    assert.equal("one", c.requests[1].headers["x-scope-orgid"])
    assert.is_nil(g:log():find("marked-secret", 1, true))
    assert.is_nil(g:admin "/metrics".body:find("marked-secret", 1, true))
    assert.is_nil(c.requests[1].body:find("marked-secret", 1, true))
  end)

  it("sends a batch again after Retry-After, and nothing before", function()
    local c <close> = collector.start()
    c.answer = function(_, reply)
      reply:send(429, { ["retry-after"] = "1" }, "")
      c.answer = nil
    end
    local g <close> = start(c)
    call(g)
    c:wait "tools/call add"
    assert.equal(2, #c.requests)
    assert.equal(c.requests[1].body, c.requests[2].body)
    assert.equal(0, counts(g).failed)
    g:wait_status(function(status) return status.counters.span_retries == 1 and status.counters.spans.sent == 2 end)
    assert.equal("the collector answered with status 429", g:wait_log("traces not sent").fields.why)
  end)

  for _, status in ipairs { 502, 503, 504 } do
    it("sends a batch again after status " .. status, function()
      local c <close> = collector.start()
      c.answer = function(_, reply)
        c.answer = nil
        reply:send(status, {}, "")
      end
      local g <close> = start(c)
      call(g)
      c:wait "tools/call add"
    end)
  end

  it("drops a batch that is refused, and logs it once", function()
    local c <close> = collector.start()
    c.answer = function(_, reply) reply:send(400, {}, "no") end
    local g <close> = start(c)
    call(g)
    g:wait_status(function(status) return status.counters.spans.failed == 2 end)
    call(g)
    g:wait_status(function(status) return status.counters.spans.failed == 4 end)
    assert.equal("the collector answered with status 400", g:wait_log("traces refused").fields.why)
    local lines = 0
    for _, line in ipairs(g:log_lines()) do lines = lines + (line.event:find "^traces" and 1 or 0) end
    assert.equal(1, lines)
    c.answer = nil
    call(g)
    c:wait "tools/call add"
  end)

  it("counts the spans that the collector has rejected", function()
    local c <close> = collector.start()
    c.answer = function(_, reply) reply:json { partialSuccess = { rejectedSpans = "1", errorMessage = "no" } } end
    local g <close> = start(c)
    call(g)
    g:wait_status(function(status) return status.counters.spans.failed == 1 and status.counters.spans.sent == 1 end)
  end)

  it("sends again to a collector that was down", function()
    local port = free_port()
    local g <close> = start({ config = function(_, more)
      more.otlp = "http://127.0.0.1:" .. port
      return more
    end }, {})
    call(g)
    g:wait_log "traces not sent"
    local c <close> = collector.start(port)
    c:wait "tools/call add"
  end)

  it("sends again what a collector does not answer in time, and drops what does not fit the queue", function()
    local c <close> = collector.start()
    local held = {}
    c.answer = function(_, reply) held[#held + 1] = reply end
    c.may_repeat = true                        -- a slow spec may answer a request that the gateway has given up
    local g <close> = start(c, nil, nil, { trace_timeout_ms = 200, trace_queue = 20 })
    call(g)
    wait.for_fact("a request that hangs", 20, function() return #held > 0 end)
    call(g, 50)
    local status = g:wait_status(function(status) return status.counters.spans.dropped > 0 end)
    assert.truthy(status.gauges.spans_queued <= 20)
    wait.for_fact("a second attempt", 20, function() return #held > 1 end)
    c.answer = nil
    c:wait("tools/call add", 2)
    g:wait_status(function(one) return one.gauges.spans_queued == 0 and one.counters.spans.sent + one.counters.spans.dropped == 102 end)
  end)
end)

describe("the end of a gateway", function()
  it("sends what waits", function()
    local c <close> = collector.start()
    local g <close> = start(c, nil, nil, { trace_interval_ms = 3600000 })
    call(g, 700)
    wait.for_fact("a full batch", 20, function() return #c.spans >= 512 end)
    g:stop()
    assert.equal(700, #c:named "tools/call add")
    assert.equal(700, #c:named "handler")
  end)

  it("does not wait long for a collector that hangs, and counts what is lost", function()
    local c <close> = collector.start()
    c.answer = function() end
    local g <close> = start(c, nil, { limits = { drain = "1s" } }, { trace_interval_ms = 3600000 })
    call(g, 5)
    g:stop()
    assert.equal("10", g:wait_log("traces lost").fields.spans)
  end)

  it("does not wait for a collector that is down longer than for limits.drain", function()
    local nothing = { config = function() return { otlp = "http://127.0.0.1:" .. free_port() } end }
    local g <close> = start(nothing, {}, { limits = { drain = "500ms" } }, { trace_interval_ms = 3600000 })
    call(g)
    g:stop()
    g:wait_log "traces lost"
  end)
end)

describe("a reload", function()
  it("turns traces on, moves them to another collector, and off", function()
    local one <close> = collector.start()
    local two <close> = collector.start()
    local g <close> = gateway.start { scripts = scripts }
    local function use(traces, name)
      local file <close> = assert(io.open(g.dir .. "/new.yaml", "w"))
      local address = "127.0.0.1:0"
      file:write(cjson.encode { listen = address, admin = { listen = address }, workers = 2, scripts = { path = "scripts" }, traces = traces,
        server = { name = name } })
      file:close()
      local before = g:status().scripts.generation
      assert(os.rename(g.dir .. "/new.yaml", g.dir .. "/moonpool.yaml"))
      g:signal "sighup"
      g:wait_status(function(status) return status.scripts.generation ~= before end)
    end
    call(g)
    use(one:config())
    call(g)
    one:wait "tools/call add"
    use(two:config(), "other")
    call(g)
    two:wait "tools/call add"
    assert.equal("other", two.resource["service.name"])
    assert.truthy(#one.resource["service.instance.id"] == 32)
    assert.equal(one.resource["service.instance.id"], two.resource["service.instance.id"])
    use(nil)
    local recorded = g:status().counters.traces.recorded
    call(g)
    assert.equal(recorded, g:status().counters.traces.recorded)
    assert.equal(1, #one:named "tools/call add")
  end)
end)
