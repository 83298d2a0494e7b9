-- B-28: an id comes back as it was sent, byte for byte; a value that is not an id is refused; ids of two types are
-- never equal.
local gateway = require "spec.helpers.gateway"
local wire = require "spec.helpers.wire"

local good = {
  "0", "-1", "1", '"1"', '""', "-0", "9007199254740993", "4294967296", "-9223372036854775809", ("9"):rep(40), '"' .. ("x"):rep(200) .. '"',
  [["a\u0062\/\"\n"]], '"é"', [["\ud83c\udf19"]], '" "', '"null"', '"0"',
}
local bad = { "null", "true", "false", "{}", "[]", "[1]", "1.5", "1.0", "-0.0", "1e3", "1E-3", '{"id":1}' }

local scripts = { ["tools/slow.lua"] = [[return tool { "Waits.", input = { as = t.string }, function(args)
  local gate <close> = closing(function() log.info("gate closed", { as = args.as }) end)
  log.info("waits", { as = args.as })
  sleep(60)
end }]] }

local META = '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}'

local function ping(id)
  return ('{"jsonrpc":"2.0","id":%s,"method":"ping"}'):format(id)
end

local function discover(id)
  return ('{"jsonrpc":"2.0","id":%s,"method":"server/discover","params":{%s}}'):format(id, META)
end

local discovering = { ["MCP-Protocol-Version"] = "2026-07-28", ["Mcp-Method"] = "server/discover" }

-- The id's bytes in an answer.
local function id_in(body)
  return body:match '^{"jsonrpc":"2.0","id":(.*),"result":{' or body
end

local function assert_refused(id, response)
  assert.equal(400, response.status, id)
  assert.equal(-32600, response:json().error.code, id)
  assert.is_nil(response:json().id)
end

describe("an id", function()
  it("comes back byte for byte over Streamable HTTP, and is refused if it is not a valid id", function()
    local g <close> = gateway.start {}
    local session = { ["Mcp-Session-Id"] = wire.initialize(g, "2025-11-25") }
    for _, id in ipairs(good) do
      assert.equal(id, id_in(wire.post(g, ping(id), session).body))
    end
    for _, id in ipairs(bad) do
      assert_refused(id, wire.post(g, ping(id), session))
    end
    wire.request(g, "DELETE", "/mcp", session)
    assert.has_nothing_left(g)
  end)

  it("comes back byte for byte in 2026-07-28, and is refused if it is not a valid id", function()
    local g <close> = gateway.start {}
    for _, id in ipairs(good) do
      assert.equal(id, id_in(wire.post(g, discover(id), discovering).body))
    end
    for _, id in ipairs(bad) do
      assert_refused(id, wire.post(g, discover(id), discovering))
    end
    assert.has_nothing_left(g)
  end)

  it("comes back byte for byte over HTTP+SSE, and is refused if it is not a valid id", function()
    local g <close> = gateway.start {}
    local me = g:client "2024-11-05"
    for _, id in ipairs(good) do
      assert.equal(202, wire.post(g, ping(id), nil, me.endpoint).status)
      local event = me.stream:wait_event(function(event)
        return event.json
      end)
      assert.equal(id, id_in(event.data))
    end
    for _, id in ipairs(bad) do
      assert_refused(id, wire.post(g, ping(id), nil, me.endpoint))
    end
    me:close()
    assert.has_nothing_left(g)
  end)

  it("comes back with an error as well", function()
    local g <close> = gateway.start {}
    for _, id in ipairs(good) do
      local response = wire.post(g, ('{"jsonrpc":"2.0","id":%s,"method":"tools/list"}'):format(id))
      assert.equal(400, response.status)
      assert.equal(id, response.body:match '^{"jsonrpc":"2.0","id":(.*),"error":{')
    end
    assert.has_nothing_left(g)
  end)
end)

-- Starts a call with this id that waits; `as` is its name in the log.
local function start_call(me, id, as)
  local message = me:message("tools/call", { name = "slow", arguments = { as = as } })
  message.id = nil
  local body = require "cjson".encode(message):gsub("^{", '{"id":' .. id:gsub("%%", "%%%%") .. ",", 1)
  local headers = me:headers(message)
  headers["Content-Type"] = "application/json"
  local connection = me.gateway:connect()
  connection:send { method = "POST", path = me.endpoint or "/mcp", headers = headers, body = body }
  me.gateway:wait_log("waits", { as = as })
  return connection
end

local function cancel(me, id)
  local headers = me:headers { method = "notifications/cancelled" }
  headers["Content-Type"] = "application/json"
  local body = ('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}'):format(id)
  local connection <close> = me.gateway:connect()
  assert.equal(202, connection:request({ method = "POST", path = me.endpoint or "/mcp", headers = headers, body = body }).status)
end

for _, revision in ipairs { "2024-11-05", "2025-11-25" } do
  describe("cancelling by id in " .. revision, function()
    it("reaches the call that has it, 0 and the empty string included", function()
      local g <close> = gateway.start { scripts = scripts }
      local me = g:client(revision)
      for i, id in ipairs(good) do
        local connection = start_call(me, id, "call" .. i)
        cancel(me, id)
        g:wait_log("gate closed", { as = "call" .. i })
        connection:close()
      end
      assert.equal(#good, g:status().counters.tool_aborted.cancelled)
      if me.delete then me:delete() end
      me:close()
      assert.has_nothing_left(g)
    end)

    it("never takes a string for a number, nor a number for a string", function()
      local g <close> = gateway.start { scripts = scripts, workers = 1 } -- one worker: requests are served in the order in which they are sent
      local me = g:client(revision)
      local number, text = start_call(me, "1", "number"), start_call(me, '"2"', "text")
      for _, id in ipairs { '"1"', "2", "1.0", "null", "true", "{}", '""', '"01"', "10", '"2 "' } do
        cancel(me, id)
      end
      local last = start_call(me, "3", "last")
      cancel(me, "3")
      g:wait_log("gate closed", { as = "last" })
      assert.is_nil(g:log():find("gate closed%s+as=number"))
      assert.is_nil(g:log():find("gate closed%s+as=text"))
      g:wait_status(function(now) return now.gauges.requests_in_flight == 2 end)
      cancel(me, "1")
      g:wait_log("gate closed", { as = "number" })
      cancel(me, [["\u0032"]]) -- the same string with other escapes
      g:wait_log("gate closed", { as = "text" })
      for _, connection in ipairs { number, text, last } do
        connection:close()
      end
      if me.delete then me:delete() end
      me:close()
      assert.has_nothing_left(g)
    end)
  end)
end
