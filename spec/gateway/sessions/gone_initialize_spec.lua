-- A client that has left before its `initialize` is answered: no session is made for it, at the limit of the sessions and below it.
local departures = require "spec.soak.departures"
local gateway = require "spec.helpers.gateway"
local http2 = require "spec.helpers.http2"
local wire = require "spec.helpers.wire"

local TIMES <const> = 200

local function start(sessions)
  return gateway.start { workers = 1, config = http2.config { auth = "none", sessions = sessions } }
end

for _, form in ipairs { "http1 FIN", "http1 RST", "http1 call, FIN", "http2 RST_STREAM", "http2 large, RST_STREAM" } do
  describe("clients that send an initialize and leave: " .. form, function()
    it("are refused without harm at a limit of the sessions", function()
      local g <close> = start { per_principal = 2 }
      local ids = { (wire.initialize(g, "2025-11-25")), (wire.initialize(g, "2025-11-25")) }
      departures.run(g, { form = form, times = TIMES })
      assert.equal(2, departures.sessions_left(g))
      for _, id in ipairs(ids) do assert.equal(204, wire.request(g, "DELETE", "/mcp", { ["Mcp-Session-Id"] = id }).status) end
      assert.has_nothing_left(g)
    end)

    it("leave no session", function()
      local g <close> = start { per_principal = 10000, max = 10000 }
      departures.run(g, { form = form, times = TIMES })
      assert.equal(0, departures.sessions_left(g))
      assert.has_nothing_left(g)
    end)
  end)
end
