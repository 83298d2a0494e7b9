-- A gateway that stands before itself, directly or through another, refuses, and does not multiply.
local free_port = require "spec.helpers.free_port"
local gateway = require "spec.helpers.gateway"
local upstream = require "spec.helpers.upstream"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local TOOL <const> = { ["tools/own.lua"] = 'return tool { "Own.", function() return "here" end }' }

local function start(port, upstreams, config)
  config = config or {}
  config.listen, config.upstreams = "127.0.0.1:" .. port, upstreams
  return gateway.start { scripts = TOOL, config = config }
end

local function url(port) return { url = ("http://127.0.0.1:%d/mcp"):format(port), refresh = "1s" } end

local asked = 0 -- lists that this spec has read

local function names(c)
  asked = asked + 1
  local found = {}
  for i, tool in ipairs(c:result("tools/list", {}).tools) do found[i] = tool.name end
  table.sort(found)
  return table.concat(found, " ")
end

-- Waits until the lists have these names, and calls each of them.
local function check(g, wanted)
  local c <close> = g:client "2026-07-28"
  wait.for_fact("the tools " .. wanted .. " and no others", 30, function() return names(c) == wanted end)
  for name in wanted:gmatch "%S+" do assert.equal("here", c:result("tools/call", { name = name }).content[1].text) end
end

-- The number of MCP requests that a gateway has been sent.
local function requests(g) return g:status().counters.requests end

describe("a gateway", function()
  it("before itself refuses with words", function()
    local port = free_port()
    local g <close> = start(port, { me = url(port) })
    check(g, "own")
    wait.for_fact("the words", 20, function() return g:log():lower():find("loop", 1, true) end)
    local c <close> = g:client "2026-07-28"
    assert.equal("own", names(c))
    assert.equal("here", c:result("tools/call", { name = "own" }).content[1].text)
  end)

  it("before itself over HTTP+SSE refuses", function()
    local port = free_port()
    local g <close> = start(port, { me = { url = ("http://127.0.0.1:%d/sse"):format(port), revision = "sse" } })
    check(g, "own")
    wait.for_fact("the words", 20, function() return g:log():lower():find("loop", 1, true) end)
  end)

  it("before another that is before it has the other's things once, and not its own", function()
    local one, two = free_port(), free_port()
    local a <close> = start(one, { other = url(two) })
    local b <close> = start(two, { other = url(one) })
    local began = uv.hrtime()
    asked = 0
    for _ = 1, 2 do
      check(a, "other_own own")
      check(b, "other_own own")
    end
    wait.for_fact("the words", 30, function() return (a:log() .. b:log()):find("upstream leads back here", 1, true) end)
    local seconds = (uv.hrtime() - began) / 1e9
    assert.is_true(requests(a) + requests(b) < asked + 100 * (seconds + 5), ("%d and %d requests"):format(requests(a), requests(b)))
    local c <close> = a:client "2026-07-28"
    for _, tool in ipairs(c:result("tools/list", {}).tools) do assert.is_nil(tool._meta) end
  end)

  it("in a circle of three has the things of each once", function()
    local one, two, three = free_port(), free_port(), free_port()
    local a <close> = start(one, { n2 = url(two) })
    local b <close> = start(two, { n3 = url(three) })
    local c <close> = start(three, { n1 = url(one) })
    check(a, "n2_n3_own n2_own own")
    check(b, "n3_n1_own n3_own own")
    check(c, "n1_n2_own n1_own own")
  end)

  it("refuses a request that has come through it, or through eight gateways, and no other", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    local g <close> = upstream.gateway({ one = u }, { scripts = TOOL })
    local c <close> = g:client "2026-07-28"
    c:result("tools/call", { name = "one_echo", arguments = { n = 1 } })
    local own = u:all({ tool = "echo" })[1].headers["moonpool-hops"]
    assert.matches("^%x+$", own)
    assert.equal(32, #own)
    local function try(hops)
      local asks <close> = g:client "2026-07-28"
      local plain = asks.headers
      function asks:headers(message)
        local headers = plain(self, message)
        headers["moonpool-hops"] = hops
        return headers
      end
      return asks:call("tools/call", { name = "one_echo", arguments = { n = 2 } })
    end
    local before = u:ran "echo"
    for _, hops in ipairs { own, ("a"):rep(32) .. ", " .. own, (("b"):rep(32) .. ","):rep(7) .. ("c"):rep(32) } do
      assert.equal(-32603, try(hops).error.code)
    end
    assert.equal(before, u:ran "echo")
    assert.is_truthy(try(("a"):rep(32)).result)
    local last = u:all { tool = "echo" }
    assert.equal(("a"):rep(32) .. ", " .. own, last[#last].headers["moonpool-hops"])
    assert.equal(3, g:status().counters.refused.loop)
  end)

  it("that starts itself as a program stops at the ninth", function()
    local dir = gateway.prepare { scripts = TOOL, config = {
      upstreams = { me = { command = { uv.fs_realpath(gateway.binary), "stdio", "moonpool.yaml" } } },
    } }
    local g <close> = gateway.start { dir = dir }
    local c <close> = g:client "2026-07-28"
    assert.is_true(#c:result("tools/list", {}).tools <= 9, names(c))
    assert.equal("here", c:result("tools/call", { name = "own" }).content[1].text)
  end)
end)
