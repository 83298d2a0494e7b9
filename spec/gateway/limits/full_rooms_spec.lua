-- lane: alone
-- Everything of which a gateway has a limited number, filled by one client or script: what the operator orders and asks
-- goes on, and so do the calls of others. Each way to fill a room is a row of `ways`.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local task_client = require "spec.helpers.task_client"
local upstream = require "spec.helpers.upstream"
local uv = require "luv"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local MOST <const>, SESSIONS <const>, CONNECTIONS <const>, CALLS <const> = 16, 128, 700, 256
local ANSWER_MS <const>, TRIES <const>, PATIENCE_S <const> = 100, 10, 5

local scripts = {
  ["auth/main.lua"] = [[return auth { function(request) if request.bearer then return { id = request.bearer } end end }]],
  ["tools/fill.lua"] = [[return tool { "Fills the store.", function()
    local n = 0
    for _, size in ipairs { 2000, 100, 1 } do
      while store.set("k" .. n, ("x"):rep(size)) do n = n + 1 end
    end
    return "full" end }]],
  ["tools/ping.lua"] = 'return tool { "Answers.", function() return "pong" end }',
  ["tools/hold.lua"] = 'return tool { "Holds.", function() sleep(300) end }',
  ["tools/one.lua"] = 'return tool { "One at a time.", concurrency = 1, function() sleep(300) end }',
  ["tools/task.lua"] = 'return tool { "A task.", task = "required", function() sleep(300) return "done" end }',
  ["tools/large.lua"] = 'local text = ("x"):rep(2000000) return tool { "Much.", function() return text end }',
  ["tools/question.lua"] = 'return tool { "Asks.", function(_, call) return call:elicit("text", "Which?", { text = t.string }) and "said" end }',
  ["tools/harmful.lua"] = 'return tool { "Harms.", function() return "harm" end }',
}

local function start(u)
  return upstream.gateway({ one = u }, { workers = 2, scripts = scripts,
    constants = { listeners = MOST, tasks = MOST, call_waiting = MOST, upstream_pending = MOST, upstream_questions_per_principal = 1000 },
    config = { sessions = { max = SESSIONS }, store = { entries = 1000, bytes = "2MiB" },
      limits = { connections = CONNECTIONS, calls_in_flight = CALLS, answers = "1MiB", drain = "1s", call = { time = "10m" } } } })
end

-- A server behind the gateway whose tool `ask` has a question.
local function start_upstream()
  local u = upstream.start { revision = "2025-11-25" }
  u:offer("tools", { "ask", "echo" })
  return u
end

local QUESTION <const> = { message = "Name?", requestedSchema = { type = "object", properties = { name = { type = "string" } } } }
local ASKING <const> = { name = "one_ask", arguments = { questions = { { "elicitation/create", QUESTION } } } }
local CAN <const> = { elicitation = { form = {} } }
for name, value in pairs(task_client.CAN) do CAN[name] = value end

local function caller(g, name, revision) return g:client(revision or "2026-07-28", { capabilities = CAN, token = name }) end

local function refused(status, reason) return status.counters.refused[reason] > 0 end

-- Asks until one more is refused.
local function until_refused(g, reason, most, ask)
  for _ = 1, most do
    ask()
    if refused(g:status(), reason) then return end
  end
  g:wait_status(function(status) return refused(status, reason) end)
end

