-- Headers of 2026-07-28 that repeat the body are made from the body that is sent, after renames and policies. The stub
-- compares them.
-- pairs: mirrored headers; clients 2024-11-05; upstreams 2026-07-28 http
-- pairs: mirrored headers; clients 2025-11-25..; upstreams 2026-07-28 http
local upstream = require "spec.helpers.upstream"

local faults = upstream.faults

local function names(c)
  local found = {}
  for _, tool in ipairs(c:result("tools/list", {}).tools) do found[tool.name] = true end
  return found
end

describe("headers to an upstream of 2026-07-28", function()
  it("have the upstream's own names, and the arguments that policies left", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    local g <close> = upstream.gateway({ one = u }, {
      entries = { one = { prefix = "x_", rename = { tenant = "house", greet = "welcome" } } },
      scripts = { ["policy/change.lua"] = [[return policy { tools = { "x_house" }, function(call, next)
        if call.args.text == "change" then call.args.tenant = "changed" end
        return next(call)
      end }]] },
    })
    for _, asks in ipairs { "2025-11-25", "2024-11-05" } do
      local c <close> = g:client(asks)
      local rows = {
        { { tenant = "a", level = 42, dry = true }, "a", "42", "true" }, { { tenant = "", dry = false }, "", nil, "false" }, { { text = "no header" } },
        { { tenant = "café" }, "=?base64?Y2Fmw6k=?=" }, { { tenant = " a " }, "=?base64?IGEg?=" },
        { { tenant = "=?base64?a?=" }, "=?base64?PT9iYXNlNjQ/YT89?=" }, { { tenant = "a\nb" }, "=?base64?YQpi?=" },
        { { tenant = "before", text = "change" }, "changed" },
      }
      local before = u:ran "tenant"
      for i, row in ipairs(rows) do
        upstream.text(c:call("tools/call", { name = "x_house", arguments = row[1] }))
        local entry = u:wait({ tool = "tenant" }, before + i)
        assert.equal("tools/call", entry.headers["mcp-method"])
        assert.equal("tenant", entry.headers["mcp-name"])
        assert.same({ row[2], row[3], row[4] }, { entry.headers["mcp-param-tenant"], entry.headers["mcp-param-level"], entry.headers["mcp-param-dry"] })
      end
      c:result("prompts/get", { name = "x_welcome", arguments = { who = "you" } })
      c:result("resources/read", { uri = "stub://item/é" })
    end
    assert.equal("greet", u:all({ method = "prompts/get" })[1].headers["mcp-name"])
  end)

  it("are made anew from a list that was read again, once", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain { one = u } })
    local c <close> = g:client "2025-11-25"
    assert.is_true(names(c).tenant)
    u.mismatches_are_expected = true
    u:offer("tools", {
      '{"name":"tenant","inputSchema":{"type":"object","properties":{"tenant":{"type":"string","x-mcp-header":"Other"}}}}',
    })
    assert.equal('{"tenant":"a"}', upstream.text(c:call("tools/call", { name = "tenant", arguments = { tenant = "a" } })))
    assert.equal(1, u:ran "tenant")
    assert.equal(1, #u:all { kind = "mismatch" })
    assert.equal("a", u:all({ tool = "tenant" })[1].headers["mcp-param-other"])

    u:when("tools/call tenant", faults.error(-32020, "Header mismatch"))
    local before = #u:all { tool = "tenant" }
    local answer = c:call("tools/call", { name = "tenant", arguments = { tenant = "b" } })
    assert.is_truthy(answer.error)
    assert.equal(before + 2, #u:all { tool = "tenant" })
    assert.equal(1, u:ran "tenant")
  end)

  it("cannot be made for a tool whose annotations are wrong, so it is left out over HTTP", function()
    local function tool(name, properties) return ('{"name":"%s","inputSchema":{"type":"object","properties":{%s}}}'):format(name, properties) end
    local definitions = {
      tool("good", '"a":{"type":"string","x-mcp-header":"A"}'), tool("number", '"a":{"type":"number","x-mcp-header":"A"}'),
      tool("twice", '"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}'),
      tool("empty", '"a":{"type":"string","x-mcp-header":""}'), tool("spaces", '"a":{"type":"string","x-mcp-header":"a b"}'),
      tool("deep", '"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}'), tool("plain", '"a":{"type":"string"}'),
    }
    for transport, wanted in pairs { http = { good = true, plain = true }, stdio = {
      good = true, plain = true, number = true, twice = true, empty = true, spaces = true, deep = true,
    } } do
      if upstream.has(transport) then
        local u <close> = upstream.start { revision = "2026-07-28", transport = transport }
        u:offer("tools", definitions)
        local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain { one = u } })
        local c <close> = g:client "2025-11-25"
        assert.same(wanted, names(c))
      end
    end
  end)

  it("are compared with the body of a modern client, too", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain { one = u } })
    local c <close> = g:client "2026-07-28"
    local answer, response = c:call("tools/call", { name = "tenant", arguments = { tenant = "a" } })
    assert.same({ -32020, 400, 0 }, { answer.error.code, response.status, u:ran "tenant" })
  end)
end)
