-- The operator's endpoints: /healthz, and /status with every gauge and counter.
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local wire = require "spec.helpers.wire"

local scripts = {
  ["tools/hold.lua"] = 'return tool { "Holds.", function() log.info "holds" sleep(60) end }',
  ["tools/fine.lua"] = 'return tool { "Fine.", function() return "fine" end }',
}

local gauges = {
  sessions = { sse = "number", http = "number" }, connections = "number", streams_open = "number", requests_in_flight = "number",
  tasks = "number", ops = "number", queue_bytes = "number", lua_bytes = "number", vms = "number",
}
local counters = {
  requests = "number", calls = "number", sessions_opened = "number", tool_faults = "number",
  sessions_closed = { gone = "number", delete = "number", idle = "number", uninitialized = "number", slow = "number", shutdown = "number" },
  dropped = { gone = "number", slow = "number", unmatched = "number", log = "number", notes = "number" },
  streams_ended = { slow = "number" },
  refused = { sessions = "number", calls = "number", connections = "number", origin = "number" },
  tool_aborted = { cancelled = "number", gone = "number", time = "number", shutdown = "number" },
}

-- Checks that every name of `wanted` is there with its type.
local function assert_has(wanted, found, where)
  for name, kind in pairs(wanted) do
    if type(kind) == "table" then
      assert.equal("table", type(found[name]), where .. name)
      assert_has(kind, found[name], where .. name .. ".")
    else
      assert.equal(kind, type(found[name]), where .. name)
    end
  end
end

describe("/healthz", function()
  it("says ok", function()
    local g <close> = gateway.start {}
    local response = g:admin "/healthz"
    assert.equal(200, response.status)
    assert.equal("ok\n", response.body)
    assert.truthy(response.headers["content-type"]:find("text/plain", 1, true))
    response = client.request(g, { method = "HEAD", path = "/healthz" }, { admin = true })
    assert.equal(200, response.status)
    assert.equal("", response.body)
    assert.has_nothing_left(g)
  end)
end)

describe("/status", function()
  it("is JSON with the version and process, every gauge and every counter", function()
    local g <close> = gateway.start { workers = 3 }
    local response = g:admin "/status"
    assert.equal(200, response.status)
    assert.equal("application/json", response.headers["content-type"])
    local status = response:json()
    assert.equal(g.pid, status.pid)
    assert.equal(3, status.workers)
    assert.is_false(status.draining)
    assert.truthy(status.version:match "^%d+%.%d+")
    assert.is_true(status.uptime_ms >= 0)
    assert_has(gauges, status.gauges, "")
    assert_has(counters, status.counters, "")
    assert.is_true(g:status().uptime_ms >= status.uptime_ms)
    assert.has_nothing_left(g)
  end)

  it("lists gauges and counters by name, each once", function()
    local g <close> = gateway.start {}
    local body = g:admin("/status").body
    for _, part in ipairs { "gauges", "counters" } do
      local families = body:match('"' .. part .. '":(%b{})'):sub(2, -2)
      local last
      for family in families:gsub("%b{}", ""):gmatch '"([%w_]+)":' do
        assert.is_true(last == nil or last < family, family .. " comes after " .. tostring(last))
        last = family
      end
      for family, members in families:gmatch '"([%w_]+)":(%b{})' do
        local seen = {}
        for value in members:gmatch '"([%w_]+)":%d' do
          assert.is_nil(seen[value], family .. " has two members " .. value)
          seen[value] = true
        end
      end
    end
    assert.truthy(body:find '"turns":{"1ms":%d+,"5ms":%d+,"20ms":%d+,"100ms":%d+,"longer":%d+}')
  end)

  it("counts what is there, and what has been", function()
    local g <close> = gateway.start { scripts = scripts, workers = 2 }
    local empty = g:status()
    local sse, http, newest = g:client "2024-11-05", g:client "2025-11-25", g:client "2026-07-28"
    local get = http:get_stream()
    assert.equal(200, get:head().status)
    for _, me in ipairs { sse, http, newest } do
      assert.equal("fine", me:result("tools/call", { name = "fine" }).content[1].text)
      me:open("tools/call", { name = "hold" })
    end
    local status = g:wait_status(function(status)
      return status.gauges.ops == 3 and status
    end)
    assert.same({ sse = 1, http = 1 }, status.gauges.sessions)
    assert.equal(2, status.gauges.streams_open)
    assert.equal(3, status.gauges.requests_in_flight)
    assert.equal(3, status.gauges.tasks)
    assert.equal(0, status.gauges.queue_bytes)
    assert.is_true(status.gauges.lua_bytes > 100000)
    assert.is_true(status.gauges.connections >= 7)
    assert.equal(2, status.counters.sessions_opened)
    -- two calls of initialize, and three of each of the two tools
    assert.equal(8, status.counters.calls - empty.counters.calls)
    assert.is_true(status.counters.requests - empty.counters.requests >= 12)

    assert.equal(202, http:post({ jsonrpc = "2.0", id = 99, result = {} }).status)
    http:delete()
    sse:close()
    newest:close()
    status = g:wait_status(function(now)
      return now.gauges.requests_in_flight == 0 and now
    end)
    assert.equal(1, status.counters.dropped.unmatched)
    assert.equal(1, status.counters.sessions_closed.delete)
    assert.equal(1, status.counters.sessions_closed.gone)
    assert.equal(3, status.counters.tool_aborted.gone)
    http:close()
    assert.has_nothing_left(g)
  end)

  it("names no session", function()
    local g <close> = gateway.start { scripts = scripts }
    local sse, http = g:client "2024-11-05", g:client "2025-11-25"
    local body = g:admin("/status").body .. g:admin("/healthz").body .. g:log()
    assert.is_nil(body:find(http.session, 1, true))
    assert.is_nil(body:find(sse.endpoint:match "session_id=(%x+)", 1, true))
    http:delete()
    http:close()
    sse:close()
    assert.has_nothing_left(g)
  end)
end)

describe("the admin listener", function()
  it("has its own paths, /status for GET only, and no path of the MCP listener", function()
    local g <close> = gateway.start {}
    local function ask(method, path)
      return client.request(g, { method = method, path = path }, { admin = true })
    end
    for _, path in ipairs { "/ui", "/ui/", "/mcp", "/sse", "/messages", "/metrics2", "/status/", "/healthz/x" } do
      assert.equal(404, ask("GET", path).status, path)
    end
    for _, method in ipairs { "POST", "PUT", "DELETE", "OPTIONS", "PATCH" } do
      local response = ask(method, "/status")
      assert.equal(405, response.status, method)
      assert.equal("GET, HEAD", response.headers.allow)
    end
    for _, path in ipairs { "/status", "/healthz" } do
      assert.equal(404, wire.request(g, "GET", path).status)
    end
    assert.has_nothing_left(g)
  end)

  it("may be off", function()
    local g <close> = gateway.start { config = { admin = { listen = "off" } } }
    assert.is_nil(g.admin_port)
    assert.is_nil(g.ready:find("admin=", 1, true))
    local me = g:client "2026-07-28"
    assert.same({}, me:result("tools/list").tools)
    me:close()
  end)
end)
