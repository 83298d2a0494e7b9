-- Several messages in one body: only 2025-03-26 has them, up to 64. Rules G-8, S-6, D-9, W-4, E-12; B-65.
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"

local scripts = {
  ["tools/echo.lua"] = [[return tool { "Echo.", input = { text = t.string }, function(args) sleep(0.01) return args.text end }]],
  ["tools/steps.lua"] = [[return tool { "Steps.", function(_, call) call:progress(1, 2) sleep(0.01) call:progress(2, 2) return "done" end }]],
}

local function echo(id, text)
  return { jsonrpc = "2.0", id = id, method = "tools/call", params = { name = "echo", arguments = { text = text } } }
end

local note = { jsonrpc = "2.0", method = "notifications/roots/list_changed" }

local function by_id(answers)
  local found = {}
  for _, answer in ipairs(answers) do found[answer.id or "none"] = answer end
  return found
end

local function leave(g, c)
  if c.delete then c:delete() end
  c:close()
  assert.has_nothing_left(g)
end

describe("a batch in a 2025-03-26 session (B-65)", function()
  it("is answered by an array with one response for each request and each invalid member", function()
    local g <close> = gateway.start { scripts = scripts }
    local c <close> = g:client "2025-03-26"
    local response = c:post {
      echo(1, "one"), note, echo("two", "two"), { jsonrpc = "2.0", id = 3, method = "nothing/known" }, 5,
      { jsonrpc = "2.0", id = 6, method = "initialize", params = {} }, { jsonrpc = "2.0", id = 7, result = {} },
    }
    assert.equal(200, response.status)
    local answers = by_id(response:json())
    assert.equal("one", answers[1].result.content[1].text)
    assert.equal("two", answers.two.result.content[1].text)
    assert.equal(-32601, answers[3].error.code)
    assert.equal(-32600, answers[6].error.code)
    assert.equal(-32600, answers.none.error.code)
    assert.equal(5, #response:json())
    leave(g, c)
  end)

  it("of notifications alone is 202, an empty or a huge one 400", function()
    local g <close> = gateway.start { scripts = scripts }
    local c <close> = g:client "2025-03-26"
    assert.equal(202, c:post({ note, note }).status)
    local many = {}
    for i = 1, 64 do many[i] = echo(i, "x") end
    assert.equal(64, #c:post(many):json())
    many[65] = echo(65, "x")
    assert.equal(400, c:post(many).status)
    local headers = c:headers()
    headers["Content-Type"] = "application/json"
    local empty = client.request(g, { method = "POST", path = "/mcp", headers = headers, body = "[]" })
    assert.equal(400, empty.status)
    assert.equal(-32600, empty:json().error.code)
    leave(g, c)
  end)

  it("is refused whole when it has too many members, and none of them runs (B-65)", function()
    local g <close> = gateway.start { scripts = scripts }
    local c <close> = g:client "2025-03-26"
    local calls = g:status().counters.calls
    local headers = c:headers()
    headers["Content-Type"] = "application/json"
    for member, values in pairs {
      ['{"jsonrpc":"2.0","id":1,"method":"ping"}'] = 4, ['{"jsonrpc":"2.0","method":"notifications/x"}'] = 3, ["[]"] = 1, ["1"] = 1,
    } do
      for _, count in ipairs { 65, 50000, 100000 } do
        if count * #member < 4000000 then
          local body = "[" .. member .. ("," .. member):rep(count - 1) .. "]"
          local response = client.request(g, { method = "POST", path = "/mcp", headers = headers, body = body })
          local status = 1 + count * values > 100000 and 413 or 400 -- the most values of one body
          assert.same({ status, -32600 }, { response.status, response:json().error.code })
        end
      end
    end
    assert.equal(calls, g:status().counters.calls)
    leave(g, c)
  end)

  it("is checked member by member, independently of the other members (B-65)", function()
    local g <close> = gateway.start { scripts = scripts }
    local c <close> = g:client "2025-03-26"
    local garbage = { cjson.null, true, 0, "x", {}, { id = 9 }, { jsonrpc = "1.0", id = 8, method = "ping" }, { { jsonrpc = "2.0", id = 7, method = "ping" } } }
    local messages, right = {}, {}
    for i = 1, 50 do
      messages[i] = i % 5 == 0 and garbage[i // 5] or i % 5 == 1 and note or echo(i, "text " .. i)
      if i % 5 > 1 then right[i] = "text " .. i end
    end
    local dropped = g:status().counters.dropped.unmatched
    messages[45], messages[50] = { jsonrpc = "2.0", id = 45, result = {} }, note
    local response = c:post(messages)
    assert.equal(200, response.status)
    local refused, texts = 0, {}
    for _, answer in ipairs(response:json()) do
      if answer.error then
        assert.equal(-32600, answer.error.code)
        refused = refused + 1
      else
        assert.is_nil(texts[answer.id])
        texts[answer.id] = answer.result.content[1].text
      end
    end
    assert.same(right, texts)
    assert.equal(#garbage, refused)
    assert.equal(dropped + 1, g:status().counters.dropped.unmatched)
    leave(g, c)
  end)

  it("of responses alone is 202, and each stray one is counted", function()
    local g <close> = gateway.start { scripts = scripts }
    local c <close> = g:client "2025-03-26"
    assert.equal(202, c:post({ { jsonrpc = "2.0", id = 1, result = {} }, note, { jsonrpc = "2.0", id = 2, error = { code = 1, message = "x" } } }).status)
    assert.equal(2, g:status().counters.dropped.unmatched)
    leave(g, c)
  end)

  it("becomes an event stream with every response when one of its calls reports progress", function()
    local g <close> = gateway.start { scripts = scripts }
    local c <close> = g:client "2025-03-26"
    local connection = c.kept
    connection.events = {}
    c:post {
      echo(1, "one"),
      { jsonrpc = "2.0", id = 2, method = "tools/call", params = { name = "steps", arguments = cjson.decode "{}", _meta = { progressToken = "p" } } },
    }
    local progress, answers = {}, {}
    for _, event in ipairs(connection.events) do
      if event.json and event.json.method == "notifications/progress" then
        progress[#progress + 1] = event.json.params.progress
      elseif event.json then
        answers[event.json.id] = event.json
      end
    end
    assert.same({ 1, 2 }, progress)
    assert.equal("one", answers[1].result.content[1].text)
    assert.equal("done", answers[2].result.content[1].text)
    leave(g, c)
  end)

  it("loses only the call that the client cancels", function()
    local long = [[return tool { "Long.", function() sleep(60) end }]]
    local g <close> = gateway.start { scripts = { ["tools/long.lua"] = long, ["tools/echo.lua"] = scripts["tools/echo.lua"] } }
    local c <close> = g:client "2025-03-26"
    local connection = client.connect(g)
    connection:send { method = "POST", path = "/mcp", headers = c:headers(), body = {
      { jsonrpc = "2.0", id = 1, method = "tools/call", params = { name = "long", arguments = cjson.decode "{}" } }, echo(2, "two"),
    } }
    g:wait_status(function(status) return status.gauges.ops == 1 and status.gauges.requests_in_flight == 1 end)
    c:notify("notifications/cancelled", { requestId = 1 })
    local answers = connection:read_response(5):json()
    assert.equal(1, #answers)
    assert.equal(2, answers[1].id)
    connection:close()
    leave(g, c)
  end)
end)

describe("a batch over HTTP+SSE", function()
  it("is answered on the stream, one event each, where 2025-03-26 was negotiated", function()
    local g <close> = gateway.start { scripts = scripts }
    local c <close> = g:client("2024-11-05", { initialize = false })
    c:call("initialize", { protocolVersion = "2025-03-26", capabilities = cjson.decode "{}", clientInfo = { name = "spec", version = "1" } })
    assert.equal(202, c:post({ echo(11, "one"), note, echo(12, "two"), 5 }).status)
    assert.equal("one", c.stream:wait_event(11).json.result.content[1].text)
    assert.equal("two", c.stream:wait_event(12).json.result.content[1].text)
    c:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a batch in any other revision", function()
  it("is 400", function()
    local g <close> = gateway.start { scripts = scripts }
    for _, revision in ipairs { "2025-06-18", "2025-11-25" } do
      local c <close> = g:client(revision)
      for _, messages in ipairs { { echo(1, "one") }, { note }, { note, echo(1, "one"), note }, { { jsonrpc = "2.0", id = 1, result = {} } } } do
        local response = c:post(messages)
        assert.equal(400, response.status)
        assert.equal(-32600, response:json().error.code)
      end
      leave(g, c)
    end
    local none = client.request(g, { method = "POST", path = "/mcp", headers = { Accept = "*/*" }, body = { echo(1, "one") } })
    assert.equal(400, none.status)
    assert.has_nothing_left(g)
  end)
end)
