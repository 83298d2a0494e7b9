-- B-13: a restarted gateway knows no earlier session, and its answer makes clients initialize again.
local gateway = require "spec.helpers.gateway"
local wire = require "spec.helpers.wire"

-- A gateway at the address of one that has ended.
local function start_again(g)
  return gateway.start { config = { listen = "127.0.0.1:" .. g.port } }
end

-- The exit of the restarted gateway is not checked.
local function crash(g)
  g:kill()
  g.stopped = true
end

local function stop(g)
  g:stop()
end

for what, halt in pairs { ["was stopped and started"] = stop, ["was killed and started"] = crash } do
  describe("after the gateway " .. what, function()
    it("a Streamable HTTP client gets 404 for its old session, and can open a new one", function()
      local old <close> = gateway.start {}
      local me = old:client "2025-11-25"
      local stream = me:get_stream()
      assert.equal(200, stream:head().status)
      halt(old)
      stream.connection:wait_closed()
      local g <close> = start_again(old)
      me.gateway = g
      local session = { ["Mcp-Session-Id"] = me.session, ["MCP-Protocol-Version"] = me.revision }
      local response = wire.post(g, wire.message(7, "tools/list"), session)
      assert.equal(404, response.status)
      assert.equal(7, response:json().id)
      assert.equal(-32600, response:json().error.code)
      response = wire.request(g, "GET", "/mcp", { Accept = "text/event-stream", ["Mcp-Session-Id"] = me.session, ["MCP-Protocol-Version"] = me.revision })
      assert.equal(404, response.status)
      assert.equal(-32600, response:json().error.code)
      assert.equal(404, me:delete().status)

      local again = g:client "2025-11-25"
      assert.not_equal(me.session, again.session)
      assert.same({}, again:result "ping")
      assert.equal(204, again:delete().status)
      again:close()
      me:close()
      assert.has_nothing_left(g)
    end)

    it("an HTTP+SSE client gets 404 for its old URL, and can open a new session", function()
      local old <close> = gateway.start {}
      local me = old:client "2024-11-05"
      halt(old)
      me.stream:wait_closed()
      local g <close> = start_again(old)
      local response = wire.post(g, wire.message(7, "tools/list"), nil, me.endpoint)
      assert.equal(404, response.status)
      assert.equal(-32600, response:json().error.code)
      local again = g:client "2024-11-05"
      assert.not_equal(me.endpoint, again.endpoint)
      assert.same({}, again:result "ping")
      again:close()
      me:close()
      assert.has_nothing_left(g)
    end)
  end)
end
