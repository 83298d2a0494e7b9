-- Two requests at once with one id on one session. Over Streamable HTTP each exchange has its own answer; over
-- HTTP+SSE, where only ids distinguish answers, the second is refused while the first runs. No request gets the answer
-- of another, none waits for ever (B-27).
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"

local PARALLEL = 50

local scripts = {
  ["tools/echo.lua"] = [[return tool { "Says it, a little later.", input = { text = t.string, after = t.number }, function(args, call)
  call:progress(1)
  sleep(args.after)
  return args.text
end }]],
  ["tools/ask.lua"] = [[return tool { "Says what its client answers.", input = { text = t.string }, function(args, call)
  return args.text .. ": " .. try(call:sample("q", "Now?")).content.text
end }]],
}

-- Sends a call with id 1 on a connection of its own.
local function send(me, text, after, with_progress)
  local message = me:message("tools/call", {
    name = after and "echo" or "ask", arguments = { text = text, after = after }, _meta = with_progress and { progressToken = text } or nil,
  })
  message.id = 1
  local connection = client.connect(me.gateway)
  table.insert(me.connections, connection)
  return connection:send { method = "POST", path = me.endpoint or "/mcp", headers = me:headers(message), body = message }
end

for _, revision in ipairs { "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" } do
  describe("50 requests at once with one id in " .. revision, function()
    it("each get their own answer, as JSON or as a stream", function()
      local g <close> = gateway.start { scripts = scripts, workers = 4 }
      local me = g:client(revision)
      local sent = {}
      for i = 1, PARALLEL do
        sent[i] = send(me, "text " .. i, (PARALLEL - i) / 200, i % 2 == 0) -- the last call first
      end
      for i, connection in ipairs(sent) do
        local own = "text " .. i
        if i % 2 == 0 then
          local message = connection:wait_event(1).json
          assert.equal(own, message.result.content[1].text)
          assert.equal(own, connection:messages()[1].params.progressToken)
          assert.equal(2, #connection:messages())
        else
          local response = connection:read_response()
          local answer = response:json() or connection:messages()[1] -- a call that took long may have become a stream that can be resumed
          assert.same({ 1, own }, { answer.id, answer.result.content[1].text })
        end
      end
      if me.delete then me:delete() end
      me:close()
      assert.has_nothing_left(g)
    end)
  end)
end

describe("50 requests at once with one id over HTTP+SSE", function()
  it("are refused except one", function()
    local g <close> = gateway.start { scripts = scripts, workers = 4 }
    local me = g:client("2024-11-05", { capabilities = { sampling = { context = {} } } })
    me.ids = 100
    me.stream.events = {}
    for i = 1, PARALLEL do
      assert.equal(202, send(me, "text " .. i):read_response().status)
    end
    for _ = 2, PARALLEL do
      assert.equal(-32600, me.stream:wait_event(1).json.error.code)
    end
    -- the running call waits for this spec
    local question = me.stream:wait_event("sampling/createMessage").json
    me:post { jsonrpc = "2.0", id = question.id, result = { role = "assistant", model = "m", content = { type = "text", text = "now" } } }
    assert.truthy(me.stream:wait_event(1).json.result.content[1].text:find "^text %d+: now$")
    assert.equal(PARALLEL + 1, #me.stream:messages())
    assert.equal("again", send(me, "again", 0) and me.stream:wait_event(1).json.result.content[1].text) -- the id is free again
    me:close()
    assert.has_nothing_left(g)
  end)
end)
