-- Tools with timers, sockets, programs, databases and coroutines in use are cancelled at any moment, by every cause of
-- a cancellation: no freed memory is used (B-130). AddressSanitizer gives most of the proof. MOONPOOL_ABORTS=50000
-- makes the run as long as B-130 demands.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local stub = require "spec.helpers.stub"
local wait = require "spec.helpers.wait"

local ABORTS <const> = tonumber(os.getenv "MOONPOOL_ABORTS") or 800
local AT_ONCE <const> = 40
local ROUNDS <const> = 25 -- rounds of AT_ONCE aborts each, until SIGTERM ends the gateway
local SPREAD <const> = 0.004 -- seconds

local function tool(body)
  return 'return tool { "T.", input = { url = t.string }, function(args, call) call:progress(1) ' .. body .. " end }"
end

-- The operations of each tool that run when its call is cancelled.
local scripts = {
  ["tools/timers.lua"] = tool [[local list = {}
    for i = 1, 10 do list[i] = function() sleep(i * 0.001) sleep(60) end end
    parallel(list)]],
  ["tools/socket.lua"] = tool "http.get(args.url .. '/never')",
  ["tools/sockets.lua"] = tool [[parallel { function() http.get(args.url .. "/drip") end, function() http.get(args.url .. "/never") end,
    function() for _ in try(http.stream(args.url .. "/drip")):chunks() do sleep(0.001) end end }]],
  ["tools/program.lua"] = tool "exec({ 'sleep', '60' }, { stdin = ('x'):rep(1000) })",
  ["tools/database.lua"] = tool [[local db = try(sqlite.open ":memory:")
    db:query "with recursive c(x) as (select 1 union all select x + 1 from c where x < 30000000) select max(x) as x from c"]],
  ["tools/shared.lua"] = tool [[local db = try(sqlite.open "data/shared.db")
    db:transaction(function(tx) tx:exec "create table if not exists t (a)" tx:exec("insert into t values (?)", { 1 }) sleep(0.002) end)
    sleep(60)]],
  ["tools/file.lua"] = tool [[for i = 1, 1000 do fs.write("data/file" .. i % 4, ("x"):rep(10000)) fs.read("data/file" .. i % 4) end]],
  ["tools/inner.lua"] = tool [[local co = coroutine.wrap(function()
      local one <close> = closing(function() call:progress(3) end)
      coroutine.wrap(function() pcall(sleep, 60) end)()
      sleep(60)
    end)
    for _ = 1, 10 do pcall(co) end
    sleep(60)]],
  ["tools/brief.lua"] = tool [[local gate <close> = closing(function() call:log("info", "closed") end) sleep(0.002) return "done"]],
  ["tools/asks.lua"] = tool [[call:elicit("sure", "Sure?", { yes = t.boolean }) sleep(60)]],
}
-- A database in memory is closed when the collector frees its handle, and that runs once there is enough garbage.
local shut = [[return tool { "Shuts.", function()
  local garbage = {}
  for i = 1, 100000 do garbage[i] = {} end
  try(sqlite.open "data/shared.db"):close()
  return true end }]]

