-- DELETE ends a session for good: its stream, its calls, its memory.
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local departures = require "spec.helpers.departures"
local memory = require "spec.helpers.memory"

local scripts = {
  ["tools/wait.lua"] = [[
return tool { "Waits for a minute.", function(_, call)
  local gate <close> = closing(function() log.info "gate closed" end)
  call:progress(1)
  sleep(60)
end }]],
}

local ROUNDS = 1200
local PING = { jsonrpc = "2.0", id = 9, method = "ping" }

local function headers(session)
  return { Accept = "application/json, text/event-stream", ["Mcp-Session-Id"] = session }
end

-- HTTP statuses of every kind of request that names the session.
local function ask_all(connection, session)
  local statuses = {}
  for i, request in ipairs { { "POST", PING }, { "DELETE" }, { "GET" } } do
    local answer = connection:request { method = request[1], path = "/mcp", headers = headers(session), body = request[2] }
    assert.equal("2.0", answer:json().jsonrpc)
    statuses[i] = answer.status
  end
  return statuses
end

-- Makes a session, with a GET stream in every third round; returns its id.
local function one_round(g, round)
  local c <close> = g:client "2025-11-25"
  local stream = round % 3 == 0 and c:get_stream():wait "comment"
  assert.equal(204, c:delete().status)
  local deleted = departures.now()
  if stream then
    local answer = stream.connection:wait_end()
    assert.equal(200, answer.status)
  end
  return c.session, stream and departures.now() - deleted < departures.PROMISE
end

describe("B-10 DELETE", function()
  it("ends a session and its stream, makes its id unknown and frees its memory, 1,200 times", function()
    local g <close> = gateway.start { env = memory.environment() }
    local ids, in_time, early = {}, 0, nil
    for round = 1, ROUNDS do
      local was_in_time
      ids[round], was_in_time = one_round(g, round)
      if was_in_time then in_time = in_time + 1 end
      if round == ROUNDS / 2 then
        early = g:rss()
      end
    end
    -- a busy machine may delay the end of some streams
    assert.is_true(in_time > ROUNDS / 3 / 2, "most streams ended late")
    local late = g:rss()
    assert.is_true(late <= early * 1.1, ("%d KB, then %d KB"):format(early // 1024, late // 1024))
    local status = g:status()
    assert.same({ sse = 0, http = 0 }, status.gauges.sessions)
    assert.equal(ROUNDS, status.counters.sessions_closed.delete)
    local connection <close> = g:connect()
    for round, id in ipairs(ids) do
      assert.same({ 404, 404, 404 }, ask_all(connection, id), "session " .. round)
    end
    connection:close()
    assert.has_nothing_left(g)
  end)

  it("without a session's id is 400", function()
    local g <close> = gateway.start()
    assert.equal(400, client.request(g, { method = "DELETE", path = "/mcp" }).status)
    assert.has_nothing_left(g)
  end)

  it("cancels the running calls of the session and answers them", function()
    local g <close> = gateway.start { scripts = scripts }
    local c <close> = g:client "2025-11-25"
    local stream = c:open("tools/call", { name = "wait", _meta = { progressToken = 1 } }):wait "notifications/progress"
    assert.equal(204, c:delete().status)
    g:wait_log "gate closed"
    assert.equal(-32603, stream:answer().error.code)
    assert.equal(200, stream.connection:wait_end().status)
    assert.equal(1, g:status().counters.tool_aborted.gone)
    c:close()
    assert.has_nothing_left(g)
  end)

  it("sent twice at once is 204 once and 404 once", function()
    local g <close> = gateway.start()
    local one <close> = g:connect()
    local two <close> = g:connect()
    for _ = 1, 100 do
      local c <close> = g:client "2025-11-25"
      for _, connection in ipairs { one, two } do
        connection:send { method = "DELETE", path = "/mcp", headers = headers(c.session) }
      end
      local statuses = { one:read_response().status, two:read_response().status }
      table.sort(statuses)
      assert.same({ 204, 404 }, statuses)
    end
    one:close()
    two:close()
    assert.has_nothing_left(g)
  end)
end)
