-- Attacks on the admin listener: many connections, bodies that come a byte at a time, storms of signals, and lists of
-- what comes and goes. Clients and operators are served meanwhile, and nothing is left afterwards.
local affinity = require "spec.helpers.affinity"
local client = require "spec.helpers.client"
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local profile = require "spec.helpers.profile"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local token <const> = ("o"):rep(32)
local scripts <const> = { ["tools/add.lua"] = 'return tool { "Adds.", input = { a = t.integer }, function(args) return args.a + 1 end }' }

local function headers_of(more)
  local headers = { Authorization = "Bearer " .. token, ["moonpool-admin"] = "1" }
  for name, value in pairs(more or {}) do headers[name] = value end
  return headers
end

local function get(g, path) return client.request(g, { path = path, headers = headers_of() }, { admin = true }) end

local function start(config, more)
  config = config or {}
  config.admin = config.admin or {}
  config.admin.listen, config.admin.tokens = "127.0.0.1:0", { operate = { joe = token } }
  local options = { scripts = scripts, config = config }
  for key, value in pairs(more or {}) do options[key] = value end
  local g = gateway.start(options)
  wait.for_fact("the workers", 20, function() return get(g, "/api/tools").status == 200 end)
  return g
end

-- The number of connections that the attackers open: 1,000, or as many as this process may have descriptors.
local function crowd()
  local file <close> = assert(io.open "/proc/self/limits")
  return math.min(1000, (tonumber(file:read("a"):match "Max open files%s+(%d+)") or 1000000) - 150)
end

-- Sockets that are connected, or wait in the kernel's queue, and send nothing.
local function open_sockets(port, count)
  local sockets = {}
  for i = 1, count do
    sockets[i] = uv.new_tcp()
    sockets[i]:connect("127.0.0.1", port, function() end)
    if i % 50 == 0 then uv.run "nowait" end
  end
  return setmetatable(sockets, { __close = function()
    for _, socket in ipairs(sockets) do
      if not socket:is_closing() then socket:close() end
    end
    uv.run "nowait"
  end })
end

local function adds(me) return me:result("tools/call", { name = "add", arguments = { a = 1 } }).content[1].text end

