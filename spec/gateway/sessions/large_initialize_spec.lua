-- The data of `initialize` that a session stores has a cap, for any limits.body.
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local wire = require "spec.helpers.wire"

local MOST <const> = 65536
local FRAME <const> = #'{"name":"","version":"1"}' + #"{}"

-- An initialize whose clientInfo and capabilities are `size` bytes of JSON together.
local function initialize(revision, size)
  local message = wire.initialize_message(revision)
  message.params.clientInfo = { name = ("x"):rep(size - FRAME), version = "1" }
  return message
end

describe("an initialize whose clientInfo and capabilities are large", function()
  it("opens a session with up to 64 KiB of both together, and is refused with more", function()
    local g <close> = gateway.start()
    local response = wire.post(g, initialize("2025-11-25", MOST))
    assert.equal("2025-11-25", response:json().result.protocolVersion)
    local session = assert(response.headers["mcp-session-id"])
    for _, size in ipairs { MOST + 1, 3000000 } do
      response = wire.post(g, initialize("2025-11-25", size))
      assert.is_nil(response.headers["mcp-session-id"])
      local refusal = response:json().error
      assert.equal(-32602, refusal.code)
      assert.equal(("params.clientInfo and params.capabilities are %d bytes of JSON together, more than 65536, which is what a session "
        .. "keeps of them: send less"):format(size), refusal.message)
    end
    local large = wire.initialize_message "2025-11-25"
    large.params.capabilities = { experimental = { x = { y = ("x"):rep(MOST) } } }
    assert.equal(-32602, wire.post(g, large):json().error.code)
    assert.equal(1, g:status().gauges.sessions.http)
    client.request(g, { method = "DELETE", path = "/mcp", headers = { ["Mcp-Session-Id"] = session } })
    assert.has_nothing_left(g)
  end)

  it("may be sent again, smaller, on the same SSE session", function()
    local g <close> = gateway.start()
    local me <close> = g:client("2024-11-05", { initialize = false })
    assert.equal(-32602, me:call("initialize", initialize("2024-11-05", MOST + 1).params).error.code)
    assert.equal("2024-11-05", me:call("initialize", initialize("2024-11-05", MOST).params).result.protocolVersion)
    me:close()
    assert.has_nothing_left(g)
  end)
end)
