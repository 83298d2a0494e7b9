-- Handlers of `<close>` variables may wait in every ending of a call, within their time, and no client waits for them.
-- The proof is a file that the call made, and that its handler removes after a wait.
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local SANITIZED <const> = os.getenv "ASAN_OPTIONS" or os.getenv "TSAN_OPTIONS"

-- temporary(name): a file that exists until its variable is closed, which takes two waits.
local library = [[
return function(name)
  try(fs.write("data/" .. name, "temporary"))
  return closing(function()
    sleep(0.01)
    try(fs.remove("data/" .. name))
    log.info("removed", { name = name })
  end)
end]]

-- Adds a log line after each variable that holds a temporary file. It is written once the variable is closed in every
-- ending: a call that is preempted and cancelled before the assignment has nothing to close yet.
local function logged(code)
  return (code:gsub("(local %w+ <close> = temporary '([%w_]+)')", "%1 log.info('made', { name = '%2' })"))
end

local function tool(body, options)
  return logged("local temporary = require 'temporary' return tool { 'T.', " .. (options or "") .. " function(_, call) " .. body .. " end }")
end

local endings = {
  waits = "local f <close> = temporary 'waits' sleep(60)",
  computes = "local f <close> = temporary 'computes' while true do end",
  grows = "local f <close> = temporary 'grows' local t = {} while true do t[#t + 1] = {} end",
  fails = "local f <close> = temporary 'fails' error 'oh'",
  returns = "local f <close> = temporary 'returns' return 'done'",
  catches = "local f <close> = temporary 'catches' while true do pcall(sleep, 60) end",
  metamethod = [[local f <close> = temporary 'metamethod'
    return tostring(setmetatable({}, { __tostring = function() while true do end end }))]],
  nested = [[
    local f <close> = temporary 'nested'
    coroutine.wrap(function()
      local g <close> = temporary 'nested_2'
      local co = coroutine.create(function() local h <close> = temporary 'nested_3' sleep(60) end)
      coroutine.resume(co)
    end)()]],
  nested_loop = [[
    local f <close> = temporary 'nested_loop'
    coroutine.wrap(function() local g <close> = temporary 'nested_loop_2' while true do end end)()]],
  side_by_side = [[
    local f <close> = temporary 'side'
    parallel({ function() local g <close> = temporary 'side_2' sleep(60) end, function() local g <close> = temporary 'side_3' while true do end end })]],
  one_fails = [[
    local made
    local ok = pcall(parallel, {
      function() local g <close> = temporary 'one_fails' made = true sleep(60) end,
      function() while not made do sleep(0.001) end error 'oh' end,
    })
    return tostring(ok)]],
}

local function scripts()
  local made = { ["lib/temporary.lua"] = library, ["tools/ok.lua"] = "return tool { 'T.', function() return 'ok' end }" }
  for name, body in pairs(endings) do made["tools/" .. name .. ".lua"] = tool(body) end
  made["tools/brief.lua"] = tool("local f <close> = temporary 'brief' sleep(60)", "timeout = 0.1,")
  return made
end

local function start(options)
  options = options or {}
  local limits = { call = { cpu = "200ms", memory = "8MiB" } }
  for name, value in pairs(options.limits or {}) do limits[name] = value end
  return gateway.start { scripts = options.scripts or scripts(), workers = options.workers or 1, files = { ["data/kept"] = "kept" },
    constants = { cleanup_ms = options.cleanup_ms or 10000 }, config = {
    limits = limits, auth = options.auth,
    scripts = { path = "scripts", allow = { write = { "data" }, read = { "data" } }, drain = options.drain, generations = options.generations },
  } }
end

-- Processor time of the gateway in seconds.
local function cpu(g)
  local file <close> = assert(io.open("/proc/" .. g.pid .. "/stat"))
  local user, system = file:read("a"):match "%) %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ (%d+) (%d+)"
  return (user + system) / 100
end