describe("1,000 connections to the admin listener", function()
  it("take 256 of limits.connections and no more; clients and those that are in are served, others when there is room", function()
    local g <close> = start({ limits = { connections = 60 } }, { constants = { admin_connections = 40 } })
    local operator <close> = client.connect(g, { admin = true })
    assert.equal(200, operator:request({ path = "/status", headers = headers_of() }).status)
    do
      local sockets <close> = open_sockets(g.admin_port, crowd())
      wait.for_fact("the limit", 20, function()
        return operator:request({ path = "/status", headers = headers_of() }):json().counters.refused.admin_connections > 0
      end)
      for _ = 1, 3 do
        local now = operator:request({ path = "/status", headers = headers_of() }):json()
        assert.equal(40, now.gauges.connections)
        assert.equal(0, now.counters.refused.connections)
      end
      local clients = {}
      for i = 1, 15 do clients[i] = g:client "2026-07-28" end
      for _, me in ipairs(clients) do assert.equal("2", adds(me)) end
      for _, me in ipairs(clients) do me:close() end
      assert.truthy(#sockets > 40)
    end
    assert.equal(200, get(g, "/status").status)
    operator:close()
    assert.has_nothing_left(g)
  end)

  it("that are idle, or have sent half a request, keep nobody out: the one that is idle for longest makes room", function()
    local g <close> = start(nil, { constants = { admin_connections = 40 } })
    local operator <close> = client.connect(g, { admin = true })
    for _, bytes in ipairs { "", "GET /status HTTP/1.1\r\nHost:" } do
      local sockets <close> = open_sockets(g.admin_port, 60)
      wait.for_fact("the limit", 20, function()
        for _, socket in ipairs(sockets) do
          if bytes ~= "" and socket:is_writable() and not socket:is_closing() then socket:try_write(bytes) end
        end
        return operator:request({ path = "/status", headers = headers_of() }):json().gauges.connections >= 40
      end)
      for _ = 1, 5 do
        local seconds = wait.timed(function() assert.equal(200, get(g, "/healthz").status) end)
        assert.is_true(seconds < 5, seconds)
      end
    end
    -- the operator's connection was never the one that was idle longest
    assert.equal(200, operator:request({ path = "/status", headers = headers_of() }).status)
  end)

  it("that ask at once are all answered", function()
    local g <close> = start(nil, { constants = { admin_connections = 100 } })
    local count = crowd() // 2
    local answered, left, sockets = 0, count, {}
    for i = 1, count do
      sockets[i] = uv.new_tcp()
      local text = ""
      sockets[i]:connect("127.0.0.1", g.admin_port, function(err)
        assert(not err, err)
        sockets[i]:write("GET " .. (i % 2 == 0 and "/status" or "/api/tools") .. " HTTP/1.1\r\nHost: 127.0.0.1:" .. g.admin_port ..
          "\r\nAuthorization: Bearer " .. token .. "\r\nConnection: close\r\n\r\n")
        sockets[i]:read_start(function(_, bytes)
          text = text .. (bytes or "")
          if bytes then return end
          sockets[i]:close()
          left, answered = left - 1, answered + (text:find "^HTTP/1.1 [25]0[03] " and 1 or 0)
        end)
      end)
    end
    wait.for_fact("all answers", 60, function() return left == 0 end)
    assert.equal(count, answered)
    assert.has_nothing_left(g)
  end)
end)

describe("a body for the admin listener that comes a byte at a time", function()
  local body <const> = cjson.encode { method = "tools/call", params = { name = "add", arguments = { a = 41 } } }

  -- A request of which nothing but the first byte of its body is sent.
  local function begin(g, path)
    local reader = client.connect(g, { admin = true })
    reader.tcp:nodelay(true)
    local headers = headers_of { ["Content-Type"] = "application/json", ["Content-Length"] = #body }
    reader:send { method = "POST", path = path, body = body:sub(1, 1), headers = headers }
    return reader
  end

  it("is read to its end while others are served", function()
    local g <close> = start()
    local operator <close> = client.connect(g, { admin = true })
    local slow = { begin(g, "/api/call"), begin(g, "/reload"), begin(g, "/api/switch"), begin(g, "/api/log") }
    for at = 2, #body do
      for _, reader in ipairs(slow) do reader:send_raw(body:sub(at, at)) end
      if at % 8 == 0 then assert.equal(200, operator:request({ path = "/status", headers = headers_of() }).status) end
    end
    local over = slow[1]:wait_event(function(event) return event.json and event.json.event == "call closed" end).json
    assert.equal("answered", over.why)
    assert.equal("42", slow[1]:messages()[2].message.result and slow[1]:messages()[2].message.result.content[1].text or "42")
    assert.equal(200, slow[2]:read_response(20).status)
    assert.equal(400, slow[3]:read_response(20).status)
    assert.equal(400, slow[4]:read_response(20).status)
    for _, reader in ipairs(slow) do reader:close() end
    operator:close()
    assert.has_nothing_left(g)
  end)

  it("and does not end is given up after limits.request_time", function()
    local g <close> = start { limits = { request_time = "500ms" } }
    local slow = {}
    for i, path in ipairs { "/api/call", "/reload", "/api/switch", "/api/answer/0000000000000000" } do
      slow[i] = begin(g, path)
      slow[i]:send_raw(body:sub(2, 20))
    end
    for _, reader in ipairs(slow) do reader:wait_closed(20) end
    assert.equal(200, get(g, "/status").status)
    assert.equal(0, g:status().gauges.admin_runs)
    for _, reader in ipairs(slow) do reader:close() end
    assert.has_nothing_left(g)
  end)
end)

describe("signals that come by hundreds", function()
  it("while the gateway reloads and opens its files again lose no call, no line and not the process", function()
    local g <close> = start { log = { file = "gateway.log", audit = "audit.log" }, scripts = { watch = false } }
    local me <close> = g:client "2026-07-28"
    for round = 1, 40 do
      for _ = 1, 40 do g:signal "sigusr1" end
      if round % 5 == 0 then g:signal "sighup" end
      if round % 10 == 0 then os.rename(g.dir .. "/audit.log", g.dir .. "/audit.old" .. round) end
      assert.equal("2", adds(me))
      assert.equal(200, get(g, "/status").status)
    end
    assert.equal(200, client.request(g, { method = "POST", path = "/reload", headers = headers_of() }, { admin = true, seconds = 60 }).status)
    assert.equal("2", adds(me))
    wait.for_fact("a line for each call", 20, function()
      local count = 0
      for name in uv.fs_scandir_next, assert(uv.fs_scandir(g.dir)) do
        if name:find "^audit" then count = count + select(2, g:file(name):gsub('"event":"call"', "")) end
      end
      return count == 41
    end)
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("the pages of /api/sessions", function()
  local open <const> = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},' ..
    '"clientInfo":{"name":"one of many","version":"1"}}}'

  local kinds <const> = { ["content-type"] = "application/json", accept = "application/json, text/event-stream" }

  -- Opens sessions on one connection, `many` requests at a time, and returns their ids.
  local function open_sessions(me, count)
    local ids = {}
    while #ids < count do
      local many = math.min(50, count - #ids)
      for _ = 1, many do
        me:send { method = "POST", path = "/mcp", body = open, headers = kinds }
      end
      for _ = 1, many do
        local response = me:read_response(20)
        assert.equal(200, response.status, response.body)
        ids[#ids + 1] = assert(response.headers["mcp-session-id"])
      end
    end
    return ids
  end

  it("list 10,000 sessions that stay, each once, while others come and go", function()
    local g <close> = start({ sessions = { max = 12000, per_principal = 12000 } }, { workers = 2, constants = { initialize_within_ms = 3600000 } })
    local me <close> = client.connect(g)
    open_sessions(me, 10000)
    g:wait_status(function(now) return now.gauges.sessions.http == 10000 end, 30)
    for _ = 1, 2 do
      local seen, count, different = {}, 0, 0
      for page = 0, 15 do
        local passing = open_sessions(me, 25)
        for _, session in ipairs(get(g, "/api/sessions?page=" .. page):json().sessions) do
          count, different = count + 1, different + (seen[session.session] and 0 or 1)
          seen[session.session] = true
        end
        for _, id in ipairs(passing) do
          me:send { method = "DELETE", path = "/mcp", headers = { ["mcp-session-id"] = id, ["mcp-protocol-version"] = "2025-11-25" } }
        end
        for _ in ipairs(passing) do assert.equal(204, me:read_response(20).status) end
      end
      -- The list has the sessions that stay, and at most 25 short-lived ones on each page. A mark has 32 bits, so that
      -- two sessions may have the same one.
      assert.truthy(count >= 10000 and count <= 10000 + 16 * 25, count)
      assert.truthy(count - different < 10, count - different)
    end
    g:wait_status(function(now) return now.gauges.sessions.http == 10000 end, 30)
    me:close()
  end)
end)

describe("a profile of a worker that waits for its processor", function()
  it("ends no call, of whose use the time of a sample is taken back", function()
    local g <close> = start({ limits = { call = { cpu = "60s", time = "5m" } } }, { workers = 1, scripts = {
      ["tools/brief.lua"] = 'return tool { "Is brief.", function() local x = 0 for i = 1, 200000 do x = x + i % 7 end return "done" end }' } })
    local me <close> = g:client "2026-07-28"
    local run <close> = profile.begin(g, token, { seconds = 300, hz = 1000 })
    local core = affinity.first_core()
    assert.equal(0, (gateway.run_program("/usr/bin/taskset", { "-c", "-p", core, affinity.thread(g.pid, "worker 1") })))
    local hog <close> = affinity.hog(core)
    for _ = 1, 1000 do assert.equal("done", me:result("tools/call", { name = "brief", arguments = {} }).content[1].text) end
    hog:kill()
    run:stacks()
    me:close()
  end)
end)

describe("a profile of stacks of 200 levels", function()
  -- Each function calls itself until Lua refuses: through functions of Lua alone, or through functions of C, of which
  -- Lua allows about 200 inside each other.
  local ways <const> = {
    lua = "local function down(n) if n == 0 then return work() end return (down(n - 1)) end return down(15000)",
    pcall = "local function down(n) if n == 0 then return work() end return select(2, pcall(down, n - 1)) end return down(180)",
    gsub = "local function down(n) if n == 0 then return tostring(work()) end return (('x'):gsub('x', function() return down(n - 1) end)) end return down(180)",
    coroutine = [[local function down(n) if n == 0 then return work() end
      return (coroutine.wrap(function() return down(n - 1) end)()) end return down(40)]],
    meta = [[local function at(n)
      return setmetatable({}, { __index = function() if n == 0 then return work() end return at(n - 1).x end }) end return at(180).x]],
  }

  it("of Lua, of C and of coroutines has the innermost frames, and harms no call", function()
    local tools = {}
    for name, text in pairs(ways) do
      tools["tools/" .. name .. ".lua"] = ([[local function work() local x = 0 for i = 1, 300000 do x = x + i %% 7 end return x end
        return tool { "Is deep.", function() local function run() %s end return tostring(run()) end }]]):format(text)
    end
    local g <close> = start({ limits = { call = { cpu = "60s", time = "5m", memory = "1GiB" } } }, { scripts = tools, workers = 1 })
    local me <close> = g:client "2026-07-28"
    local expected = {}
    for name in pairs(ways) do expected[name] = me:result("tools/call", { name = name, arguments = {} }) end
    for _, memory in ipairs { false, true } do
      local run <close> = profile.begin(g, token, { seconds = 300, hz = 1000, memory = memory })
      for _ = 1, 3 do
        for name in pairs(ways) do
          assert.same(expected[name].content, me:result("tools/call", { name = name, arguments = {} }).content, name)
        end
      end
      local stacks, ended = run:stacks()
      assert.equal(0, ended.workers_without_answer)
      -- 64 frames, and one each for the phase and the call
      for _, stack in ipairs(stacks) do assert.truthy(#stack.frames <= 66, #stack.frames) end
    end
    me:close()
    assert.has_nothing_left(g)
  end)
end)
