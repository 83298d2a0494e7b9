-- The question by which the gateway finds out an upstream's revision harms no older one: whatever it makes of it, it gets
-- `initialize` next. Each phase of opening has a time limit of its own.
local cjson = require "cjson.safe"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local faults = upstream.faults

local function use(g)
  local c <close> = g:client "2026-07-28"
  wait.for_fact("the tools of the upstream", 30, function()
    for _, tool in ipairs(c:result("tools/list", {}).tools) do
      if tool.name == "one_echo" then return true end
    end
  end)
  assert.equal('{"n":1}', upstream.text(c:call("tools/call", { name = "one_echo", arguments = { n = 1 } })))
end

describe("a program that ends at server/discover", function()
  for _, how in ipairs { "exit 1", "exit 0", "a line that is too long" } do
    it("is started again with `initialize`: " .. how, function()
      local u <close> = upstream.start { revision = "2025-06-18", transport = "stdio" }
      u:when("server/discover", function(x)
        if how:find "^exit" then return x.child:order("exit", how:sub(-1)) end
        x.child:write(("x"):rep(70000) .. "\n")
      end)
      local g <close> = upstream.gateway({ one = u }, { config = { limits = { upstreams = { answer = "64KiB" } } } })
      use(g)
      local one = g:status().upstreams.one
      assert.equal(0, one.failures_in_row)
      -- its later programs are not asked
      for _ = 1, 2 do
        local c <close> = g:client("2025-11-25", { capabilities = { roots = { [" "] = 1 } } })
        assert.equal('{"n":1}', upstream.text(c:call("tools/call", { name = "one_echo", arguments = { n = 1 } })))
      end
      assert.equal(1, #u:all { method = "server/discover" })
    end)
  end

  it("is named in the log, with the key that leaves the question out", function()
    local u <close> = upstream.start { revision = "2025-06-18", transport = "stdio" }
    u:when("server/discover", function(x) x.child:order("exit", "1") end)
    local g <close> = upstream.gateway { one = u }
    use(g)
    local line = g:wait_log("upstream process ended", { upstream = "one" })
    assert.truthy(line.fields.hint:find("revision: legacy", 1, true))
  end)
end)

describe("a server over HTTP that answers server/discover with", function()
  local ways = {
    ["an event stream without events"] = faults.ends_stream(),
    ["an event stream that stays open"] = function(x) x:send_events ": waiting\n\n" end,
    ["nothing"] = faults.hangs(), ["the end of the connection"] = faults.dies(),
  }
  for what, fault in pairs(ways) do
    it(what .. ", gets `initialize`", function()
      local u <close> = upstream.start { revision = "2025-06-18" }
      u:when("server/discover", fault)
      local g <close> = upstream.gateway({ one = u }, { entries = { one = { open = "2s" } } })
      use(g)
      assert.equal(0, g:status().upstreams.one.failures_in_row)
    end)
  end
end)

describe("`initialize` that is refused with the revisions that the server has", function()
  local refusals = {
    ["in its data"] = function(x) x:error(-32602, "Unsupported protocol version", '{"supported":["2024-11-05","2025-03-26"],"requested":"2025-11-25"}') end,
    ["in its words"] = function(x) x:error(-32602, "2025-11-25 is not supported; supported versions: 2024-11-05, 2025-03-26") end,
    ["by status 400"] = function(x)
      x:http(400, { ["content-type"] = "application/json" },
        '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Unsupported protocol version (supported versions: 2024-11-05, 2025-03-26)"}}')
    end,
  }
  for what, refuse in pairs(refusals) do
    it("is asked again once, with the newest of both: " .. what, function()
      local u <close> = upstream.start { revision = "2025-03-26" }
      u:when("initialize", function(x)
        if x.params.protocolVersion == "2025-03-26" then return x:serve() end
        refuse(x)
      end)
      local g <close> = upstream.gateway { one = u }
      use(g)
      assert.equal("2025-03-26", u:all({ tool = "echo" })[1].revision)
    end)
  end

  it("is not asked again where none is shared", function()
    local u <close> = upstream.start { revision = "2025-03-26" }
    u:when("initialize", function(x) x:error(-32602, "Unsupported protocol version", '{"supported":["2019-01-01"]}') end)
    local g <close> = upstream.gateway { one = u }
    g:wait_log("upstream lists cannot be read", { why = "revision" })
    local first = u:all({ method = "initialize" })
    assert.equal(1, #first, cjson.encode(#first))
  end)
end)

describe("`timeout`", function()
  for _, transport in ipairs { "http", "stdio", "sse" } do
    it("is not the limit of `initialize` over " .. transport, function()
      local u <close> = upstream.start { revision = transport == "sse" and "2024-11-05" or "2025-06-18", transport = transport }
      u:when("initialize", faults.late(1500))
      local g <close> = upstream.gateway({ one = u }, { entries = { one = { timeout = "300ms", open = "20s" } } })
      use(g)
      assert.equal(1, #u:all { method = "initialize" })
    end)
  end

  it("is not the limit of server/discover", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    u:when("server/discover", faults.late(1500))
    local g <close> = upstream.gateway({ one = u }, { entries = { one = { timeout = "300ms", open = "20s" } } })
    use(g)
    assert.equal(0, #u:all { method = "initialize" })
  end)
end)
