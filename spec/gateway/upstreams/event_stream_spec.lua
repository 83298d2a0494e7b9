-- Answers of upstreams as event streams: notifications and questions on the way, time limits, cancellation.
local cjson = require "cjson.safe"
local low = require "spec.helpers.upstream.low"
local trusted = require "spec.helpers.trusted"
local wait = require "spec.helpers.wait"

local STREAM = { ["content-type"] = "text/event-stream", ["transfer-encoding"] = "chunked" }

local function event(message) return "data: " .. (type(message) == "string" and message or cjson.encode(message)) .. "\n\n" end

local function note(n) return event { jsonrpc = "2.0", method = "notifications/progress", params = { progressToken = 1, progress = n } } end

local function final(message, result) return event { jsonrpc = "2.0", id = message.id, result = result } end

local function params(message) return message.params or {} end

-- The kinds and methods of the events of one request, with the answer's result or the failure last.
local collect = [[
  local seen = {}
  local channel = assert(kept.open("one", "k"))
  options.on_event = function(event, exchange)
    seen[#seen + 1] = event.kind .. " " .. event.method
    if event.kind == "request" then exchange:reply(('{"jsonrpc":"2.0","id":%s,"result":{}}'):format(event.id)) end
  end
  local answer, failure = kept.request(channel, method, options)
  seen[#seen + 1] = answer and answer.result or failure.outcome .. " " .. failure.reason
  return table.concat(seen, ", ")]]

local function try(me, method, options)
  return trusted.run(me, ("local method, options = %q, { %s }\n%s"):format(method, options or "", collect))
end

describe("an answer as an event stream", function()
  -- The answer follows once all before it is written and the upstream's request has its reply, whichever is later.
  -- Written among the pieces it would break the stream off behind an event with an id, and the gateway would ask for
  -- the rest with GET and Last-Event-ID (S-28), as resumption_spec.lua proves.
  it("brings notifications, the upstream's requests and the answer, however they are cut", function()
    local replies, step_ended = {}, nil
    local up <close> = low.server(function(message, _, reply)
      if not message.method then
        replies[#replies + 1] = message
        reply:send(202)
        return step_ended()
      end
      local text = ": hello\r\n\r\nid: 1\r\ndata:\r\n\r\n" .. note(1) .. event { jsonrpc = "2.0", id = "q-1", method = "roots/list" }
        .. event { jsonrpc = "2.0", id = 99, result = {} } .. event "no JSON" .. "event: other\ndata: {}\n\n"
        .. event { { jsonrpc = "2.0", method = "notifications/message" }, { jsonrpc = "2.0", method = "notifications/x" } }
      local pieces = {}
      local size = message.method == "small" and 3 or #text
      for i = 1, #text, size do pieces[#pieces + 1] = ("%x\r\n%s\r\n"):format(#text:sub(i, i + size - 1), text:sub(i, i + size - 1)) end
      local steps = 2
      function step_ended()
        steps = steps - 1
        if steps == 0 then reply:chunk(final(message, "done")):raw "0\r\n\r\n" end
      end
      reply:head(200, STREAM):pieces(pieces, step_ended)
    end)
    local g <close> = low.start { one = { url = up.url } }
    local me = low.workers(g, 1)
    for _, method in ipairs { "whole", "small" } do
      assert.equal("notification notifications/progress, request roots/list, notification notifications/message, "
        .. 'notification notifications/x, "done"', try(me, method), method)
    end
    assert.equal(2, #replies)
    assert.equal("q-1", replies[1].id)
    assert.is_true(g:status().counters.dropped.upstream_id >= 4)
    assert.equal(0, low.count(low.methods(up), "GET"))
    me:close()
  end)

  it("uses one connection for one answer after another", function()
    local up <close> = low.server(function(message, _, reply)
      reply:head(200, STREAM):chunk(final(message, true)):later(20, function() reply:raw "0\r\n\r\n" end)
    end)
    local g <close> = low.start { one = { url = up.url } }
    local me = low.workers(g, 1)
    for _ = 1, 5 do
      assert.equal("true", trusted.run(me, [[return assert(kept.request(kept.open("one", "k"), "x")).result]]))
      g:wait_status(function(status) return status.gauges.upstream_requests == 0 end)
    end
    assert.is_true(up.accepted <= 2, up.accepted .. " connections")
    me:close()
  end)

  it("fails when it ends, breaks off, is compressed or has an event that is too large before the answer", function()
    local up <close> = low.server(function(message, _, reply)
      if message.method == "ends" then
        reply:head(200, STREAM):chunk(note(1)):raw "0\r\n\r\n"
      elseif message.method == "breaks" then
        reply:head(200, STREAM):chunk(note(1)):later(0, function() reply:close() end)
      elseif message.method == "packed" then
        reply:head(200, { ["content-type"] = "text/event-stream", ["content-encoding"] = "gzip", ["transfer-encoding"] = "chunked" })
        reply:chunk "\31\139":raw "0\r\n\r\n"
      else
        reply:head(200, STREAM):chunk("data: " .. ("x"):rep(200000))
      end
    end)
    local g <close> = low.start({ one = { url = up.url, circuit = { failures = 100 } } },
      { config = { limits = { upstreams = { answer = "100KiB" } } } })
    local me = low.workers(g, 1)
    assert.equal("notification notifications/progress, unknown closed", try(me, "ends"))
    assert.equal("notification notifications/progress, unknown closed", try(me, "breaks"))
    assert.equal("unknown unreadable", try(me, "packed"))
    assert.equal("unknown too_large", try(me, "large"))
    me:close()
  end)

  it("is cancelled upstream after `timeout` without a message, and after `total` in any case; a late answer is dropped", function()
    local up <close> = low.server(function(message, _, reply)
      if message.method == "notifications/cancelled" then return reply:send(202) end
      reply:head(200, STREAM)
      if message.method == "silent" then
        local function comment() reply:chunk(": ping\n\n"):later(20, comment) end
        return comment()
      end
      local n = 0
      local function progress()
        n = n + 1
        reply:chunk(note(n)):later(20, progress)
      end
      progress()
    end)
    local g <close> = low.start { one = { url = up.url, circuit = { failures = 100 } } }
    local me = low.workers(g, 1)
    local cancel = [[cancel = '{"jsonrpc":"2.0","method":"notifications/cancelled"}']]
    assert.equal("unknown timeout", try(me, "silent", "timeout = 0.3, total = 30, " .. cancel))
    assert.matches("progress, unknown total$", try(me, "busy", "timeout = 30, total = 2, " .. cancel))
    wait.for_fact("two cancellations", 20, function() return low.count(low.methods(up), "notifications/cancelled") == 2 end)
    wait.for_fact("the streams to be closed", 20, function() return up:open() <= 2 end)
    g:wait_status(function(status) return status.gauges.upstream_exchanges == 0 and status.gauges.upstream_requests == 0 end)
    me:close()
  end)

  it("is cancelled when its client leaves, with the message that was given for that, and nothing else is", function()
    local held = {}
    local up <close> = low.server(function(message, request, reply)
      if message.method == "notifications/cancelled" then return reply:send(202) end
      held[params(message).n] = function() low.answer(request, reply, message.params) end
    end)
    local g <close> = low.start { one = { url = up.url } }
    local me = low.workers(g, 1)
    local code = [[
      local channel = kept.open("one", "k")
      local cancel = '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"n":%d}}'
      return kept.request(channel, "x", { params = { n = %d }, cancel = cancel }).result]]
    trusted.run(me, [[return kept.open("one", "k") ~= nil]])
    local one, two = low.workers(g, 2)
    local first = one:open("tools/call", trusted.code(code:format(1, 1)))
    local second = two:open("tools/call", trusted.code(code:format(2, 2)))
    wait.for_fact("two requests", 20, function() return held[1] and held[2] end)
    first:hang_up()
    wait.for_fact("the cancellation", 20, function() return low.count(low.methods(up), "notifications/cancelled") == 1 end)
    assert.equal(1, cjson.decode(up.requests[#up.requests].body).params.n)
    held[2]()
    assert.equal('{"n":2}', (trusted.read(second:answer())))
    g:wait_status(function(status) return status.gauges.upstream_exchanges == 0 end)
    for _, client in ipairs { me, one, two } do client:close() end
  end)

  it("stays in the socket while its task does something else", function()
    local sent = 0
    local up <close> = low.server(function(message, _, reply)
      reply:head(200, STREAM)
      local filler = event { jsonrpc = "2.0", method = "notifications/message", params = { data = ("x"):rep(10000) } }
      local function more()
        if sent == 2000 then return reply:chunk(final(message, sent)):raw "0\r\n\r\n" end
        sent = sent + 1
        reply.tcp:write(("%x\r\n%s\r\n"):format(#filler, filler), more)
      end
      more()
    end)
    local g <close> = low.start { one = { url = up.url } }
    local me, other = low.workers(g, 2)
    local stream = me:open("tools/call", trusted.code [[
      local channel = kept.open("one", "k")
      local id = channel:next_id()
      local exchange = channel:send('{"jsonrpc":"2.0","method":"x","id":' .. id .. '}', { id = id })
      while not kept.go do host.time.sleep(0.01) end
      local n = 0
      while true do
        local event = assert(exchange:next())
        if event.kind == "answer" then return { n = n, result = event.result } end
        n = n + 1
      end]])
    local last, same = -1, 0
    wait.for_fact("the upstream to be held up", 20, function()
      same = sent == last and sent > 0 and same + 1 or 0
      last = sent
      return same > 50
    end)
    assert.is_true(sent < 2000, "all was read")
    for _, client in ipairs { me, other } do trusted.run(client, "kept.go = true return true") end
    assert.same({ n = 2000, result = "2000" }, (trusted.read(stream:answer(20))))
    me:close()
    other:close()
  end)
end)
