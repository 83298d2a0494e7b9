-- A client that does not know that the server has been restarted, such as a browser's EventSource.
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"

local function post(g, endpoint, body)
  return client.request(g, { method = "POST", path = endpoint, body = body })
end

describe("B-06 a client whose EventSource reconnects by itself to a gateway that was killed and restarted", function()
  it("gets an error that its new session is not initialized, and can then initialize the session", function()
    local killed = gateway.start()
    local old = killed:client "2024-11-05"
    local port = killed.port
    killed:kill()
    old.stream:wait_closed()
    old:close()

    local g <close> = gateway.start { config = { listen = "127.0.0.1:" .. port } }
    assert.equal(404, post(g, old.endpoint, { jsonrpc = "2.0", id = 7, method = "tools/list" }).status)

    local again <close> = g:client("2024-11-05", { initialize = false })
    for _, id in ipairs { 8, "nine" } do
      assert.equal(202, post(g, again.endpoint, { jsonrpc = "2.0", id = id, method = "tools/list" }).status)
      local refusal = again.stream:wait_event(id).json
      assert.is_nil(refusal.result)
      assert.equal(-32600, refusal.error.code)
      assert.equal("not_initialized", refusal.error.data.reason)
      assert.truthy(refusal.error.message:find("initialize", 1, true), refusal.error.message)
    end

    again:initialize {}
    assert.same({}, again:result("tools/list").tools)
    assert.equal(1, g:status().gauges.sessions.sse)
    again:close()
    assert.has_nothing_left(g)
  end)

  it("gets this error only for methods that need an initialized session", function()
    local g <close> = gateway.start()
    local c <close> = g:client("2024-11-05", { initialize = false })
    for _, method in ipairs { "tools/list", "tools/call", "logging/setLevel", "resources/list", "prompts/get", "no/such" } do
      local refusal = c:call(method, { name = "x", level = "info" }).error
      assert.same({ -32600, "not_initialized" }, { refusal.code, refusal.data.reason }, method)
    end
    assert.same({}, c:result "ping")
    c:close()
    assert.has_nothing_left(g)
  end)
end)
