-- An upstream that has forgotten its sessions: it is opened again once, and each call that it refused runs once.
-- pairs: sessions that the upstream has lost; clients 2025-11-25..; upstreams 2025-11-25 http
local upstream = require "spec.helpers.upstream"

local faults = upstream.faults
local WAYS <const> = { "404", "404 empty", "400", "-32600", "-32602", "not initialized" }
local PATIENT <const> = { one = { list_wait = "20s" } } -- on a busy machine the first reading takes its time

describe("an upstream that lost its sessions", function()
  for _, how in ipairs(WAYS) do
    it(("and says %s is opened once for 50 calls"):format(how), function()
      local u <close> = upstream.start { revision = "2025-11-25" }
      local other <close> = upstream.start { revision = "2025-11-25" }
      local more <const> = { one = { list_wait = "20s", calls = 64, circuit = { failures = 1 } } }
      local g <close> = upstream.gateway({ one = u, other = other }, { entries = upstream.plain({ one = u }, more) })
      for _, asks in ipairs { "2025-11-25", "2026-07-28" } do
        local c <close> = g:client(asks)
        c:result("tools/call", { name = "echo", arguments = { n = 0 } })
        c:result("tools/call", { name = "other_echo", arguments = { n = 0 } })
        g:wait_status(function(status) return status.gauges.tasks == 0 end) -- nothing but the calls finds out that the session is lost
        u:lose_sessions(how)
        local opened, ran, quiet = #u:all { method = "initialize" }, u:ran "echo", #other.received
        local streams = {}
        for n = 1, 50 do streams[n] = c:open("tools/call", { name = "echo", arguments = { n = n } }) end
        local marked = 0
        for n, stream in ipairs(streams) do
          local answer = stream:answer()
          assert.equal(('{"n":%d}'):format(n), upstream.text(answer))
          if (answer.result._meta or {})["dev.moonpool/channel"] == "new" then marked = marked + 1 end
          stream:close()
        end
        assert.equal(1, #u:all { method = "initialize" } - opened)
        assert.equal(50, u:ran "echo" - ran)
        assert.is_true(marked >= 1)
        assert.equal(quiet, #other.received)
      end
    end)
  end

  it("again and again is opened each time", function()
    local u <close> = upstream.start { revision = "2025-06-18" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, PATIENT) })
    local c <close> = g:client "2025-11-25"
    c:result("tools/list", {})
    for n = 1, 50 do
      u:lose_sessions(WAYS[n % #WAYS + 1])
      assert.equal(('{"n":%d}'):format(n), upstream.text(c:call("tools/call", { name = "echo", arguments = { n = n } })))
    end
    assert.equal(50, u:ran "echo")
  end)

  it("and refuses the new session as well gives an error, and the call did not run", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, PATIENT) })
    local c <close> = g:client "2025-11-25"
    c:result("tools/call", { name = "look", arguments = { n = 0 } })
    u:when("tools/call echo", faults.lost "404")
    upstream.failure(c:call("tools/call", { name = "echo", arguments = { n = 1 } }), "not_run")
    assert.equal(2, #u:all { tool = "echo" })
    u:behave()
    assert.equal('{"n":2}', upstream.text(c:call("tools/call", { name = "echo", arguments = { n = 2 } })))
  end)

  it("and says so with a code of its own is opened for the next call, and what only reads is sent again", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:offer("tools", { "echo", '{"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}' })
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, PATIENT) })
    local c <close> = g:client "2025-11-25"
    local function call(name) return c:call("tools/call", { name = name, arguments = { n = 1 } }) end
    assert.equal('{"n":1}', upstream.text(call "echo"))
    u:lose_sessions "-30001"
    local opened = #u:all { method = "initialize" }
    assert.equal(-30001, call("echo").error.code)
    assert.equal('{"n":1}', upstream.text(call "echo"))
    assert.equal(opened + 1, #u:all { method = "initialize" })
    assert.equal(2, u:ran "echo")
    u:lose_sessions "-30001"
    assert.equal('{"n":1}', upstream.text(call "look"))
    assert.equal(1, u:ran "look")
  end)

  it("is not taken for the answer of a tool that speaks of sessions of its own", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, PATIENT) })
    local c <close> = g:client "2025-11-25"
    for _, text in ipairs { "Session not found", "Database not initialized" } do
      u:when("tools/call echo", faults.error(-32602, text), 1)
      assert.equal(text, c:call("tools/call", { name = "echo", arguments = {} }).error.message)
    end
    assert.equal(2, #u:all { tool = "echo" })
  end)

  it("over HTTP+SSE or stdio is opened by the next call, and calls under way fail as unknown", function()
    for _, transport in ipairs(upstream.served { "sse", "stdio" }) do
      local u <close> = upstream.start { revision = "2024-11-05", transport = transport }
      local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, PATIENT) })
      local c <close> = g:client "2025-11-25"
      local streams = {}
      for n = 1, 5 do streams[n] = c:open("tools/call", { name = "hold", arguments = { n = n } }) end
      u:wait_held(5)
      if transport == "sse" then
        u:end_streams()
      else
        u:wait_held(1)[1].child:order("exit", 1)
      end
      for _, stream in ipairs(streams) do upstream.failure(stream:answer(), "unknown") end
      assert.equal('{"n":1}', upstream.text(c:call("tools/call", { name = "echo", arguments = { n = 1 } })))
      assert.equal(5, u:ran "hold")
    end
  end)
end)
