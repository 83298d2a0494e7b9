-- Answers as event streams in every legal spelling, cut anywhere, and among events that say nothing: the same result
-- (B-39), and no memory (B-40).
local cjson = require "cjson.safe"
local low = require "spec.helpers.upstream.low"
local memory = require "spec.helpers.memory"
local stub = require "spec.helpers.stub"
local trusted = require "spec.helpers.trusted"

local STREAM = { ["content-type"] = "text/event-stream", ["transfer-encoding"] = "chunked" }

-- The answer `A` with the id of the request; parts of it on lines of their own where the spelling has several.
local spellings = {
  "data: A\n\n",
  "data:A\n\n",
  "event: message\ndata: A\n\n",
  "data: A\nevent: message\nid: 7\nretry: 10\n\n",
  "data: A\r\n\r\n",
  "data: A\r\r",
  "\xef\xbb\xbfdata: A\n\n",
  ": a comment\n:\n\ndata: A\n\n",
  "data\n\ndata:\n\ndata: \n\ndata: A\n\n",
  "event: other\ndata: A\n\ndata: no JSON\n\nunknown: x\ndata: A\n\n",
  "data: B\r\ndata: C\r\n\r\n",
  "id: 1\r\ndata:\r\n\r\n\n\rdata: B\rdata:C\n\r\n",
}

local function written(spelling, id)
  local head, tail = ('{"jsonrpc":"2.0","id":%d,'):format(id), '"result":{"é":"\\u0041"}}'
  return (spelling:gsub("[ABC]", { A = head .. tail, B = head, C = tail }))
end

local run = [[
  local channel = assert(kept.open("one", "k"))
  local wrong = {}
  for cut = 0, most do
    local answer, failure = kept.request(channel, ("n%d"):format(cut), {})
    local got = answer and answer.result or failure.outcome .. " " .. failure.reason
    if got ~= '{"é":"\\u0041"}' then wrong[#wrong + 1] = ("cut at %d: %s"):format(cut, got) end
  end
  return wrong]]

-- A server that answers the requests of `run` by `answer(message, reply)`, and refuses what the gateway asks by itself.
local function server(answer)
  return stub.start(function(request, reply)
    local message = cjson.decode(request.body) or {}
    reply.tcp:nodelay(true) -- each piece is a packet
    if not message.id then return reply:send(202) end
    if type(message.method) == "string" and message.method:find "^n%d+$" then return answer(message, reply) end
    if message.method == "initialize" then
      local result = { protocolVersion = "2025-11-25", capabilities = {}, serverInfo = { name = "s", version = "1" } }
      return reply:json { jsonrpc = "2.0", id = message.id, result = result }
    end
    reply:json { jsonrpc = "2.0", id = message.id, error = { code = -32601, message = "no such method" } }
  end)
end

describe("an answer as an event stream", function()
  for n, spelling in ipairs(spellings) do
    it(("is the same in spelling %d, cut at every byte"):format(n), function()
      local up <close> = server(function(message, reply)
        local text, cut = written(spelling, message.id), tonumber(message.method:match "%d+")
        local pieces = { text }
        if cut > 0 and cut < #text then pieces = { text:sub(1, cut), text:sub(cut + 1) } end
        for i, piece in ipairs(pieces) do pieces[i] = ("%x\r\n%s\r\n"):format(#piece, piece) end
        reply:head(200, STREAM):pieces(pieces, function() reply:raw "0\r\n\r\n" end)
      end)
      local g <close> = low.start { one = { url = up.url } }
      local me = low.workers(g, 1)
      assert.same({}, trusted.run(me, ("local most = %d\n%s"):format(#written(spelling, 100), run)))
      me:close()
    end)
  end

  it("comes after 200,000 comments and events that say nothing, for no memory", function()
    local noise = (": ping\n\ndata: no JSON\n\nevent: x\n\n: \n\n"):rep(1000)
    local chunk = ("%x\r\n%s\r\n"):format(#noise, noise)
    local up <close> = server(function(message, reply)
      local pieces = {}
      for i = 1, 100 do pieces[i] = chunk end
      pieces[#pieces + 1] = ("%x\r\n%s\r\n"):format(#written("data: A\n\n", message.id), written("data: A\n\n", message.id))
      reply:head(200, STREAM):pieces(pieces, function() reply:raw "0\r\n\r\n" end)
    end)
    local g <close> = low.start({ one = { url = up.url } }, { env = memory.environment() })
    local me = low.workers(g, 1)
    local code = "local most = 0\n" .. run
    assert.same({}, trusted.run(me, code))
    local before = memory.resting(g)
    for _ = 1, 3 do assert.same({}, trusted.run(me, code)) end
    assert.is_true(memory.resting(g) - before < 4 << 20, cjson.encode { before, g:rss() })
    me:close()
  end)
end)
