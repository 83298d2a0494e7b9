-- What an upstream says in an answer that it does not belong in: a session id in an answer that opens no session, a
-- result under the status of a refusal, a challenge without one. None of it counts.
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local stub = require "spec.helpers.stub"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local STRAY <const> = "stray-session-4711"
local JSON <const> = { "content-type", "application/json" }
local SESSION <const> = { "mcp-session-id", STRAY }

-- Ways to refuse server/discover with a session id in the head, as servers do that open a session for each POST without
-- one.
local refusals = {
  ["400, as python-sdk 1.30"] = function(reply)
    reply:send(400, { JSON, SESSION }, '{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: Missing session ID"}}')
  end,
  ["404"] = function(reply) reply:send(404, { SESSION }, "") end,
  ["200 and an error"] = function(reply, id)
    reply:send(200, { JSON, SESSION }, ('{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}'):format(id))
  end,
  ["200 and an error as an event"] = function(reply, id)
    local event = ('event: message\ndata: {"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}\n\n'):format(id)
    reply:send(200, { { "content-type", "text/event-stream" }, SESSION }, event)
  end,
  ["200 and a page"] = function(reply) reply:send(200, { { "content-type", "text/html" }, SESSION }, "<html>") end,
  ["202"] = function(reply) reply:send(202, { SESSION }, "") end,
}

-- A server of an older revision that refuses server/discover in this way, and any request with the session id of the
-- refusal.
local function older(refuse)
  local u = upstream.start { revision = "2025-06-18" }
  u.strays = 0
  u:answer_all(function(request, reply)
    if request.headers["mcp-session-id"] == STRAY then
      u.strays = u.strays + 1
      reply:send(404, { JSON }, '{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}')
      return true
    end
    local message = request.method == "POST" and cjson.decode(request.body)
    if not message or message.method ~= "server/discover" then return false end
    refuse(reply, upstream.raw.at(request.body, "id"))
    return true
  end)
  return u
end

local function start(u, entry, options)
  options = options or {}
  options.entries = { one = entry }
  return upstream.gateway({ one = u }, options)
end

describe("a session id in the refusal of server/discover", function()
  for how, refuse in pairs(refusals) do
    it("is not used (" .. how .. ")", function()
      local u <close> = older(refuse)
      local g <close> = start(u)
      local c <close> = g:client "2026-07-28"
      assert.equal('{"n":1}', upstream.text(c:call("tools/call", { name = "one_echo", arguments = { n = 1 } })))
      assert.equal("2025-06-18", u:all({ tool = "echo" })[1].revision)
      assert.equal(0, u.strays)
    end)
  end

  it("does not hide the server from doctor, call, list, add and check", function()
    local u <close> = older(refusals["400, as python-sdk 1.30"])
    local dir = gateway.prepare { config = "admin: off\n" }
    local function run(...)
      local code, out, err = gateway.exec({ ... }, { cwd = dir })
      assert.equal(0, code, table.concat({ ... }, " ") .. ": " .. out .. err)
      return out
    end
    assert.truthy(run("doctor", u.url):find("2025-06-18 over http", 1, true))
    assert.equal('{"n":1}', run("call", "-u", u.url, "echo", "n=1"):gsub("%s", ""))
    assert.truthy(run("list", "-u", u.url):find("tool  echo", 1, true))
    run("add", "one", u.url)
    assert.truthy(run("check", "--connect"):find("2025-06-18 over http", 1, true))
    assert.equal(0, u.strays)
    os.execute("rm -rf '" .. dir .. "'")
  end)
end)

describe("a session id that comes later", function()
  it("in a refused initialize is not used, nor ended", function()
    for _, status in ipairs { 404, 503, 200 } do
      local u <close> = older(refusals["404"])
      local error = '{"code":-32603,"message":"not now"}'
      u:when("initialize", function(x)
        x:http(status, { JSON, SESSION }, ('{"jsonrpc":"2.0","id":%s,"error":%s}'):format(x.id, error))
      end, 1)
      assert.equal(1, (gateway.exec { "call", "-u", u.url, "echo", "n=1" }))
      assert.equal(0, (gateway.exec { "call", "-u", u.url, "echo", "n=1" }))
      assert.equal(0, u.strays)
    end
  end)

  it("in any other answer does not replace the one of initialize", function()
    for _, answers in ipairs { "json", "sse" } do
      local u <close> = upstream.start { revision = "2025-11-25", answers = answers }
      u.more_headers = {}
      u:when("initialize", function(x)
        x:serve()
        u.more_headers = { ["Mcp-Session-Id"] = STRAY }          -- all later answers have this header
      end, 1)
      local g <close> = start(u)
      local c <close> = g:client "2025-11-25"
      for i = 1, 3 do
        assert.equal(('{"n":%d}'):format(i), upstream.text(c:call("tools/call", { name = "one_echo", arguments = { n = i } })))
      end
      for _, one in ipairs(u:all { tool = "echo" }) do assert.not_equal(STRAY, one.headers["mcp-session-id"]) end
      c:close()
      for _, one in ipairs(u:all { method = "DELETE" }) do assert.not_equal(STRAY, one.headers["mcp-session-id"]) end
    end
  end)

  it("in an answer of 2026-07-28 is not sent", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    u.more_headers = { ["Mcp-Session-Id"] = STRAY }
    local g <close> = start(u)
    local c <close> = g:client "2026-07-28"
    assert.equal('{"n":1}', upstream.text(c:call("tools/call", { name = "one_echo", arguments = { n = 1 } })))
    for _, one in ipairs(u:all { kind = "request" }) do assert.is_nil(one.headers["mcp-session-id"]) end
  end)
end)