-- The files that are left in the folder, except "kept".
local function left(g)
  local names = {}
  local list <close> = assert(io.popen("ls '" .. g.dir .. "/data'"))
  for name in list:lines() do
    if name ~= "kept" then names[#names + 1] = name end
  end
  return table.concat(names, " ")
end

local function assert_clean(g)
  g:wait_status(function(status)
    return status.gauges.tasks == 0 and status.gauges.cleanups == 0 and status.gauges.requests_in_flight == 0 and status.gauges.ops == 0
  end, 20)
  assert.equal("", left(g))
  assert.equal(0, g:status().counters.cleanups_ended)
end

describe("a <close> handler that waits ends its wait", function()
  local g

  before_each(function() g = start() end)
  after_each(function() local _ <close> = g end) -- luacheck: ignore 211

  local function begin(name, made, revision)
    local c = g:client(revision or "2026-07-28")
    local stream = c:open("tools/call", { name = name, _meta = { progressToken = "p" } })
    g:wait_log("made", { name = made or name })
    if name == "side_by_side" then g:wait_log("made", { name = "side_2" }) end
    return stream, c
  end

  for _, name in ipairs { "returns", "fails" } do
    it("when its call ends by itself: it " .. name, function()
      local c <close> = g:client "2026-07-28"
      local answer = c:call("tools/call", { name = name })
      assert.equal("", left(g)) -- the handlers run before the answer is sent
      assert.truthy(answer.result.isError == true or answer.result.content[1].text == "done")
      assert_clean(g)
    end)
  end

  for name, made in pairs { waits = "waits", catches = "catches", nested = "nested_3", side_by_side = "side_3", nested_loop = "nested_loop_2" } do
    it("when the client of a call leaves: it " .. name, function()
      local stream, c = begin(name, made)
      stream:hang_up()
      assert_clean(g)
      c:close()
    end)
  end

  it("when the client cancels", function()
    local stream, c = begin("waits", "waits", "2025-06-18")
    local note = { jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = stream.id } }
    local other = g:connect()
    assert.equal(202, other:request({ method = "POST", path = "/mcp", headers = c:headers(note), body = note }).status)
    other:close()
    assert_clean(g)
    stream:close()
    c:close()
  end)

  it("when the call has had its time, and the client has its answer before that", function()
    local c <close> = g:client "2026-07-28"
    local answer = c:call("tools/call", { name = "brief" })
    assert.equal(-32603, answer.error.code)
    assert_clean(g)
  end)

  for name, why in pairs { computes = "limits.call.cpu", grows = "limits.call.memory", nested_loop = "limits.call.cpu", metamethod = "cannot be suspended" } do
    it("when the call goes over a limit: it " .. name, function()
      local c <close> = g:client "2026-07-28"
      local answer = c:call("tools/call", { name = name })
      assert.truthy(answer.error.message:find(why, 1, true), answer.error.message)
      assert_clean(g)
    end)
  end

  it("when another function of parallel fails", function()
    local c <close> = g:client "2026-07-28"
    assert.equal("false", c:call("tools/call", { name = "one_fails" }).result.content[1].text)
    assert_clean(g)
  end)

  it("when the gateway stops, which waits for it", function()
    local streams, clients, made = {}, {}, { nested = "nested_3", side_by_side = "side_3" }
    for i, name in ipairs { "waits", "nested", "side_by_side" } do streams[i], clients[i] = begin(name, made[name]) end
    for _, stream in ipairs(streams) do stream:hang_up() end
    g:signal "sigterm"
    assert.equal(0, (g:wait_exit(20)))
    assert.equal("", left(g))
    for _, c in ipairs(clients) do c:close() end
  end)
end)

