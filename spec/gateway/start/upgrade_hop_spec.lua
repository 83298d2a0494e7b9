-- After upgrades: what reaches an older process on a connection that it holds and is not its own, and a chain of five
-- processes with sessions, tasks and calls in each.
local credentials = require "spec.helpers.credentials"
local http2 = require "spec.helpers.http2"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local STATEFUL <const> = "2025-11-25"
local LISTEN <const> = { notifications = { toolsListChanged = true } }

local scripts = {
  ["tools/count.lua"] = 'return tool { "Counts.", function() local sum, why = store.incr "counted" return tostring(sum or why) end }',
  ["tools/hold.lua"] = 'return tool { "Holds.", timeout = 300, function(_, call) call:progress(1) sleep(300) end }',
  ["tools/slow.lua"] = 'return tool { "Slow.", task = "optional", timeout = 300, function() sleep(300) end }',
  ["tools/name.lua"] = [[return tool { "Asks, as a task.", task = "optional", timeout = 300, function(_, call)
    local said, whys = call:ask { name = ask.elicit("Name?", { name = t.string }) }
    return try(said.name, whys.name).name
  end }]],
}

local function text_of(result) return result.content[1].text end

-- Closes the kept connection: the next request goes to the newest process.
local function to_newest(client)
  if client.kept then client.kept:close() end
  client.kept = nil
  return client
end

-- -- connections that an older process holds ---------------------------------------------------------------------------

local function initialize() return wire.initialize_message(STATEFUL), {} end

local function ping_of(session)
  return function() return wire.message(1, "ping"), { ["Mcp-Session-Id"] = session, ["MCP-Protocol-Version"] = STATEFUL } end
end

local function stateless(method, params)
  params._meta = wire.meta()
  local message = wire.message(1, method, params)
  return message, wire.mirrored(message)
end

local function count() return stateless("tools/call", { name = "count", arguments = {} }) end
local function listen() return stateless("subscriptions/listen", { notifications = LISTEN.notifications }) end

-- Connections to the newest process that have had a request: one for each kind of request. The next answer closes them.
local function connect(g)
  local held = {}
  for i = 1, 5 do
    held[i] = g:connect()
    assert.equal(404, held[i]:request({ path = "/nothing" }).status)
  end
  return held
end

-- A client of HTTP/2 that keeps its connection, and opens a new one when a GOAWAY tells it to.
local function new_peer(g)
  local self = { told = 0 }
  -- The answer to a request. One that is beyond the last stream of a GOAWAY was not served, and is sent again.
  function self.call(message, headers)
    while true do
      self.peer = self.peer or http2.connect(g)
      local peer = self.peer
      local id = peer:post(message, headers)
      local answer = peer:wait("an answer on stream " .. id, function()
        local stream = peer.streams[id]
        return stream and (stream.ended or stream.reset) and stream or peer:is_closed() and "closed"
      end, 30)
      if answer ~= "closed" then return answer end
      assert.is_true(peer.goaway ~= nil and peer.goaway.last < id, "the connection was closed without an answer")
      peer:close()
      self.peer, self.told = nil, self.told + 1
    end
  end
  return self
end

-- Upgrades, and calls `meanwhile` again and again until that is done.
local function upgrade_while(g, meanwhile)
  local function upgraded()
    local last, times = nil, 0
    for pid in g:log():gmatch "info  upgraded +pid=(%d+)" do last, times = tonumber(pid), times + 1 end
    return last, times
  end
  local _, before = upgraded()
  g:signal "sigusr2"
  local pid = wait.for_fact("the upgrade", 60, function()
    meanwhile()
    local last, times = upgraded()
    return times > before and last
  end)
  g:follow(pid)
end

local function send_one(connection, message, headers)
  headers.Accept, headers["Content-Type"] = wire.both, "application/json"
  return connection:send { method = "POST", path = "/mcp", headers = headers, body = message }
end

-- How many sessions each older process has, by its id.
local function sessions_of(g)
  local found = {}
  for _, one in ipairs(g:status().upgrade) do found[one.pid] = one.sessions end
  return found
end

