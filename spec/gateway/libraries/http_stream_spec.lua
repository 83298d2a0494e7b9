-- http.stream: bodies that a script reads while they arrive, in pieces, lines or events. The gateway receives no faster
-- than the script reads, and closes the connection when the script drops the stream.
local errand = require "spec.helpers.errand"
local stub = require "spec.helpers.stub"
local wait = require "spec.helpers.wait"

local function split(text, size)
  local list = {}
  for from = 1, #text, size do list[#list + 1] = text:sub(from, from + size - 1) end
  return list
end

local function begin(reply, kind) return reply:head(200, { ["content-type"] = kind or "text/event-stream", ["connection"] = "close" }) end

describe("http.stream", function()
  it("gives events that are cut anywhere (B-39)", function()
    local text = "\xef\xbb\xbf: hello\r\n\r\nevent: a\r\ndata: {\"n\":1}\r\n\r\n"
      .. "data: two\rdata: lines\r\rid: 7\nretry: 50\ndata:x\n\ndata: y\n\ndata: not finished"
    local server <close> = stub.start(function(request, reply)
      begin(reply):pieces(split(text, tonumber(request.query:match "%d+")), function() reply:close() end)
    end)
    local g <close> = errand.start { net = { server.at }, code = [[
      local stream <close> = try(http.stream(args.url, { query = { size = args.n }, headers = { accept = "text/event-stream" } }))
      local all = {}
      for event in stream:events() do all[#all + 1] = event.event .. "|" .. event.data .. "|" .. tostring(event.id) end
      return { all = all, status = stream.status, kind = stream.headers["content-type"], id = stream.last_event_id, retry = stream.retry }
    ]] }
    local me = g:client "2026-07-28"
    for _, size in ipairs { 1, 2, 3, 7, 1000 } do
      assert.same({ all = { 'a|{"n":1}|nil', "message|two\nlines|nil", "message|x|7", "message|y|7" }, status = 200, kind = "text/event-stream",
        id = "7", retry = 50 },
        errand.run(me, { url = server.url, n = size }))
    end
    me:close()
    assert.has_nothing_left(g)
  end)

  it("gives lines, pieces and the whole rest", function()
    local server <close> = stub.start(function(request, reply)
      begin(reply, "text/plain"):pieces(split("one\r\ntwo\n\nfour", tonumber(request.query:match "%d+")), function() reply:close() end)
    end)
    local g <close> = errand.start { net = { server.at }, code = [[
      local function open() return try(http.stream(args.url, { query = { size = args.n } })) end
      local lines, chunks, rest = {}, {}, nil
      for line in open():lines() do lines[#lines + 1] = line end
      for chunk in open():chunks() do chunks[#chunks + 1] = chunk end
      local third <close> = open()
      for line in third:lines() do rest = line break end
      local after, why = third:read()
      local fourth <close> = open()
      return { lines = lines, chunks = table.concat(chunks), first = rest, why = why, text = try(fourth:text()), last = fourth:read() == nil }
    ]] }
    local me = g:client "2026-07-28"
    for _, size in ipairs { 1, 4, 1000 } do
      assert.same({ lines = { "one", "two", "", "four" }, chunks = "one\r\ntwo\n\nfour", first = "one", text = "one\r\ntwo\n\nfour", last = true,
        why = "GET " .. server.url .. "/: the stream is closed" }, errand.run(me, { url = server.url, n = size }))
    end
    me:close()
    assert.has_nothing_left(g)
  end)

  it("follows redirects, posts, and reads an answer that is an error", function()
    local server <close> = stub.start(function(request, reply)
      if request.path == "/a" then return reply:send(307, { location = "/b" }, "moved") end
      reply:send(500, { ["content-type"] = "application/json" }, '{"said":"' .. request.method .. request.body .. '"}')
    end)
    local g <close> = errand.start { net = { server.at }, code = [[
      local stream <close> = try(http.stream(args.url, { method = "POST", body = "!" }))
      return { status = stream.status, said = try(stream:json()).said, url = stream.url }
    ]] }
    local me = g:client "2026-07-28"
    assert.same({ status = 500, said = "POST!", url = server.url .. "/b" }, errand.run(me, { url = server.url .. "/a" }))
    me:close()
    assert.has_nothing_left(g)
  end)

  it("gives its script each event as it arrives", function()
    local pipe
    local server <close> = stub.start(function(_, reply) pipe = begin(reply) end)
    local g <close> = errand.start { net = { server.at }, code = [[
      local n = 0
      for event in try(http.stream(args.url)):events() do
        n = n + 1
        call:progress(n, nil, event.data)
        if event.data == "enough" then break end
      end
      return "done"
    ]] }
    local me = g:client "2026-07-28"
    local stream = errand.begin(me, { url = server.url })
    server:wait_request(1)
    for _, data in ipairs { "one", "two", "enough" } do
      pipe:raw("data: " .. data .. "\n\n")
      assert.equal(data, stream:wait_event("notifications/progress").json.params.message)
    end
    assert.equal("done", stream:answer().result.content[1].text)
    wait.for_fact("the connection to be closed", 10, function() return server.left == 1 end)
    stream:close()
    me:close()
    assert.has_nothing_left(g)
  end)

  it("takes no more than its script reads", function()
    local sent, tcp = 0, nil
    local server <close> = stub.start(function(_, reply)
      begin(reply, "text/plain")
      tcp = reply.tcp
      local function more()
        if sent >= 64 << 20 then return reply:close() end
        sent = sent + 65536
        tcp:write(("x"):rep(65535) .. "\n", function(err) if not err and not tcp:is_closing() then more() end end)
      end
      more()
    end)
    local g <close> = errand.start { net = { server.at }, code = [[
      local stream <close> = try(http.stream(args.url))
      local n = #try(stream:read())
      call:progress(1)
      sleep(args.n)
      for chunk in stream:chunks() do n = n + #chunk end
      return n
    ]] }
    local me = g:client "2026-07-28"
    local rss = g:rss()
    local stream = errand.begin(me, { url = server.url, n = 1 })
    stream:wait "notifications/progress"
    wait.quietly(0.5)
    assert.is_true(sent < 32 << 20, sent .. " bytes went out")
    assert.is_true(g:rss() - rss < 16 << 20)
    assert.equal(tostring(64 << 20), stream:answer(30).result.content[1].text)
    stream:close()
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is cut off with its call: while it waits, while it is paused, and when the script forgets it", function()
    local server <close> = stub.start(function(request, reply)
      begin(reply)
      if request.path == "/much" then reply:raw(("x"):rep(1 << 20)) else reply:raw "data: 1\n\n" end
    end)
    local g <close> = errand.start { net = { server.at }, code = [[
      local stream = try(http.stream(args.url))
      if args.n == 1 then return "forgotten" end
      call:progress(1)
      if args.n == 2 then sleep(60) end
      for event in stream:events() do log.info("event", { data = event.data }) end
    ]] }
    local me = g:client "2026-07-28"
    assert.equal("forgotten", (errand.run(me, { url = server.url, n = 1 })))
    wait.for_fact("the connection to be closed", 10, function() return server.left == 1 end)
    wait.for_fact("the request to be gone", 10, function() return g:status().gauges.http_requests == 0 end)
    for i, row in ipairs { { "/", 3 }, { "/much", 2 } } do
      local stream = errand.begin(me, { url = server.url .. row[1], n = row[2] })
      stream:wait "notifications/progress"
      stream:reset()
      wait.for_fact("the connection to be closed", 10, function() return server.left == i + 1 end)
    end
    me:close()
    assert.has_nothing_left(g)
  end)

  it("that one call keeps for another is closed with the first", function()
    local server <close> = stub.start(function(_, reply) begin(reply):raw "data: 1\n\n" end)
    local g <close> = errand.start { net = { server.at }, scripts = { ["tools/run.lua"] = [[
      local kept
      return tool { "R", input = { url = t.string, n = t.integer }, function(args)
        if args.n == 1 then kept = try(http.stream(args.url)) return "kept" end
        return kept:read()
      end }]] } }
    local me = g:client "2026-07-28"
    assert.equal("kept", (errand.run(me, { url = server.url, n = 1 })))
    local text, is_error = errand.run(me, { url = server.url, n = 2 })
    assert.is_true(is_error)
    assert.matches("the response is closed", text)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("fails its call when it breaks, is quiet for too long, or says too much at once", function()
    local server <close> = stub.start(function(request, reply)
      if request.path == "/half" then
        reply:head(200, { ["content-length"] = 100 }):raw "data: 1\n\ndata":later(5, function() reply:close() end)
      elseif request.path == "/quiet" then
        begin(reply):raw "data: 1\n\n"
      elseif request.path == "/long" then
        begin(reply):raw("data: 1\n\ndata: " .. ("x"):rep(5000) .. "\n\n")
      elseif request.path == "/gzip" then
        reply:send(200, { ["content-encoding"] = "gzip" }, "x")
      elseif request.path == "/much" then
        reply:send(200, {}, ("x"):rep(5000))
      end
    end)
    local g <close> = errand.start { net = { server.at }, code = [[
      local seen, path = 0, args.url:match "/%a+$"
      local idle, timeout = path == "/quiet" and 0.5 or 20, path == "/never" and 0.2 or 20
      local ok, why = pcall(function()
        local stream <close> = try(http.stream(args.url, { idle = idle, max_event = 1000, timeout = timeout, max = args.n }))
        if args.n then return try(stream:text()) end
        for _ in stream:events() do seen = seen + 1 end
      end)
      return { seen = seen, why = tostring(why) }
    ]] }
    local me = g:client "2026-07-28"
    for path, row in pairs {
      ["/half"] = { 1, "the connection closed before the response was complete" }, ["/quiet"] = { 1, "no bytes arrived for 0.5 s" },
      ["/long"] = { 1, "a line is longer than 1000 bytes" }, ["/gzip"] = { 0, "the server sent a compressed stream, which the request did not accept" },
      ["/never"] = { 0, "no answer within 0.2 s" },
    } do
      local got = errand.run(me, { url = server.url .. path })
      assert.truthy(got.why:find("GET " .. server.url .. path .. ": " .. row[2], 1, true), path .. ": " .. got.why)
      if path ~= "/long" then assert.equal(row[1], got.seen, path) end
    end
    assert.matches("larger than 2000 bytes", errand.run(me, { url = server.url .. "/much", n = 2000 }).why)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("of 200,000 events that no script reads costs no memory (B-40)", function()
    local server <close> = stub.start(function(_, reply)
      begin(reply)
      local piece, i = (": ping\n\nevent: other\n\n"):rep(1000), 0
      local function more()
        i = i + 1
        if i > 100 then return reply:raw "data: answer\n\n":later(5, function() reply:close() end) end
        reply.tcp:write(piece, function(err) if not err and not reply.tcp:is_closing() then more() end end)
      end
      more()
    end)
    local g <close> = errand.start { net = { server.at }, code = [[
      for event in try(http.stream(args.url)):events() do return event.data end
    ]] }
    local me = g:client "2026-07-28"
    local rss = g:rss()
    assert.equal("answer", (errand.run(me, { url = server.url })))
    assert.is_true(g:rss() - rss < 16 << 20)
    me:close()
    assert.has_nothing_left(g)
  end)
end)
