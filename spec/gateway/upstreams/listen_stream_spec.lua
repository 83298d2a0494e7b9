-- Listen streams: what an upstream says on the GET stream of a session. Questions go to the call that runs; what
-- belongs to no call goes to Lua of the worker that holds the stream.
local cjson = require "cjson.safe"
local low = require "spec.helpers.upstream.low"
local trusted = require "spec.helpers.trusted"
local wait = require "spec.helpers.wait"

-- A server with sessions and GET streams. `it.streams`: the replies of open GETs by session; `it.held`: requests that
-- wait, by their method.
local function server(options)
  options = options or {}
  local it = { streams = {}, heads = {}, held = {}, replies = {}, gets = 0 }
  it.up = require "spec.helpers.stub".start(function(request, reply)
    local session = request.headers["mcp-session-id"]
    if request.method == "DELETE" then return reply:send(200) end
    if request.method == "GET" then
      it.gets = it.gets + 1
      it.heads[it.gets] = request.headers
      if options.get then return options.get(it, request, reply) end
      reply:head(200, { { "content-type", "text/event-stream" }, { "transfer-encoding", "chunked" } })
      it.streams[session] = reply
      return
    end
    local message = cjson.decode(request.body)
    if not message.method then
      it.replies[#it.replies + 1] = message
      return reply:send(202)
    end
    if message.method == "initialize" then
      local body = cjson.encode { jsonrpc = "2.0", id = message.id, result = { protocolVersion = "2025-11-25" } }
      return reply:send(200, { ["content-type"] = "application/json", ["mcp-session-id"] = "s-" .. message.params.key }, body)
    end
    if message.id == nil then return reply:send(202) end
    if message.method == "hold" then
      table.insert(it.held, { request = request, reply = reply, id = message.id, n = message.params.n })
    else
      low.answer(request, reply, message.params or {})
    end
  end)
  function it.say(session, value)
    local text = type(value) == "string" and value or cjson.encode(value)
    it.streams[session]:chunk("data: " .. text .. "\n\n")
  end
  function it.release()
    for _, one in ipairs(it.held) do low.answer(one.request, one.reply, { n = one.n }) end
    it.held = {}
  end
  function it.wait_held(n) wait.for_fact(n .. " held requests", 20, function() return #it.held >= n end) end
  return setmetatable(it, { __close = function() it.up:__close() end })
end

-- kept.listen(name, key): opens the channel and its GET stream; kept.seen: what was observed on this worker
local library = [[
function kept.listen(name, key)
  local channel, state = kept.open(name, key)
  local word, status = channel:listen()
  return channel, word, status
end
kept.seen = kept.seen or {}
local observer = package.loaded["moonpool.upstream.observer"]
for _, what in ipairs { "notifications/tools/list_changed", "notifications/message", "notifications/odd", "gap", "ended" } do
  observer.on(what, function(event, params) table.insert(kept.seen, what .. " " .. event.upstream .. " " .. event.key .. " " .. tostring(params.n)) end)
end
return true]]

local function start(it, more)
  local config = { url = it.up.url }
  for name, value in pairs(more or {}) do config[name] = value end
  local g = low.start({ one = config }, { constants = { upstream_queue = 65536 } })
  local one, two = low.workers(g, 2)
  trusted.run(one, library)
  trusted.run(two, library)
  return g, one, two
end

local function quiet(g)
  g:wait_status(function(status)
    local gauges = status.gauges
    return gauges.upstream_exchanges == 0 and gauges.upstream_takes == 0 and gauges.upstream_requests == 0 and gauges.upstream_listen_streams == 0
  end)
end

describe("a question on the GET stream", function()
  it("goes to the only call that runs, on whatever worker it is", function()
    local it <close> = server()
    local g <close>, one, two = start(it)
    assert.equal("open", trusted.run(one, [[local _, word = kept.listen("one", "k") return word]]))
    local code = [[
      return kept.request(kept.open("one", "k"), "hold", { params = { n = "%s" }, on_event = function(event, exchange)
        exchange:reply('{"jsonrpc":"2.0","id":' .. event.id .. ',"result":{"from":"%s"}}')
      end }).result]]
    for _, who in ipairs { "one", "two" } do
      local stream = (who == "one" and one or two):open("tools/call", trusted.code(code:format(who, who)))
      it.wait_held(1)
      it.say("s-k", { jsonrpc = "2.0", id = "q-" .. who, method = "elicitation/create", params = { message = "?" } })
      wait.for_fact("the reply", 20, function() return it.replies[1] end)
      assert.same({ jsonrpc = "2.0", id = "q-" .. who, result = { from = who } }, table.remove(it.replies))
      it.release()
      assert.equal(who, cjson.decode((trusted.read(stream:answer()))).n)
      stream:close()
    end
    one:close()
    two:close()
    assert.equal(0, #it.replies)
    assert.equal(0, g:status().gauges.upstream_exchanges)
  end)

  it("goes to the newest of several", function()
    local it <close> = server()
    local g <close>, one, two = start(it)
    trusted.run(one, [[kept.listen("one", "k") return true]])
    local code = [[
      return kept.request(kept.open("one", "k"), "hold", { params = { n = %d }, on_event = function(event, exchange)
        exchange:reply('{"jsonrpc":"2.0","id":' .. event.id .. ',"result":{"n":%d}}')
      end }).result]]
    local streams = {}
    for n = 1, 3 do
      streams[n] = (n % 2 == 0 and two or one):open("tools/call", trusted.code(code:format(n, n)))
      it.wait_held(n)
    end
    it.say("s-k", { jsonrpc = "2.0", id = 7, method = "sampling/createMessage", params = {} })
    wait.for_fact("the reply", 20, function() return it.replies[1] end)
    assert.equal(3, it.replies[1].result.n)
    it.release()
    for n = 1, 3 do assert.equal(n, cjson.decode((trusted.read(streams[n]:answer()))).n) end
    one:close()
    two:close()
    assert.equal(1, #it.replies)
    assert.equal(0, g:status().gauges.upstream_exchanges)
  end)

  it("is answered at once where no call runs", function()
    local it <close> = server()
    local g <close>, one, two = start(it)
    trusted.run(one, [[kept.listen("one", "k") return true]])
    it.say("s-k", { jsonrpc = "2.0", id = 1, method = "elicitation/create", params = {} })
    it.say("s-k", { jsonrpc = "2.0", id = "p", method = "ping" })
    wait.for_fact("both replies", 20, function() return #it.replies == 2 end)
    table.sort(it.replies, function(a) return a.id == 1 end)
    assert.equal(-32601, it.replies[1].error.code)
    assert.same({}, it.replies[2].result)
    one:close()
    two:close()
    local _ = g
  end)
end)

describe("what belongs to no call", function()
  it("reaches Lua of the worker that holds the stream, and calls are not disturbed", function()
    local it <close> = server()
    local g <close>, one, two = start(it)
    trusted.run(one, [[kept.listen("one", "k") return true]])
    local stream = two:open("tools/call", trusted.code [[return kept.call("one", "k", "hold", { params = { n = 1 } }).result]])
    it.wait_held(1)
    it.say("s-k", { jsonrpc = "2.0", method = "notifications/tools/list_changed", params = { n = 1 } })
    -- dropped: an answer does not belong on the listen stream
    it.say("s-k", { jsonrpc = "2.0", id = it.held[1].id, result = { n = "false" } })
    it.say("s-k", "no JSON")
    it.say("s-k", { jsonrpc = "2.0", method = "notifications/tools/list_changed", params = { n = 2 } })
    wait.for_fact("two notifications", 20, function() return trusted.run(one, [[return #kept.seen]]) == 2 end)
    assert.same({ "notifications/tools/list_changed one k 1", "notifications/tools/list_changed one k 2" }, trusted.run(one, [[return kept.seen]]))
    assert.same({}, trusted.run(two, [[return kept.seen]]))
    it.release()
    assert.equal(1, cjson.decode((trusted.read(stream:answer()))).n)
    one:close()
    two:close()
    assert.equal(2, g:status().counters.dropped.upstream_id)
  end)

  it("is bounded, counted, and told as a gap", function()
    local it <close> = server()
    local g <close>, one, two = start(it)
    trusted.run(one, [[kept.listen("one", "k") return true]])
    local note = cjson.encode { jsonrpc = "2.0", method = "notifications/odd", params = { n = 1, fill = ("x"):rep(40000) } }
    it.streams["s-k"]:chunk(("data: " .. note .. "\n\n"):rep(20))
    wait.for_fact("a gap", 20, function() return trusted.run(one, [[return table.concat(kept.seen, ","):find "gap" ~= nil]]) end)
    assert.is_true(g:status().counters.dropped.upstream_observed > 0)
    it.say("s-k", { jsonrpc = "2.0", method = "notifications/tools/list_changed", params = { n = 9 } })
    wait.for_fact("what comes after it", 20, function()
      return trusted.run(one, [[return kept.seen[#kept.seen] ]]) == "notifications/tools/list_changed one k 9"
    end)
    one:close()
    two:close()
  end)
end)

describe("the GET stream", function()
  it("of an upstream that has none is none", function()
    for _, status in ipairs { 405, 404, 200 } do
      local it <close> = server { get = function(_, _, reply) reply:send(status, nil, "") end }
      local g <close>, one, two = start(it)
      local value = trusted.run(one, [[
        local channel, word, status = kept.listen("one", "k")
        return { word, status or 0, kept.request(channel, "x").result }]])
      assert.same({ "none", status == 200 and 0 or status, "{}" }, value)
      assert.equal(1, it.gets)
      one:close()
      two:close()
      quiet(g)
    end
  end)

  it("that does not begin holds the channel up for a second at most", function()
    local it <close> = server { get = function(self, request, reply) self.streams[request.headers["mcp-session-id"]] = reply end }
    local g <close>, one, two = start(it)
    assert.same({ "late", "{}" }, trusted.run(one, [[local channel, word = kept.listen("one", "k") return { word, kept.request(channel, "x").result }]]))
    it.streams["s-k"]:head(200, { { "content-type", "text/event-stream" }, { "transfer-encoding", "chunked" } })
    it.say("s-k", { jsonrpc = "2.0", method = "notifications/odd", params = { n = 3 } })
    wait.for_fact("what comes late", 20, function() return trusted.run(one, [[return kept.seen[1] ]]) == "notifications/odd one k 3" end)
    one:close()
    two:close()
    local _ = g
  end)

  it("is opened once, and ends with its channel", function()
    local it <close> = server()
    local g <close>, one, two = start(it)
    for _, me in ipairs { one, two, one } do
      assert.equal("open", trusted.run(me, [[local _, word = kept.listen("one", "k") return word]]))
    end
    assert.equal(1, it.gets)
    assert.equal(1, g:status().gauges.upstream_listen_streams)
    trusted.run(two, [[kept.open("one", "k"):close() return true]])
    quiet(g)
    assert.equal(1, it.gets)
    one:close()
    two:close()
  end)

  it("that ends is opened again after `retry`, behind the last id, and the gap is told", function()
    local it <close> = server()
    local g <close>, one, two = start(it)
    trusted.run(one, [[kept.listen("one", "k") return true]])
    it.streams["s-k"]:chunk("retry: 10\nid: e-5\ndata: " .. cjson.encode { jsonrpc = "2.0", method = "notifications/odd" } .. "\n\n")
    it.streams["s-k"]:raw "0\r\n\r\n"
    wait.for_fact("the second GET", 20, function() return it.gets == 2 end)
    assert.equal("e-5", it.heads[2]["last-event-id"])
    it.say("s-k", { jsonrpc = "2.0", method = "notifications/odd", params = { n = 2 } })
    wait.for_fact("all notes", 20, function() return trusted.run(one, [[return #kept.seen]]) == 3 end)
    assert.same({ "notifications/odd one k nil", "gap one k nil", "notifications/odd one k 2" }, trusted.run(one, [[return kept.seen]]))
    one:close()
    two:close()
    assert.equal(1, g:status().counters.upstream_reopened)
  end)

  it("does not take a connection from calls, however many there are", function()
    local it <close> = server()
    local g <close>, one, two = start(it)
    assert.equal(30, trusted.run(one, [[
      local n = 0
      for i = 1, 30 do
        local _, word = kept.listen("one", "k" .. i)
        if word == "open" then n = n + 1 end
      end
      return n]]))
    assert.equal("{}", trusted.run(one, [[return kept.call("one", "k1", "x").result]]))
    assert.equal("{}", trusted.run(two, [[return kept.call("one", "k30", "x").result]]))
    one:close()
    two:close()
    assert.equal(30, g:status().gauges.upstream_listen_streams)
  end)
end)

describe("the listen stream of a request", function()
  it("brings its notifications, and says when it ends", function()
    local posts = {}
    local up <close> = require "spec.helpers.stub".start(function(request, reply)
      local message = cjson.decode(request.body)
      if message.method == "initialize" then return low.answer(request, reply, { protocolVersion = "2026-07-28" }) end
      posts[#posts + 1] = { request = request, reply = reply }
      reply:head(200, { { "content-type", "text/event-stream" }, { "transfer-encoding", "chunked" } })
    end)
    local g <close>, one, two = start { up = up }
    local word = trusted.run(one, [[
      kept.channel = kept.open("one", "k")
      return (kept.channel:listen { id = 77, message = '{"jsonrpc":"2.0","id":77,"method":"subscriptions/listen"}',
        headers = { "Mcp-Method: subscriptions/listen" } })]])
    assert.equal("open", word)
    assert.equal("subscriptions/listen", posts[1].request.headers["mcp-method"])
    posts[1].reply:chunk("data: " .. cjson.encode { jsonrpc = "2.0", method = "notifications/tools/list_changed", params = { n = 4 } } .. "\n\n")
    posts[1].reply:raw "0\r\n\r\n"
    wait.for_fact("its end", 20, function() return trusted.run(one, [[return #kept.seen]]) == 2 end)
    assert.same({ "notifications/tools/list_changed one k 4", "ended one k nil" }, trusted.run(one, [[return kept.seen]]))
    one:close()
    two:close()
    quiet(g)
    assert.equal(1, #posts)
  end)
end)
