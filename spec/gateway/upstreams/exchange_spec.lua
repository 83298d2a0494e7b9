-- host.upstream below lua/moonpool/upstream: channels and exchanges over HTTP, against a server that answers as the
-- spec says.
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local low = require "spec.helpers.upstream.low"
local trusted = require "spec.helpers.trusted"

local JSON = "application/json"
local start, answer, server, methods, count, workers = low.start, low.answer, low.server, low.methods, low.count, low.workers

describe("an exchange with an upstream over HTTP", function()
  it("brings the answer of its own id, with the server_info's headers on the request", function()
    local up <close> = server(function(message, request, reply) answer(request, reply, { echo = message.method }) end)
    local g <close> = start { one = { url = up.url .. "/mcp", auth = { bearer = "secret" }, headers = { ["x-own"] = "1" } } }
    local me = workers(g, 1)
    local result = trusted.run(me, [[
      local event = assert(kept.call("one", "k", "tools/list"))
      return { kind = event.kind, result = event.result, status = event.status }]])
    assert.same({ kind = "answer", result = [[{"echo":"tools\/list"}]], status = 200 }, result)
    local first, second = up.requests[1].headers, up.requests[2].headers
    assert.is_nil(first["mcp-session-id"])
    assert.equal("s-k", second["mcp-session-id"])
    assert.equal("2025-11-25", second["mcp-protocol-version"])
    assert.equal("Bearer secret", second.authorization)
    assert.equal("1", second["x-own"])
    assert.equal("application/json, text/event-stream", second.accept)
    me:close()
  end)

  it("says what happened where there is no answer, and whether the request may have run", function()
    local answers = {
      html = function(_, reply) reply:send(200, { ["content-type"] = "text/html" }, "<html>") end,
      empty = function(_, reply) reply:send(200, { ["content-type"] = "application/json" }, "") end,
      other = function(_, reply) reply:json { jsonrpc = "2.0", id = 4711, result = {} } end,
      text_id = function(request, reply) reply:json { jsonrpc = "2.0", id = tostring(cjson.decode(request.body).id), result = {} } end,
      status = function(_, reply) reply:send(503, { ["retry-after"] = "7" }, "later") end,
      moved = function(_, reply) reply:send(302, { location = "http://127.0.0.1:1/" }, "") end,
      hang_up = function(_, reply) reply:close() end,
      broken = function(_, reply) reply:json("no message") end,
      gzip = function(_, reply) reply:send(200, { ["content-type"] = JSON, ["content-encoding"] = "gzip" }, "\31\139") end,
      large = function(request, reply) answer(request, reply, ("x"):rep(200000)) end,
      half = function(_, reply)
        reply:head(200, { ["content-type"] = JSON, ["content-length"] = 100 }):raw("{"):later(0, function() reply:close() end)
      end,
    }
    local up <close> = server(function(message, request, reply) answers[message.method](request, reply) end)
    local g <close> = start({ one = { url = up.url .. "/mcp", circuit = { failures = 1000 } } },
      { config = { limits = { upstreams = { answer = "100KiB" } } } })
    local me = workers(g, 1)
    local expected = {
      html = { "unreadable", 200, "<html>" }, empty = { "unreadable", 200, "" }, other = { "unreadable", 200 }, text_id = { "unreadable", 200 },
      status = { "status", 503, "later" }, moved = { "status", 302, "" }, hang_up = { "closed" }, broken = { "unreadable", 200 },
      gzip = { "unreadable" }, large = { "too_large" }, half = { "closed" },
    }
    for name, row in pairs(expected) do
      local failure = trusted.run(me, ([[
        local event, failure = kept.call("one", "k", "%s")
        return failure or event]]):format(name))
      assert.equal(row[1], failure.reason, name)
      assert.equal("unknown", failure.outcome, name)
      assert.equal(row[2], failure.status, name)
      if row[3] then assert.equal(row[3], failure.body, name) end
      if name == "status" then assert.equal(7, failure.retry_after) end
    end
    local counts = {}
    for _, method in ipairs(methods(up)) do counts[method] = (counts[method] or 0) + 1 end
    for name in pairs(expected) do assert.equal(1, counts[name], name) end
    assert.is_true(g:status().counters.dropped.upstream_id >= 2)
    me:close()
  end)

  it("is not run where nothing listens, and where the name leads to an address that is not public", function()
    local up <close> = server(function(_, request, reply) answer(request, reply, {}) end)
    local at = ("http://internal.example:%d/mcp"):format(up.port)
    local resolver = require "luv".fs_realpath(gateway.binary:match "^(.*)/" .. "/resolver.so")
    local asan = (os.getenv "ASAN_OPTIONS" or "") .. ":verify_asan_link_order=0"
    local g <close> = start({
      none = { url = "http://127.0.0.1:1/mcp" }, private = { url = at }, allowed = { url = at, private = true },
      here = { url = ("http://localhost:%d/mcp"):format(up.port) },
    }, { env = { LD_PRELOAD = resolver, MOONPOOL_HOSTS = "internal.example=127.0.0.1;localhost=127.0.0.1", ASAN_OPTIONS = asan } })
    local me = workers(g, 1)
    local function try(name)
      return trusted.run(me, ([[
        local event, failure = kept.call("%s", "k", "x")
        return event and "answered" or failure.outcome .. " " .. failure.reason]]):format(name))
    end
    assert.equal("not_run refused", try "none")
    assert.equal("not_run address", try "private")
    assert.equal(0, #up.requests)
    assert.equal("answered", try "allowed")
    assert.equal("answered", try "here")
    me:close()
  end)

  it("answers tasks of all workers, each with its own answer, however late and mixed they come", function()
    local waiting = {}
    local up <close> = server(function(message, request, reply)
      waiting[#waiting + 1] = function() answer(request, reply, message.params) end
      if #waiting == 40 then
        for i = 40, 1, -1 do waiting[i]() end
      end
    end)
    local g <close> = start { one = { url = up.url .. "/mcp" } }
    local one, two = workers(g, 2)
    local sent = {}
    for i = 1, 20 do
      for _, me in ipairs { one, two } do
        local text = ("%s-%d"):format(me.vm, i)
        sent[#sent + 1] = { text = text, stream = me:open("tools/call", trusted.code(([[
          return kept.call("one", "k", "echo", { params = { text = "%s" } }).result]]):format(text))) }
      end
    end
    for _, each in ipairs(sent) do
      assert.equal(each.text, cjson.decode((trusted.read(each.stream:answer()))).text)
    end
    assert.equal(1, count(methods(up), "initialize"))
    one:close()
    two:close()
  end)
end)
