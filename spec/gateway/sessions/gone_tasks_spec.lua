-- A task whose client has left before it got the task's id. In 2026-07-28 nobody can name such a task: it is cancelled.
-- In 2025-11-25 a client that disconnects has cancelled nothing, and finds its tasks by tasks/list.
local departures = require "spec.soak.departures"
local gateway = require "spec.helpers.gateway"
local http2 = require "spec.helpers.http2"
local task_client = require "spec.helpers.task_client"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local scripts = {
  ["tools/slow.lua"] = [[return tool { "Slow.", task = "optional", function()
  local gate <close> = closing(function() log.info "gate closed" end)
  log.info "begun"
  sleep(60)
end }]],
}
local body = {
  jsonrpc = "2.0", id = 1, method = "tools/call",
  params = { name = "slow", arguments = {}, _meta = wire.meta(nil, { ["io.modelcontextprotocol/clientCapabilities"] = task_client.CAN }) },
}

local function start(more)
  local config = http2.config { auth = "none" }
  for key, value in pairs(more or {}) do config[key] = value end
  return gateway.start { workers = 1, scripts = scripts, config = config }
end

local function count(text, word) return select(2, text:gsub(word, "")) end

describe("a task of 2026-07-28 whose client leaves before it has the task's id", function()
  for _, how in ipairs { "fin", "close", "reset" } do
    it("is not made, or cancelled at once: HTTP/1.1, " .. how, function()
      local g <close> = start()
      local before <const> = g:status().counters.calls
      departures.freeze(g)
      local all = {}
      for i = 1, 20 do
        all[i] = departures.over_http1(how)(g, body)()
      end
      g:signal "sigcont"
      if how == "fin" then g:wait_status(function(status) return status.counters.calls == before + 20 end) end
      g:wait_status(function(status) return status.gauges.jobs == 0 and status.gauges.requests_in_flight == 0 and status.gauges.connections == 1 end)
      wait.for_fact(function() return "the ends of all tasks in the log\n" .. g:log() end, 20, function()
        local log = g:log()
        return count(log, "begun") == count(log, "gate closed")
      end)
      for _, c in ipairs(all) do c:close() end
      assert.has_nothing_left(g)
    end)
  end

  for _, how in ipairs { "RST_STREAM", "fin", "reset" } do
    it("is cancelled: HTTP/2 with an empty window, " .. how, function()
      local g <close> = start()
      local leave = departures.over_http2(how, { [http2.INITIAL_WINDOW_SIZE] = 0 })(g, body)
      g:wait_log "begun"
      g:wait_status(function(status) return status.gauges.jobs == 1 and status.gauges.requests_in_flight == 0 end)
      local peer = leave()
      g:wait_log "gate closed"
      g:wait_status(function(status) return status.gauges.jobs == 0 end)
      peer:close()
      assert.has_nothing_left(g)
    end)
  end

  it("is given up if it has ended before its client's departure is known", function()
    local g <close> = gateway.start { workers = 2, config = http2.config { auth = "none" }, scripts = {
      ["tools/slow.lua"] = 'return tool { "Quick.", task = "optional", function() log.info "begun" return "done" end }',
    } }
    local kept = g:status().gauges.store_entries
    local peer <close> = http2.connect(g, { settings = { [http2.INITIAL_WINDOW_SIZE] = 0 } })
    local id = peer:post(body, { ["mcp-protocol-version"] = "2026-07-28", ["mcp-method"] = "tools/call", ["mcp-name"] = "slow" })
    g:wait_log "begun"
    g:wait_status(function(status) return status.gauges.jobs == 0 and status.gauges.store_entries == kept + 1 end)
    peer:send(http2.rst(id))
    g:wait_status(function(status) return status.gauges.store_entries == kept end)
    peer:close()
    assert.has_nothing_left(g)
  end)

  it("goes on if the client has its id, and then leaves", function()
    local g <close> = start()
    for _, how in ipairs { "close", "reset" } do
      local c <close> = g:connect()
      local made = c:request({ method = "POST", path = "/mcp", body = body,
        headers = wire.mirrored(body, { Accept = wire.both, ["Content-Type"] = "application/json" }) }):json().result
      c[how](c)
      g:wait_status(function(status) return status.gauges.connections == 1 end)
      local reader = g:client("2026-07-28", { capabilities = task_client.CAN })
      assert.equal("working", task_client.result(g, reader, "tasks/get", { taskId = made.taskId }).status)
      task_client.result(g, reader, "tasks/cancel", { taskId = made.taskId })
      reader:close()
    end
    g:wait_status(function(status) return status.gauges.jobs == 0 end)
    assert.has_nothing_left(g)
  end)
end)

describe("a task of 2025-11-25 whose client leaves before it has the task's id", function()
  it("goes on, and is found by tasks/list", function()
    local g <close> = gateway.start { workers = 1, config = http2.config {}, scripts = {
      ["tools/slow.lua"] = scripts["tools/slow.lua"],
      ["auth/main.lua"] = 'return auth { function() return { id = "ann" } end }',
    } }
    local c = g:client("2025-11-25", {})
    local peer <close> = http2.connect(g, { settings = { [http2.INITIAL_WINDOW_SIZE] = 0 } })
    local call = wire.message(7, "tools/call", { name = "slow", arguments = {}, task = { ttl = 60000 } })
    local id = peer:post(call, { ["mcp-session-id"] = c.session })
    g:wait_status(function(status) return status.gauges.jobs == 1 and status.gauges.requests_in_flight == 0 end)
    peer:send(http2.rst(id))
    local tasks = task_client.result(g, c, "tasks/list", {}).tasks
    assert.equal(1, #tasks)
    assert.equal("working", tasks[1].status)
    task_client.result(g, c, "tasks/cancel", { taskId = tasks[1].taskId })
    g:wait_status(function(status) return status.gauges.jobs == 0 end)
    peer:close()
    wire.request(g, "DELETE", "/mcp", { ["Mcp-Session-Id"] = c.session, Authorization = "Bearer x" })
    c:close()
    assert.has_nothing_left(g)
  end)
end)
