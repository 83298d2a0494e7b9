-- What an upstream does wrong is found at once, and its error and the log name the cause.
local upstream = require "spec.helpers.upstream"

local faults = upstream.faults
local FORM <const> = { message = "Name?", requestedSchema = { type = "object", properties = { name = { type = "string" } }, required = { "name" } } }
local JSON <const> = "application/json"

local function echo(c) return c:call("tools/call", { name = "echo", arguments = { n = 1 } }) end

-- An answer to `initialize` that has this session id, and these members instead of the usual ones.
local function opens(session, revision, capabilities)
  return function(x)
    x:http(200, { ["content-type"] = JSON, ["mcp-session-id"] = session },
      ('{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"%s"%s,"serverInfo":{"name":"stub","version":"1"}}}'):format(
        x.id, revision or "2025-11-25", capabilities == false and "" or ',"capabilities":{"tools":{}}'))
  end
end

describe("the session of a question that the upstream has lost", function()
  it("ends the call when the client's answer comes, and not after `timeout`", function()
    for _, asks in ipairs { "2026-07-28", "2025-11-25" } do
      local u <close> = upstream.start { revision = "2025-11-25" }
      u:offer("tools", { "ask", "echo" })
      local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, { one = { timeout = "10m" } }) })
      local c <close> = g:client(asks, { capabilities = { elicitation = { form = {} } } })
      local params = { name = "ask", arguments = { questions = { { "elicitation/create", FORM } } } }
      local answer
      if asks == "2026-07-28" then
        local result = c:result("tools/call", params)
        assert.equal("input_required", result.resultType)
        u:lose_sessions "404"
        params.requestState = result.requestState
        params.inputResponses = { ["elicitation-1"] = { action = "accept", content = { name = "Ann" } } }
        answer = c:call("tools/call", params)
      else
        local stream = c:open("tools/call", params)
        local question = stream:wait_event("elicitation/create").json
        u:lose_sessions "404"
        c:post { jsonrpc = "2.0", id = question.id, result = { action = "accept", content = { name = "Ann" } } }
        answer = stream:answer()
      end
      upstream.failure(answer, "unknown", "lost")
      g:wait_log("upstream session lost", { upstream = "one" })
      assert.equal('{"n":1}', upstream.text(echo(c)))
    end
  end)
end)

describe("an upstream that cannot be opened", function()
  for _, row in ipairs {
    { "a session id of 2,000 bytes", opens(("x"):rep(2000)), "a session id above 1,024 bytes, or with characters that no header may have" },
    { "a session id with a space", opens "a b", "a session id above 1,024 bytes, or with characters that no header may have" },
    { "a revision that is not known", opens("s", "2099-01-01"), "2099-01-01" },
  } do
    it("says why: " .. row[1], function()
      local u <close> = upstream.start { revision = "2025-11-25", strict = false }
      u:when("initialize", row[2])
      local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, { one = { list_wait = "100ms", revision = "legacy" } }) })
      local one = g:wait_status(function(status) return status.upstreams.one.state == "down" end).upstreams.one
      assert.matches(row[3], one.error, 1, true)
      g:wait_log("upstream down", { upstream = "one" })
      assert.matches(row[3], g:log(), 1, true)
    end)
  end
end)

describe("an answer of a program that cannot be read", function()
  for _, row in ipairs {
    { "bytes that are no UTF-8", '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"\255"}]}}' },
    { "bytes that are no UTF-8 before its id", '{"jsonrpc":"2.0","result":{"content":[{"type":"text","text":"\255"}]},"id":%s}' },
    { "half of its JSON", '{"jsonrpc":"2.0","id":%s,"result":{"content":[' },
    { "neither result nor error", '{"jsonrpc":"2.0","id":%s}' },
  } do
    it("fails its call at once: " .. row[1], function()
      local u <close> = upstream.start { revision = "2025-11-25", transport = "stdio" }
      local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, { one = { timeout = "10m" } }) })
      local c <close> = g:client "2025-11-25"
      assert.equal('{"n":1}', upstream.text(echo(c)))
      u:when("tools/call echo", faults.answers(row[2]), 1)
      upstream.failure(echo(c), "unknown", "unreadable")
      g:wait_log("upstream call failed", { upstream = "one", reason = "unreadable" })
      assert.matches("an answer that is no JSON-RPC message: ", g:log(), 1, true)
      assert.equal('{"n":1}', upstream.text(echo(c)))
    end)
  end

  it("fails no call if it is a line of a log, or about another call", function()
    local u <close> = upstream.start { revision = "2025-11-25", transport = "stdio" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain { one = u } })
    local c <close> = g:client "2025-11-25"
    for _, line in ipairs { '{"level":"info","id":7,"msg":"x"}', '{"level":"info","msg":"\255"}', '{"jsonrpc":"2.0","id":999999,"result":{"a":"\255"}}',
      '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"\255"}}', "{", '{"jsonrpc":' } do
      u:when("tools/call echo", faults.noise(line .. "\n"), 1)
      assert.equal('{"n":1}', upstream.text(echo(c)), line)
    end
  end)
end)

describe("a list that is too long", function()
  it("says how many of its entries are left out", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:when("tools/list", faults.endless(20000, 20000))
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, { one = { list_wait = "30s" } }) })
    g:wait_log("upstream list incomplete", { upstream = "one", left_out = "10000", why = "the list is too long" })
  end)
end)

describe("log messages of an upstream whose call is not known", function()
  it("have a line that says so, once a minute", function()
    local u <close> = upstream.start { revision = "2025-06-18", transport = "stdio" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, { one = { per = "gateway" } }) })
    local one <close> = g:client "2025-11-25"
    local two <close> = g:client "2025-11-25"
    local first = one:open("tools/call", { name = "hold", arguments = { key = "a" } })
    local second = two:open("tools/call", { name = "hold", arguments = { key = "b" } })
    local x = u:wait_held(1, "a")[1]
    u:wait_held(1, "b")
    for n = 1, 20 do x:emit(('{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"%d"}}'):format(n)) end
    g:wait_log("upstream log not passed on", { upstream = "one", level = "error" })
    u:release()
    for _, stream in ipairs { first, second } do assert.equal("released", upstream.text(stream:answer())) end
    assert.equal(1, select(2, g:log():gsub("upstream log not passed on", "")))
  end)
end)