local names = {}
for path in pairs(scripts) do names[#names + 1] = path:match "/(%w+)%." end
table.sort(names)
scripts["tools/shut.lua"] = shut

local function answer(request, reply)
  if request.path == "/never" then return end
  reply:head(200, { ["transfer-encoding"] = "chunked" })
  local function drip() reply:chunk("x"):later(2, drip) end
  drip()
end

local function start(server)
  return gateway.start {
    scripts = scripts, constants = { exec_grace_ms = 20, http_idle_ms = 5 },
    before = function(dir) uv.fs_mkdir(dir .. "/data", 493) end,
    config = {
      log = { level = "error" }, heartbeat = "60s", sessions = { replay = "off" },
      scripts = { path = "scripts", watch = "false", allow = { net = { server.at }, run = { "sleep" }, read = { "data" }, write = { "data" } } },
      limits = { drain = "20ms" },
    },
  }
end

-- Two clients whose calls are cancelled in two ways: one disconnects, one sends notifications/cancelled, in a session
-- that ends with the batch.
local function begin(g, server, i)
  local name = names[math.random(#names)]
  local params = { name = name, arguments = { url = server.url }, _meta = { progressToken = i } }
  local says = i % 2 == 0
  local stream = (says and g.session or g.modern):open("tools/call", params)
  local race = { at = math.random() * SPREAD, stream = stream }
  function race.abort()
    local way = math.random(3)
    if says and way > 1 then
      g.session.kept:send { method = "POST", path = "/mcp", headers = g.session:headers(),
        body = { jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = stream.id } } }
    end
    if way == 1 or not says and way == 2 then
      stream:reset()
    elseif not says or way == 2 then
      stream:close()
    end
  end
  return race
end

local function one_batch(g, server, reload)
  g.session = g:client("2025-11-25", { capabilities = { elicitation = { form = {} } } })
  local races = {}
  for i = 1, AT_ONCE do races[i] = begin(g, server, i) end
  table.sort(races, function(a, b) return a.at < b.at end)
  local started, admin = uv.hrtime(), nil
  for i, race in ipairs(races) do
    repeat uv.run "nowait" until (uv.hrtime() - started) / 1e9 >= race.at
    race.abort()
    if reload and i == AT_ONCE // 2 then admin = g:connect { admin = true }:send { method = "POST", path = "/reload" } end
  end
  if admin then
    assert.equal(200, admin:read_response(20).status)
    admin:close()
  end
  g.session:delete() -- cancels the calls that still run
  g.session:close()
  for _, race in ipairs(races) do race.stream:close() end
end

describe("B-130 what a tool has under way", function()
  it("ends with it, cancelled at any moment by its client, by a session's end, beside a reload and by SIGTERM", function()
    math.randomseed(130)
    local server <close> = stub.start(answer)
    local done, generation, called_off = 0, 0, 0
    while done < ABORTS do
      local g <close> = start(server)
      g.modern = g:client "2026-07-28"
      for round = 1, ROUNDS do
        if done >= ABORTS then break end
        local reload = round % 8 == 0
        if reload then
          generation = generation + 1
          local file <close> = assert(io.open(g.dir .. "/scripts/tools/brief.lua", "ab"))
          file:write("-- ", generation, "\n")
        end
        one_batch(g, server, reload)
        done = done + AT_ONCE
        g.modern.connections = {}
      end
      g:wait_status(function(status) return status.gauges.tasks == 0 and status.gauges.ops == 0 and status.gauges.vms == 2 end, 20)
      wait.for_fact("the databases of both workers to be shut", 20, function()
        local me <close> = g:client "2026-07-28"
        assert.is_nil(me:result("tools/call", { name = "shut" }).isError)
        return g:status().gauges.databases == 0
      end)
      assert.has_nothing_left(g)
      local counters = g:status().counters
      assert.equal(0, counters.tool_faults, "the log has the fault: " .. g:log():sub(-4000))
      assert.is_true(counters.tool_aborted.gone > 0 and counters.tool_aborted.cancelled > 0)
      called_off = called_off + counters.tool_aborted.gone + counters.tool_aborted.cancelled
      local running = {}
      for i = 1, AT_ONCE do running[i] = g.modern:open("tools/call", { name = names[i % #names + 1], arguments = { url = server.url } }) end
      g:wait_status(function(status) return status.gauges.tasks > 0 end)
      wait.quietly(math.random() * SPREAD)
      g:signal "sigterm"
      if done % 2 == 0 then g:signal "sigterm" end
      assert.equal(0, (g:wait_exit(30)))
      done = done + AT_ONCE
      for _, stream in ipairs(running) do stream:close() end
      g.modern:close()
    end
    assert.is_true(called_off > done / 3, called_off .. " were called off before their end")
  end)
end)
