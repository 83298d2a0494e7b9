-- What nodes share by the server of a cluster, at full size: `./dev soak shared`. Each trial gives { text, is_well }.
--   rates   a limit before three nodes whose clocks differ: what is admitted in a minute is the rate, to a thousandth
--   quota   a quota whose answers are lost again and again: never more calls than `most`, fewer only by those unknown
--   jobs    periods of a job over kills, cuts and lost answers: never twice in a period, never two at once
--   lost    subscriptions that are reset or silent: each change reaches each follower, a quiet loss nobody
--   moved   subscriptions at a primary that stands still while another server takes over: the same
local fanned = require "spec.helpers.fanned"
local nodes = require "spec.helpers.nodes"
local proxy = require "spec.helpers.proxy"
local redis = require "spec.helpers.redis"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local shared = {}

local function seconds_now() return uv.hrtime() / 1e9 end

-- -- calls ------------------------------------------------------------------------------------------------------------------

local BODY <const> = [[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"counted","arguments":{},"_meta":{"io.modelcontextprotocol/]] ..
  [[protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}]]

local REQUEST <const> = table.concat({
  "POST /mcp HTTP/1.1", "Host: localhost", "Accept: application/json, text/event-stream", "Content-Type: application/json",
  "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: counted", "Content-Length: " .. #BODY, "", BODY,
}, "\r\n")

-- Calls the tool `counted` on `count` connections of each gateway, one call at a time on each, with `pause` ms between two,
-- until more() is false. take(body) gets each answer.
local function call_on(gateways, count, pause, more, take)
  local open = 0
  local function begin(port)
    local socket, rest = uv.new_tcp(), ""
    open = open + 1
    local function send()
      if more() then return socket:write(REQUEST) end
      socket:close()
      open = open - 1
    end
    socket:connect("127.0.0.1", port, function(why)
      assert(not why, why)
      socket:read_start(function(_, bytes)
        assert(bytes, "the gateway has closed a connection")
        rest = rest .. bytes
        local size, from = rest:lower():match "^http/1%.1 %d+ .-\r\ncontent%-length: (%d+)\r\n.-\r\n\r\n()"
        if not size or #rest < from + size - 1 then return end
        take(rest:sub(from, from + size - 1))
        rest = rest:sub(from + size)
        local timer = uv.new_timer()
        timer:start(pause, 0, function()
          timer:close()
          send()
        end)
      end)
      send()
    end)
  end
  for _, g in ipairs(gateways) do
    for _ = 1, count do begin(g.port) end
  end
  wait.for_fact("all calls", 1200, function() return open == 0 end)
end

local function scripts_of(policy)
  return { ["tools/counted.lua"] = [[return tool { "Runs.", function() return "ran" end }]], ["policy/it.lua"] = "return " .. policy }
end

local function ran(body) return body:find('"ran"', 1, true) ~= nil end

function shared.rates(options)
  local RATE <const>, BURST <const> = 200, 20
  local server <close> = redis.start()
  local all <close> = fanned.closing {}
  for i, clock in ipairs { -3600, 0, 86400 } do
    all[i] = nodes.start(server.at, { clock = clock, scripts = scripts_of(("limit { rate = %d, per = 1, burst = %d, by = 'all' }"):format(RATE, BURST)) })
  end
  local admitted, calls, first, last, faults = 0, 0, nil, nil, 0
  local began = seconds_now()
  call_on(all, 6, 10, function() return seconds_now() - began < options.seconds end, function(body)
    calls = calls + 1
    if ran(body) then
      admitted, last = admitted + 1, seconds_now()
      first = first or last
    elseif not body:find("too many calls", 1, true) then
      faults = faults + 1
    end
  end)
  local least, most = RATE * (last - first) * 0.999 - 1, (RATE * (last - began) + BURST) * 1.001
  return {
    text = ("rates: %d of %d calls admitted in %.2f s, wanted %.0f to %.0f; %d of another kind"):format(admitted, calls, last - began, least, most, faults),
    is_well = admitted >= least and admitted <= most and faults == 0,
  }
end

function shared.quota(options)
  local most = options.calls * 6 // 10
  local server <close> = redis.start()
  local between <close> = proxy.start(server.port)
  local scripts = scripts_of(("quota { most = %d, per = 'month', by = 'all' }"):format(most))
  local all <close> = fanned.closing {}
  for i, at in ipairs { "127.0.0.1:" .. between.port, server.at } do all[i] = nodes.start(at, { scripts = scripts, redis = { timeout = "100ms" } }) end
  local admitted, refused, used_up, calls, begun = 0, 0, 0, 0, 0
  local swallowing <const> = uv.new_timer()
  swallowing:start(500, 500, function()
    between.swallows_answers = not between.swallows_answers
    if not between.swallows_answers then between:cut() end
  end)
  call_on(all, 8, 0, function()
    begun = begun + 1
    return begun <= options.calls
  end, function(body)
    calls = calls + 1
    if ran(body) then admitted = admitted + 1 elseif body:find("is used up", 1, true) then used_up = used_up + 1 else refused = refused + 1 end
  end)
  swallowing:close()
  between.swallows_answers = false
  local unknown = 0
  for _, g in ipairs(all) do
    for labels, value in g:admin "/metrics".body:gmatch "moonpool_redis_duration_seconds_count{([^}]*)} (%d+)" do
      if labels:find('operation="quota"', 1, true) and labels:find('outcome="unknown"', 1, true) then unknown = unknown + tonumber(value) end
    end
  end
  return {
    text = ("quota: %d calls, %d of %d admitted, %d not counted, of which the server may have counted %d, %d used up"):format(calls, admitted, most, refused,
      unknown, used_up),
    is_well = calls == options.calls and admitted <= most and used_up > 0 and most - admitted <= unknown and unknown > 0,
  }
end

-- -- jobs -------------------------------------------------------------------------------------------------------------------

function shared.jobs(options)
  local EVERY_MS <const> = 300
  local server <close> = redis.start()
  local text = ([[
    local cache = try(redis.open { "redis://%s", timeout = 5 })
    return job { "Counts.", every = %g, function(call, run)
      local slot = cache:call("HGET", "mp:spec:j:count", "slot") or 0
      try(cache:call("RPUSH", "runs", ("begin %%s %%d"):format(slot, run.fence)))
      sleep(0.05)
      try(cache:call("RPUSH", "runs", ("end %%s %%d"):format(slot, run.fence)))
    end }]]):format(server.at, EVERY_MS / 1000)
  local all <close>, ways = fanned.closing {}, {}
  local function begin(i)
    all[i] = nodes.start("127.0.0.1:" .. ways[i].port, { scripts = { ["jobs/count.lua"] = text }, config = { scripts = { allow = { net = { server.at } } } } })
  end
  for i = 1, 3 do
    ways[i] = proxy.start(server.port)
    begin(i)
  end
  local faults = { kill = 0, cut = 0, swallow = 0, stop = 0 }
  local kinds <const> = { "kill", "cut", "swallow", "stop" }
  local began = seconds_now()
  math.randomseed(options.seed or 1)
  while seconds_now() - began < options.periods * EVERY_MS / 1000 do
    local kind, i = kinds[math.random(#kinds)], math.random(3)
    faults[kind] = faults[kind] + 1
    if kind == "kill" then
      all[i]:kill()
      os.execute("rm -rf '" .. all[i].dir .. "'")
      begin(i)
    elseif kind == "cut" then
      ways[i]:cut()
    elseif kind == "swallow" then
      ways[i].swallows_answers = true
      wait.quietly(1 + math.random())
      ways[i].swallows_answers = false
      ways[i]:cut()
    else
      all[i]:signal "sigstop"
      wait.quietly(1 + math.random())
      all[i]:signal "sigcont"
    end
    wait.quietly(1 + 3 * math.random())
  end
  local seen, last, count, wrong = {}, 0, 0, {}
  for what, slot, fence in server:cli("LRANGE", "runs", "0", "-1"):gmatch "(%l+) (%d+) (%d+)" do
    fence = tonumber(fence)
    if what == "end" and fence < last then wrong[#wrong + 1] = ("the run %d ended after %d had begun"):format(fence, last) end
    if what == "begin" then
      if fence <= last then wrong[#wrong + 1] = ("fence %d after %d"):format(fence, last) end
      if seen[slot] or tonumber(slot) % EVERY_MS ~= 0 then wrong[#wrong + 1] = "the slot " .. slot .. " twice, or no slot" end
      seen[slot], last, count = true, math.max(last, fence), count + 1
    end
  end
  for _, way in ipairs(ways) do way:__close() end
  return {
    text = ("jobs: %d runs in %d periods; %d kills, %d cuts, %d times no answers, %d standstills; %s"):format(count, options.periods, faults.kill, faults.cut,
      faults.swallow, faults.stop, wrong[1] and table.concat(wrong, ", ") or "none twice, no two at once"),
    is_well = not wrong[1] and count > options.periods // 10,
  }
end

-- -- notifications ------------------------------------------------------------------------------------------------------------

local TOLD_S <const> = 20                    -- seconds in which each follower is told, of a silent subscription, too
local APART_S <const> = 62                   -- seconds between two losses that are none of a series

function shared.lost(options)
  local server <close> = redis.start()
  local all <close>, ways, followers = fanned.closing {}, {}, {}
  local sender = fanned.node(server.at)
  for i = 1, options.nodes do
    ways[i] = proxy.start(server.port)
    all[i] = fanned.node("127.0.0.1:" .. ways[i].port)
    followers[i] = fanned.session(all[i])
  end
  all[#all + 1] = sender
  fanned.wait_listeners(server, #all)
  wait.quietly(4)
  local mine = fanned.session(sender)
  local function told()
    local sum = {}
    for i, c in ipairs(followers) do sum[i] = #fanned.told(c) end
    return sum
  end
  local slowest, times, wrong = 0, 0, {}
  local function reset()
    server:cli("CLIENT", "KILL", "TYPE", "pubsub")
  end
  local function mute()
    for _, way in ipairs(ways) do way:mute_subscriptions() end
  end
  for _, lose in ipairs { reset, mute } do
    for _ = 1, options.rounds do
      local before = told()
      reset()                                                      -- quietly: nobody is told
      fanned.wait_listeners(server, #all)
      wait.quietly(8)
      for i, n in ipairs(told()) do
        if n ~= before[i] then wrong[#wrong + 1] = "a loss of nothing was told" end
      end
      before = told()
      lose()
      fanned.update(mine)
      local began = seconds_now()
      wait.for_fact("all followers to be told", TOLD_S * wait.slower, function()
        for i, n in ipairs(told()) do
          if n == before[i] then return false end
        end
        return true
      end)
      slowest, times = math.max(slowest, seconds_now() - began), times + options.nodes
      fanned.wait_listeners(server, #all)
      wait.quietly(APART_S)
    end
  end
  for _, c in ipairs(followers) do c:close() end
  mine:close()
  for _, way in ipairs(ways) do way:__close() end
  return {
    text = ("lost: %d times a change during a loss, each told within %.1f s; %s"):format(times, slowest,
      wrong[1] and #wrong .. " losses of nothing were told" or "losses of nothing told nobody"),
    is_well = not wrong[1],
  }
end

--- Nodes whose subscriptions are at a primary that stands still, while another server takes its place.
function shared.moved(options)
  local servers <close> = redis.guarded()
  local all <close>, followers = fanned.closing {}, {}
  for i = 1, options.nodes + 1 do all[i] = fanned.node("redis://main", { redis = { sentinels = servers.sentinels } }) end
  for i = 1, options.nodes do followers[i] = fanned.session(all[i]) end
  local mine = fanned.session(all[#all])
  local old, new, slowest, times = servers.primary, servers.replica, 0, 0
  fanned.wait_listeners(old, #all)
  for _ = 1, options.rounds do
    local before = {}
    for i, c in ipairs(followers) do before[i] = #fanned.told(c) end
    old:kill "sigstop"
    fanned.update(mine)
    fanned.wait_listeners(new, #all)
    fanned.update(mine)
    local began = seconds_now()
    wait.for_fact("all followers to be told", TOLD_S * wait.slower, function()
      for i, c in ipairs(followers) do
        if #fanned.told(c) == before[i] then return false end
      end
      return true
    end)
    slowest, times = math.max(slowest, seconds_now() - began), times + options.nodes
    old:kill "sigcont"
    wait.for_fact("the old primary to follow", 60, function() return old:cli("INFO", "replication"):find "master_link_status:up" end)
    old, new = new, old
    wait.quietly(APART_S)
  end
  for _, c in ipairs(followers) do c:close() end
  mine:close()
  return { text = ("moved: %d times a change once another server had taken over, each told within %.1f s"):format(times, slowest), is_well = true }
end

return shared