describe("on connections that older processes hold", function()
  it("all is answered that is not their own, and no session begins in them", function()
    local g <close> = upgrading.start { scripts = scripts, workers = 2, config = http2.config() }
    local own, held, peer = {}, {}, new_peer(g)
    for i = 1, 3 do
      own[i] = g:client(STATEFUL)
      if i < 3 then
        held[i] = connect(g)
        upgrade_while(g, function()
          assert.equal("200", tostring(peer.call(count()).status))
          assert.equal("200", tostring(peer.call(ping_of(own[i].session)()).status))
        end)
      end
    end
    assert.equal("200", tostring(peer.call(count()).status))
    local before = sessions_of(g)
    for i = 1, 2 do
      for k, ask in ipairs { initialize, ping_of(own[3].session), ping_of(own[3 - i].session), count } do
        local answer = send_one(held[i][k], ask()):read_response(30)
        assert.equal(200, answer.status, ("process %d, request %d: %s"):format(i, k, answer.body))
      end
      assert.equal(200, send_one(held[i][5], listen()):read_head(30).status)
      held[i][5]:wait_event("notifications/subscriptions/acknowledged", 30)
    end
    local after = sessions_of(g)
    for pid, sessions in pairs(before) do assert.equal(sessions, after[pid]) end
    assert.equal(5, g:status().gauges.sessions.http)
    for i = 1, 2 do
      for k = 1, 5 do held[i][k]:close() end
      own[i]:delete()
    end
    for i = 1, 3 do own[i]:close() end
    peer.peer:close()
    wait.for_fact("the older processes to end", 60, function() return #g:older() == 0 end)
  end)
end)

describe("a session that a process on trial has opened", function()
  it("is served on connections that all other processes hold", function()
    local g <close> = upgrading.start { scripts = scripts, workers = 2 }
    local own, held, fresh = {}, {}, nil
    for i = 1, 3 do
      own[i], held[i] = g:client(STATEFUL), g:connect()
      assert.equal(404, held[i]:request({ path = "/nothing" }).status)
      if i < 3 then g:must_upgrade() end
    end
    local _, before = g:log():gsub("upgrade on trial", "")
    upgrade_while(g, function()
      local _, tried = g:log():gsub("upgrade on trial", "")
      if tried == before or fresh then return end
      fresh = g:client(STATEFUL)
      for i = 1, 3 do
        local answer = send_one(held[i], ping_of(fresh.session)()):read_response(30)
        assert.equal(200, answer.status, ("process %d: %s"):format(i, answer.body))
      end
    end)
    local unknown = send_one(g:connect(), ping_of(("0"):rep(36))()):read_response(30)
    assert.equal(404, unknown.status)
    for _, c in ipairs { own[1], own[2], own[3], fresh } do
      to_newest(c):delete()
      c:close()
    end
    for i = 1, 3 do held[i]:close() end
    wait.for_fact("the older processes to end", 60, function() return #g:older() == 0 end)
  end)
end)

-- -- a chain -----------------------------------------------------------------------------------------------------------

describe("in a chain of five processes", function()
  local CHAIN <const> = 5

  local function task_of(c, tool) return c:result("tools/call", { name = tool, arguments = {}, task = { ttl = 300000 } }).task.taskId end

  local function find(c, id) return to_newest(c):call("tasks/get", { taskId = id }) end

  it("each session, task and call is served, whichever process has it, and all have one store", function()
    local all = { ["auth/tokens.lua"] = credentials.script }
    for path, text in pairs(scripts) do all[path] = text end
    local g <close> = upgrading.start { scripts = all, workers = 2 }
    local own, calls, tasks, asking = {}, {}, {}, {}
    for i = 1, CHAIN do
      own[i] = g:client(STATEFUL, { token = "ann-1", capabilities = { elicitation = { form = {} } } })
      calls[i] = own[i]:open("tools/call", { name = "hold", arguments = {}, _meta = { progressToken = "p" } })
      calls[i]:wait("notifications/progress", 30)
      tasks[i], asking[i] = task_of(own[i], "slow"), task_of(own[i], "name")
      if i < CHAIN then g:must_upgrade() end
    end
    assert.equal(CHAIN - 1, #g:older())
    local listed = g:status().upgrade
    assert.equal(CHAIN - 1, #listed)
    for _, one in ipairs(listed) do assert.equal(1, one.sessions) end

    local take = upgrading.counter()
    for _, c in ipairs(own) do take(text_of(to_newest(c):result("tools/call", { name = "count", arguments = {} }))) end

    local bob = g:client(STATEFUL, { token = "bob-1" })
    for i = 1, CHAIN do
      local from = own[i % CHAIN + 1] -- a session of another process
      wait.for_fact("the task in a session of another process", 20, function()
        local answer = find(from, tasks[i])
        return answer.result and answer.result.status == "working"
      end)
      assert.equal(-32602, bob:call("tasks/cancel", { taskId = tasks[i] }).error.code)
      to_newest(from):call("tasks/cancel", { taskId = tasks[i] })
      wait.for_fact("the task to be cancelled", 20, function()
        local answer = find(from, tasks[i])
        return answer.result and answer.result.status == "cancelled"
      end)
      local result = from:open("tasks/result", { taskId = asking[i] })
      local question = result:wait_event("elicitation/create", 30).json
      assert.equal(202, to_newest(from):post({ jsonrpc = "2.0", id = question.id, result = { action = "accept", content = { name = "Ann" } } }).status)
      assert.equal("Ann", text_of(result:answer(30).result))
    end
    bob:close()

    for i = 1, CHAIN do assert.equal(202, to_newest(own[i]):notify("notifications/cancelled", { requestId = calls[i].id }).status) end
    g:wait_status(function(status) return status.gauges.requests_in_flight == 0 and status.gauges.jobs == 0 end, 60)
    for i = 1, CHAIN do
      own[i]:delete()
      own[i]:close()
    end
    wait.for_fact("the older processes to end", 60, function() return #g:older() == 0 end)
  end)
end)
