-- An auth script may wait. Other requests are served meanwhile, a client that disconnects cancels it, and 10 s bound
-- the seconds it waits and the number of waiting requests.
local credentials = require "spec.helpers.credentials"
local gateway = require "spec.helpers.gateway"
local wire = require "spec.helpers.wire"

-- A token that begins with "slow" waits until the store has a value for it, or for ever.
local script = [[
return auth { function(request)
  local token = try(request.bearer, "no token")
  local _ <close> = closing(function() log.info("over", { token = token }) end)
  if token:find "^slow" then
    log.info("waits", { token = token })
    while not store.get("open") do sleep(0.005) end
  end
  return { id = token }
end }]]
local open = [[return tool { "Opens.", function() store.set("open", true) return "open" end }]]
local scripts = { ["auth/main.lua"] = script, ["tools/who.lua"] = credentials.who, ["tools/open.lua"] = open }

local function start(config, more, constants)
  local all = {}
  for path, text in pairs(scripts) do
    all[path] = text
  end
  for path, text in pairs(more or {}) do
    all[path] = text
  end
  return gateway.start { config = config, scripts = all, constants = constants }
end

-- Sends a call of the tool `who` and does not wait for the answer.
local function send(g, token)
  local me = g:client("2026-07-28", { token = token })
  return me:open("tools/call", { name = "who" }), me
end

local function waiting(g, count)
  return g:wait_status(function(status) return status.gauges.auth_pending == count end)
end

describe("an auth script that waits", function()
  it("delays no other request, and then decides", function()
    local g <close> = start { workers = 1 }
    local slow = {}
    for i = 1, 20 do
      slow[i] = send(g, "slow-" .. i)
    end
    waiting(g, 20)
    assert.equal(20, g:status().gauges.tasks)
    local quick <close> = g:client("2026-07-28", { token = "quick" })
    for _ = 1, 20 do
      assert.equal("quick", (credentials.ask(quick)))
    end
    assert.equal("open", quick:result("tools/call", { name = "open" }).content[1].text)
    for i = 1, 20 do
      assert.equal("slow-" .. i, slow[i]:answer().result.content[1].text)
      slow[i]:close()
    end
    quick:close()
    assert.has_nothing_left(g)
  end)

  it("may send HTTP requests", function()
    local other <close> = gateway.start { scripts = { ["tools/who.lua"] = credentials.who } }
    local config = { scripts = { allow = { net = { "127.0.0.1:" .. other.admin_port } } } }
    local g <close> = gateway.start { constants = { http_idle_ms = 0 }, config = config, scripts = {
      ["auth/main.lua"] = ([[return auth { function(request)
        local answer = try(http.get("http://127.0.0.1:%d/healthz"))
        return { id = request.bearer .. answer.status }
      end }]]):format(other.admin_port), ["tools/who.lua"] = credentials.who } }
    local me <close> = g:client("2026-07-28", { token = "ann" })
    assert.equal("ann200", (credentials.ask(me)))
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is cancelled when its client disconnects, and its closers run", function()
    local g <close> = start {}
    for _, how in ipairs { "close", "reset", "fin" } do
      local stream = send(g, "slow-" .. how)
      g:wait_log("waits", { token = "slow-" .. how })
      waiting(g, 1)
      stream[how](stream)
      g:wait_log("over", { token = "slow-" .. how })
      stream:close()
    end
    assert.has_nothing_left(g)
  end)

  it("is cancelled when it takes too long: 503 with Retry-After", function()
    local g <close> = start(nil, nil, { auth_ms = 50 })
    local head = send(g, "slow-1"):head()
    assert.equal(503, head.status)
    assert.matches("^%d+$", head.headers["retry-after"])
    assert.is_nil(head.headers["www-authenticate"])
    g:wait_log("over", { token = "slow-1" })
    assert.equal(1, g:status().counters.refused.auth_pending)
  end)

  it("waits for a bounded number of requests: 503 for more, while requests that need not wait are authenticated", function()
    local g <close> = start(nil, nil, { auth_waiting = 3 })
    local streams = {}
    for i = 1, 3 do
      streams[i] = send(g, "slow-" .. i)
    end
    waiting(g, 3)
    local head = send(g, "slow-4"):head()
    assert.equal(503, head.status)
    assert.matches("^%d+$", head.headers["retry-after"])
    local quick <close> = g:client("2026-07-28", { token = "quick" })
    assert.equal("quick", (credentials.ask(quick)))
    streams[1]:close()
    waiting(g, 2)
    local fourth = send(g, "slow-4")
    waiting(g, 3)
    quick:result("tools/call", { name = "open" })
    assert.equal("slow-4", fourth:answer().result.content[1].text)
  end)

  it("decides before any session is made, in every revision and transport", function()
    local g <close> = start {}
    local connections = {}
    for i, request in ipairs {
      { method = "POST", path = "/mcp", body = wire.initialize_message "2025-11-25" }, { method = "GET", path = "/sse" },
      { method = "POST", path = "/messages?session_id=" .. ("0"):rep(36), body = wire.message(1, "ping") },
      { method = "GET", path = "/mcp" }, { method = "DELETE", path = "/mcp" }, { method = "OPTIONS", path = "/mcp" }, { method = "GET", path = "/nothing" },
    } do
      request.headers = {
        Authorization = "Bearer slow-" .. i, Accept = i < 4 and wire.both or "text/event-stream",
        ["Mcp-Session-Id"] = (i == 4 or i == 5) and ("0"):rep(36) or false,
      }
      connections[i] = g:connect():send(request)
    end
    local status = waiting(g, 7)
    assert.equal(0, status.counters.sessions_opened)
    local quick <close> = g:client("2026-07-28", { token = "quick" })
    quick:result("tools/call", { name = "open" })
    local expected = { 200, 200, 404, 404, 404, 405, 404 }
    for i, connection in ipairs(connections) do
      assert.equal(expected[i], connection:read_head().status, i)
      connection:close()
    end
    assert.equal(2, g:status().counters.sessions_opened)
  end)

  it("ends with the gateway: what waits is refused when the drain is over", function()
    local g <close> = start { limits = { drain = "100ms" } }
    local stream = send(g, "slow-1")
    waiting(g, 1)
    g:signal "sigterm"
    local head = stream:head()
    assert.equal(503, head.status)
    g:wait_log("over", { token = "slow-1" })
    assert.equal(0, (g:wait_exit()))
  end)

  it("may decide while the gateway drains", function()
    local g <close> = start({ limits = { drain = "60s" } }, { ["auth/main.lua"] = [[return auth { function(request) sleep(2) return { id = "x" } end }]] })
    local stream = send(g, "x")
    waiting(g, 1)
    g:signal "sigterm"
    assert.equal(503, stream:head().status)      -- the request is authenticated, but the gateway takes no new calls
    assert.equal(0, (g:wait_exit()))
  end)

  it("ends with the gateway at once, too", function()
    local g <close> = start {}
    for i = 1, 10 do
      send(g, "slow-" .. i)
    end
    waiting(g, 10)
    g:signal "sigterm"
    g:wait_log "draining"
    g:signal "sigterm"
    assert.equal(0, (g:wait_exit()))
  end)
end)