-- Returns a function that fills the room of sessions, with sessions of this revision.
local function sessions_of(revision)
  return function(g, name)
    local all = {}
    until_refused(g, "sessions", SESSIONS + 1, function()
      local ok, c = pcall(caller, g, name, revision)
      if ok then all[#all + 1] = c end
    end)
    return all
  end
end

-- How each room is filled: f(g, name) fills it, and returns a list of what is to be closed at the end.
local ways = {
  sessions = sessions_of "2025-11-25",
  listeners = function(g, name)
    local c = caller(g, name)
    until_refused(g, "listeners", MOST + 1, function() c:open("subscriptions/listen", { notifications = {} }) end)
    return { c }
  end,
  tasks = function(g, name)
    local c = caller(g, name)
    until_refused(g, "jobs", MOST + 1, function() c:call("tools/call", { name = "task", arguments = {} }) end)
    return { c }
  end,
  ["waiting calls"] = function(g, name)
    local c = caller(g, name)
    for _ = 1, MOST + 2 do c:open("tools/call", { name = "one" }) end
    g:wait_status(function(status) return refused(status, "waiting") end)
    return { c }
  end,
  store = function(_, name)
    local c = caller(_, name)
    assert.equal("full", c:result("tools/call", { name = "fill" }).content[1].text)
    return { c }
  end,
  ["calls in flight"] = function(g, name)
    local c = caller(g, name)
    for _ = 1, CALLS + 1 do c:open("tools/call", { name = "hold" }) end
    g:wait_status(function(status) return refused(status, "calls") end)
    return { c }
  end,
  ["bytes of answers"] = function(g, name)
    local message, all = wire.message(1, "tools/call", { name = "large", arguments = {}, _meta = wire.meta() }), {}
    local headers = wire.mirrored(message)
    headers.Accept, headers["Content-Type"], headers.Authorization = wire.both, "application/json", "Bearer " .. name
    wait.for_fact("the room of answers to be full", 20, function() -- a call may be refused, where calls in flight are full, too
      local reader = client.connect(g, { buffer = 4096 })
      all[#all + 1] = reader
      reader:pause()
      reader:send { method = "POST", path = "/mcp", headers = headers, body = message }
      local status = g:status()
      return status.gauges.queue_bytes > 1 << 20 or refused(status, "answers") or status.counters.dropped.answers > 0
    end)
    return all
  end,
  ["calls of upstreams that wait for a retry"] = function(g, name)
    local c = caller(g, name)
    until_refused(g, "upstream_pending", MOST + 1, function() c:call("tools/call", ASKING) end)
    return { c }
  end,
  ["questions that wait for their client"] = function(g, name)
    local c = caller(g, name, "2025-11-25")
    for _ = 1, CALLS + 1 do c:open("tools/call", { name = "question", arguments = {} }) end
    g:wait_status(function(status) return refused(status, "calls") end)
    return { c }
  end,
  ["held streams"] = sessions_of "2024-11-05",
  connections = function(g)
    local sockets = {}
    for i = 1, CONNECTIONS + 100 do
      sockets[i] = uv.new_tcp()
      sockets[i]:connect("127.0.0.1", g.port, function() end)
      if i % 50 == 0 then uv.run "nowait" end
    end
    -- on a busy machine the oldest of them are idle by then, and make room for the last ones
    g:wait_status(function(status) return refused(status, "connection_shares") or status.gauges.connections >= CONNECTIONS - CONNECTIONS // 64 end)
    return sockets
  end,
}

local function close_all(all)
  for _, one in ipairs(all) do
    if not (one.is_closing and one:is_closing()) then pcall(one.close, one) end
  end
end

-- The milliseconds of the quickest of TRIES requests for this path.
local function quickest(g, path)
  local best = math.huge
  for _ = 1, TRIES do
    local began = uv.hrtime()
    assert.equal(200, g:admin(path).status, path)
    best = math.min(best, (uv.hrtime() - began) / 1e6)
  end
  return best
end

local function operator_goes_on(g, what)
  local took = {}
  for _, path in ipairs { "/healthz", "/status", "/metrics" } do
    local ms = quickest(g, path)
    took[#took + 1] = ("%s %.1f ms"):format(path, ms)
    assert.is_true(ms < ANSWER_MS, what .. ": " .. took[#took])
  end
  if os.getenv "ROOMS_SAY" then print(what .. ": " .. table.concat(took, ", ")) end
  local code, out, err = gateway.exec({ "switch", "--admin", "127.0.0.1:" .. g.admin_port, "off", "tool", "harmful" }, { seconds = 30 })
  assert.equal(0, code, out .. err)
end

-- Does what a new client wants to do, and repeats it while the gateway says to try again later.
local function goes_on(what, act)
  local said
  local began = uv.hrtime()
  wait.for_fact(function() return what .. ", not " .. tostring(said) end, 10, function()
    local ok
    ok, said = pcall(act)
    return ok and said == "done"
  end)
  local seconds = (uv.hrtime() - began) / 1e9
  assert.is_true(seconds < PATIENCE_S, ("%s: another principal waited for %.1f s"):format(what, seconds))
end

local function others_go_on(g, what)
  goes_on(what .. ": a call of another principal", function()
    local c <close> = caller(g, "bob")
    return c:result("tools/call", { name = "ping" }).content[1].text == "pong" and "done"
  end)
  goes_on(what .. ": a call of a tool that is off", function()
    local c <close> = caller(g, "bob")
    local failure = c:call("tools/call", { name = "harmful", arguments = {} }).error
    return failure and (failure.code == -32602 and "done" or failure.message)
  end)
  goes_on(what .. ": a call with a question", function()
    local c <close> = caller(g, "bob")
    return c:result("tools/call", ASKING).resultType == "input_required" and "done"
  end)
  goes_on(what .. ": a session of another principal", function()
    local session = caller(g, "bob", "2025-11-25")
    local text = session:result("tools/call", { name = "ping" }).content[1].text
    session:delete()
    session:close()
    return text == "pong" and "done"
  end)
end

describe("a room that one client fills", function()
  for what, fill in pairs(ways) do
    it("keeps neither the operator nor another client out: " .. what, function()
      local u <close> = start_upstream()
      local g <close> = start(u)
      local all = fill(g, "mallory")
      operator_goes_on(g, what)
      others_go_on(g, what)
      close_all(all)
    end)
  end

  it("beside all others keeps the operator out no more than one alone", function()
    local u <close> = start_upstream()
    local g <close> = start(u)
    -- rooms that are filled last: while one of them is full, a client that would fill another room is refused
    local all, last = {}, { "questions that wait for their client", "held streams", "sessions", "calls in flight", "bytes of answers", "connections" }
    local is_last = {}
    for _, what in ipairs(last) do is_last[what] = true end
    local function add(what) table.move(ways[what](g, (what:gsub(" ", "-"))), 1, 1000, #all + 1, all) end
    for what in pairs(ways) do
      if not is_last[what] then add(what) end
    end
    for _, what in ipairs(last) do add(what) end
    operator_goes_on(g, "all")
    others_go_on(g, "all")
    close_all(all)
  end)
end)