describe("a <close> handler that waits ends its wait, too,", function()
  it("when its scripts were replaced a while ago", function()
    local g <close> = start { drain = "1ms" }
    local c <close> = g:client "2026-07-28"
    local stream = c:open("tools/call", { name = "waits" })
    g:wait_log("made", { name = "waits" })
    local file = assert(io.open(g.dir .. "/scripts/tools/ok.lua", "w"))
    file:write "return tool { 'Other.', function() return 'other' end }"
    file:close()
    g:signal "sighup"
    assert.truthy(stream:answer(20).error.message:find("replaced by a reload", 1, true))
    assert_clean(g)
    g:wait_status(function(status) return status.gauges.vms == 1 end)
  end)

  it("when limits.drain is over", function()
    local g <close> = start { limits = { drain = "100ms" } }
    local c <close> = g:client "2026-07-28"
    local stream = c:open("tools/call", { name = "waits" })
    g:wait_log("made", { name = "waits" })
    g:signal "sigterm"
    assert.truthy(stream:answer(20).error)
    assert.equal(0, (g:wait_exit(20)))
    assert.equal("", left(g))
  end)

  it("when a scheduled job takes too long", function()
    local g <close> = start { scripts = { ["lib/temporary.lua"] = library,
      ["jobs/often.lua"] = "local temporary = require 'temporary' " ..
        "return job { 'J.', every = 0.2, timeout = 0.1, function() local f <close> = temporary 'job' sleep(60) end }" } }
    g:wait_log("removed", { name = "job" })
  end)

  it("in policies and auth scripts", function()
    local g <close> = start { scripts = { ["lib/temporary.lua"] = library,
      ["tools/ok.lua"] = "return tool { 'T.', function() return 'ok' end }",
      ["policy/slow.lua"] = logged("local temporary = require 'temporary' " ..
        "return policy { 'ok', function(call, next) local f <close> = temporary 'policy' sleep(60) return next() end }"),
      ["auth/slow.lua"] = logged [[local temporary = require 'temporary'
        return auth { function(request)
          if request.bearer == "good" then return { id = "me", scopes = { "*" } } end
          local f <close> = temporary 'auth' sleep(60)
        end }]] } }
    local c = g:client("2026-07-28", { token = "good" })
    c:open("tools/call", { name = "ok" })
    g:wait_log("made", { name = "policy" })
    c:close()
    g:wait_log("removed", { name = "policy" })
    local connection = g:connect()
    connection:send { method = "POST", path = "/mcp", headers = { Authorization = "Bearer bad", ["Content-Type"] = "application/json" }, body = "{}" }
    g:wait_log("made", { name = "auth" })
    connection:close()
    g:wait_log("removed", { name = "auth" })
    assert_clean(g)
  end)
end)

