-- Calls of federated tools: progress, cancelling, headers, whose session is used, sessions that are lost, and failures
-- with what is known about the call.
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local faults = upstream.faults

local function call(c, name, arguments) return c:call("tools/call", { name = name, arguments = arguments or {} }) end

describe("progress of an upstream", function()
  for _, revision in ipairs { "2025-03-26", "2026-07-28" } do
    it("of " .. revision .. " reaches the client under the client's own token, rising, before the answer", function()
      local u <close> = upstream.start { revision = revision }
      local g <close> = upstream.gateway { one = u }
      for _, asked in ipairs { "2025-11-25", "2026-07-28" } do
        local c <close> = g:client(asked)
        local stream = c:open("tools/call", { name = "one_progress", arguments = { steps = 3 }, _meta = { progressToken = "mine" } })
        stream:answer(10)
        local seen = {}
        for _, message in ipairs(stream:messages()) do
          if message.method == "notifications/progress" then
            assert.equal("mine", message.params.progressToken)
            seen[#seen + 1] = message.params.progress
          end
        end
        assert.is_true(#seen > 0)
        for i = 2, #seen do assert.is_true(seen[i] > seen[i - 1]) end
        local sent = u:all { method = "tools/call" }
        assert.is_number(sent[#sent].json.params._meta.progressToken)
      end
    end)
  end

end)

describe("a client that cancels", function()
  it("cancels the upstream's request by its own id, and no other", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client "2025-11-25"
    local other <close> = g:client "2025-11-25"
    local one = c:open("tools/call", { name = "one_hold", arguments = { key = "a" } })
    local two = other:open("tools/call", { name = "one_hold", arguments = { key = "b" } })
    u:wait_held(2)
    local asked
    for _, entry in ipairs(u:all { method = "tools/call" }) do
      if entry.json.params.arguments.key == "a" then asked = entry end
    end
    c:notify("notifications/cancelled", { requestId = one.id })
    local note = u:wait { method = "notifications/cancelled" }
    assert.equal(asked.json.id, note.json.params.requestId)
    assert.equal(asked.headers["mcp-session-id"], note.headers["mcp-session-id"])
    u:release()
    assert.is_table(two:answer(10))
    assert.equal(1, #u:all { method = "notifications/cancelled" })
  end)
end)

describe("headers that repeat the body", function()
  it("equal the final body, after a rename and a policy", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    local g <close> = upstream.gateway({ one = u }, { entries = { one = { rename = { tenant = "who" } } }, scripts = {
      ["policy/change.lua"] = 'return policy { tools = { "one_who" }, function(call, next) call.args.tenant = "é " return next(call) end }',
    } })
    local c <close> = g:client "2025-11-25"
    upstream.text(call(c, "one_who", { tenant = "a", level = 7, dry = true, text = "x" }))
    local entry = u:wait { method = "tools/call" }
    assert.equal("tools/call", entry.headers["mcp-method"])
    assert.equal("tenant", entry.headers["mcp-name"])
    assert.equal("=?base64?w6kg?=", entry.headers["mcp-param-tenant"])
    assert.equal("7", entry.headers["mcp-param-level"])
    assert.equal("true", entry.headers["mcp-param-dry"])
  end)
end)

describe("an upstream with sessions", function()
  it("gives each client session a session of its own", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { workers = 2 })
    local a <close> = g:client "2025-11-25"
    local b <close> = g:client "2025-06-18"
    for n = 1, 3 do
      local first, second = upstream.text(call(a, "one_counter")), upstream.text(call(b, "one_counter"))
      assert.equal(tostring(n), first:match "%d+")
      assert.equal(tostring(n), second:match "%d+")
    end
  end)

  for _, how in ipairs { "404", "404 empty", "400", "-32600", "not initialized" } do
    it("that forgets a session (" .. how .. ") is initialized once more, and the call runs once, marked as in a new session", function()
      local u <close> = upstream.start { revision = "2025-11-25" }
      local g <close> = upstream.gateway { one = u }
      local c <close> = g:client "2025-11-25"
      upstream.text(call(c, "one_echo", { n = 1 }))
      u:when("tools/call echo", faults.lost(how), 1)
      local answer = call(c, "one_echo", { n = 2 })
      assert.equal('{"n":2}', upstream.text(answer))
      assert.equal("new", answer.result._meta["dev.moonpool/channel"])
      assert.equal(2, u:ran "echo")
    end)
  end
end)

describe("a failure of an upstream", function()
  it("is an error that says whether the call ran, and is never a result", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = { one = { circuit = { failures = 100 } } } })
    local c <close> = g:client "2025-11-25"
    for _, row in ipairs {
      { faults.html(), "unknown" }, { faults.empty(200), "unknown" }, { faults.empty(202), "unknown" }, { faults.status(500), "unknown" },
      { faults.status(403), "not_run", "barred" }, { faults.status(401), "not_run", "barred" }, { faults.busy(429, 7), "not_run", "busy" },
    } do
      u:when("tools/call echo", row[1], 1)
      local data, message = upstream.failure(call(c, "one_echo"), row[2], row[3])
      assert.equal("one", data.upstream)
      assert.is_truthy(message:find("^upstream 'one' "), message)
      assert.is_nil(message:find "html")
    end
  end)

  it("is followed by one repetition where the tool only reads, and by none where it may change something", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client "2025-11-25"
    u:when("tools/call look", faults.empty(200), 1)
    assert.is_table(call(c, "one_look").result)
    assert.equal(2, u:ran "look")
    for _, name in ipairs { "echo", "again" } do
      u:when("tools/call " .. name, faults.empty(200), 1)
      upstream.failure(call(c, "one_" .. name), "unknown")
      assert.equal(1, u:ran(name))
    end
  end)

  it("by an error of its own passes, with its code, message and data", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client "2026-07-28"
    local err = call(c, "one_fail").error
    assert.equal(-32123, err.code)
    assert.equal("The stub fails", err.message)
    assert.equal("a test", err.data.why)
  end)
end)

describe("the lists of an upstream", function()
  it("leave out items that are not valid, end at a cursor that repeats, and stop at the limit of a list", function()
    local bad <close> = upstream.start { revision = "2025-11-25" }
    local round <close> = upstream.start { revision = "2025-11-25" }
    local long <close> = upstream.start { revision = "2025-11-25" }
    bad:when("tools/list", faults.list '[null,7,{"name":""},{"name":"good","inputSchema":{"type":"object"}},{"name":"good"},{"title":"x"}]')
    round:when("tools/list", faults.cyclic '{"name":"once","inputSchema":{"type":"object"}}')
    long:when("tools/list", faults.endless(1000000, 40))
    local g <close> = upstream.gateway({ bad = bad, round = round, long = long }, { constants = { upstream_list_items = 130 } })
    local c <close> = g:client "2025-11-25"
    local names, cursor = {}, nil
    repeat
      local result = c:call("tools/list", cursor and { cursor = cursor } or nil).result
      for _, tool in ipairs(result.tools) do names[#names + 1] = tool.name end
      cursor = result.nextCursor
    until not cursor
    local count = { bad = 0, round = 0, long = 0 }
    for _, name in ipairs(names) do
      local of = name:match "^%l+"
      count[of] = count[of] + 1
    end
    assert.equal(1, count.bad)
    assert.equal(1, count.round)
    assert.is_true(count.long > 0 and count.long <= 130)
  end)

  it("stay as they were while it is gone, for ten minutes, then they go, and clients are notified", function()
    local u = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = { one = { refresh = "1s" } }, constants = { upstream_keep_ms = 1000 } })
    local c <close> = g:client "2026-07-28"
    wait.for_fact("the tools", 20, function() return #c:call("tools/list").result.tools > 0 end)
    local listening = c:open("subscriptions/listen", { notifications = { toolsListChanged = true } })
    listening:wait "notifications/subscriptions/acknowledged"
    u:close()
    listening:wait_event("notifications/tools/list_changed", 30)
    wait.for_fact("an empty list", 20, function() return #c:call("tools/list").result.tools == 0 end)
  end)
end)
