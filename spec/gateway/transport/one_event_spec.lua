-- A message is one event, with one line of data, for any text in it: no line end of a text reaches the stream (B-41).
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"

local texts = {
  "a\nb", "a\rb", "a\r\nb", "\n\n", "\r\r", "\n", "data: x\n\nid: 9", "x\n\nevent: message\ndata: {}\n\n", "\r\nid: 9\r\n\r\n", "a\u{2028}b\u{2029}c\u{85}",
  "a\0b", ":comment\n: x", "retry: 1\n\n", "\n\nid:9\nevent:endpoint\ndata:/evil\n\n", "\11\12\28\29\30", "\u{FEFF}data: x", "",
}

local scripts = {
  ["tools/say.lua"] = [[return tool { "Says it in every way there is.", input = { text = t.string }, function(args, call)
    call:progress(1, 2, args.text)
    call:log("error", args.text, args.text)
    call:log("error", { [args.text] = args.text })
    call:progress(2)
    return { said = args.text, [args.text .. "key"] = { args.text } }
  end }]],
  ["tools/fails.lua"] = 'return tool { "Fails.", input = { text = t.string }, function(args, call) call:progress(1) return nil, args.text end }',
  ["tools/asks.lua"] = [[return tool { "Asks.", input = { text = t.string }, function(args, call)
    local answer = try(call:sample("q", args.text))
    return answer.content.text
  end }]],
}

local allowed = {
  event = function(value) return value == "message" or value == "endpoint" end,
  id = function(value) return value ~= "9" and value:find "^[%w._:-]+$" end, -- the gateway's own event, if the stream can be resumed
  data = function(value) return value == "" or value:find "^/messages%?session_id=%x+$" or cjson.decode(value) end,
}

-- Checks that a stream has only comments and events, and that each field of an event occurs once and comes from the
-- gateway.
local function assert_events(raw)
  assert.is_nil(raw:find("\r", 1, true))
  for block in (raw:match "^(.*\n\n)" or ""):gmatch "(.-)\n\n" do
    local seen = {}
    for line in (block .. "\n"):gmatch "(.-)\n" do
      local name, value = line:match "^([^:]*): ?(.*)$"
      if name == "" then
        assert.truthy(value:find "^%a*$", line)
      else
        assert.truthy(name and allowed[name] and allowed[name](value) and not seen[name], line)
        seen[name] = true
      end
    end
  end
end

for _, revision in ipairs { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" } do
  describe("a text with line ends in " .. revision, function()
    it("stays within its event, in progress, logs, results and failures", function()
      local g <close> = gateway.start { scripts = scripts }
      local me = g:client(revision)
      if revision ~= "2026-07-28" then me:result("logging/setLevel", { level = "debug" }) end
      for _, text in ipairs(texts) do
        local meta = { progressToken = text, ["io.modelcontextprotocol/logLevel"] = revision == "2026-07-28" and "debug" or nil }
        if me.stream then me.stream.events = {} end
        local stream = me:open("tools/call", { name = "say", arguments = { text = text }, _meta = meta })
        local result = stream:answer().result
        assert.same({ said = text, [text .. "key"] = { text } }, cjson.decode(result.content[1].text))
        local messages = stream:messages()
        assert.equal(5, #messages)
        assert.equal(text, messages[1].params.progressToken)
        assert.equal(text, messages[2].params.data)
        assert.same({ [text] = text }, messages[3].params.data)
        if not me.stream then assert_events(stream.connection.responses[1].body) end
        local failing = me:open("tools/call", { name = "fails", arguments = { text = text }, _meta = meta })
        assert.equal(text, failing:answer().result.content[1].text)
        for _, connection in ipairs { stream.connection, failing.connection } do
          if connection ~= me.stream then connection:close() end
        end
      end
      if me.stream then assert_events(me.stream.responses[1].body) end
      if me.delete then me:delete() end
      me:close()
      assert.has_nothing_left(g)
    end)
  end)
end

describe("a client's value with line ends in its JSON", function()
  it("stays within one event", function()
    local g <close> = gateway.start { scripts = scripts }
    local me = g:client("2025-11-25", { capabilities = { sampling = { context = {} } } })
    local body = cjson.encode(me:message("tools/call", { name = "say", arguments = { text = "a\nb" }, _meta = { progressToken = "p\n\nid 9" } }))
    for _, space in ipairs { "\n", "\r", "\r\n", "\n\n" } do
      local connection <close> = client.connect(g)
      local headers = me:headers()
      headers["Content-Type"] = "application/json"
      connection:send { method = "POST", path = "/mcp", headers = headers, body = (body:gsub("[{}:,]", space .. "%0" .. space)) }
      connection:read_head()
      connection:wait_event(function(event) return event.json and event.json.result end)
      assert_events(connection.responses[1].body)
    end
    -- the text is not in the answer to a question either
    local stream = me:open("tools/call", { name = "asks", arguments = { text = "a\n\nid: 9" } })
    local question = stream:wait_event("sampling/createMessage").json
    assert.equal("a\n\nid: 9", question.params.messages[1].content.text)
    assert.equal(202, me:post({ jsonrpc = "2.0", id = question.id, result = {
      role = "assistant", model = "m", content = { type = "text", text = "b\n\nid: 9" },
    } }).status)
    assert.equal("b\n\nid: 9", stream:answer().result.content[1].text)
    assert_events(stream.connection.responses[1].body)
    me:delete()
    me:close()
    assert.has_nothing_left(g)
  end)
end)
