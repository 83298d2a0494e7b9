-- Every malformed body gets one answer: a parse error; a refusal, with the id if it could be read; or, for a response
-- without a question, a 202 and a count. It is never taken for something else, and disturbs no other request (B-62).
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local suite = require "spec.helpers.json_suite"
local wire = require "spec.helpers.wire"

-- Each row: the body, the error's code (nil: 202), and the id of the answer.
local bodies = {
  { "", -32700 }, { " \r\n\t", -32700 }, { "\0", -32700 }, { "{", -32700 }, { "}", -32700 }, { "nul", -32700 }, { "{}{}", -32700 }, { "{},", -32700 },
  { '{"jsonrpc":"2.0","id":1,"method":"ping"', -32700 }, { '{"jsonrpc":"2.0","id":1,"method":"ping"}x', -32700 }, { "'ping'", -32700 },
  { '{"jsonrpc":"2.0","id":1,"method":"ping",}', -32700 }, { '{jsonrpc:"2.0","id":1,"method":"ping"}', -32700 }, { "ping", -32700 },
  { "GET / HTTP/1.1", -32700 },
  { "3", -32600 }, { '""', -32600 }, { '"ping"', -32600 }, { "null", -32600 }, { "true", -32600 }, { "[]", -32600 }, { "[1]", -32600 }, { "[[]]", -32600 },
  { "{}", -32600 }, { '{"id":1}', -32600, 1 }, { '{"jsonrpc":"2.0"}', -32600 }, { '{"jsonrpc":"2.0","id":1}', -32600, 1 },
  { '{"id":7,"method":"ping"}', -32600, 7 }, { '{"jsonrpc":"1.0","id":7,"method":"ping"}', -32600, 7 }, { '{"jsonrpc":2.0,"id":7,"method":"ping"}', -32600, 7 },
  { '{"jsonrpc":null,"id":7,"method":"ping"}', -32600, 7 }, { '{"jsonrpc":"2.0 ","id":7,"method":"ping"}', -32600, 7 },
  { '{"jsonrpc":"2.0","id":7,"method":""}', -32600, 7 }, { '{"jsonrpc":"2.0","id":7,"method":1}', -32600, 7 },
  { '{"jsonrpc":"2.0","id":7,"method":null}', -32600, 7 },
  { '{"jsonrpc":"2.0","id":7,"method":["ping"]}', -32600, 7 }, { '{"jsonrpc":"2.0","id":7,"method":{}}', -32600, 7 },
  { '{"jsonrpc":"2.0","id":7,"method":"ping","params":null}', -32600, 7 }, { '{"jsonrpc":"2.0","id":7,"method":"ping","params":[]}', -32600, 7 },
  { '{"jsonrpc":"2.0","id":7,"method":"ping","params":"x"}', -32600, 7 }, { '{"jsonrpc":"2.0","id":7,"method":"ping","params":0}', -32600, 7 },
  { '{"jsonrpc":"2.0","method":"notifications/x","params":null}', -32600 }, { '{"jsonrpc":"2.0","method":"notifications/x","params":[1]}', -32600 },
  { '{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600 }, { '{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600 },
  { '{"jsonrpc":"2.0","id":null,"result":{}}', -32600 }, { '{"jsonrpc":"2.0","result":{}}', -32600 },
  { '{"jsonrpc":"2.0","id":7,"method":"ping","error":{}}', -32600, 7 },
  { '{"jsonrpc":"2.0","id":7,"result":{}}' }, { '{"jsonrpc":"2.0","id":"7","result":null}' }, { '{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"x"}}' },
  { '{"jsonrpc":"2.0","id":7,"error":null}' }, { '{"jsonrpc":"2.0","id":7,"error":7}' }, { '{"jsonrpc":"2.0","id":"ask-0-1","result":{}}' },
}

-- Sends a message over each transport: returns the POST's response.
local function ways(g)
  local session = { ["Mcp-Session-Id"] = wire.initialize(g, "2025-11-25") }
  local sse = g:client "2024-11-05"
  return {
    ["Streamable HTTP"] = function(body) return wire.post(g, body, session) end,
    ["HTTP+SSE"] = function(body) return wire.post(g, body, nil, sse.endpoint) end,
  }, function()
    assert.same({}, sse:result "ping")
    assert.equal(1, #sse.stream:messages() - 1) -- the handshake's answer and this one: no other message came
    sse:close()
    wire.request(g, "DELETE", "/mcp", session)
    assert.has_nothing_left(g)
  end
end

describe("a body that is not a message", function()
  it("gets one parse error or refusal, with its id if it has one; a stray response is counted", function()
    local g <close> = gateway.start {}
    local all, leave = ways(g)
    for _, post in pairs(all) do
      local stray = 0
      local before = g:status().counters.dropped.unmatched
      for _, row in ipairs(bodies) do
        local body, code, id = table.unpack(row, 1, 3)
        local response = post(body)
        if code then
          local answer = response:json()
          assert.same({ 400, code, id }, { response.status, answer.error and answer.error.code, answer.id }, body)
          assert.equal(id, tonumber(response.body:match '"id":(%d+)'), body)
        else
          stray = stray + 1
          assert.same({ 202, "" }, { response.status, response.body }, body)
        end
      end
      assert.equal(before + stray, g:status().counters.dropped.unmatched)
    end
    leave()
  end)

  it("gets the same in 2026-07-28, where clients never send responses", function()
    local g <close> = gateway.start {}
    local headers = { ["MCP-Protocol-Version"] = "2026-07-28", ["Mcp-Method"] = "ping" }
    for _, row in ipairs(bodies) do
      local response = wire.post(g, row[1], headers)
      assert.same({ 400, row[2] or -32600 }, { response.status, response:json().error.code }, row[1])
    end
    assert.has_nothing_left(g)
  end)

  it("leaves its connection usable", function()
    local g <close> = gateway.start {}
    local connection <close> = client.connect(g)
    for _, row in ipairs(bodies) do
      local headers = { Accept = wire.both, ["Content-Type"] = "application/json" }
      assert.equal(400, connection:request({ method = "POST", path = "/mcp", headers = headers, body = row[1] }).status)
    end
    connection:close()
    assert.has_nothing_left(g)
  end)
end)

-- -- JSONTestSuite --------------------------------------------------------------------------------------------------------

local texts = suite.read()

describe("each text of JSONTestSuite", function()
  if not texts then
    pending("is not here: " .. suite.archive .. " holds it")
    return
  end

  it("as a body is never a parse error if its name begins with y_, and always if with n_", function()
    local g <close> = gateway.start {}
    local all, leave = ways(g)
    for name, text in pairs(texts) do
      for _, post in pairs(all) do
        local response = post(text)
        local code = response:json().error.code
        assert.equal(400, response.status, name)
        if name:find "^y_" then
          assert.equal(-32600, code, name)
        elseif name:find "^n_" then
          assert.equal(-32700, code, name)
        else
          assert.is_true(code == -32600 or code == -32700, name)
        end
      end
    end
    leave()
  end)

  it("as arguments reaches the tool if its name begins with y_, and is a parse error if with n_", function()
    local g <close> = gateway.start { scripts = {
      ["tools/echo.lua"] = 'return tool { "Gives what it got.", input = { v = t.any }, function(args) return json.encode { v = args.v } end }',
    } }
    local session = { ["Mcp-Session-Id"] = wire.initialize(g, "2025-11-25") }
    for name, text in pairs(texts) do
      local head = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":'
      -- inside another value, the text after a complete value makes it invalid, and a text may close too many brackets:
      -- n_ stays n_
      local response = wire.post(g, head .. '{"v":' .. text .. "}}}", session)
      local answer = response:json()
      if name:find "^y_" then
        if name:find "duplicated_key" then
          assert.equal(-32602, answer.error.code, name)
        else
          assert.truthy(answer.result and not answer.result.isError, name .. ": " .. response.body)
        end
      elseif name:find "^n_" then
        assert.same({ 400, -32700 }, { response.status, answer.error and answer.error.code }, name)
      else
        assert.is_true(response.status == 200 or response.status == 400, name)
      end
      answer = wire.post(g, head .. text .. "}}", session):json() -- now the JSON text itself is `arguments`: few of the texts are objects
      assert.truthy(answer.error or answer.result, name)
    end
    wire.request(g, "DELETE", "/mcp", session)
    assert.has_nothing_left(g)
  end)
end)
