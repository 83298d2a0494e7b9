-- Bytes stay bytes on their way to an upstream and back: numbers of any size and spelling, escapes, the order of
-- members, members that MCP does not know; also beside a member that a policy changes.
-- pairs: bytes kept as they are; clients 2025-06-18..; upstreams 2024-11-05.. http stdio
-- pairs: bytes kept as they are; clients 2025-06-18..; upstreams 2024-11-05 sse
local cjson = require "cjson"
local upstream = require "spec.helpers.upstream"

local faults, raw = upstream.faults, upstream.raw

local ODD <const> = '{"z":1234567890123456789012345,"float":1.0,"big":1e400,"small":-0.0,"exponent":1E+2,"letter":"\\u0041\\/","a":[1.50,{"y":1,"x":2}],'
  .. '"empty":{},"none":[],"null":null,"café":"é"}'

local META <const> = '{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},'
  .. '"io.modelcontextprotocol/clientInfo":{"name":"spec","version":"1"},"example.com/kept":{"n":1.0,"m":1e400}}'

-- Calls a tool with a body of bytes; returns the bytes of the result.
local function call(g, c, revision, name, arguments)
  local modern = revision == "2026-07-28"
  c.ids = c.ids + 1
  local body = ('{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s","arguments":%s%s}}'):format(c.ids, name, arguments,
    modern and ',"_meta":' .. META or "")
  local headers = c:headers { method = "tools/call", params = { name = name } }
  headers["Content-Type"] = "application/json"
  local response = require "spec.helpers.client".request(g, { method = "POST", path = "/mcp", headers = headers, body = body })
  local text = response.body:match "data: ({[^\n]*})" or response.body
  return assert(raw.at(text, "result"), text)
end

describe("bytes stay as they are", function()
  for _, serves in ipairs(upstream.revisions) do
    for _, transport in ipairs(upstream.served(upstream.transports(serves))) do
      it(("in arguments and results of an upstream of %s over %s"):format(serves, transport), function()
        local u <close> = upstream.start { revision = serves, transport = transport }
        local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain { one = u } })
        for n, asks in ipairs { "2026-07-28", "2025-11-25", "2025-06-18" } do
          local c <close> = g:client(asks)
          local result = call(g, c, asks, "echo", ODD)
          local entry = u:wait({ tool = "echo" }, n)
          assert.equal(ODD, raw.at(entry.text, "params", "arguments"))
          assert.equal(ODD, cjson.decode(raw.at(result, "content", 1, "text")))
          if serves >= "2025-06-18" then assert.equal(ODD, raw.at(result, "structuredContent")) end
        end
      end)
    end
  end

  it("in members of a result that MCP does not know, and in their order", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain { one = u } })
    local given = '{"x-last":' .. ODD .. ',"content":[{"x":1e400,"type":"text","text":"\\u0061"}],"_meta":{"example.com/n":1.0},"isError":false}'
    u:when("tools/call echo", faults.result(given))
    local c <close> = g:client "2025-11-25"
    assert.equal(given, call(g, c, "2025-11-25", "echo", "{}"))
  end)

  it("in the client's _meta, but for the members of the hop", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain { one = u } })
    local c <close> = g:client "2026-07-28"
    call(g, c, "2026-07-28", "echo", "{}")
    local meta = raw.at(u:wait({ tool = "echo" }).text, "params", "_meta")
    assert.equal('{"n":1.0,"m":1e400}', raw.at(meta, "example.com/kept"))
    assert.is_nil(meta:find("io.modelcontextprotocol", 1, true))
  end)

  it("in members of a request's params that MCP does not know; what it knows of other revisions does not pass", function()
    local REQUESTS <const> = {
      { "tools/call", '"name":"echo","arguments":{}', name = "echo" }, { "prompts/get", '"name":"greet","arguments":{"who":"you"}', name = "greet" },
      { "resources/read", '"uri":"stub://text"', name = "stub://text" },
      { "completion/complete", '"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"who","value":"x"}' },
      { "tools/call", '"name":"asks_too","arguments":{}', name = "asks_too", is_script = true },
    }
    for _, kind in ipairs(upstream.kinds()) do
      local u <close> = upstream.start { revision = kind[1], transport = kind[2] }
      local g <close> = upstream.gateway({ one = u }, {
        entries = upstream.plain { one = u }, workers = 1,
        scripts = { ["tools/asks_too.lua"] = 'return tool { "Asks.", function() return try(upstream "one":call("echo", {})).text end }' },
      })
      for _, asks in ipairs { "2026-07-28", "2025-11-25", "2025-03-26" } do
        local c <close> = g:client(asks)
        c:result("tools/list", {})
        for n = 1, 2 * #REQUESTS do
          local request = REQUESTS[(n - 1) % #REQUESTS + 1]
          c.ids = c.ids + 1
          local is_modern = asks == "2026-07-28"
          local known = is_modern and '"_meta":' .. META or '"inputResponses":{},"requestState":"x"'
          local params = ('{"x-first":%s,%s,%s,"y\\u0041":[1.0]}'):format(ODD, request[2], known)
          local body = ('{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}'):format(c.ids, request[1], params)
          local headers = c:headers { method = request[1], params = { name = request.name, uri = request.name } }
          headers["Content-Type"] = "application/json"
          local before = #u:all { method = request[1] }
          local answer = require "spec.helpers.client".request(g, { method = "POST", path = "/mcp", headers = headers, body = body })
          assert.truthy(answer.body:find('"result"', 1, true), answer.body)
          local all = u:all { method = request[1] }
          assert.equal(before + 1, #all)
          local text = all[#all].text
          assert.equal(not request.is_script and ODD or nil, raw.at(text, "params", "x-first"))
          assert.equal(not request.is_script and "[1.0]" or nil, raw.at(text, "params", "yA"))
          for _, name in ipairs { "inputResponses", "requestState" } do assert.is_nil(raw.at(text, "params", name)) end
        end
      end
    end
  end)

  it("in definitions", function()
    local schema = '{"type":"object","properties":{"z":{"type":"number","maximum":1e400,"default":1.0},"a":{"const":1234567890123456789012345}},'
      .. '"x-more":"\\u0041"}'
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:offer("tools", { '{"name":"odd","x-vendor":' .. ODD .. ',"inputSchema":' .. schema .. "}" })
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain { one = u } })
    local c <close> = g:client "2025-11-25"
    local _, response = c:call("tools/list", {})
    local tool = raw.at(response.body, "result", "tools", 1)
    assert.equal(schema, raw.at(tool, "inputSchema"))
    assert.equal(ODD, raw.at(tool, "x-vendor"))
  end)

  it("beside a member that a policy changes", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, {
      entries = upstream.plain { one = u },
      scripts = { ["policy/change.lua"] = [[return policy { tools = { "echo" }, function(call, next)
        call.args.changed = "yes"
        local value, why = next(call)
        return value, why
      end }]] },
    })
    local c <close> = g:client "2025-11-25"
    local result = call(g, c, "2025-11-25", "echo", '{"inner":' .. ODD .. ',"changed":"no","n":1.0}')
    local sent = raw.at(u:wait({ tool = "echo" }).text, "params", "arguments")
    assert.equal(ODD, raw.at(sent, "inner"))
    assert.equal("1.0", raw.at(sent, "n"))
    assert.equal('"yes"', raw.at(sent, "changed"))
    assert.equal(ODD, raw.at(result, "structuredContent", "inner"))
  end)
end)
