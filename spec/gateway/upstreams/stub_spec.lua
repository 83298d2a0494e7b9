-- The stub upstream itself, with a client of the specs before it: what it offers, counts, records and does wrong on
-- demand.
local eras = require "spec.helpers.eras"
local stdio_client = require "spec.helpers.upstream.direct"
local upstream = require "spec.helpers.upstream"

local faults, raw = upstream.faults, upstream.raw

-- A client of the stub's own revision.
local function connect(u, revision, options)
  if u.kind == "stdio" then return stdio_client.start(u, revision, options) end
  if u.kind == "sse" then return eras.client({ port = u.port }, "2024-11-05", options) end
  return eras.client({ port = u.port }, revision, options)
end

local function call(c, name, arguments, meta) return c:result("tools/call", { name = name, arguments = arguments, _meta = meta }) end

describe("the stub upstream", function()
  for _, revision in ipairs(upstream.revisions) do
    for _, transport in ipairs(upstream.transports(revision)) do
      if not (revision == "2024-11-05" and transport == "http") then -- the client speaks HTTP+SSE in that revision
        it(("offers everything at %s over %s"):format(revision, transport), function()
          local u <close> = upstream.start { revision = revision, transport = transport }
          local c <close> = connect(u, revision)
          local names = {}
          for i, tool in ipairs(c:result("tools/list", {}).tools) do names[i] = tool.name end
          assert.are.equal("echo counter hold progress fail complain big sum kinds look again tenant", table.concat(names, " "))
          assert.are.equal(2, #c:result("prompts/list", {}).prompts)
          assert.are.equal(2, #c:result("resources/list", {}).resources)
          assert.are.equal(1, #c:result("resources/templates/list", {}).resourceTemplates)
          assert.are.equal("hello", c:result("resources/read", { uri = "stub://text" }).contents[1].text)
          assert.are.equal("Hello, you", c:result("prompts/get", { name = "greet", arguments = { who = "you" } }).messages[1].content.text)
          assert.are.equal("greet-x", c:result("completion/complete",
            { ref = { type = "ref/prompt", name = "greet" }, argument = { name = "who", value = "x" } }).completion.values[1])
          assert.are.equal('{"a":1}', call(c, "echo", { a = 1 }).content[1].text)
          assert.are.equal(-32123, c:call("tools/call", { name = "fail", arguments = {} }).error.code)
          assert.is_true(call(c, "complain", {}).isError)
          assert.are.equal(revision >= "2025-06-18" and 3 or nil, (call(c, "sum", { a = 1, b = 2 }).structuredContent or {}).sum)
          assert.are.equal(1, u:ran "echo")
          assert.are.equal(4, u:ran())
        end)
      end
    end
  end

  it("counts in each session", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local one <close> = connect(u, "2025-11-25")
    local two <close> = connect(u, "2025-11-25")
    assert.are.equal("1", call(one, "counter", {}).content[1].text)
    assert.are.equal("2", call(one, "counter", {}).content[1].text)
    assert.are.equal("1", call(two, "counter", {}).content[1].text)
    assert.are.equal(2, u:count_sessions())
  end)

  it("gives lists in pages", function()
    local u <close> = upstream.start { revision = "2025-11-25", page = 5 }
    local c <close> = connect(u, "2025-11-25")
    local count, cursor = 0, nil
    repeat
      local page = c:result("tools/list", { cursor = cursor })
      count, cursor = count + #page.tools, page.nextCursor
    until not cursor
    assert.are.equal(12, count)
    assert.are.equal(3, #u:all { method = "tools/list" })
  end)

  it("records what came as bytes, and in order", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local c <close> = connect(u, "2025-11-25")
    u.strict = false -- the client of the specs gives a body of bytes no type
    local arguments = '{"n":1234567890123456789012345,"b":1e400, "a":"\\u0041"}'
    c:post('{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"echo","arguments":' .. arguments .. "}}")
    local entry = u:wait { tool = "echo" }
    assert.are.equal(arguments, raw.at(entry.text, "params", "arguments"))
    assert.are.equal("77", entry.id)
    assert.are.equal(c.session, entry.headers["mcp-session-id"])
    assert.is_truthy(entry.head:find "^POST /mcp HTTP/1.1\r\n")
    assert.are.equal(u.received[#u.received], entry)
  end)

  it("reports progress before the answer", function()
    for _, transport in ipairs { "http", "stdio" } do
      local u <close> = upstream.start { revision = "2025-11-25", transport = transport }
      local c <close> = connect(u, "2025-11-25")
      local x = c:open("tools/call", { name = "progress", arguments = { steps = 2 }, _meta = { progressToken = "p" } })
      assert.are.equal(1, x:wait_event("notifications/progress").json.params.progress)
      assert.are.equal(2, x:wait_event("notifications/progress").json.params.progress)
      assert.are.equal("2 steps", x:answer().result.content[1].text)
    end
  end)

  it("holds calls until they are released, and stops at a cancel", function()
    for _, transport in ipairs { "http", "stdio" } do
      local u <close> = upstream.start { revision = "2025-06-18", transport = transport }
      local c <close> = connect(u, "2025-06-18")
      local one = c:open("tools/call", { name = "hold", arguments = { key = "one" } })
      local two = c:open("tools/call", { name = "hold", arguments = { key = "two" } })
      u:wait_held(2)
      c:notify("notifications/cancelled", { requestId = one.id })
      u:wait { method = "notifications/cancelled" }
      assert.is_true(u:wait_held(1, "two")[1].arguments.key == "two")
      u:release()
      assert.are.equal("released", two:answer().result.content[1].text)
      assert.is_true(u:all({ tool = "hold" })[1].cancelled)
    end
  end)

  it("sees that a client hangs up", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    local c <close> = connect(u, "2026-07-28")
    local x = c:open("tools/call", { name = "hold", arguments = {} })
    u:wait_held(1)
    x:hang_up()
    u:wait { tool = "hold", left = true }
  end)

  it("refuses what comes before initialize in the ways that servers do", function()
    for early, code in pairs { ["-32601"] = -32601, ["-32602"] = -32602, ["-32600"] = -32600, ["-32000"] = -32000, ["400"] = -32000 } do
      local u <close> = upstream.start { revision = "2025-11-25", early = early }
      local c <close> = eras.client({ port = u.port }, "2026-07-28")
      local answer, response = c:call("server/discover", {})
      assert.are.equal(code, answer.error.code)
      assert.are.equal(early == "400" and 400 or 200, response.status)
    end
  end)

  it("loses sessions in the ways that servers do", function()
    for how, status in pairs { ["404"] = 404, ["404 empty"] = 404, ["400"] = 400, ["-32600"] = 200, ["not initialized"] = 400 } do
      local u <close> = upstream.start { revision = "2025-11-25" }
      local c <close> = connect(u, "2025-11-25")
      u:lose_sessions(how)
      assert.are.equal(status, select(2, c:call("tools/call", { name = "echo" })).status)
      assert.are.equal(0, u:ran "echo")
      assert.are.equal(1, #u:all { kind = "lost" })
    end
  end)

  it("finds mistakes of its client", function()
    local function mistakes_of(options, f)
      local u = upstream.start(options)
      local c <close> = connect(u, options.revision)
      f(c, u)
      local text = table.concat(u.mistakes, "\n")
      assert.has_error(function() u:close() end)
      return text
    end
    assert.matches("used twice", mistakes_of({ revision = "2025-11-25" }, function(c)
      c.ids = 6
      c:call "ping"
      c.ids = 6
      c:call "ping"
    end))
    assert.matches("MCP%-Protocol%-Version", mistakes_of({ revision = "2025-06-18" }, function(c)
      c.revision = "2025-11-25"
      c:call "ping"
    end))
    assert.matches("Mcp%-Param%-Tenant", mistakes_of({ revision = "2026-07-28" }, function(c)
      c:call("tools/call", { name = "tenant", arguments = { tenant = "a" } })
    end))
  end)

  it("misbehaves as often as it should", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local c <close> = connect(u, "2025-11-25")
    u:when("tools/call echo", faults.html(), 1)
    local _, response = c:call("tools/call", { name = "echo", arguments = {} })
    assert.are.equal("text/html", response.headers["content-type"])
    assert.are.equal('{"n":1}', call(c, "echo", { n = 1 }).content[1].text)
    assert.are.equal(2, u:ran "echo")
  end)

  it("answers out of order, and as strangers", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local c <close> = connect(u, "2025-11-25")
    u:when("tools/call echo", faults.out_of_order(2), 2)
    local one, two = c:open("tools/call", { name = "echo", arguments = { n = 1 } }), c:open("tools/call", { name = "echo", arguments = { n = 2 } })
    assert.are.equal('{"n":1}', one:answer().result.content[1].text)
    assert.are.equal('{"n":2}', two:answer().result.content[1].text)
    u:when("tools/call echo", faults.foreign { "999", '"1"' }, 1)
    local x = c:open("tools/call", { name = "echo", arguments = { n = 3 } })
    assert.are.equal("foreign", x:wait_event(999).json.result.content[1].text)
    assert.are.equal('{"n":3}', x:answer().result.content[1].text)
  end)

  it("runs processes that a spec commands", function()
    local u <close> = upstream.start { revision = "2025-11-25", transport = "stdio" }
    local c <close> = connect(u, "2025-11-25")
    local child = u:wait_alive(1)[1]
    assert.is_true(child:is_alive())
    assert.are.equal(c.pid, child.pid)
    u:when("tools/call echo", faults.noise "hello\n\n{\"half\":\n", 1)
    assert.are.equal('{"n":1}', call(c, "echo", { n = 1 }).content[1].text)
    assert.are.equal(3, c.noise)
    u:when("tools/call big", faults.pieces(1000), 1)
    assert.are.equal(10000, #call(c, "big", { bytes = 10000 }).content[1].text)
    child:order("child", "detached below")
    local below = u:wait_alive(2)[2]
    assert.are.equal("below", below.label)
    u:when("tools/call echo", faults.exits(3), 1)
    c:open("tools/call", { name = "echo", arguments = {} })
    u:wait_alive(1)
    assert.are.equal(3, c:wait_exit())
    assert.is_true(below:is_alive())
  end)
end)
