-- Spans of calls: what a collector gets, in each revision and over each transport.
local cjson = require "cjson"
local client = require "spec.helpers.client"
local collector = require "spec.helpers.collector"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local scripts = {
  ["tools/add.lua"] = 'return tool { "Adds.", input = { a = t.number, b = t.number }, function(args) return args.a + args.b end }',
  ["tools/fail.lua"] = 'return tool { "Fails.", function() return nil, "a secret reason" end }',
  ["tools/wait.lua"] = 'return tool { "Waits.", timeout = 0.05, function() sleep(60) end }',
  ["prompts/hello.lua"] = 'return prompt { "Greets.", function() return "hello" end }',
}

local REMOTE <const> = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

describe("the span of a call", function()
  for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
    it("has the names and attributes of the conventions in " .. revision, function()
      local c <close> = collector.start()
      local g <close> = gateway.start { scripts = scripts, config = { traces = c:config { attributes = { ["deployment.environment.name"] = "spec" } } } }
      local peer <close> = g:client(revision)
      assert.equal("3", peer:result("tools/call", { name = "add", arguments = { a = 1, b = 2 } }).content[1].text)
      peer:result("prompts/get", { name = "hello" })
      local span = c:wait "tools/call add"
      assert.equal(2, span.kind)
      assert.is_nil(span.parentSpanId)
      assert.is_nil(span.status)
      local a = span.attributes
      assert.equal("tools/call", a["mcp.method.name"])
      assert.equal(revision, a["mcp.protocol.version"])
      assert.equal("add", a["gen_ai.tool.name"])
      assert.equal("execute_tool", a["gen_ai.operation.name"])
      assert.equal("tcp", a["network.transport"])
      assert.equal("http", a["network.protocol.name"])
      assert.equal("127.0.0.1", a["client.address"])
      assert.truthy(a["jsonrpc.request.id"])
      assert.is_nil(a["error.type"])
      if revision == "2026-07-28" then
        assert.is_nil(a["mcp.session.id"])
      else
        assert.truthy(a["mcp.session.id"]:find "^%x%x%x%x%x%x%x%x$")
        assert.is_nil(c.bodies[1]:find(peer.session, 1, true))
      end
      local handler = c:below(span).handler
      assert.equal(1, handler.kind)
      assert.equal("hello", c:wait "prompts/get hello".attributes["gen_ai.prompt.name"])
      assert.truthy(c:below(c:wait "prompts/get hello").handler)
      assert.equal("moonpool", c.resource["service.name"])
      assert.equal("spec", c.resource["deployment.environment.name"])
      assert.equal(g.pid, c.resource["process.pid"])
    end)
  end

  it("has the id of the call's line in the audit, and the log has both ids", function()
    local c <close> = collector.start()
    local says = 'return tool { "Says.", function() log.info "tool says" return "said" end }'
    local g <close> = gateway.start { scripts = { ["tools/says.lua"] = says, ["prompts/hello.lua"] = scripts["prompts/hello.lua"] }, workers = 1,
      config = { traces = c:config(), log = { format = "json", audit = "audit.jsonl" } } }
    local peer <close> = g:client "2026-07-28"
    peer:result("tools/call", { name = "says" })
    peer:result("prompts/get", { name = "hello" })
    local function line_of(path, fact)
      return wait.for_fact("a line", 10, function()
        local file <close> = assert(io.open(g.dir .. path))
        for line in file:lines() do
          local ok, object = pcall(cjson.decode, line)
          if ok and fact(object) then return object end
        end
      end)
    end
    for _, name in ipairs { "tools/call says", "prompts/get hello" } do -- C serves the call, and Lua the prompt
      local span = c:wait(name)
      local line = line_of("/audit.jsonl", function(one) return one.method == name:match "%S+" end)
      assert.equal(span.spanId, line.id)
      assert.equal(span.traceId, line.trace)
    end
    local span, line = c:wait "tools/call says", line_of("/stderr", function(one) return one.event == "tool says" end)
    assert.equal(span.spanId, line.call)
    assert.equal(span.traceId, line.trace_id)
  end)

  it("says how the call has failed, and nothing of its result", function()
    local c <close> = collector.start()
    local g <close> = gateway.start { scripts = scripts, config = { traces = c:config() } }
    local peer <close> = g:client "2026-07-28"
    peer:result("tools/call", { name = "fail" })
    peer:call("tools/call", { name = "none" })
    peer:call("tools/call", { name = "wait" })
    local failed = c:wait "tools/call fail"
    assert.equal("tool_error", failed.attributes["error.type"])
    assert.equal(2, failed.status.code)
    local unknown = c:wait "tools/call none"
    assert.equal("-32602", unknown.attributes["error.type"])
    assert.equal("-32602", unknown.attributes["rpc.response.status_code"])
    assert.equal("timeout", c:wait "tools/call wait".attributes["error.type"])
    for _, body in ipairs(c.bodies) do assert.is_nil(body:find("secret", 1, true)) end
  end)

  it("has the id of the call in the log", function()
    local c <close> = collector.start()
    local raises = 'return tool { "Raises.", function() error "x" end }'
    local g <close> = gateway.start { config = { traces = c:config() }, scripts = { ["tools/raise.lua"] = raises } }
    local peer <close> = g:client "2026-07-28"
    peer:result("tools/call", { name = "raise" })
    assert.equal(g:wait_log("tool failed").fields.call, c:wait "tools/call raise".spanId)
  end)

  it("is there over stdio", function()
    local c <close> = collector.start()
    local stdio = require "spec.helpers.stdio"
    local g <close> = stdio.start { scripts = scripts, config = { traces = c:config() } }
    g:client "2025-11-25":result("tools/call", { name = "add", arguments = { a = 1, b = 2 } })
    local span = c:wait "tools/call add"
    assert.equal("pipe", span.attributes["network.transport"])
    assert.is_nil(span.attributes["network.protocol.name"])
  end)
end)

