-- sessions.lua: whether the time of a 404 tells which session it is about (row B-32): another principal's, one that
-- never was, one that its owner ended, one that expired. Each is asked for in turn, in random order, over one
-- connection, with the bytes of the request alike; two classes are told apart when the Mann-Whitney test says so, at 1
-- in 1000 for all pairs together. One class is there twice: what the test says where there is no difference.
-- `./dev bench sessions [TRIES]` calls it; ends with 1 when any two are told apart.
local uv = require "luv"
local credentials = require "spec.helpers.credentials"
local gateway = require "spec.helpers.gateway"

local TRIES = tonumber(arg[1]) or 10000 -- of each class
local SESSIONS = 64                     -- of each class, one after another
local MOST_Z = 3.9                      -- two-sided 1 in 10,000, of eleven comparisons: 1 in 1000

gateway.binary = os.getenv "MOONPOOL" or "build/release/moonpool"

local BODY = [[{"jsonrpc":"2.0","id":1,"method":"ping"}]]

local function request_of(session, token)
  return table.concat({
    "POST /mcp HTTP/1.1", "host: 127.0.0.1", "content-type: application/json", "accept: application/json, text/event-stream",
    "mcp-protocol-version: 2025-11-25", "authorization: Bearer " .. token, "mcp-session-id: " .. session, "content-length: " .. #BODY, "", BODY,
  }, "\r\n")
end

local function random_id()
  return (uv.random(16):gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

-- -- the statistic ------------------------------------------------------------------------------------------------------

-- z of Mann-Whitney's U with its correction for ties, and the chance that one of `a` is larger than one of `b`.
local function compare(a, b)
  local all = {}
  for _, value in ipairs(a) do all[#all + 1] = { value, true } end
  for _, value in ipairs(b) do all[#all + 1] = { value, false } end
  table.sort(all, function(x, y) return x[1] < y[1] end)
  local n, m, ranks, ties, i = #a, #b, 0, 0, 1
  while i <= #all do
    local j = i
    while j < #all and all[j + 1][1] == all[i][1] do j = j + 1 end
    local count = j - i + 1
    ties = ties + (count ^ 3 - count)
    for k = i, j do
      if all[k][2] then ranks = ranks + (i + j) / 2 end
    end
    i = j + 1
  end
  local u, total = ranks - n * (n + 1) / 2, n + m
  local deviation = math.sqrt(n * m / 12 * (total + 1 - ties / (total * (total - 1))))
  return (u - n * m / 2) / deviation, u / (n * m)
end

local function quantile(list, q)
  local sorted = table.move(list, 1, #list, 1, {})
  table.sort(sorted)
  return sorted[math.max(1, math.ceil(#sorted * q))]
end

-- -- the tries ----------------------------------------------------------------------------------------------------------

local function measure(name, config)
  local g <close> = gateway.start {
    workers = 1, scripts = { ["auth/main.lua"] = credentials.script, ["tools/who.lua"] = credentials.who }, config = config,
  }
  local expired, foreign, ended, never, again = {}, {}, {}, {}, {}
  local function open(list)
    for i = 1, SESSIONS do list[i] = g:client("2025-11-25", { token = "ann-1" }) end
  end
  open(expired)
  g:wait_status(function(status) return status.counters.sessions_closed.idle == SESSIONS end, 30)
  open(foreign)
  open(again)
  open(ended)
  for i = 1, SESSIONS do
    ended[i]:delete()
    never[i] = { session = random_id() }
  end
  local classes = { { "another's", foreign }, { "another's, again", again }, { "never there", never }, { "ended", ended }, { "expired", expired } }
  -- The owner keeps its sessions in use, or they end; who asks is not the owner.
  local keeper, connection <close> = g:connect(), g:connect()
  local function keep()
    for _, list in ipairs { foreign, again } do
      for _, one in ipairs(list) do
        keeper:send_raw(request_of(one.session, "ann-1"))
        assert(keeper:read_response(5).status == 200)
      end
    end
  end
  local times = {}
  for i in ipairs(classes) do times[i] = {} end
  local order = { 1, 2, 3, 4, 5 }
  local kept = 0
  for try = 1, TRIES + 200 do
    if uv.hrtime() / 1e9 - kept > 0.7 then
      keep()
      kept = uv.hrtime() / 1e9
    end
    for i = #order, 2, -1 do
      local j = math.random(i)
      order[i], order[j] = order[j], order[i]
    end
    for _, class in ipairs(order) do
      local text = request_of(classes[class][2][try % SESSIONS + 1].session, "bob-1")
      local began = uv.hrtime()
      connection:send_raw(text)
      local status = connection:read_response(5).status
      local took = uv.hrtime() - began
      assert(status == 404, status)
      if try > 200 then table.insert(times[class], took) end -- the first ones warm it up
    end
  end
  keeper:close()
  print(("%s: %d tries of each class, %d sessions each"):format(name, TRIES, SESSIONS))
  for i, class in ipairs(classes) do
    print(("  %-18s median %6.2f µs   quartiles %6.2f and %6.2f"):format(
      class[1], quantile(times[i], 0.5) / 1e3, quantile(times[i], 0.25) / 1e3, quantile(times[i], 0.75) / 1e3))
  end
  local worst = 0
  local function judge(one, a, other, b)
    local z, chance = compare(a, b)
    local is_apart = math.abs(z) > MOST_Z
    worst = is_apart and worst + 1 or worst
    print(("  %-18s and %-18s z %+5.2f   a guess is right for %.2f of 100%s"):format(
      one, other, z, 100 * math.max(chance, 1 - chance), is_apart and "   TOLD APART" or ""))
  end
  local there, gone = {}, {}
  for i = 1, #classes do
    table.move(times[i], 1, TRIES, #(i <= 2 and there or gone) + 1, i <= 2 and there or gone)
    for j = i + 1, #classes do judge(classes[i][1], times[i], classes[j][1], times[j]) end
  end
  judge("all that are", there, "all that are not", gone)
  return worst
end

math.randomseed(tonumber(os.getenv "BENCH_SEED") or os.time())
local limits = { sessions = { idle = "2s" } }
local apart = measure("without an audit", limits)
apart = apart + measure("with an audit", { sessions = limits.sessions, log = { audit = "audit.jsonl" } })
print(apart == 0 and "they cannot be told apart" or apart .. " pairs are told apart")
os.exit(apart == 0)
