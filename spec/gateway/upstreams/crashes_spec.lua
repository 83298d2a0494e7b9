-- A program that crashes at once, again and again: it is started five times, then requests are refused for
-- a minute, and it serves again once it is healthy.
local faults = require "spec.helpers.upstream.faults"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local function series(g, name) return tonumber(g:admin("/metrics").body:match(name .. '{upstream="one"} (%d+)')) end

describe("a program that crashes at once, again and again", function()
  it("is started five times, then no more", function()
    local u <close> = upstream.start { revision = "2025-06-18", transport = "stdio" }
    local other <close> = upstream.start { revision = "2025-06-18", transport = "stdio" }
    local g <close> = upstream.gateway({ one = u, two = other }, { workers = 2,
      entries = { one = { prefix = "", retry = "never", list_wait = "10s", circuit = { failures = 1000, open = "10ms..10ms" } } },
      constants = { upstream_ends_within_ms = 3600000 } })
    local c <close> = g:client "2025-11-25"
    local function call() return c:call("tools/call", { name = "echo", arguments = {} }) end
    assert.is_table(call().result)
    assert.equal(1, #u.children)
    u.at_start = function(child) child:order("exit", "3") end
    u.children[1]:order("exit", "3")
    wait.for_fact("its end", 20, function() return #u:alive() == 0 end)
    local data, message
    wait.for_fact("the limit", 20, function()
      local answer = call()
      assert.is_table(answer.error, "no result while it crashes")
      data, message = answer.error.data, answer.error.message
      return (g:status().counters.refused.upstream_processes or 0) > 0
    end)
    assert.equal(5, #u.children)                              -- one program that served, and four that crashed at once
    for _ = 1, 5 do
      wait.for_fact("a refusal", 20, function()
        local answer = call()
        data, message = answer.error and answer.error.data or {}, answer.error and answer.error.message
        return data.reason == "down"
      end)
      assert.equal("not_run", data.outcome)
      assert.is_true(data.retry_after >= 1 and data.retry_after <= 3600)
      assert.matches("^upstream 'one' is not there %(next try in .+%); the call was not run$", message)
    end
    g:wait_status(function(status) return status.upstreams.one.processes == 0 end)
    local now = g:status()
    assert.equal(5, #u.children)
    assert.equal(4, now.upstreams.one.restarts)
    assert.matches("5 programs ended by themselves within a minute; the last: the program ended: exit 3", now.upstreams.one.error, 1, true)
    assert.is_table(c:call("tools/call", { name = "two_echo", arguments = {} }).result)
    assert.equal(1, #other:alive())
    assert.equal(4, series(g, "moonpool_upstream_restarts"))
  end)

  it("serves again after that time, once it is healthy", function()
    local u <close> = upstream.start { revision = "2025-06-18", transport = "stdio" }
    local g <close> = upstream.gateway({ one = u }, { workers = 2,
      entries = { one = { prefix = "", retry = "never", list_wait = "10s", circuit = { failures = 1000, open = "10ms..10ms" } } },
      constants = { upstream_ends_within_ms = 2000 } })
    local c <close> = g:client "2025-11-25"
    local function call() return c:call("tools/call", { name = "echo", arguments = {} }) end
    assert.is_table(call().result)
    local healthy = u.at_start
    u.at_start = function(child) child:order("exit", "3") end
    u.children[1]:order("exit", "3")
    wait.for_fact("the limit", 60, function()
      call()
      return (g:status().counters.refused.upstream_processes or 0) > 0
    end)
    u.at_start = healthy
    local seen = #u.children
    wait.for_fact("the program to serve again", 30, function() return call().result ~= nil end)
    assert.equal(seen + 1, #u.children)
    assert.equal(1, g:status().upstreams.one.processes)
  end)
end)

describe("a program that closes its stdout and runs on", function()
  it("ends the call that it had, is ended itself, and another one serves the next call", function()
    local u <close> = upstream.start { revision = "2025-06-18", transport = "stdio" }
    local g <close> = upstream.gateway({ one = u }, { workers = 1, entries = { one = { prefix = "", retry = "never", list_wait = "10s" } } })
    local c <close> = g:client "2025-11-25"
    assert.is_table(c:call("tools/call", { name = "echo", arguments = {} }).result)
    local stream = c:open("tools/call", { name = "hold", arguments = {} })
    u:wait_held(1)
    local child = u:alive()[1]
    child:order "close_out"
    upstream.failure(stream:answer(20), "unknown", "closed")
    wait.for_fact("the end of the program", 20, function() return child.ended end)
    assert.is_table(c:call("tools/call", { name = "echo", arguments = {} }).result)
    assert.equal(2, #u.children)
    assert.equal(1, #u:alive())
  end)
end)

describe("a program that runs on and answers nothing any more", function()
  it("is started anew once the circuit is open and a ping has no answer, either", function()
    local u <close> = upstream.start { transport = "stdio", revision = "2025-06-18" }
    local g <close> = upstream.gateway({ one = u }, {
      entries = { one = { prefix = "", timeout = "2s", retry = "never", list_wait = "10s", circuit = { failures = 2, open = "10ms..10ms" } } },
    })
    local c <close> = g:client "2025-11-25"
    assert.equal("1", upstream.text(c:call("tools/call", { name = "counter" })))
    local first = u:alive()[1]
    u:when("*", faults.hangs())
    u.at_start = function() u:behave() end -- the next program answers as it should
    for _ = 1, 2 do upstream.failure(c:call("tools/call", { name = "counter" }), "unknown", "timeout") end
    wait.for_fact("an answer", 60, function() return c:call("tools/call", { name = "counter" }, 20).result end)
    assert.is_true(#u.children > 1)
    wait.for_fact("the end of the first program", 20, function() return first.ended end)
  end)
end)