describe("the trace context of a client", function()
  local function call(g, meta, headers)
    local peer <close> = g:client "2026-07-28"
    local own = peer.headers
    function peer:headers(message)
      local all = own(self, message)
      for name, value in pairs(headers or {}) do all[name] = value end
      return all
    end
    return peer:result("tools/call", { name = "add", arguments = { a = 1, b = 2 }, _meta = meta })
  end

  it("is the parent by _meta, by the header, and by _meta with a link where both are there", function()
    local c <close> = collector.start()
    local g <close> = gateway.start { scripts = scripts, config = { traces = c:config { sample = 0 } } }
    call(g, { traceparent = REMOTE, tracestate = "a=1,b=2" })
    local span = c:wait("tools/call add", 1)
    assert.equal("0af7651916cd43dd8448eb211c80319c", span.traceId)
    assert.equal("b7ad6b7169203331", span.parentSpanId)
    assert.equal("a=1,b=2", span.traceState)
    assert.is_nil(span.links)
    assert.equal(0x301, span.flags)
    local other = "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-01"
    call(g, nil, { traceparent = other, tracestate = "c=3" })
    span = c:wait("tools/call add", 2)
    assert.equal("1af7651916cd43dd8448eb211c80319c", span.traceId)
    assert.equal("c=3", span.traceState)
    call(g, { traceparent = REMOTE }, { traceparent = other })
    span = c:wait("tools/call add", 3)
    assert.equal("0af7651916cd43dd8448eb211c80319c", span.traceId)
    assert.same({ { traceId = "1af7651916cd43dd8448eb211c80319c", spanId = "c7ad6b7169203331" } }, span.links)
  end)

  it("is ignored and counted if it is malformed", function()
    local c <close> = collector.start()
    local g <close> = gateway.start { scripts = scripts, config = { traces = c:config() } }
    local id, parent = ("a"):rep(32), ("b"):rep(16)
    local wrong = {
      "x", "00", "00-", REMOTE:upper(), REMOTE .. "-", REMOTE .. "x", REMOTE:sub(1, -2), " " .. REMOTE, REMOTE .. " ",
      "ff" .. REMOTE:sub(3), "0" .. REMOTE:sub(3), "0g" .. REMOTE:sub(3), "00-" .. ("0"):rep(32) .. "-" .. parent .. "-01",
      "00-" .. id .. "-" .. ("0"):rep(16) .. "-01", "00-" .. id .. parent .. "-01", "00_" .. id .. "-" .. parent .. "-01",
      "00-" .. id .. "_" .. parent .. "-01", "00-" .. id .. "-" .. parent .. "_01", "00-" .. id:sub(2) .. "g-" .. parent .. "-01",
      "00-" .. id .. "-" .. parent:sub(2) .. "g-01", "00-" .. id .. "-" .. parent .. "-0g", "00-" .. id .. "-" .. parent .. "-1",
      "00-" .. id:sub(2) .. "-" .. parent .. "-01", "00-" .. id .. "-" .. parent:sub(2) .. "-01", "00-" .. id .. "a-" .. parent .. "-01",
      "01" .. REMOTE:sub(3) .. "x", "00-" .. ("é"):rep(16) .. "-" .. parent .. "-01", ("0"):rep(55), ("-"):rep(55), ("00-"):rep(400),
    }
    for i, text in ipairs(wrong) do
      call(g, { traceparent = text })
      local span = c:wait("tools/call add", i)
      assert.is_nil(span.parentSpanId, text)
      assert.not_equal(id, span.traceId)
    end
    assert.equal(#wrong, g:status().counters.trace_contexts.malformed)
    call(g, { traceparent = 7 })
    c:wait("tools/call add", #wrong + 1) -- waits for this span: otherwise that of the next call might arrive before it
    call(g, { traceparent = "01" .. REMOTE:sub(3) .. "-more" })
    assert.equal("b7ad6b7169203331", c:wait("tools/call add", #wrong + 2).parentSpanId)
  end)

  it("decides whether a call is recorded, up to 50 a second", function()
    local c <close> = collector.start()
    local g <close> = gateway.start { scripts = scripts, config = { traces = c:config() }, constants = { trace_parents = 0 } }
    call(g, { traceparent = REMOTE })
    call(g, { traceparent = REMOTE:sub(1, -2) .. "0" })
    call(g)
    assert.is_nil(c:wait "tools/call add".parentSpanId)
    local status = g:status()
    assert.equal(1, status.counters.traces.throttled)
    assert.equal(1, status.counters.traces.recorded)
  end)

  it("records no more calls than that of a client that always says so", function()
    local c <close> = collector.start()
    local g <close> = gateway.start { scripts = scripts, config = { traces = c:config() }, constants = { trace_parents = 1 } }
    local peer <close> = g:client "2026-07-28"
    for _ = 1, 100 do peer:result("tools/call", { name = "add", arguments = { a = 1, b = 2 }, _meta = { traceparent = REMOTE } }) end
    local counted = g:status().counters.traces
    assert.equal(100, counted.recorded + counted.throttled)
    assert.truthy(counted.throttled > 0)
    c:wait("tools/call add", counted.recorded)
  end)

  it("is a link alone where traces.parent.accept is false", function()
    local c <close> = collector.start()
    local g <close> = gateway.start { scripts = scripts, config = { traces = c:config { parent = { accept = "false" } } } }
    call(g, { traceparent = REMOTE })
    local span = c:wait "tools/call add"
    assert.is_nil(span.parentSpanId)
    assert.equal("b7ad6b7169203331", span.links[1].spanId)
  end)
end)

describe("a gateway without traces.otlp", function()
  it("records nothing", function()
    local g <close> = gateway.start { scripts = scripts }
    local peer <close> = g:client "2026-07-28"
    peer:result("tools/call", { name = "add", arguments = { a = 1, b = 2 }, _meta = { traceparent = REMOTE } })
    assert.equal(0, g:status().counters.traces.recorded)
    assert.equal(200, client.request(g, { method = "GET", path = "/metrics" }, { admin = true }).status)
  end)
end)