describe("<close> handlers of a cancelled call", function()
  local bodies = {
    patient = "local c <close> = closing(function() local ok, why = pcall(sleep, 60) log.info('after the wait', { why = why }) end) sleep(60)",
    many = [[for i = 1, 3 do end
      local a <close> = closing(function() log.info('the last one ran', { done = tostring(pcall(sleep, 60)) }) end)
      local b <close> = closing(function() sleep(60) end) sleep(60)]],
    busy = "local c <close> = closing(function() while true do end end) log.info 'waits' sleep(60)",
    hungry = "local c <close> = closing(function() local t = {} while true do t[#t + 1] = {} end end) log.info 'waits' sleep(60)",
    failing = "local c <close> = closing(function() error 'no way' end) log.info 'waits' sleep(60)",
    telling = "local c <close> = setmetatable({}, { __close = function(_, why) log.info('why', { why = tostring(why) }) end }) log.info 'waits' sleep(60)",
    branching = "local c <close> = closing(function() log.info('parallel', { why = select(2, pcall(parallel, { function() end })) }) end) " ..
      "log.info 'waits' sleep(60)",
  }
  local g

  before_each(function()
    local made = { ["tools/ok.lua"] = "return tool { 'T.', function() return 'ok' end }" }
    for name, body in pairs(bodies) do made["tools/" .. name .. ".lua"] = "return tool { 'T.', function(_, call) " .. body .. " end }" end
    g = start { scripts = made, cleanup_ms = 100, limits = { call = { memory = "8MiB" } } }
  end)
  after_each(function() local _ <close> = g end) -- luacheck: ignore 211

  local function cancelled(name)
    local c = g:client "2026-07-28"
    local stream = c:open("tools/call", { name = name })
    g:wait_status(function(status) return status.gauges.ops == 1 end)
    stream:hang_up()
    g:wait_status(function(status) return status.gauges.requests_in_flight == 0 and status.gauges.tasks == 0 and status.gauges.cleanups == 0 end, 20)
    c:close()
    return g:status().counters.cleanups_ended
  end

  it("wait no longer than their time, and the log says where", function()
    assert.equal(1, cancelled "patient")
    assert.matches("the time for cleaning up is over", g:wait_log("after the wait").fields.why)
    local line = g:wait_log "cleanup over its limit"
    assert.equal("1", line.fields.line)
    assert.matches("tools/patient.lua$", line.fields.file)
  end)

  it("may not wait where as many calls clean up as limits.calls_in_flight", function()
    local one <close> = start { scripts = { ["tools/patient.lua"] = "return tool { 'T.', function(_, call) " .. bodies.patient .. " end }" },
      limits = { calls_in_flight = 2, drain = "1ms" }, cleanup_ms = 60000 }
    local c = one:client "2026-07-28"
    for i = 1, 3 do
      local stream = c:open("tools/call", { name = "patient" })
      one:wait_status(function(status) return status.gauges.requests_in_flight == 1 and status.gauges.ops == i end)
      stream:hang_up()
      one:wait_status(function(status) return status.gauges.requests_in_flight == 0 and status.gauges.cleanups == math.min(i, 2) end)
    end
    one:wait_log "after the wait"
    assert.matches("more cancelled calls", one:wait_log("cleanup over its limit").fields.why)
    c:close()
    one:signal "sigterm"
    one:wait_log "draining"
    one:signal "sigterm" -- the second handler does not wait
    assert.equal(0, (one:wait_exit(20)))
  end)

  it("have that time together", function()
    assert.equal(1, cancelled "many")
    assert.equal("false", g:wait_log("the last one ran").fields.done)
  end)

  for _, name in ipairs { "busy", "hungry" } do
    it("are bounded: they are " .. name, function()
      assert.equal(1, cancelled(name))
      local other <close> = g:client "2026-07-28"
      assert.equal("ok", other:call("tools/call", { name = "ok" }).result.content[1].text)
    end)
  end

  it("may fail, which the log says", function()
    assert.equal(0, cancelled "failing")
    assert.matches("no way", g:wait_log("<close> handler failed").fields.error)
  end)

  it("get the reason of the cancellation, and cannot call parallel", function()
    cancelled "telling"
    assert.equal("the call is cancelled", g:wait_log("why").fields.why)
    cancelled "branching"
    assert.matches("not available", g:wait_log("parallel").fields.why)
  end)

  it("take little of the processor, however many are cancelled", function()
    local c = g:client "2026-07-28"
    local streams = {}
    for i = 1, 20 do streams[i] = c:open("tools/call", { name = "busy" }) end
    g:wait_status(function(status) return status.gauges.ops == 20 end)
    local before = cpu(g)
    for _, stream in ipairs(streams) do stream:hang_up() end
    g:wait_status(function(status) return status.gauges.tasks == 0 end, 20)
    assert.truthy(cpu(g) - before < (SANITIZED and 10 or 3), cpu(g) - before)
    c:close()
  end)
end)

describe("a burst of cancels", function()
  it("leaves nothing behind", function()
    local g <close> = start { workers = 2 }
    local c, names = g:client "2026-07-28", { "waits", "nested", "side_by_side", "catches" }
    for _ = 1, 20 do
      local streams = {}
      for i = 1, 8 do streams[i] = c:open("tools/call", { name = names[i % #names + 1] }) end
      wait.for_fact("calls to begin", 10, function() return g:status().gauges.ops > 0 end)
      for _, stream in ipairs(streams) do stream:hang_up() end
    end
    g:wait_status(function(status) return status.gauges.tasks == 0 and status.gauges.cleanups == 0 end, 20)
    c:close()
    assert.has_nothing_left(g)
  end)
end)
