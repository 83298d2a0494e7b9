-- What reaches older processes on connections that they hold, of HTTP/1.1 and HTTP/2, and is not their own: requests
-- that begin something, and those of each of three processes.
local http2 = require "spec.helpers.http2"
local processes = require "spec.helpers.processes"
local wire = require "spec.helpers.wire"

local STATEFUL <const> = "2025-11-25"

local function place(headers, id) return wire.message(id or 1, "tools/call", { name = "place", arguments = {} }), headers end

local function stateless(method, params)
  params._meta = wire.meta()
  local message = wire.message(1, method, params)
  return message, wire.mirrored(message)
end

-- Three processes, of which the third is the newest, and a session in each.
local function three()
  local p, all, sessions = processes.new(), {}, {}
  for i = 1, 3 do
    local place_script = ("--- Says which process runs.\nreturn function() return 'no. %d' end\n"):format(i)
    all[i] = p:start { config = http2.config(), scripts = { ["tools/place.lua"] = place_script } }
    p:is_newest(all[i])
    sessions[i] = all[i]:client(STATEFUL)
  end
  return p, all, sessions
end

local function opened(all)
  local counts = {}
  for i, g in ipairs(all) do counts[i] = g:status().counters.sessions_opened end
  return counts
end

-- `call(message, headers)`: the status and the body of the answer.
local function assert_served(call, sessions, why)
  local status, body = call(wire.initialize_message(STATEFUL), {})
  assert.same({ 200, true }, { status, body:find("protocolVersion", 1, true) ~= nil }, why .. ", initialize: " .. body)
  for i, c in ipairs(sessions) do
    status, body = call(place { ["mcp-session-id"] = c.session, ["mcp-protocol-version"] = STATEFUL })
    assert.same({ 200, true }, { status, body:find("no. " .. i, 1, true) ~= nil }, ("%s, a session of process %d: %s"):format(why, i, body))
  end
  status, body = call(stateless("tools/call", { name = "place", arguments = {} }))
  assert.same({ 200, true }, { status, body:find("no. 3", 1, true) ~= nil }, why .. ", without a session: " .. body)
end

local listen = { notifications = { toolsListChanged = true } }

describe("on connections that older processes hold, all is served that is not their own", function()
  it("over HTTP/1.1", function()
    local _ <close>, all, sessions = three()
    local before = opened(all)
    for i = 1, 2 do
      local connection <close> = all[i]:connect()
      assert_served(function(message, headers)
        headers.Accept, headers["Content-Type"] = wire.both, "application/json"
        local answer = connection:request { method = "POST", path = "/mcp", headers = headers, body = message }
        return answer.status, answer.body
      end, sessions, "process " .. i)
      local message, headers = stateless("subscriptions/listen", listen)
      headers.Accept, headers["Content-Type"] = wire.both, "application/json"
      connection:send { method = "POST", path = "/mcp", headers = headers, body = message }
      connection:wait_event("notifications/subscriptions/acknowledged", 20)
      assert.equal(1, all[3]:status().gauges.listeners)
      connection:close()
      all[3]:wait_status(function(status) return status.gauges.listeners == 0 end)
    end
    assert.same({ before[1], before[2], before[3] + 2 }, opened(all))
    for _, c in ipairs(sessions) do c:close() end
  end)

  it("over HTTP/2", function()
    local _ <close>, all, sessions = three()
    local before = opened(all)
    for i = 1, 2 do
      local peer <close> = http2.connect(all[i])
      assert_served(function(message, headers)
        local answer = peer:call(message, headers)
        return tonumber(answer.status), answer.data
      end, sessions, "process " .. i)
      local id = peer:post(stateless("subscriptions/listen", listen))
      peer:wait("the acknowledgement", function(self)
        local stream = self.streams[id]
        return stream and #stream.events > 0
      end, 20)
      assert.equal(1, all[3]:status().gauges.listeners)
      peer:close()
      all[3]:wait_status(function(status) return status.gauges.listeners == 0 end)
    end
    assert.same({ before[1], before[2], before[3] + 2 }, opened(all))
    for _, c in ipairs(sessions) do c:close() end
  end)
end)
