-- With store.file sessions of Streamable HTTP survive a restart: what a client was told of its session is true in the
-- next process, however the last one ended.
local cjson = require "cjson.safe"
local credentials = require "spec.helpers.credentials"
local lfs = require "lfs"
local gateway = require "spec.helpers.gateway"
local task_client = require "spec.helpers.task_client"
local uv = require "luv"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local scripts = {
  ["resources/clock.lua"] = 'return resource { "The time.", uri = "clock://now", function() return "12:00" end }',
  ["tools/tick.lua"] = [[return tool { "Changes the clock.", function() resource_updated "clock://now" return "ticked" end }]],
  ["tools/say.lua"] = [[return tool { "Logs.", function(_, call) call:log("info", "heard") call:log("error", "hurt") return "said" end }]],
  ["tools/task.lua"] = 'return tool { "A task.", task = "optional", input = { s = t.number }, function(args) sleep(args.s) return "done" end }',
  ["tools/fill.lua"] = 'return tool { "Fills.", function() for i = 1, 100 do store.set("k" .. i, ("x"):rep(10000)) end return "filled" end }',
}

local function start(options)
  options = options or {}
  local config = options.config or {}
  config.store = { file = "data/store.db" }
  return gateway.start {
    scripts = options.scripts or scripts, config = config, files = { ["data/.keep"] = "" }, constants = options.constants,
  }
end

local function killed(g)
  g:kill()
  g.stopped = true
end

local function stopped(g) g:stop() end

-- The gateway that is started in the folder of another one, which has ended; `...`: the clients go there from now on.
local function again(g, ...)
  local new = gateway.start { dir = g.dir, constants = g.constants }
  for _, me in ipairs { ... } do me.gateway = new end
  return new
end

local function statuses(me)
  local session = { ["Mcp-Session-Id"] = me.session, ["MCP-Protocol-Version"] = me.revision }
  return {
    wire.post(me.gateway, wire.message(7, "tools/list"), session).status,
    wire.request(me.gateway, "GET", "/mcp", { Accept = "text/event-stream", ["Mcp-Session-Id"] = me.session }).status,
    me:delete().status,
  }
end

local GONE = { 404, 404, 404 }

-- The clients' sessions end, and nothing is left of them.
local function leave(g, ...)
  for _, me in ipairs { ... } do
    me:delete()
    me:close()
  end
  assert.has_nothing_left(g)
end

