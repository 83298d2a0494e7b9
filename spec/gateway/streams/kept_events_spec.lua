-- With store.file a client resumes its streams in the process that was started after the one that has sent them: no event
-- is told twice, no id names two events, and a call that ran gets one error.
local gateway = require "spec.helpers.gateway"
local resume = require "spec.helpers.resume"

local scripts = {
  ["resources/notes.lua"] = 'return resource { "Notes.", uri = "notes://{id}", function(vars) return vars.id end }',
  ["tools/touch.lua"] = [[return tool { "Touch.", input = { first = t.integer, last = t.integer }, function(args)
    for i = args.first, args.last do resource_updated("notes://" .. i) end
    return "touched"
  end }]],
  ["tools/name.lua"] = [[return tool { "Touch one.", input = { id = t.string }, function(args)
    resource_updated("notes://" .. args.id)
    return "touched"
  end }]],
}
for path, text in pairs(resume.scripts) do scripts[path] = text end

local function start(more, constants)
  local config = { store = { file = "data/store.db" } }
  for name, value in pairs(more or {}) do config[name] = value end
  return gateway.start { scripts = scripts, config = config, files = { ["data/.keep"] = "" }, constants = constants }
end

local function wait_saved(g)
  g:wait_status(function(status) return status.gauges.kept_sessions_behind == 0 and status.gauges.store_unsaved == 0 end)
end

local function again(g, ...)
  wait_saved(g)
  g:kill()
  g.stopped = true
  local new = gateway.start { dir = g.dir, constants = g.constants }
  for _, me in ipairs { ... } do me.gateway = new end
  return new
end

local function leave(me, g)
  me:delete()
  me:close()
  assert.has_nothing_left(g)
  assert.equal(0, g:status().gauges.store_room_entries.events)
end

local function number_of(id) return math.tointeger(id:match "%-(%d+)$") end

