-- Upstreams that speak HTTP+SSE of 2024-11-05: found without configuration or named, one stream for each channel,
-- messages by POST.
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local function said(answer) return upstream.text(answer):match '^{"text":"(.*)"}$' end

local function call(me, text, seconds)
  return me:call("tools/call", { name = "echo", arguments = { text = text } }, seconds)
end

-- Starts a gateway with the stub as `one`, and a client for each of two workers.
local function with(u, entry, check)
  local members = { prefix = "" }
  for key, value in pairs(entry or {}) do members[key] = value end
  local g <close> = upstream.gateway({ one = u }, { workers = 2, entries = { one = members } })
  local clients = {}
  for i = 1, 4 do clients[i] = g:client "2026-07-28" end
  check(g, clients)
  for _, me in ipairs(clients) do me:close() end
end

describe("an upstream over HTTP+SSE", function()
  for name, entry in pairs { ["found out"] = {}, ["named"] = { revision = "sse" } } do
    it("is called by the tasks of all workers: " .. name, function()
      local u <close> = upstream.start { transport = "sse" }
      with(u, entry, function(_, clients)
        for i, me in ipairs(clients) do assert.equal("text " .. i, said(call(me, "text " .. i))) end
        for i, me in ipairs(clients) do assert.equal("more " .. i, said(call(me, "more " .. i))) end
        assert.equal(8, u:ran "echo")
        assert.is_true(u.opened <= 2, u.opened .. " streams for one key and the lists")
      end)
      wait.for_fact("the streams to be closed", 20, function() return u:count_sessions() == 0 end)
    end)
  end

  it("has answers out of order and at once given to whom they belong", function()
    local u <close> = upstream.start { transport = "sse" }
    with(u, nil, function(_, clients)
      local calls = {}
      for i = 1, 12 do calls[i] = clients[i % 4 + 1]:open("tools/call", { name = "hold", arguments = { key = "k" .. i } }) end
      u:wait_held(12)
      for i = 12, 1, -1 do u:release("k" .. i) end
      for i = 1, 12 do assert.is_truthy(calls[i]:answer().result, "call " .. i) end
    end)
  end)

  it("is lost when its stream ends, and opened by the next call", function()
    local u <close> = upstream.start { transport = "sse" }
    with(u, nil, function(_, clients)
      assert.equal("a", said(call(clients[1], "a")))
      local held = clients[1]:open("tools/call", { name = "hold", arguments = {} })
      u:wait_held(1)
      u:end_streams()
      upstream.failure(held:answer(), "unknown")
      assert.equal("b", said(call(clients[2], "b")))
      assert.equal(1, u:ran "hold")
    end)
  end)

  it("gets messages only at addresses of its own origin", function()
    local other <close> = upstream.start { transport = "sse" }
    local port = other.web.port
    for _, endpoint in ipairs { "http://127.0.0.1:" .. port .. "/messages?session_id=%s", "//127.0.0.1:" .. port .. "/messages?session_id=%s",
      "http://localhost:1/messages?session_id=%s", "file:///etc/passwd", "http://user:x@127.0.0.1/messages" } do
      local u <close> = upstream.start { transport = "sse", endpoint = endpoint }
      with(u, { revision = "sse" }, function(_, clients)
        local answer = call(clients[1], "secret")
        assert.is_truthy(answer.error)
        assert.equal(0, u:ran())
      end)
    end
    assert.equal(0, #other:all {})
    local u <close> = upstream.start { transport = "sse", endpoint = "messages?session_id=%s" } -- relative to /sse
    with(u, { revision = "sse" }, function(_, clients) assert.equal("c", said(call(clients[1], "c"))) end)
  end)
end)
