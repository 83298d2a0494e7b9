-- What the admin listener of the newest process says and does for all processes of a gateway, as after an upgrade.
local cjson = require "cjson.safe"
local blocking = require "spec.helpers.blocking"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local processes = require "spec.helpers.processes"
local scrape = require "spec.helpers.scrape"
local wait = require "spec.helpers.wait"
require "spec.helpers.asserts"

local token = ("o"):rep(32)
local config = { admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } }, log = { audit = "audit.jsonl" } }
local scripts = {
  ["tools/add.lua"] = 'return tool { "Adds.", input = { a = t.integer, b = t.integer }, function(args) return args.a + args.b end }',
  ["tools/hold.lua"] = 'return tool { "Holds.", function() log.info "holds" sleep(60) end }',
}

-- An older and a newest process, and a client whose session is in the older one.
local function two()
  return processes.two { scripts = scripts, config = config, before = function(old) return old:client "2025-11-25" end }
end

local function request(method, path, body)
  return { method = method, path = path, body = body and cjson.encode(body),
    headers = { Authorization = "Bearer " .. token, ["moonpool-admin"] = "1", ["Content-Type"] = body and "application/json" or nil } }
end

local function admin(g, path, method, body, seconds)
  return client.request(g, request(method or "GET", path, body), { admin = true, seconds = seconds })
end

local function status(g)
  local answer = admin(g, "/status")
  assert.equal(200, answer.status, answer.body)
  return answer:json()
end

local function add(c) return c:result("tools/call", { name = "add", arguments = { a = 1, b = 2 } }) end

local function hold(c, g)
  local stream = c:open("tools/call", { name = "hold", arguments = {} })
  g:wait_log "holds"
  return stream
end

-- All counters of a status or of a scrape, by their names.
local function counters_of(g)
  local all = {}
  for family, value in pairs(status(g).counters) do
    if type(value) == "table" then
      for name, number in pairs(value) do all[family .. " " .. name] = number end
    else
      all[family] = value
    end
  end
  for name, value in pairs(scrape.samples(g)) do
    if name:find "_total" or name:find "_bucket" or name:find "_count" or name:find "_sum" then all[name] = value end
  end
  return all
end

local function assert_none_fell(before, after)
  for name, value in pairs(before) do
    assert.is_true(after[name] and after[name] >= value, ("%s fell from %s to %s"):format(name, value, after[name]))
  end
end

-- Waits until a scrape is a new one: a text may be a second old.
local function wait_total(g, name, least)
  wait.for_fact(name .. " to reach " .. least, 20, function() return (scrape.samples(g)[name] or 0) >= least end)
end

