-- Sessions that were opened before a restart, and an upgrade after it: the process that has revived them serves them, and
-- another restart finds what each process has.
local resume = require "spec.helpers.resume"
local upgrading = require "spec.helpers.upgrading"
local uv = require "luv"
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

-- The newest process, which owns the store, stands still until the result is closed.
local function stop_newest(g)
  g:signal "sigstop"
  return setmetatable({}, { __close = function() g:signal "sigcont" end })
end

local function restarted(g)
  g:stop()
  return upgrading.start_quick { dir = g.dir }
end

-- Behind a restart the session of `gone` is unknown, and that of `kept` goes on.
local function expect_after_restart(g, gone, kept)
  local new <close> = restarted(g)
  for _, one in ipairs { gone, kept } do
    let_connect_anew(one)
    one.gateway = new
  end
  assert.equal(404, gone:delete().status)
  assert.equal("pong", served(kept))
  kept:delete()
  for _, one in ipairs { gone, kept } do one:close() end
  assert.has_nothing_left(new)
end

local store = { config = { store = { file = "data/store.db" } }, files = { ["data/.keep"] = "" } }

local function started(more)
  local options = { scripts = more or scripts }
  for name, value in pairs(store) do options[name] = value end
  return upgrading.start_quick(options)
end

describe("an older process whose store is that of the newest one", function()
  it("ends a session for good while that one stands still", function()
    local g = started()
    local me, other = g:client "2025-11-25", g:client "2025-11-25"
    local held <close> = g:connect()            -- to the older process
    g:must_upgrade()
    do
      local _ <close> = stop_newest(g)
      assert.equal(204, held:request({ method = "DELETE", path = "/mcp", headers = { ["Mcp-Session-Id"] = me.session } }).status)
    end
    other.gateway = g
    assert.equal("pong", served(other))
    wait.for_fact("the end of the session to be with the newest process", 20, function()
      return g:status().gauges.store_room_entries.sessions == 1
    end)
    expect_after_restart(g, me, other)
  end)

  it("keeps the events that it sends while that one stands still", function()
    local g = started(resume.scripts)
    local me = g:client "2025-11-25"
    local stream = resume.steps(me, 60, 50)
    local first = stream:wait_event(resume.step(1)).id
    g:must_upgrade()
    do
      local _ <close> = stop_newest(g)
      local seen = 0
      for _, event in ipairs(stream.connection.events) do
        seen = math.max(seen, type(event.json) == "table" and event.json.params and event.json.params.progress or 0)
      end
      stream:wait_event(resume.step(seen + 5))
    end
    stream:answer()
    stream:close()
    wait.for_fact("all to be with the newest process", 20, function() return g:status().gauges.store_outgoing_bytes == 0 end)
    g:wait_status(function(status) return status.gauges.store_unsaved == 0 end)
    local new <close> = restarted(g)
    let_connect_anew(me)
    me.gateway = new
    local words = resume.words(resume.all(resume.after(me, first)))
    for i = 1, 59 do assert.equal(i + 1, words[i]) end
    assert.equal("counted to 60", words[60])
    me:delete()
    me:close()
    assert.has_nothing_left(new)
  end)
end)

describe("an older process whose gateway is stopped", function()
  it("loses neither the end of a session nor the answer of a call that it serves", function()
    local g = started { ["tools/hold.lua"] = 'return tool { "Holds.", function() sleep(1) return "held" end }', ["tools/pid.lua"] = scripts["tools/pid.lua"] }
    local me, other = g:client "2025-11-25", g:client "2025-11-25"
    local held <close> = g:connect()            -- to the older process
    g:must_upgrade()
    let_connect_anew(other)
    local stream = other:open("tools/call", { name = "hold", arguments = {} })
    g:wait_status(function(now) return now.gauges.requests_in_flight >= 1 end)
    do
      local _ <close> = stop_newest(g)
      assert.equal(204, held:request({ method = "DELETE", path = "/mcp", headers = { ["Mcp-Session-Id"] = me.session } }).status)
      g:signal "sigterm"
    end
    assert.equal("held", stream:answer().result.content[1].text)
    stream:close()
    g:wait_exit()
    assert.is_nil(g:log():find("not saved at shutdown", 1, true), g:log())
    expect_after_restart(g, me, other)
  end)
end)

describe("a gateway that is stopped", function()
  -- `drain` is just above a second, after which a wait of whole seconds would come too late
  it("ends by itself where an older process stands still", function()
    local g <close> = upgrading.start_quick { scripts = scripts, config = { limits = { drain = "1100ms" } } }
    local me = g:client "2025-11-25"
    g:must_upgrade()
    local older = g:older()[1]
    uv.kill(older, "sigstop")
    g:signal "sigterm"
    wait.for_fact("the newest process to have ended", 20, function() return not g:is_alive() end)
    uv.kill(older, "sigcont")
    g:wait_exit()
    assert.equal(2, select(2, g:log():gsub("info  stopped", "")), g:log())
    me:close()
  end)

  it("stops its older processes, too, at the second signal", function()
    local g <close> = upgrading.start_quick { scripts = { ["tools/hold.lua"] = 'return tool { "Holds.", function() sleep(600) return "held" end }' } }
    local me = g:client "2025-11-25"
    local stream = me:open("tools/call", { name = "hold", arguments = {} })
    g:wait_status(function(now) return now.gauges.requests_in_flight >= 1 end)
    g:must_upgrade()
    g:signal "sigterm"
    wait.for_fact("both to drain", 20, function() return select(2, g:log():gsub("info  draining", "")) == 2 end)
    g:signal "sigterm"
    g:wait_exit()
    assert.equal(2, select(2, g:log():gsub("info  stopping now", "")), g:log())
    stream:close()
    me:close()
  end)
end)

describe("an older process whose session grows above what the newest one has room for", function()
  it("counts its record as one that was not saved", function()
    local g <close> = upgrading.start_quick {
      scripts = { ["resources/notes.lua"] = 'return resource { "Notes.", uri = "notes://{id}", function(vars) return vars.id end }' },
      config = { store = { file = "data/store.db", bytes = "64KiB" } }, files = { ["data/.keep"] = "" },
    }
    local me = g:client "2025-11-25"
    g:must_upgrade()
    let_connect_anew(me)
    for i = 1, 200 do me:result("resources/subscribe", { uri = "notes://" .. i .. ("x"):rep(1000) }) end
    g:wait_status(function(status) return status.counters.kept_sessions_unsaved > 0 end)
    assert.equal(204, me:delete().status)
    me:close()
    g:wait_status(function(status) return status.gauges.store_room_entries.sessions == 0 and status.gauges.kept_sessions_left_out == 0 end)
  end)
end)

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
