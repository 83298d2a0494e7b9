-- Progress of an upstream's call reaches the client that asked for it, with the client's own token, on the call's
-- stream.
-- pairs: progress; clients 2024-11-05; upstreams 2025-11-25.. http
-- pairs: progress; clients 2025-03-26; upstreams 2025-11-25.. http
-- pairs: progress; clients 2025-11-25..; upstreams 2025-11-25.. http
-- pairs: progress; clients 2024-11-05; upstreams 2025-06-18 stdio
-- pairs: progress; clients 2025-03-26; upstreams 2025-06-18 stdio
-- pairs: progress; clients 2025-11-25..; upstreams 2025-06-18 stdio
local upstream = require "spec.helpers.upstream"

local function of(stream)
  local list = {}
  for _, message in ipairs(stream:messages()) do
    if message.method == "notifications/progress" then list[#list + 1] = message.params end
  end
  return list
end

local function call(c, token, key, name)
  return c:open("tools/call", { name = name or "hold", arguments = { key = key }, _meta = { progressToken = token } })
end

for _, row in ipairs(upstream.kinds()) do
  describe(("progress of an upstream of %s over %s"):format(row[1], row[2]), function()
    local u, g

    lazy_setup(function()
      u = upstream.start { revision = row[1], transport = row[2] }
      g = upstream.gateway({ one = u }, { entries = upstream.plain { one = u } })
    end)
    lazy_teardown(function()
      local _ <close> = g -- luacheck: ignore 211
      u:close()
    end)

    for _, asks in ipairs { "2024-11-05", "2025-03-26", "2025-11-25", "2026-07-28" } do
      it("has the token of a client of " .. asks .. " in its type", function()
        local c <close> = g:client(asks)
        for _, token in ipairs { "p", 7, "7" } do
          local stream = call(c, token, "one")
          local x = u:wait_held(1)[1]
          x:report(1, 10, "first"):report(2.5, 10)
          assert.equal(1, stream:wait_event("notifications/progress").json.params.progress)
          local second = stream:wait_event("notifications/progress").json.params
          assert.same({ progressToken = token, progress = 2.5, total = 10 }, second)
          u:release()
          assert.equal("released", upstream.text(stream:answer()))
        end
      end)
    end

    it("rises, and ends with the answer", function()
      local c <close> = g:client "2025-11-25"
      local stream = call(c, "p", "one")
      local x = u:wait_held(1)[1]
      x:report(1):report(3):report(2):report(3):report(4)
      u:release()
      if u.kind ~= "http" then x:send(('{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":9}}'):format(x.token)) end
      stream:answer()
      -- once this call is answered, the progress that was sent after the answer has arrived, too
      assert.equal('{"n":1}', upstream.text(c:call("tools/call", { name = "look", arguments = { n = 1 } })))
      local seen = {}
      for i, params in ipairs(of(stream)) do seen[i] = params.progress end
      assert.same({ 1, 3, 4 }, seen)
    end)

    it("of equal tokens goes to the call that it is about", function()
      local one <close> = g:client "2025-11-25"
      local two <close> = g:client "2025-11-25"
      local a, b = call(one, "same", "a"), call(two, "same", "b")
      u:wait_held(2)
      local x, y = u:wait_held(1, "a")[1], u:wait_held(1, "b")[1]
      x:report(1, nil, "of a")
      y:report(2, nil, "of b")
      assert.equal(1, a:wait_event("notifications/progress").json.params.progress)
      assert.equal(2, b:wait_event("notifications/progress").json.params.progress)
      u:release()
      a:answer()
      b:answer()
      assert.equal(1, #of(a))
      assert.equal(1, #of(b))
    end)

    it("does not come without a token", function()
      local c <close> = g:client "2025-11-25"
      local stream = c:open("tools/call", { name = "hold", arguments = { key = "c" } })
      local x = u:wait_held(1)[1]
      x:emit(('{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}'):format(x.token or x.id))
      u:release()
      stream:answer()
      assert.equal(0, #of(stream))
    end)
  end)
end