describe("after a restart", function()
  it("a call that ran gets one error in the place of its answer, behind the events that it has sent", function()
    local g = start()
    local me = g:client "2025-11-25"
    local stream = resume.steps(me, 1000, 20)
    local last = stream:wait_event(resume.step(2)).id
    stream:close()
    stream = resume.after(me, last)
    stream:wait_event(resume.step(4))
    local new <close> = again(g, me)
    local events = resume.all(resume.after(me, last))
    local words = resume.words(events)
    assert.same({ 3, 4 }, table.move(words, 1, 2, 1, {}))
    assert.equal(-32603, words[#words])
    local err = events[#events].json
    assert.equal(stream.id or err.id, err.id)
    assert.truthy(err.error.message:find("the gateway was restarted; the call may have run", 1, true))
    for i = 1, #words - 1 do assert.equal(i + 2, words[i]) end
    assert.is_true(number_of(events[#events].id) > 1 << 20)
    assert.same({}, resume.all(resume.after(me, events[#events].id)))
    leave(me, new)
  end)

  it("a call of which its client has the priming event alone gets that error, too", function()
    local g = start()
    local me = g:client "2025-11-25"
    local stream = me:open("tools/call", { name = "steps", arguments = { n = 1, ms = 60000 } })
    local id = stream:wait_event(function(event) return event.data == "" end).id
    local new <close> = again(g, me)
    assert.same({ -32603 }, resume.words(resume.all(resume.after(me, id))))
    leave(me, new)
  end)

  it("an answer that came before it is there, and no error", function()
    local g = start()
    local me = g:client "2025-11-25"
    local events = resume.all(resume.steps(me, 4))
    local new <close> = again(g, me)
    for i, event in ipairs(events) do
      assert.same(table.move(resume.words(events), i + 1, #events, 1, {}), resume.words(resume.all(resume.after(me, event.id))))
    end
    leave(me, new)
  end)

  it("the session's own stream goes on behind the last event that its client has, under numbers that were never used", function()
    local g = start()
    local me = g:client "2025-11-25"
    for i = 1, 9 do me:result("resources/subscribe", { uri = "notes://" .. i }) end
    local seen = {}
    local function next_note(stream)
      local event = stream:wait_event(function(event) return event.id ~= nil and event.data ~= "" end)
      assert.is_nil(seen[event.id])
      seen[event.id] = true
      return event.json.params.uri:match "%d+$", event.id
    end
    local own = me:get_stream()
    me:result("tools/call", { name = "touch", arguments = { first = 1, last = 3 } })
    local note, id = next_note(own)
    assert.equal("1", note)
    own:close()
    local here = g
    for round = 1, 3 do
      here = again(here, me)
      own = resume.after(me, id)
      for i = 2, 3 do
        assert.equal(tostring(i), (next_note(own)))
      end
      me:result("tools/call", { name = "touch", arguments = { first = 1, last = 3 } })
      note, id = next_note(own)
      assert.equal("1", note)
      assert.is_true(number_of(id) > round << 20)
      own:close()
      -- numbers of calls are new, too
      local call = resume.steps(me, 1)
      local first = call:wait_event(resume.step(1)).id
      assert.is_nil(seen[first])
      seen[first] = true
      call:answer()
    end
    local served <close> = here
    leave(me, served)
  end)

  it("the number of an event that was sent and not kept is not used again, however often the gateway is started", function()
    local g = start(nil, { replay_bytes = 1000 })
    local me = g:client "2025-11-25"
    local long, seen = ("x"):rep(1500), {}
    for _, id in ipairs { "1", long } do me:result("resources/subscribe", { uri = "notes://" .. id }) end
    for round = 1, 4 do
      local own = me:get_stream()
      me:result("tools/call", { name = "name", arguments = { id = round % 2 == 0 and long or "1" } })
      local id = own:wait_event(function(event) return event.id ~= nil and event.data ~= "" end).id
      assert.is_nil(seen[id], id)
      seen[id] = true
      own:close()
      g = again(g, me)
    end
    local served <close> = g
    leave(me, served)
  end)

  it("events of two restarts follow each other", function()
    local g = start()
    local me = g:client "2025-11-25"
    for i = 1, 9 do me:result("resources/subscribe", { uri = "notes://" .. i }) end
    local own = me:get_stream()
    me:result("tools/call", { name = "touch", arguments = { first = 1, last = 3 } })
    local id = own:wait_event(function(event) return event.id ~= nil and event.data ~= "" end).id
    own:close()
    for i = 4, 6, 2 do
      g = again(g, me)
      me:result("tools/call", { name = "touch", arguments = { first = i, last = i + 1 } })
    end
    local served <close> = again(g, me)
    own = resume.after(me, id)
    for i = 2, 7 do
      local event = own:wait_event(function(event) return event.id ~= nil and event.data ~= "" end)
      assert.equal(tostring(i), event.json.params.uri:match "%d+$")
    end
    own:close()
    leave(me, served)
  end)

  it("a number is not used again though the file has nothing of the stream that has used it", function()
    local g = start()
    local me = g:client "2025-11-25"
    for i = 1, 3 do me:result("resources/subscribe", { uri = "notes://" .. i }) end
    wait_saved(g)
    assert.equal(0, (gateway.run_program("/usr/bin/prlimit", { "--pid", tostring(g.pid), "--fsize=4096:unlimited" })))
    local seen = {}
    local function read(from)
      local own = me:get_stream()
      own:head()
      me:result("tools/call", { name = "touch", arguments = { first = 1, last = 3 } })
      for _ = 1, 3 do
        local event = own:wait_event(function(event) return event.id ~= nil and event.data ~= "" and not from[event.id] end)
        assert.is_nil(seen[event.id], event.id)
        from[event.id] = true
      end
      own:close()
      for id in pairs(from) do seen[id] = true end
    end
    read {}
    g:wait_log "store not saved"
    for _ = 1, 2 do
      g:kill()
      g.stopped = true
      g = gateway.start { dir = g.dir }
      me.gateway = g
      read {}
    end
    local served <close> = g
    leave(me, served)
  end)

  it("what nobody can resume is not kept", function()
    local g = start()
    local me = g:client "2025-11-25"
    resume.all(resume.steps(me, 5))
    wait_saved(g)
    g:kill()
    g.stopped = true
    local code, _, err = gateway.run_program("/usr/bin/python3", { "-c", [[
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
heads = [row[0] for row in db.execute("SELECT key FROM sessions WHERE substr(CAST(key AS TEXT), 1, 6) = 'event:'") if row[0][58:74] == b'0' * 16]
assert heads
db.executemany("DELETE FROM sessions WHERE key = ?", [(key,) for key in heads])
db.commit()]], g.dir .. "/data/store.db" })
    assert.equal(0, code, err)
    local new <close> = gateway.start { dir = g.dir }
    me.gateway = new
    assert.equal(0, new:status().gauges.store_room_entries.events)
    assert.equal(1, new:status().gauges.store_room_entries.sessions)
    leave(me, new)
  end)

  it("events that were dropped are missed, not passed over", function()
    local g = start { sessions = { replay = { events = 3 } } }
    local me = g:client "2025-11-25"
    local events = resume.all(resume.steps(me, 8))
    local new <close> = again(g, me)
    assert.equal(400, resume.after(me, events[2].id):head().status)
    assert.same({ "counted to 8" }, resume.words(resume.all(resume.after(me, events[#events - 1].id))))
    leave(me, new)
  end)
end)
