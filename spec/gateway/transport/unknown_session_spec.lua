-- An unknown session id is answered with 404, so that clients initialize again; a missing id with 400. Neither makes a
-- new session (B-09).
local gateway = require "spec.helpers.gateway"
local wire = require "spec.helpers.wire"

local unknown = ("0123456789abcdef"):rep(2) .. "0123"
local ping = wire.message(7, "ping")
local note = { jsonrpc = "2.0", method = "notifications/initialized" }
local initialize = wire.initialize_message "2025-11-25"

local function assert_told(status, response, id)
  assert.equal(status, response.status)
  assert.is_nil(response.headers["mcp-session-id"])
  assert.equal("application/json", response.headers["content-type"])
  local told = assert(response:json(), response.body)
  assert.equal(-32600, told.error.code)
  assert.equal(id, told.id)
end

local function with(session)
  return { ["Mcp-Session-Id"] = session, Accept = wire.both, ["Content-Type"] = "application/json" }
end

local function end_session(g, session)
  assert.equal(204, wire.request(g, "DELETE", "/mcp", with(session)).status)
end

describe("a Streamable HTTP request", function()
  it("with a well-formed id of no session is 404", function()
    local g <close> = gateway.start {}
    assert_told(404, wire.post(g, ping, with(unknown)), 7)
    assert_told(404, wire.post(g, note, with(unknown)))
    assert_told(404, wire.post(g, initialize, with(unknown)), 0)
    assert_told(404, wire.request(g, "GET", "/mcp", with(unknown)))
    assert_told(404, wire.request(g, "DELETE", "/mcp", with(unknown)))
    assert.equal(0, g:status().counters.sessions_opened)
    assert.has_nothing_left(g)
  end)

  it("without an id is 400, unless it is `initialize`", function()
    local g <close> = gateway.start {}
    assert_told(400, wire.post(g, ping), 7)
    assert_told(400, wire.post(g, note))
    assert_told(400, wire.request(g, "GET", "/mcp", { Accept = wire.both }))
    assert_told(400, wire.request(g, "DELETE", "/mcp"))
    assert.equal(0, g:status().counters.sessions_opened)
    local session, response = wire.initialize(g, "2025-11-25")
    assert.equal(200, response.status)
    end_session(g, session)
    assert.has_nothing_left(g)
  end)

  it("with an id that no session can have is 400 or 404", function()
    local g <close> = gateway.start {}
    local odd = {
      "a b", "\127", ("a"):rep(4096), "", "0", unknown:upper(), unknown .. "0", unknown:sub(2), "../../etc/passwd", "%00", "*", "é",
      unknown .. ", " .. unknown, '"' .. unknown .. '"', "g" .. unknown:sub(2), "-1", "null",
    }
    for _, id in ipairs(odd) do
      for _, response in ipairs {
        wire.post(g, ping, with(id)), wire.post(g, initialize, with(id)), wire.request(g, "GET", "/mcp", with(id)),
        wire.request(g, "DELETE", "/mcp", with(id)),
      } do
        assert.truthy(response.status == 400 or response.status == 404, ("%d for %q"):format(response.status, id))
        assert.is_nil(response.headers["mcp-session-id"])
      end
    end
    assert.equal(0, g:status().counters.sessions_opened)
    assert.has_nothing_left(g)
  end)

  it("gets one answer for an unknown, a deleted and an expired id, and for one of the other transport", function()
    local g <close> = gateway.start { config = { sessions = { idle = "1s" } } }
    local deleted = wire.initialize(g, "2025-11-25")
    end_session(g, deleted)
    local expired = wire.initialize(g, "2025-11-25")
    g:wait_status(function(status)
      return status.counters.sessions_closed.idle == 1
    end)
    local other = g:client "2024-11-05"
    local foreign = other.endpoint:match "session_id=(%x+)"
    local body = wire.post(g, ping, with(unknown)).body
    for _, session in ipairs { deleted, expired, foreign } do
      local response = wire.post(g, ping, with(session))
      assert.equal(404, response.status)
      assert.equal(body, response.body)
      assert.equal(404, wire.request(g, "DELETE", "/mcp", with(session)).status)
    end
    assert.same({}, other:result "ping")
    other:close()
    assert.has_nothing_left(g)
  end)
end)

describe("an HTTP+SSE POST", function()
  it("with an id of no session is 404", function()
    local g <close> = gateway.start {}
    local body
    local session = wire.initialize(g, "2025-11-25")
    for _, id in ipairs { unknown, session, unknown:upper(), ("a"):rep(4096), "a%20b", "%7f", "..", "0", "*" } do
      local response = wire.post(g, ping, nil, "/messages?session_id=" .. id)
      assert.equal(404, response.status, id)
      body = body or response.body
      assert.equal(body, response.body)
    end
    end_session(g, session)
    assert.has_nothing_left(g)
  end)
end)