describe("the session id of initialize", function()
  it("is in the answer to a request that the server sends on the stream of initialize", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local pongs = {}
    u:answer_all(function(request, reply)
      local message = request.method == "POST" and cjson.decode(request.body) or {}
      if message.id ~= "hello" then return false end
      pongs[#pongs + 1] = request.headers["mcp-session-id"] or "none"
      reply:send(202, {}, "")
      return true
    end)
    u:when("initialize", function(x)
      x:send('{"jsonrpc":"2.0","id":"hello","method":"ping"}', false)
      wait.for_fact("the answer to the ping", 20, function() return pongs[1] end)
      x:serve()
    end, 1)
    local g <close> = start(u)
    local c <close> = g:client "2026-07-28"
    assert.equal('{"n":1}', upstream.text(c:call("tools/call", { name = "one_echo", arguments = { n = 1 } })))
    assert.equal(u:all({ tool = "echo" })[1].headers["mcp-session-id"], pongs[1])
  end)

  it("is of the last initialize, where a refused token made it come twice, and the first is ended", function()
    local good, asked = nil, 0
    local as <close> = stub.start(function(_, reply)
      asked = asked + 1
      reply:json { access_token = "token-" .. asked, token_type = "Bearer", expires_in = 3600 }
    end)
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:answer_all(function(request, reply)
      local message = request.method == "POST" and cjson.decode(request.body) or {}
      -- from here on only the second token is good
      if message.method == "notifications/initialized" and not good then good = "Bearer token-2" end
      if not good or request.headers.authorization == good then return false end
      reply:send(401, {}, "")
      return true
    end)
    local auth = { client_credentials = { token_url = as.url .. "/token", client = "moonpool", secret = "secret" } }
    local g <close> = start(u, { auth = auth }, { workers = 1 })
    local c <close> = g:client "2026-07-28"
    assert.equal('{"n":1}', upstream.text(c:call("tools/call", { name = "one_echo", arguments = { n = 1 } })))
    local sessions = u:all { method = "initialize" }
    assert.is_true(#sessions >= 2)
    for _, one in ipairs(u:all { method = "initialize" }) do assert.is_nil(one.headers["mcp-session-id"]) end
    assert.not_equal(sessions[1].session.id, u:all({ tool = "echo" })[1].session.id)
    u:wait { kind = "http", method = "DELETE", session = sessions[1].session }
  end)
end)

describe("under the status of a refusal", function()
  it("a result is none", function()
    for _, status in ipairs { 400, 404, 500 } do
      local u <close> = upstream.start { revision = "2026-07-28" }
      u:when("tools/call echo", function(x)
        x:http(status, { JSON }, ('{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"out of place"}]}}'):format(x.id))
      end)
      local g <close> = start(u)
      local c <close> = g:client "2026-07-28"
      local answer = c:call("tools/call", { name = "one_echo", arguments = { n = 1 } })
      assert.is_nil((cjson.encode(answer):find("out of place", 1, true)))
      assert.truthy(answer.error.message:find(tostring(status), 1, true), answer.error.message)
    end
  end)

  it("an error of JSON-RPC does not hide that the token was refused", function()
    local asked = 0
    local as <close> = stub.start(function(_, reply)
      asked = asked + 1
      reply:json { access_token = "token-" .. asked, token_type = "Bearer", expires_in = 3600 }
    end)
    local u <close> = upstream.start { revision = "2026-07-28" }
    u:when("tools/call echo", function(x)
      if x.headers.authorization == "Bearer token-2" then return x:serve() end
      x:http(401, { JSON }, ('{"jsonrpc":"2.0","id":%s,"error":{"code":-32001,"message":"Unauthorized"}}'):format(x.id))
    end)
    local auth = { client_credentials = { token_url = as.url .. "/token", client = "moonpool", secret = "secret" } }
    local g <close> = start(u, { auth = auth }, { workers = 1 })
    local c <close> = g:client "2026-07-28"
    assert.equal('{"n":1}', upstream.text(c:call("tools/call", { name = "one_echo", arguments = { n = 1 } })))
    assert.equal(2, asked)
  end)
end)
