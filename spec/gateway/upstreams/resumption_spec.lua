-- An upstream that ends the event stream of a call after an id is asked for what follows: GET with Last-Event-ID, after
-- `retry:`, at most five times.
local cjson = require "cjson.safe"
local low = require "spec.helpers.upstream.low"
local trusted = require "spec.helpers.trusted"

local function event(id, value, more)
  return (more or "") .. (id and "id: " .. id .. "\n" or "") .. "data: " .. (value and cjson.encode(value) or "") .. "\n\n"
end

local function note(n, token) return { jsonrpc = "2.0", method = "notifications/progress", params = { progressToken = token, progress = n } } end

-- A server whose call "x" is answered by the pieces that `script(n, id, last)` gives for the n-th request about it:
-- bytes, then the end of the stream.
-- nil: 405.
local function server(script)
  local it = { gets = {}, posts = 0, cancelled = 0 }
  local id
  local function play(reply, n, last)
    local bytes = script(n, id, last)
    if not bytes then return reply:send(405, nil, "") end
    reply:head(200, { { "content-type", "text/event-stream" }, { "transfer-encoding", "chunked" } })
    reply:chunk(bytes)
    reply:raw "0\r\n\r\n"
  end
  it.up = require "spec.helpers.stub".start(function(request, reply)
    if request.method == "DELETE" then return reply:send(200) end
    if request.method == "GET" then
      it.gets[#it.gets + 1] = request.headers
      return play(reply, #it.gets + 1, request.headers["last-event-id"])
    end
    local message = cjson.decode(request.body)
    if message.method == "initialize" then
      local body = cjson.encode { jsonrpc = "2.0", id = message.id, result = { protocolVersion = "2025-11-25" } }
      return reply:send(200, { ["content-type"] = "application/json", ["mcp-session-id"] = "s" }, body)
    elseif message.method == "notifications/cancelled" then
      it.cancelled = it.cancelled + 1
      return reply:send(202)
    elseif message.method == "x" then
      it.posts, id = it.posts + 1, message.id
      return play(reply, 1)
    end
    low.answer(request, reply, message.params or {})
  end)
  return setmetatable(it, { __close = function() it.up:__close() end })
end

local code = [[
  local seen = {}
  local channel = assert(kept.open("one", "k"))
  local event, failure = kept.request(channel, "x", { timeout = 20, on_event = function(event)
    seen[#seen + 1] = event.bytes:match '"progress":(%d+)'
  end })
  return { seen = table.concat(seen, " "), result = event and event.result, reason = failure and failure.reason, outcome = failure and failure.outcome }]]

local function run(it, constants)
  local g <close> = low.start({ one = { url = it.up.url } }, { constants = constants })
  local me = low.workers(g, 1)
  local value = trusted.run(me, code, 60)
  assert.equal("{}", trusted.run(me, [[return kept.call("one", "k", "other").result]])) -- the channel works still
  me:close()
  g:wait_status(function(status)
    return status.gauges.upstream_exchanges == 0 and status.gauges.upstream_requests == 0
  end)
  local counters = g:status().counters
  return value, counters.upstream_resumed, counters.refused.upstream_resumptions
end

describe("an event stream that ends before the answer", function()
  it("is taken up behind its last id, again and again, with one result and no gap", function()
    local it <close> = server(function(n, id, last)
      if n == 1 then return "retry: 10\n" .. event("e0") .. event("e1", note(1, id)) end
      if n == 2 then
        assert.equal("e1", last)
        return event("e2", note(2, id))
      elseif n == 3 then
        assert.equal("e2", last)
        return ": nothing yet\n\n"
      end
      assert.equal("e2", last)
      return event("e3", note(3, id)) .. event("e4", { jsonrpc = "2.0", id = id, result = { done = true } })
    end)
    local value, resumed = run(it)
    assert.same({ seen = "1 2 3", result = '{"done":true}' }, value)
    assert.equal(3, resumed)
    assert.equal(1, it.posts)
    assert.equal(3, #it.gets)
    assert.equal("s", it.gets[1]["mcp-session-id"])
    assert.equal("2025-11-25", it.gets[1]["mcp-protocol-version"])
  end)

  it("is given up after five attempts, or where the upstream has no such stream: the outcome is unknown", function()
    local it <close> = server(function(_, _, _) return "retry: 1\n" .. event("e") end)
    assert.same({ seen = "", reason = "closed", outcome = "unknown" }, (run(it)))
    assert.equal(5, #it.gets)
    assert.equal(1, it.posts)
    it.gets = {}
    local failed, resumed, refused = run(it, { upstream_resumptions = 2 })
    assert.same({ seen = "", reason = "closed", outcome = "unknown" }, failed)
    assert.same({ 2, 2, 1 }, { #it.gets, resumed, refused })
    local other <close> = server(function(n) return n == 1 and "retry: 1\n" .. event("e") or nil end)
    assert.same({ seen = "", reason = "closed", outcome = "unknown" }, (run(other)))
    assert.equal(1, #other.gets)
  end)

  it("without an id is a failure at once", function()
    local it <close> = server(function(_, id) return "retry: 1\n" .. event(nil, note(1, id)) end)
    assert.same({ seen = "1", reason = "closed", outcome = "unknown" }, (run(it)))
    assert.equal(0, #it.gets)
  end)

  it("is left alone once the call is cancelled", function()
    local it <close> = server(function() return "retry: 60000\n" .. event("e") end)
    local g <close> = low.start { one = { url = it.up.url } }
    local me, other = low.workers(g, 2) -- a stream has a connection of its own, to either worker
    local stream = me:open("tools/call", trusted.code(code))
    g:wait_status(function(status) return status.counters.upstream_resumed == 1 end)
    stream:hang_up()
    me:close()
    other:close()
    g:wait_status(function(status) return status.gauges.upstream_exchanges == 0 and status.gauges.upstream_requests == 0 end)
    assert.equal(0, #it.gets)
  end)
end)