describe("/status of the newest process", function()
  it("sums gauges and counters of all, and lists the older ones", function()
    local _ <close>, old, new, c = two()
    local _ <close> = new:client "2025-11-25"
    local called = hold(c, old)
    local got = wait.for_fact("both sessions and the call", 20, function()
      local now = status(new)
      return now.gauges.sessions.http == 2 and now.upgrade[1] and now.upgrade[1].calls == 1 and now
    end)
    assert.equal(new.pid, got.pid)
    assert.equal(2, got.counters.sessions_opened)
    assert.equal(1, #got.upgrade)
    local one = got.upgrade[1]
    assert.same({ 1, 1, true }, { one.sessions, one.calls, one.pid ~= nil and one.version ~= nil and one.since ~= nil })
    assert.is_nil(one.answers)
    called:hang_up()
    c:close()
  end)

  it("is what an older process answers, too, on connections that it has", function()
    local _ <close>, old, new, c = two()
    assert.equal(new.pid, status(old).pid)
    assert.equal(1, #status(old).upgrade)
    c:close()
  end)

  it("has an empty list where there is one process", function()
    local p <close> = processes.new()
    local g = p:start { scripts = scripts, config = config }
    assert.same({}, status(g).upgrade)
  end)

  it("does not wait for a process that stands still, and says so; no counter falls", function()
    local _ <close>, old, new, c = two()
    for _ = 1, 5 do add(c) end
    wait_total(new, "moonpool_calls_total", 5)
    local before = counters_of(new)
    old:signal "sigstop"
    local _ <close> = setmetatable({}, { __close = function() old:signal "sigcont" end })
    wait.for_fact("the older process to stand still", 20, function() return status(new).upgrade[1].answers == false end)
    assert_none_fell(before, counters_of(new))
    local listed = admin(new, "/api/calls"):json()
    assert.equal(1, listed.processes_without_answer)
    old:signal "sigcont"
    wait.for_fact("the older process to answer", 20, function() return status(new).upgrade[1].answers == nil end)
    c:close()
  end)
end)

describe("/metrics of the newest process", function()
  it("has each series once, with the sum of all processes", function()
    local _ <close>, _, new, c = two()
    local d <close> = new:client "2025-11-25"
    for _ = 1, 3 do add(c) end
    for _ = 1, 4 do add(d) end
    wait_total(new, "moonpool_calls_total", 7)
    for _, accept in ipairs { "text/plain", "application/openmetrics-text" } do
      local text, seen = scrape.text(new, accept), {}
      for line in text:gmatch "[^\n]+" do
        local name = line:match "^([^#%s][^{%s]*{[^}]*}) " or line:match "^([^#%s][^{%s]*) " or line:match "^# TYPE (%S+)"
        local key = (line:find "^#" and "#" or "") .. (name or "")
        if name then
          assert.is_nil(seen[key], key)
          seen[key] = true
        end
      end
      assert.truthy(text:find('\nmoonpool_sessions{transport="http"} 2\n', 1, true))
    end
    assert.truthy(scrape.text(new, "application/openmetrics-text"):find "# EOF\n$")
    c:close()
  end)

  it("and /status count on when a process has ended, in order or killed", function()
    for _, how in ipairs { "sigterm", "sigkill" } do
      local p <close>, old, new, c = two()
      for _ = 1, 5 do add(c) end
      c:close()
      wait_total(new, "moonpool_calls_total", 5)
      local before = counters_of(new)
      if how == "sigterm" then old:stop() else old:kill() end
      old.stopped = true
      p:forget(old)
      wait.for_fact("the process to be gone", 20, function() return #status(new).upgrade == 0 end)
      local after = counters_of(new)
      assert_none_fell(before, after)
      local d <close> = new:client "2025-11-25"
      add(d)
      wait_total(new, "moonpool_calls_total", after.moonpool_calls_total + 1)
    end
  end)
end)

describe("lists of the newest process", function()
  it("have the calls of all, each of which can be cancelled, by its name and by its id", function()
    for _, key in ipairs { "call", "id" } do
      local _ <close>, old, new, c = two()
      local d <close> = new:client "2025-11-25"
      local far, near = hold(c, old), hold(d, new)
      local calls = wait.for_fact("both calls", 20, function()
        local list = admin(new, "/api/calls"):json().calls
        return #list == 2 and list
      end)
      for _, call in ipairs(calls) do
        local answer = admin(new, "/api/call/" .. call[key], "DELETE", {})
        assert.same({ 200, true }, { answer.status, answer:json().cancelled }, call[key])
      end
      assert.is_true(far:answer().error ~= nil or far:answer().result.isError)
      assert.is_true(near:answer().error ~= nil or near:answer().result.isError)
      assert.equal(404, admin(new, "/api/call/1-1-99999", "DELETE", {}).status)
      assert.equal(404, admin(new, "/api/call/77777-1-1", "DELETE", {}).status)
      wait.for_fact("the audit's line", 20, function() return old:file "audit.jsonl":find('call cancelled by operator[^\n]*token joe') end)
      c:close()
    end
  end)

  it("have the calls of all that have ended, as long as their process lives", function()
    local p <close>, old, new, c = two()
    local d <close> = new:client "2025-11-25"
    add(c)
    add(d)
    local function added(name)
      local count = 0
      for _, call in ipairs(admin(new, "/api/calls?state=ended"):json().calls) do count = count + (call.name == "add" and call.call:find(name) and 1 or 0) end
      return count
    end
    wait.for_fact("both calls, that of the older process with its id", 20, function()
      return added "^%d+%-%d+$" == 1 and added "^%d+%-%d+%-%d+$" == 1
    end)
    c:close()
    old:stop()
    p:forget(old)
    wait.for_fact("the call of the newest alone", 20, function() return added "." == 1 end)
  end)

  it("have the sessions of all, each of which can be ended", function()
    local _ <close>, _, new, _ = two()
    local _ <close> = new:client "2025-11-25"
    local marks = {}
    for page = 0, 15 do
      for _, session in ipairs(admin(new, "/api/sessions?page=" .. page):json().sessions) do marks[#marks + 1] = session.session end
    end
    assert.equal(2, #marks)
    for _, mark in ipairs(marks) do assert.equal(200, admin(new, "/api/session/" .. mark, "DELETE", {}).status) end
    assert.equal(404, admin(new, "/api/session/" .. marks[1], "DELETE", {}).status)
    wait.for_fact("no session to be left", 20, function() return status(new).gauges.sessions.http == 0 end)
  end)
end)

describe("a tap at the newest process", function()
  it("has the calls of all", function()
    local _ <close>, _, new, c = two()
    local d <close> = new:client "2025-11-25"
    local reader <close> = client.connect(new, { admin = true })
    reader:send { path = "/api/tap", headers = { Authorization = "Bearer " .. token } }
    assert.equal(200, reader:read_head().status)
    wait.for_fact("taps in both", 20, function() return status(new).gauges.taps == 2 end)
    for _ = 1, 3 do
      add(c)
      add(d)
    end
    wait.for_fact("the calls of both", 20, function()
      local opened, ended = 0, 0
      for _, event in ipairs(reader:messages()) do
        if event.event == "tap opened" then opened = opened + 1 end
        if event.event == "answer" and event.name == "add" then ended = ended + 1 end
      end
      assert.is_true(opened <= 1)
      return ended >= 6
    end)
    reader:close()
    wait.for_fact("no tap", 20, function() return status(new).gauges.taps == 0 end)
    c:close()
  end)

  it("is refused as one process refuses it", function()
    local _ <close>, _, new, c = two()
    local answer = admin(new, "/api/tap?arguments=all")
    assert.same({ 400, "arguments is none, names, shapes or full" }, { answer.status, answer:json().error })
    c:close()
  end)
end)

describe("what an operator changes at the newest process", function()
  it("holds in all: switches, and the level of the log", function()
    local _ <close>, old, new, c = two()
    local answer = admin(new, "/api/switch", "POST", { tool = "add", on = false })
    assert.equal(200, answer.status, answer.body)
    assert.is_nil(answer:json().processes_without_answer)
    local d <close> = new:client "2025-11-25"
    for _, one in ipairs { c, d } do
      assert.is_true(one:call("tools/call", { name = "add", arguments = { a = 1, b = 2 } }).error ~= nil)
    end
    assert.equal(200, admin(new, "/api/switch", "POST", { tool = "add", on = true }).status)
    for _, one in ipairs { c, d } do assert.equal("3", add(one).content[1].text) end
    assert.equal(200, admin(new, "/api/log", "POST", { level = "debug", seconds = 60 }).status)
    for _, g in ipairs { old, new } do g:wait_log("log level", { level = "debug" }) end
    c:close()
  end)

  it("is told to the clients of all", function()
    local _ <close>, _, new, c = two()
    local stream = c:get_stream()
    assert.equal(200, stream:head().status)
    for _, on in ipairs { false, true } do
      assert.equal(200, admin(new, "/api/switch", "POST", { tool = "add", on = on }).status)
      stream:wait "notifications/tools/list_changed"
    end
    c:close()
  end)

  it("says how many processes could not follow: their workers are stuck", function()
    local _ <close>, old, new, c = processes.two {
      config = {
        admin = { listen = config.admin.listen, tokens = config.admin.tokens }, scripts = { path = "scripts", trust = "full" },
      },
      scripts = { ["tools/block.lua"] = blocking.tool, ["tools/add.lua"] = scripts["tools/add.lua"] }, workers = 1, constants = { admin_question_ms = 300 },
      before = function(first) return first:client "2025-11-25" end,
    }
    local before = old:status().gauges.tasks
    local stream = blocking.open(old, c)
    old:wait_status(function(now) return now.gauges.tasks > before end, 20)
    local answer = admin(new, "/api/switch", "POST", { tool = "add", on = false })
    assert.same({ 200, 1 }, { answer.status, answer:json().processes_without_answer })
    local unknown = admin(new, "/api/call/00000000000000ff", "DELETE", {})
    -- 503 instead of 404: the call may run in the process that does not answer
    assert.equal(503, unknown.status, unknown.body)
    blocking.release(old)
    stream:answer(20)
    c:close()
  end)

  it("says which processes did not follow", function()
    local _ <close>, old, new, c = two()
    old:signal "sigstop"
    local _ <close> = setmetatable({}, { __close = function() old:signal "sigcont" end })
    wait.for_fact("the older process to stand still", 20, function() return status(new).upgrade[1].answers == false end)
    local pid = status(new).upgrade[1].pid
    for path, body in pairs { ["/api/switch"] = { tool = "add", on = false }, ["/api/log"] = { level = "debug", seconds = 60 }, ["/api/log/reopen"] = {} } do
      local answer = admin(new, path, "POST", body)
      assert.is_true(answer.status == 200 or answer.status == 202)
      assert.same({ 1, { pid } }, { answer:json().processes_without_answer, answer:json().pids_without_answer }, path)
    end
    for _, words in ipairs { { "switch", "on", "tool", "add" }, { "log", "--level", "info" } } do
      local args = { words[1], "--admin", "127.0.0.1:" .. new.admin_port, table.unpack(words, 2) }
      local code, _, err = gateway.exec(args, { env = { MOONPOOL_ADMIN_TOKEN = token }, seconds = 20 })
      assert.equal(1, code)
      assert.matches(("an older process does not answer (pid %d)"):format(pid), err, 1, true)
    end
    old:signal "sigcont"
    c:close()
  end)
end)
