-- Sessions that were opened before a restart, and an upgrade after it: the process that has revived them serves them, and
-- another restart finds what each process has.
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"

local scripts = { ["tools/pid.lua"] = 'return tool { "Answers.", function() return "pong" end }' }

local function let_connect_anew(client)
  if client.kept then client.kept:close() end
  client.kept = nil
end

local function served(me)
  let_connect_anew(me)
  return me:result("tools/call", { name = "pid" }).content[1].text
end

describe("sessions over restarts and upgrades", function()
  it("go on in the process that has revived them, and in the next one after another restart", function()
    local g = upgrading.start_quick { scripts = scripts, config = { store = { file = "data/store.db" } }, files = { ["data/.keep"] = "" } }
    local clients = {}
    local function open()
      for _ = 1, 10 do clients[#clients + 1] = g:client "2025-11-25" end
    end
    local function all_served()
      for _, me in ipairs(clients) do
        me.gateway = g
        assert.equal("pong", served(me))
      end
    end
    local function restart()
      g:stop()
      g = upgrading.start_quick { dir = g.dir }
    end
    open()
    restart()
    all_served()
    open()
    g:must_upgrade()
    open()
    all_served()
    g:must_upgrade()
    open()
    all_served()
    assert.equal(204, clients[1]:delete().status)
    assert.equal(404, clients[1]:delete().status)
    table.remove(clients, 1)
    restart()
    assert.equal(#clients, g:status().gauges.sessions.http)
    all_served()
    for _, me in ipairs(clients) do
      assert.equal(204, me:delete().status)
      me:close()
    end
    local last <close> = g
    assert.has_nothing_left(last)
    wait.for_fact("the store to be empty", 10, function() return last:status().gauges.store_room_entries.sessions == 0 end)
  end)
end)