for what, halt in pairs { ["is killed"] = killed, ["is stopped"] = stopped } do
  describe("a session, when its gateway " .. what .. " and started again,", function()
    it("goes on under its id", function()
      local g = start()
      local me = g:client "2025-11-25"
      halt(g)
      local new <close> = again(g, me)
      assert.equal("said", me:result("tools/call", { name = "say" }).content[1].text)
      new:wait_log "sessions revived"
      new:wait_log "session goes on"
      assert.equal(204, me:delete().status)
      assert.same(GONE, statuses(me))
      me:close()
      assert.has_nothing_left(new)
    end)

    it("is over if its client has ended it", function()
      local g = start()
      local me = g:client "2025-11-25"
      assert.equal(204, me:delete().status)
      halt(g)
      local new <close> = again(g, me)
      assert.same(GONE, statuses(me))
      me:close()
      assert.has_nothing_left(new)
    end)

    it("has its subscriptions and its log level", function()
      local g = start()
      local me = g:client "2025-11-25"
      me:result("resources/subscribe", { uri = "clock://now" })
      me:result("logging/setLevel", { level = "error" })
      if halt == killed then
        g:wait_status(function(status) return status.gauges.kept_sessions_behind == 0 and status.gauges.store_unsaved == 0 end)
      end
      halt(g)
      local new <close> = again(g, me)
      local own = me:get_stream()
      own:head()
      local said = me:open("tools/call", { name = "say" })
      said:answer()
      local heard = {}
      for _, message in ipairs(said:messages()) do
        if message.method == "notifications/message" then heard[#heard + 1] = message.params.data end
      end
      assert.same({ "hurt" }, heard)
      me:result("tools/call", { name = "tick" })
      own:wait "notifications/resources/updated"
      own:close()
      leave(new, me)
    end)
  end)
end

describe("a task, when its gateway is killed and started again,", function()
  local function begin(me, seconds)
    local params = { name = "task", arguments = { s = seconds }, task = { ttl = 600000 } }
    return me:result("tools/call", params).task.taskId
  end

  it("has its result, or has failed if it ran", function()
    local g = start()
    local me = g:client "2025-11-25"
    local done, ran = begin(me, 0.01), begin(me, 60)
    task_client.wait(g, me, done, "completed")
    g:wait_status(function(status) return status.gauges.store_unsaved == 0 end)
    killed(g)
    local new <close> = again(g, me)
    assert.equal("completed", me:result("tasks/get", { taskId = done }).status)
    assert.equal("done", me:result("tasks/result", { taskId = done }).content[1].text)
    assert.equal("failed", me:result("tasks/get", { taskId = ran }).status)
    local answer = me:call("tasks/result", { taskId = ran })
    assert.equal("the gateway was restarted; the task may have run", answer.error.message)
    leave(new, me)
  end)
end)

describe("sessions over a restart", function()
  it("belong to their principal alone", function()
    local g = start { scripts = { ["auth/main.lua"] = credentials.script, ["tools/who.lua"] = credentials.who } }
    local me = g:client("2025-11-25", { token = "ann-1" })
    killed(g)
    local new <close> = again(g, me)
    local other = new:client("2025-11-25", { token = "bob-1" })
    local own = other.session
    other.session = me.session
    assert.equal(404, select(2, other:call "tools/list").status)
    other.session = own
    assert.is_table(me:result "tools/list".tools)
    leave(new, me, other)
  end)

  it("do not end earlier than without it", function()
    local g = start { config = { sessions = { idle = "4s" } } }
    local began = (uv.hrtime() / 1e9)
    local me = g:client "2025-11-25"
    local function at(seconds) wait.for_fact("the time", 20, function() return (uv.hrtime() / 1e9) - began >= seconds end) end
    at(2)
    me:result "tools/list"
    local used = (uv.hrtime() / 1e9) - began
    at(used + 1.5)
    killed(g)
    at(used + 3)
    local new <close> = again(g, me)
    assert.is_table(me:result "tools/list".tools)
    leave(new, me)
  end)

  it("that follow more than fits a record end with the process", function()
    local long = { ["resources/notes.lua"] = 'return resource { "Notes.", uri = "notes://{id}", function(vars) return vars.id end }' }
    local g = start { scripts = long }
    local me, other = g:client "2025-11-25", g:client "2025-11-25"
    for i = 1, 300 do me:result("resources/subscribe", { uri = "notes://" .. i .. ("x"):rep(1000) }) end
    g:wait_status(function(status) return status.counters.kept_sessions_unsaved > 0 and status.gauges.store_unsaved == 0 end)
    assert.equal(1, g:status().gauges.kept_sessions_left_out)
    killed(g)
    local new <close> = again(g, me, other)
    assert.same(GONE, statuses(me))
    me:close()
    leave(new, other)
  end)

  it("end while the gateway is down, if that takes longer than sessions.idle", function()
    local g = start { config = { sessions = { idle = "100ms" } } }
    local me = g:client "2025-11-25"
    killed(g)
    local over = os.time() + 2
    wait.for_fact("the session's time to be over", 10, function() return os.time() >= over end)
    local new <close> = again(g, me)
    assert.same(GONE, statuses(me))
    me:close()
    assert.has_nothing_left(new)
  end)

  it("count for sessions.max and sessions.per_principal", function()
    local g = start { config = { sessions = { max = 3, per_principal = 2 } } }
    local one, two = g:client "2025-11-25", g:client "2025-11-25"
    killed(g)
    local new <close> = again(g, one, two)
    assert.equal(429, select(2, wire.initialize(new, "2025-11-25")).status)
    one:delete()
    local three = new:client "2025-11-25"
    for _, me in ipairs { two, three } do
      me:delete()
      me:close()
    end
    one:close()
    assert.has_nothing_left(new)
  end)

  it("that the limits do not allow any more are dropped, with a line of the log", function()
    local g = start()
    local clients = {}
    for i = 1, 3 do clients[i] = g:client "2025-11-25" end
    killed(g)
    local text = assert(io.open(g.dir .. "/moonpool.yaml")):read "a"
    local config = cjson.decode(text)
    config.sessions = { max = 2 }
    assert(io.open(g.dir .. "/moonpool.yaml", "w")):write(cjson.encode(config)):close()
    local new <close> = again(g, table.unpack(clients))
    new:wait_log("sessions dropped", { over_limit = "1" })
    assert.equal(2, new:status().gauges.sessions.http)
    leave(new, table.unpack(clients))
  end)

  it("whose records are broken are dropped, with one line of the log", function()
    local g = start()
    local clients = {}
    for i = 1, 3 do clients[i] = g:client "2025-11-25" end
    killed(g)
    local code, _, err = gateway.run_program("/usr/bin/python3", { "-c", [[
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
keys = [row[0] for row in db.execute("SELECT key FROM sessions WHERE CAST(key AS TEXT) LIKE 'session:%' ORDER BY key")]
db.execute("UPDATE sessions SET text = CAST('x' AS BLOB) WHERE key = ?", (keys[0],))
db.execute("UPDATE sessions SET text = CAST(text || 'x' AS BLOB) WHERE key = ?", (keys[1],))
db.commit()]], g.dir .. "/data/store.db" })
    assert.equal(0, code, err)
    local new <close> = again(g, table.unpack(clients))
    new:wait_log("sessions dropped", { broken = "2" })
    assert.equal(1, new:status().gauges.sessions.http)
    leave(new, table.unpack(clients))
  end)

  it("end with the process with sessions.keep: false, and leave nothing in the file", function()
    local g = start()
    local me = g:client "2025-11-25"
    killed(g)
    local text = assert(io.open(g.dir .. "/moonpool.yaml")):read "a"
    local config = cjson.decode(text)
    config.sessions = { keep = false }
    assert(io.open(g.dir .. "/moonpool.yaml", "w")):write(cjson.encode(config)):close()
    local new = again(g, me)
    assert.same(GONE, statuses(me))
    local other = new:client "2025-11-25"
    assert.equal(0, new:status().gauges.store_room_entries.sessions)
    killed(new)
    local third <close> = again(g, me, other)
    assert.same(GONE, statuses(me))
    assert.same(GONE, statuses(other))
    me:close()
    other:close()
    assert.has_nothing_left(third)
  end)

  it("that wait for a disk which hangs do not keep the gateway from its end", function()
    local g
    local flag = gateway.new_folder() .. "/slow"
    local config = { store = { file = "data/store.db" }, limits = { drain = "100ms" } }
    g = gateway.start { scripts = scripts, config = config, files = { ["data/.keep"] = "" }, env = { SLOW_DISK = flag } }
    local me = g:client "2025-11-25"
    assert(io.open(flag, "w")):close()
    local opening = g:connect():send {
      method = "POST", path = "/mcp", body = wire.initialize_message("2025-11-25", 1),
      headers = { Accept = wire.both, ["Content-Type"] = "application/json" },
    }
    local ending = g:connect():send { method = "DELETE", path = "/mcp", headers = { ["Mcp-Session-Id"] = me.session } }
    wait.for_fact("both to wait for the file", 10, function() return g:status().gauges.requests_in_flight == 1 and g:status().gauges.sessions.http == 1 end)
    uv.kill(g.pid, "sigterm")
    opening:close()
    ending:close()
    me:close()
    wait.for_fact("the workers to have ended", 10, function()
      for id in lfs.dir(("/proc/%d/task"):format(g.pid)) do
        local file <close> = io.open(("/proc/%d/task/%s/comm"):format(g.pid, id))
        if file and file:read "a":find "^worker" then return false end
      end
      return true
    end)
    os.remove(flag)
    g:stop()
  end)

  it("are opened while the disk hangs, with one line of the log, and are saved once it goes on", function()
    local flag = gateway.new_folder() .. "/slow"
    local g = gateway.start { scripts = scripts, config = { store = { file = "data/store.db" } }, files = { ["data/.keep"] = "" }, env = { SLOW_DISK = flag } }
    local me = g:client "2025-11-25"
    assert(io.open(flag, "w")):close()
    local one = g:client "2025-11-25"
    local two = g:client "2025-11-25"
    assert.equal(204, me:delete().status)
    assert.equal("the disk, or the process that writes it, is slow", g:wait_log "store not saved".fields.why)
    assert.equal(1, select(2, g:log():gsub("store not saved", "")))
    assert.equal(1, g:status().counters.store_late)
    os.remove(flag)
    g:wait_status(function(status) return status.gauges.store_unsaved == 0 end)
    killed(g)
    local new <close> = again(g, me, one, two)
    assert.same(GONE, statuses(me))
    for _, other in ipairs { one, two } do assert.is_table(other:result "tools/list".tools) end
    me:close()
    leave(new, one, two)
  end)

  it("are opened while the file cannot be written, and are saved once it can", function()
    local g = start()
    local me = g:client "2025-11-25"
    g:wait_status(function(status) return status.gauges.store_unsaved == 0 end)
    local function limit(bytes)
      assert.equal(0, (gateway.run_program("/usr/bin/prlimit", { "--pid", tostring(g.pid), "--fsize=" .. bytes .. ":unlimited" })))
    end
    limit(200000)
    me:result("tools/call", { name = "fill" })
    g:wait_log "store not saved"
    local other = g:client "2025-11-25"
    assert.equal(204, me:delete().status)
    limit "unlimited"
    g:wait_status(function(status) return status.gauges.store_unsaved == 0 end)
    killed(g)
    local new <close> = again(g, me, other)
    assert.same(GONE, statuses(me))
    assert.is_table(other:result "tools/list".tools)
    me:close()
    leave(new, other)
  end)
end)
