-- A session is usable from the moment at which its client knows its id: before and during `notifications/initialized`.
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"

local ROUNDS = 1000
local PAIRS = 8 -- number of connections, so that both workers see both messages

local scripts = {
  ["tools/add.lua"] = [[
--- Add two numbers.
---@param a number
---@param b number
return function(a, b) return a + b end]],
}

local LIST = { jsonrpc = "2.0", id = 2, method = "tools/list" }
local INITIALIZED = { jsonrpc = "2.0", method = "notifications/initialized" }

local function initialize(revision)
  return { jsonrpc = "2.0", id = 1, method = "initialize", params = {
    protocolVersion = revision, capabilities = cjson.decode "{}", clientInfo = { name = "racer", version = "1" },
  } }
end

-- Two connections: `lists` and `notes`.
local function open_pairs(g)
  local all = {}
  for i = 1, PAIRS do
    all[i] = { lists = client.connect(g), notes = client.connect(g) }
  end
  return all
end

local function close_pairs(all)
  for _, pair in ipairs(all) do
    pair.lists:close()
    pair.notes:close()
  end
end

-- Sends the two messages at once, in either order, by `send(connection, message)`.
local function race(round, pair, send)
  if round % 2 == 0 then
    send(pair.lists, LIST)
    send(pair.notes, INITIALIZED)
  else
    send(pair.notes, INITIALIZED)
    send(pair.lists, LIST)
  end
end

local function assert_list(answer)
  assert.is_nil(answer.error)
  assert.equal("add", answer.result.tools[1].name)
end

describe("B-07 tools/list racing notifications/initialized, 1,000 times,", function()
  for _, revision in ipairs { "2025-03-26", "2025-06-18", "2025-11-25" } do
    it("gets its result over Streamable HTTP at " .. revision, function()
      local g <close> = gateway.start { scripts = scripts }
      local all = open_pairs(g)
      for round = 1, ROUNDS do
        local pair = all[round % PAIRS + 1]
        local headers = { Accept = "application/json, text/event-stream" }
        local function send(connection, body)
          connection:send { method = "POST", path = "/mcp", headers = headers, body = body }
        end
        send(pair.lists, initialize(revision))
        local opened = pair.lists:read_response()
        assert.equal(revision, opened:json().result.protocolVersion)
        headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
        headers["MCP-Protocol-Version"] = revision ~= "2025-03-26" and revision or nil
        race(round, pair, send)
        assert.equal(202, pair.notes:read_response().status)
        local listed = pair.lists:read_response()
        assert.equal(200, listed.status)
        assert_list(listed:json())
        assert.equal(204, pair.lists:request({ method = "DELETE", path = "/mcp", headers = headers }).status)
      end
      close_pairs(all)
      assert.has_nothing_left(g)
    end)
  end

  it("gets its result over HTTP+SSE", function()
    local g <close> = gateway.start { scripts = scripts }
    local all = open_pairs(g)
    for round = 1, ROUNDS do
      local pair = all[round % PAIRS + 1]
      local stream <close> = client.connect(g):send { path = "/sse" }
      local endpoint = stream:wait_event("endpoint").data
      local function send(connection, body)
        connection:send { method = "POST", path = endpoint, body = body }
      end
      send(pair.lists, initialize "2024-11-05")
      stream:wait_event(1)
      assert.equal(202, pair.lists:read_response().status)
      race(round, pair, send)
      assert.equal(202, pair.notes:read_response().status)
      assert.equal(202, pair.lists:read_response().status)
      assert_list(stream:wait_event(2).json)
    end
    close_pairs(all)
    assert.has_nothing_left(g)
  end)
end)
