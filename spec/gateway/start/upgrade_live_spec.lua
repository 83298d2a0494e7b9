-- What an operator sees over time goes on over an upgrade: charts, live numbers and jobs. Also: a profile of a process
-- that the operator names.
local client = require "spec.helpers.client"
local cjson = require "cjson.safe"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"

local token = ("o"):rep(32)
local scripts = {
  ["tools/add.lua"] = 'return tool { "Adds.", input = { a = t.integer, b = t.integer }, function(args) return args.a + args.b end }',
  ["jobs/long.lua"] = 'return job { "Long.", every = 1, function() while not store.get "go" do sleep(0.05) end end }',
  ["jobs/short.lua"] = 'return job { "Short.", every = 1, function() end }',
  ["tools/go.lua"] = 'return tool { "Go.", function() return tostring(store.set("go", "1")) end }',
}

local function start()
  return upgrading.start_quick { scripts = scripts, workers = 2, config = { admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } } } }
end

local function request(path, body)
  return { method = body and "POST" or "GET", path = path, body = body,
    headers = { Authorization = "Bearer " .. token, ["moonpool-admin"] = "1", ["Content-Type"] = body and "application/json" or nil } }
end

local function admin(g, ...) return client.request(g, request(...), { admin = true }) end
local function add(c) return c:result("tools/call", { name = "add", arguments = { a = 1, b = 2 } }) end

local function calls_of(g)
  local sum = 0
  for _, rate in ipairs(admin(g, "/api/history?numbers=calls"):json().values.calls) do sum = sum + (tonumber(rate) or 0) * 5 end
  return sum
end

local function job(g, name)
  for _, one in ipairs(admin(g, "/api/jobs"):json().jobs) do
    if one.name == name then return one end
  end
  return {}
end

describe("over two upgrades", function()
  it("the history has what was before, and goes on with the numbers of all", function()
    local g <close> = start()
    local c <close> = g:client "2025-06-18"
    -- on a busy machine a row covers more than five seconds, and then shows fewer calls a second
    wait.for_fact("rows with calls", 60, function()
      add(c)
      return calls_of(g) > 15
    end)
    local before = calls_of(g)
    for _ = 1, 2 do
      g:must_upgrade_by_signal()
      wait.for_fact("the rows of before", 20, function() return calls_of(g) > before - 1 end)
    end
    local values = admin(g, "/api/history?span=day&numbers=calls"):json().values.calls
    assert.is_table(values)
    before = calls_of(g)
    wait.for_fact("a row with calls in the oldest process", 60, function()
      add(c)
      return calls_of(g) > before + 1
    end)
  end)

  it("live numbers are those of all, and a reader that was there is ended", function()
    local g <close> = start()
    local c <close> = g:client "2025-06-18"
    local function live()
      local reader = client.connect(g, { admin = true })
      reader:send(request "/api/live")
      assert.equal(200, reader:read_head().status)
      return reader
    end
    local first <close> = live()
    first:wait_event(function(event) return event.json and event.json.at_ms end, 20)
    g:must_upgrade_by_signal()
    first:wait_closed(20)
    local d <close> = g:client "2025-06-18"
    local reader <close> = live()
    local seen = {}
    reader:wait_event(function(event)
      for name, value in pairs(event.json or {}) do seen[name] = value end
      return seen.sessions == 2
    end, 30)
    reader:wait_event(function(event)
      add(c)
      add(d)
      for name, value in pairs(event.json or {}) do seen[name] = value end
      return (tonumber(seen.calls) or 0) > 0
    end, 30)
  end)
end)

describe("jobs", function()
  it("are those of all processes: one that runs in an older one, and what the last run was", function()
    local g <close> = start()
    local c <close> = g:client "2025-06-18"
    wait.for_fact("both jobs", 20, function() return job(g, "long").running == true and job(g, "short").outcome == "ok" end)
    local last = job(g, "short").last
    g:must_upgrade_by_signal()
    wait.for_fact("what the older process knows", 20, function() return job(g, "long").running == true and job(g, "short").outcome == "ok" end)
    assert.is_true(job(g, "short").last >= last)
    c:result("tools/call", { name = "go", arguments = {} })
    wait.for_fact("the end of the job", 20, function() return job(g, "long").running == false end)
  end)
end)

describe("a profile", function()
  it("names its process, and may be of an older one", function()
    local g <close> = start()
    local c <close> = g:client "2025-06-18"
    local old = g.pid
    g:must_upgrade_by_signal()
    for _, pid in ipairs { g.pid, old } do
      local reader <close> = client.connect(g, { admin = true })
      reader:send(request("/api/profile?process=" .. pid, cjson.encode { seconds = 1 }))
      assert.equal(200, reader:read_head(20).status)
      local began = reader:wait_event(function(event) return event.json and event.json.event == "profile began" end, 20).json
      assert.equal(pid, began.pid)
      reader:wait_event(function(event) return event.json and event.json.event == "profile ended" end, 30)
    end
    assert.equal(404, admin(g, "/api/profile?process=1", "{}").status)
    assert.equal(400, admin(g, "/api/profile?worker=1", "{}").status)
    add(c)
  end)

  it("goes on to its end in the newest process, where the older one is asked by a connection that was open before", function()
    local g <close> = start()
    local c <close> = g:client "2025-06-18"
    local kept <close> = client.connect(g, { admin = true })
    local tapping <close> = client.connect(g, { admin = true })
    for _, connection in ipairs { kept, tapping } do assert.equal(200, connection:request(request "/status").status) end
    g:must_upgrade_by_signal()
    tapping:send(request "/api/tap")
    assert.equal(200, tapping:read_head(20).status)
    kept:send(request("/api/profile", cjson.encode { seconds = 3 })) -- longer than until an older process ends its own streams
    assert.equal(200, kept:read_head(20).status)
    local began = kept:wait_event(function(event) return event.json and event.json.event == "profile began" end, 20).json
    assert.equal(g.pid, began.pid)
    local ended = kept:wait_event(function(event) return event.json and event.json.event == "profile ended" end, 30).json
    assert.is_true(ended.ms >= 3000)
    add(c)
    tapping:wait_event(function(event) return event.json and event.json.event == "call" end, 20)
  end)
end)
