-- Which calls are recorded: the ratio, the tail rule; and the steps of scripts, within the bounds of a trace.
local collector = require "spec.helpers.collector"
local gateway = require "spec.helpers.gateway"

local scripts = {
  ["tools/add.lua"] = 'return tool { "Adds.", input = { a = t.number, b = t.number }, function(args) return args.a + args.b end }',
  ["tools/fail.lua"] = 'return tool { "Fails.", function() return nil, "no" end }',
  ["tools/slow.lua"] = 'return tool { "Takes time.", function() sleep(0.1) return "done" end }',
}

local function add(peer) return peer:result("tools/call", { name = "add", arguments = { a = 1, b = 2 } }) end

describe("traces.sample", function()
  it("records the share of the calls that its ratio says", function()
    local c <close> = collector.start()
    local g <close> = gateway.start { scripts = scripts, config = { traces = c:config { sample = 0.5 } } }
    local peer <close> = g:client "2026-07-28"
    for _ = 1, 400 do add(peer) end
    local recorded = g:status().counters.traces.recorded
    -- within eight standard deviations of 200, which is half of the calls
    assert.truthy(recorded > 120 and recorded < 280, recorded)
    c:wait("tools/call add", recorded)
  end)

  it("sends calls that failed, where it says so, and no others", function()
    local c <close> = collector.start()
    local g <close> = gateway.start { scripts = scripts, config = { traces = c:config { sample = { ratio = 0, errors = "true" } } } }
    local peer <close> = g:client "2026-07-28"
    add(peer)
    peer:result("tools/call", { name = "fail" })
    peer:call("tools/call", { name = "none" })
    c:wait "tools/call fail"
    c:wait "tools/call none"
    assert.same({}, c:named "tools/call add")
    assert.equal(1, g:status().counters.traces.discarded)
  end)

  it("sends calls that took long, where it says so, with all their steps", function()
    local c <close> = collector.start()
    local g <close> = gateway.start { scripts = scripts, config = { traces = c:config { sample = { ratio = 0, slower = "90ms" } } } }
    local peer <close> = g:client "2026-07-28"
    peer:result("tools/call", { name = "slow" })
    local span = c:wait "tools/call slow"
    assert.truthy(c:below(span).handler)
    assert.is_nil(span.status)
  end)

  it("tells the next program that a call is not sampled while that is open", function()
    local c <close> = collector.start()
    local upstream = require "spec.helpers.upstream"
    local u <close> = upstream.start { revision = "2026-07-28" }
    local config = { traces = c:config { sample = { ratio = 0, errors = "true" } } }
    local g <close> = upstream.gateway({ one = u }, { workers = 1, config = config })
    local peer <close> = g:client "2026-07-28"
    peer:result("tools/call", { name = "one_echo", arguments = { text = "a" } })
    assert.truthy(u:wait({ method = "tools/call" }, 1).headers.traceparent:find "%-00$")
  end)
end)

describe("trace.span", function()
  local function start(c, body, constants)
    return gateway.start { workers = 1, constants = constants, config = { traces = c:config() }, scripts = {
      ["tools/run.lua"] = 'return tool { "Runs.", input = { n = t.integer }, function(args) ' .. body .. " end }",
    } }
  end

  local function run(g, n)
    local peer <close> = g:client "2026-07-28"
    return peer:result("tools/call", { name = "run", arguments = { n = n or 1 } }).content[1].text
  end

  it("is a step of its own, with attributes and events, and gives what its function gives", function()
    local c <close> = collector.start()
    local g <close> = start(c, [[
      local id = trace.id()
      local a, b = trace.span("price", function(span)
        span:set("rows", 3) span:set("ratio", 0.5) span:set("cached", true) span:set("from", "é" .. ("x"):rep(2000))
        span:event "found"
        trace.span("inner", function() sleep(0.001) end)
        return 7, 8
      end)
      local kept
      trace.span("after", function(span) kept = span end)
      kept:set("late", 1)
      return id .. " " .. a .. " " .. b]])
    local text = run(g)
    local root = c:wait "tools/call run"
    assert.equal(root.traceId .. " 7 8", text)
    local below = c:below(c:below(root).handler)
    local span = below.price
    assert.equal(3, span.attributes.rows)
    assert.equal(0.5, span.attributes.ratio)
    assert.is_true(span.attributes.cached)
    assert.equal(1024, #span.attributes.from)
    assert.equal("found", span.events[1].name)
    assert.truthy(c:below(span).inner)
    assert.same({}, below.after.attributes)
    assert.is_nil(span.status)
  end)

  it("is marked where its function fails, without the text of the error", function()
    local c <close> = collector.start()
    local g <close> = start(c, [[
      local ok, why = pcall(trace.span, "raises", function() error("marked-secret", 0) end)
      local value, reason = trace.span("gives", function() return nil, "marked-secret" end)
      return tostring(ok) .. " " .. #why .. " " .. tostring(value) .. " " .. #reason]])
    assert.equal("false 13 nil 13", run(g))
    local below = c:below(c:below(c:wait "tools/call run").handler)
    assert.equal(2, below.raises.status.code)
    assert.equal(2, below.gives.status.code)
    for _, body in ipairs(c.bodies) do assert.is_nil(body:find("marked-secret", 1, true)) end
  end)

  it("runs its function where no call is recorded", function()
    local g <close> = gateway.start { scripts = {
      ["tools/run.lua"] = [[return tool { "Runs.", function()
        return tostring(trace.id()) .. trace.span("a", function(span) span:set("k", 1) span:event "e" return "b" end)
      end }]],
    } }
    local peer <close> = g:client "2026-07-28"
    assert.equal("nilb", peer:result("tools/call", { name = "run" }).content[1].text)
  end)

  it("is left out above 64 spans, and so are attributes above their limits; the rest is whole", function()
    local c <close> = collector.start()
    local g <close> = start(c, [[
      for i = 1, args.n do trace.span("s" .. i, function(span) for j = 1, 200 do span:set("k" .. j, ("x"):rep(1500)) end end) end
      return "done"]], { trace_spans = 10 })
    assert.equal("done", run(g, 100))
    local root = c:wait "tools/call run"
    assert.equal(10, #c.spans)
    assert.truthy(#c.bodies[1] < 200000, #c.bodies[1])
    assert.truthy(c:named "s1"[1].droppedAttributesCount >= 136)
    assert.truthy(root.endTimeUnixNano)
    assert.truthy(g:status().counters.spans.cut >= 92)
  end)

  it("refuses what is no name, function, key or value", function()
    local c <close> = collector.start()
    local g <close> = start(c, [[
      local list = {}
      local function try(f, ...) local ok, why = pcall(f, ...) list[#list + 1] = ok and "ok" or why end
      try(trace.span, 7, function() end) try(trace.span, "", function() end) try(trace.span, ("x"):rep(129), function() end) try(trace.span, "a")
      trace.span("a", function(span)
        try(span.set, span, "", 1) try(span.set, span, ("k"):rep(129), 1) try(span.set, span, "k", {}) try(span.set, span, "k") try(span.event, span)
        try(span.set, 7, "k", 1)
      end)
      return table.concat(list, "|")]])
    local text = run(g)
    assert.is_nil(text:find("ok", 1, true), text)
    c:wait "tools/call run"
  end)
end)
