-- Requests that another process of the gateway serves, as after an upgrade: each session stays in the process that
-- opened it, and what begins something new goes to the newest one, whichever process holds the client's connection.
local processes = require "spec.helpers.processes"
local wire = require "spec.helpers.wire"
require "spec.helpers.asserts"

local two, opens, move, text = processes.two, processes.opens, processes.move, processes.text

describe("a session", function()
  for _, revision in ipairs { "2025-03-26", "2025-06-18", "2025-11-25", "2024-11-05" } do
    it("of " .. revision .. " is served by the process that opened it, and new ones by the newest", function()
      local _ <close>, old, new, c = two { before = opens(revision) }
      local d <close> = old:client(revision) -- on a connection to the old process
      local e <close> = new:client(revision)
      for _, at in ipairs { new, old, new } do
        assert.equal("old", text(move(c, at), "place"))
        assert.equal("new", text(move(d, at), "place"))
        assert.equal("new", text(move(e, at), "place"))
      end
      assert.equal(1, old:status().counters.sessions_opened)
      assert.equal(2, new:status().counters.sessions_opened)
      c:close()
    end)
  end

  it("is deleted by way of another process, and is unknown then in both", function()
    local _ <close>, old, new, c = two { before = opens "2025-11-25" }
    assert.equal(204, move(c, new):delete().status)
    for _, g in ipairs { new, old } do
      local answer = wire.post(g, wire.message(1, "ping"), { ["Mcp-Session-Id"] = c.session })
      assert.equal(404, answer.status)
      assert.equal("no such session: send \"initialize\" without Mcp-Session-Id", answer:json().error.message)
    end
    c:close()
  end)
end)

describe("requests without a session", function()
  it("that reach an older process go to the newest", function()
    local _ <close>, old, new = two()
    local c <close> = old:client "2026-07-28"
    assert.equal("new", text(c, "place"))
    local listening = c:open("subscriptions/listen", { notifications = { toolsListChanged = true } })
    listening:head(20)
    assert.equal(1, new:status().gauges.listeners)
    assert.equal(0, old:status().gauges.listeners)
    listening:hang_up()
    new:wait_status(function(status) return status.gauges.listeners == 0 end)
    old:wait_status(function(status) return status.gauges.hops == 0 end)
  end)
end)
