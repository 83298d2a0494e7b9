-- B-26: an answer belongs to the exchange that asked, not to an id that a client chose. Here every client sends
-- `"id":1` in every request.
local gateway = require "spec.helpers.gateway"

local CLIENTS, ROUNDS = 200, 100

local scripts = { ["tools/echo.lua"] = [[return tool {
  "Says what it was told, a little later.",
  input = { secret = t.string, after = t.number },
  function(args, call)
    call:progress(1)
    if args.after > 0 then sleep(args.after) end
    call:progress(2)
    return args.secret
  end,
}]] }

local revisions = { "2024-11-05", "2025-11-25", "2026-07-28" }

-- Asks for `secret` and does not wait. Every other call wants progress, with its secret as the token.
local function ask(me, secret, wants_progress)
  local message = me:message("tools/call", {
    name = "echo", arguments = { secret = secret, after = math.random(0, 50) / 1000 },
    _meta = wants_progress and { progressToken = secret } or nil,
  })
  message.id = 1
  me.kept.events = {}
  if me.stream then
    me.stream.events = {}
  end
  me.kept:send { method = "POST", path = me.endpoint or "/mcp", headers = me:headers(message), body = message }
end

local function assert_own(secret, message)
  if message.method then
    assert.equal(secret, message.params.progressToken)
  else
    assert.equal(1, message.id)
    assert.equal(secret, message.result.content[1].text)
  end
end

-- Takes the answer, and all messages that came with it.
local function take(me, secret, wants_progress)
  local response = me.kept:read_response(30)
  local carrier = me.kept
  if me.stream then
    assert.equal(202, response.status)
    me.stream:wait_event(1, 30)
    carrier = me.stream
  elseif not response.sse then -- the answer to a call that takes long is an event stream, too
    assert.is_false(wants_progress)
    assert.equal(200, response.status, response.body)
    assert_own(secret, response:json())
    return
  end
  local messages = carrier:messages()
  assert.equal(wants_progress and 3 or 1, #messages)
  for _, message in ipairs(messages) do
    assert_own(secret, message)
  end
end

describe("200 clients of three eras whose every request has the id 1", function()
  it("each get their own answers, all of them, and nothing else", function()
    math.randomseed(26)
    local g <close> = gateway.start { scripts = scripts, workers = 4, config = { overload = { wait = "off" } } }
    local clients = {}
    for i = 1, CLIENTS do
      local me = g:client(revisions[i % 3 + 1])
      if not me.kept then
        me:result "tools/list" -- makes the client connect
      end
      clients[i] = me
    end
    for round = 1, ROUNDS do
      local wants_progress = round % 2 == 0
      local function secret_of(i)
        return ("secret-%d-%d"):format(i, round)
      end
      for i, me in ipairs(clients) do
        ask(me, secret_of(i), wants_progress)
      end
      for i, me in ipairs(clients) do
        take(me, secret_of(i), wants_progress)
      end
    end
    local counters = g:status().counters
    assert.same({ gone = 0, slow = 0, unmatched = 0 }, { gone = counters.dropped.gone, slow = counters.dropped.slow, unmatched = counters.dropped.unmatched })
    for _, me in ipairs(clients) do
      if me.delete then
        me:delete()
      end
      me:close()
    end
    assert.has_nothing_left(g)
  end)
end)
