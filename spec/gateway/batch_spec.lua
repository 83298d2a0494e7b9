-- Several messages in one body: 2025-03-26 has them, no other revision does. Rules G-8, S-6, D-9, W-4, E-12.
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
  assert.is_empty_house(g)
end

describe("a batch in a 2025-03-26 session", function()
  it("is answered by an array with one response for each request and each thing that is none", function()
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

  it("becomes an event stream when one of its calls reports, with every response on it", function()
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

  it("ends for each call by itself when the client calls one off", function()
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
  it("is answered on the stream, one event each, where 2025-03-26 was agreed on", function()
    local g <close> = gateway.start { scripts = scripts }
    local c <close> = g:client("2024-11-05", { initialize = false })
    c:call("initialize", { protocolVersion = "2025-03-26", capabilities = cjson.decode "{}", clientInfo = { name = "spec", version = "1" } })
    assert.equal(202, c:post({ echo(11, "one"), note, echo(12, "two"), 5 }).status)
    assert.equal("one", c.stream:wait_event(11).json.result.content[1].text)
    assert.equal("two", c.stream:wait_event(12).json.result.content[1].text)
    c:close()
    assert.is_empty_house(g)
  end)
end)

describe("a batch anywhere else", function()
  it("is 400", function()
    local g <close> = gateway.start { scripts = scripts }
    for _, revision in ipairs { "2025-06-18", "2025-11-25" } do
      local c <close> = g:client(revision)
      local response = c:post { echo(1, "one") }
      assert.equal(400, response.status)
      assert.equal(-32600, response:json().error.code)
      leave(g, c)
    end
    local none = client.request(g, { method = "POST", path = "/mcp", headers = { Accept = "*/*" }, body = { echo(1, "one") } })
    assert.equal(400, none.status)
    assert.is_empty_house(g)
  end)
end)
