-- B-83: 200 answers of 64 KB at once through one pipe, while other events interrupt: all are complete. B-84: the POST
-- that carried a call may end before the call's answer.
local cjson = require "cjson"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local stdio = require "spec.helpers.stdio"

local COUNT <const>, SIZE <const> = 200, 64 * 1024

local scripts = {
  ["tools/echo.lua"] = [[return tool { "Says it again.", input = { text = t.string, wait = t.number }, function(args, call)
    sleep(args.wait)
    call:progress(1)
    return args.text
  end }]],
  ["tools/reload.lua"] = 'return tool { "Is here to be changed.", function() return 1 end }',
}

local function text_of(i) return ("%d "):format(i):rep(SIZE // #("%d "):format(i)) end

local function arguments_of(i) return { text = text_of(i), wait = i % 7 / 1000 } end

describe("B-83 200 calls of 64 KB at once", function()
  it("through one stdio process are answered whole, with signals and reloads in between", function()
    local s <close> = stdio.start { scripts = scripts }
    local me = s:client "2025-11-25"
    local calls = {}
    for i = 1, COUNT do
      calls[i] = me:open("tools/call", { name = "echo", arguments = arguments_of(i), _meta = { progressToken = i } })
      if i % 20 == 0 then
        s:signal "sighup"
        me:notify("notifications/cancelled", { requestId = "nobody" })
      end
      if i % 50 == 0 then
        local file <close> = assert(io.open(s.dir .. "/scripts/tools/reload.lua", "ab"))
        file:write("-- ", i, "\n")
      end
    end
    for i, call in ipairs(calls) do assert.is_true(call:answer(30).result.content[1].text == text_of(i), "answer " .. i) end
    local told = 0
    for _, message in ipairs(s.messages) do
      if not message.given then
        message.given = true
        told = told + (message.json.method == "notifications/progress" and 1 or 0)
      end
    end
    assert.equal(COUNT, told)
    assert.equal(0, s:leave())
  end)

  it("over HTTP are answered whole, with signals and reloads in between", function()
    local g <close> = gateway.start { scripts = scripts }
    local me = g:client "2026-07-28"
    local calls = {}
    for i = 1, COUNT do calls[i] = me:open("tools/call", { name = "echo", arguments = arguments_of(i) }) end
    for i, call in ipairs(calls) do assert.is_true(call:answer(30).result.content[1].text == text_of(i), "answer " .. i) end
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("B-84 a call over HTTP+SSE whose POST has ended", function()
  it("is answered on the stream, however that POST's connection ended", function()
    local g <close> = gateway.start { scripts = scripts }
    local me = g:client "2024-11-05"
    local message = function(i)
      return cjson.encode { jsonrpc = "2.0", id = 1000 + i, method = "tools/call", params = { name = "echo", arguments = { text = "t" .. i, wait = 0.1 } } }
    end
    local ends = { "close", "reset", "fin" }
    for i = 1, 30 do
      local post = client.connect(g)
      post:send { method = "POST", path = me.endpoint, body = message(i), headers = { ["Content-Type"] = "application/json", Connection = "close" } }
      assert.equal(202, post:read_response().status)
      post:wait_closed()
      post[ends[i % 3 + 1]](post)
      post:close()
    end
    for i = 1, 30 do assert.equal("t" .. i, me.stream:wait_event(1000 + i).json.result.content[1].text) end
    me:close()
    assert.has_nothing_left(g)
  end)
end)
