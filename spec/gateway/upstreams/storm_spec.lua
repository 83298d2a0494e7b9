-- Calls under small limits that are cancelled, left, asked and asked again, while upstreams of each transport lose
-- sessions, die and are configured anew:
-- afterwards each gauge is 0, and each limit admits its number.
local cjson = require "cjson.safe"
local credentials = require "spec.helpers.credentials"
local faults = require "spec.helpers.upstream.faults"
local upstream = require "spec.helpers.upstream"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local CALLS <const>, WAITING <const>, PARKED <const> = 2, 3, 4
local STEPS <const> = 200
local FORM <const> = { message = "Name?", requestedSchema = { type = "object", properties = { name = { type = "string" } } } }
local ASKABLE <const> = { elicitation = { form = {} } }
local ANN <const> = { action = "accept", content = { name = "Ann" } }
local TOKENS <const> = { "ann-1", "bob-1" }

-- Numbers that look random and are the same in each run.
local function dice(seed)
  local state = seed
  return function(n)
    state = (state * 6364136223846793005 + 1442695040888963407)
    return (state >> 33) % n + 1
  end
end

local function config_of(g)
  local file <close> = assert(io.open(g.dir .. "/moonpool.yaml"))
  return cjson.decode(file:read "a")
end

local function load_config(g, config)
  local file = assert(io.open(g.dir .. "/moonpool.yaml", "w"))
  file:write(cjson.encode(config))
  file:close()
  local answer = g:admin("/reload", "POST")
  assert.equal(200, answer.status, answer.body)
end

local storm = {}
storm.__index = storm

function storm:client()
  local of = self.clients[self.roll(6)]
  if of then return of end
  local c = self.g:client(({ "2025-11-25", "2026-07-28", "2026-07-28", "2026-07-28" })[self.roll(4)], { token = TOKENS[self.roll(2)], capabilities = ASKABLE })
  self.clients[#self.clients + 1] = c
  return c
end

function storm:open(c, params)
  self.streams[#self.streams + 1] = { client = c, params = params, stream = c:open("tools/call", params) }
end

function storm:call()
  local name = self.names[self.roll(#self.names)]
  local tool = ({ "hold", "ask", "ask", "ask", "echo", "progress" })[self.roll(6)]
  self:open(self:client(), { name = name .. "_" .. tool, arguments = { questions = { { "elicitation/create", FORM } }, steps = 2 } })
end

-- The answer of a call, if it is there already.
local function answer_of(one)
  if not one.answer then
    uv.run "nowait"
    local ok, answer = pcall(function() return one.stream:answer(0) end)
    one.answer = ok and answer or nil
  end
  return one.answer
end

-- Removes a call from the open ones and calls f(call): any call or, if `tool` is given, the oldest call of that tool.
function storm:take(f, tool)
  local at = self.streams[1] and self.roll(#self.streams)
  for i = tool and #self.streams or 0, 1, -1 do
    if self.streams[i].params.name:find(tool, 1, true) then at = i end
  end
  if at then f(table.remove(self.streams, at)) end
end

function storm:leave() self:take(function(one) one.stream:hang_up() end) end
function storm:reset() self:take(function(one) one.stream:reset() end) end

function storm:cancel()
  self:take(function(one)
    if one.client.session then one.client:notify("notifications/cancelled", { requestId = one.stream.id }) end
    one.stream:hang_up()
  end)
end

-- The question that a call's stream has brought and that was not answered, else nil.
local function question_of(one)
  uv.run "nowait"
  for _, message in ipairs(one.stream:messages()) do
    if message.method == "elicitation/create" and not one.answered then return message end
  end
end

-- Waits up to 0.25 s for an answer to the call, or for its question: the call may be queued behind others that are
-- held.
local function hear(one)
  pcall(wait.for_fact, "news", 0.25, function() return answer_of(one) or question_of(one) end)
  return answer_of(one), question_of(one)
end

-- Continues a call whose tool has asked a question: a stateless client repeats the call with the answers, a client with
-- a session answers on its stream.
function storm:answer()
  self:take(function(one)
    local answer, question = hear(one)
    local result = answer and answer.result
    if result and result.inputRequests then
      local params = { name = one.params.name, arguments = one.params.arguments, requestState = result.requestState, inputResponses = {} }
      local is_asked_again = self.roll(3) == 1
      for key in pairs(result.inputRequests) do params.inputResponses[key] = not is_asked_again and ANN or nil end
      self:open(one.client, params)
      -- repeats the call a second time, which the gateway refuses
      if self.roll(4) == 1 then self:open(one.client, params) end
    elseif not answer then
      if question then
        one.answered = true
        one.client:post { jsonrpc = "2.0", id = question.id, result = ANN }
      end
      self.streams[#self.streams + 1] = one
      return
    end
    one.stream:hang_up()
  end, "_ask")
end

function storm:release()
  local u = self.stubs[self.names[self.roll(#self.names)]]
  u:release()
end

function storm:fault()
  local name = self.names[self.roll(#self.names)]
  local u = self.stubs[name]
  local kind = self.roll(4)
  if kind == 1 then return u:when("tools/call", faults.dies(), 1) end
  if kind == 2 then return u:when("tools/call", faults.hangs(), 1) end
  if kind == 3 and u.lose_sessions then return u:lose_sessions "404" end
  if name == "child" then
    local all = u:alive()
    if all[1] then all[self.roll(#all)]:order("exit", 3) end
  end
end

function storm:leave_session()
  if not self.clients[1] then return end
  local c = table.remove(self.clients, self.roll(#self.clients))
  if c.session and self.roll(2) == 1 then c:delete() end
  for i = #self.streams, 1, -1 do
    if self.streams[i].client == c then table.remove(self.streams, i) end
  end
  c:close()
end

function storm:reload()
  local config = config_of(self.g)
  self.reloads = self.reloads + 1
  local one = config.upstreams[self.names[self.roll(#self.names)]]
  if self.roll(2) == 1 then
    one.timeout = 2 + self.reloads % 3 .. "s"
  elseif one.url then
    one.headers = { ["x-number"] = "n" .. self.reloads }
  else
    one.process = { env = { NUMBER = "n" .. self.reloads } }
  end
  load_config(self.g, config)
end

local ACTS <const> = { "call", "call", "call", "call", "answer", "answer", "answer", "answer", "leave", "reset", "cancel", "release", "release", "fault" }

function storm:step(n)
  if n % 40 == 0 then return self:reload() end
  if n % 25 == 0 then return self:leave_session() end
  local act = ACTS[self.roll(#ACTS)]
  self[act](self)
end

function storm:calm()
  for _, u in pairs(self.stubs) do
    u:behave()
    u:release()
  end
  for _, one in ipairs(self.streams) do one.stream:hang_up() end
  for _, c in ipairs(self.clients) do
    if c.session then c:delete() end
    c:close()
  end
  self.streams, self.clients = {}, {}
end

local function rest(g, names)
  local last
  local function quiet()
    local status = g:status()
    last = {}
    for _, name in ipairs { "upstream_exchanges", "upstream_takes", "upstream_pending", "upstream_requests" } do
      if status.gauges[name] ~= 0 then last[name] = status.gauges[name] end
    end
    for _, name in ipairs(names) do
      local one = status.upstreams[name]
      for _, member in ipairs { "running", "waiting", "parked", "opening" } do
        if one and one[member] ~= nil and one[member] ~= 0 then last[name .. " " .. member] = one[member] end
      end
    end
    return next(last) == nil
  end
  wait.for_fact(function() return "rest: " .. cjson.encode(last) end, 60, quiet)
end

-- Fills the slots and the places that wait of an upstream: one more call is refused.
local function check_limit(g, u, name)
  local c <close> = g:client("2026-07-28", { token = "ann-1" })
  assert.equal("again", cjson.decode(upstream.text(c:call("tools/call", { name = name .. "_echo", arguments = { text = "again" } }))).text)
  local calls = {}
  local function begin() calls[#calls + 1] = { stream = c:open("tools/call", { name = name .. "_hold", arguments = { key = "limit" } }) } end
  for _ = 1, CALLS do begin() end
  u:wait_held(CALLS, "limit")
  for _ = 1, WAITING do begin() end
  g:wait_status(function(status) return status.upstreams[name].waiting == WAITING end)
  local data = upstream.failure(c:call("tools/call", { name = name .. "_hold", arguments = { key = "limit" } }), "not_run", "busy")
  assert.equal(name, data.upstream)
  assert.equal(CALLS, g:status().upstreams[name].running)
  assert.equal(CALLS, #u:wait_held(CALLS, "limit"))
  wait.for_fact("all answers", 60, function()
    u:release "limit"
    for _, one in ipairs(calls) do
      if not answer_of(one) then return false end
    end
    return true
  end)
end

local function run(seed)
  local stubs = {
    web = upstream.start { revision = "2025-11-25", strict = false }, new = upstream.start { revision = "2026-07-28", strict = false },
    old = upstream.start { revision = "2024-11-05", transport = "sse", strict = false },
    child = upstream.start { revision = "2025-06-18", transport = "stdio", strict = false },
  }
  local names, entries = { "web", "new", "old", "child" }, {}
  for _, name in ipairs(names) do
    stubs[name]:offer("tools", { "hold", "ask", "echo", "progress" })
    entries[name] = { calls = CALLS, waiting = WAITING, timeout = "3s", timeout_total = "6s", circuit = { failures = 1000, open = "10ms..10ms" } }
  end
  local ok, why = pcall(function()
    local g <close> = upstream.gateway(stubs, {
      entries = entries, workers = 2, scripts = { ["auth/main.lua"] = credentials.script }, constants = {
        upstream_evict_idle_ms = 1, upstream_pending = PARKED, upstream_pending_per_principal = 3, upstream_pending_ms = 2000,
        upstream_questions_per_principal = 1000000, upstream_ends_within_ms = 1,
      },
      config = {
        scripts = { watch = "false", drain = "1s" }, sessions = { per_principal = 1000 },
        limits = { upstreams = { channels = 12, processes = 4 } },
      },
    })
    local self = setmetatable({ g = g, stubs = stubs, names = names, roll = dice(seed), clients = {}, streams = {}, reloads = 0 }, storm)
    for n = 1, STEPS do self:step(n) end
    self:calm()
    rest(g, names)
    local config = config_of(g)
    for _, name in ipairs(names) do config.upstreams[name].timeout, config.upstreams[name].timeout_total = "2m", "5m" end
    load_config(g, config) -- time limits so long that none ends a held call; the limits of numbers are unchanged
    for _, name in ipairs(names) do check_limit(g, stubs[name], name) end
    rest(g, names)
    -- Without upstreams, no process and no connection is left.
    config.upstreams = nil
    load_config(g, config)
    local last
    wait.for_fact(function() return "nothing: " .. cjson.encode(last) end, 60, function()
      last = {}
      for name, value in pairs(g:status().gauges) do
        if name:find "^upstream" and value ~= 0 then last[name] = value end
      end
      return next(last) == nil
    end)
  end)
  for _, u in pairs(stubs) do u:close(true) end
  assert.is_true(ok, ("seed %d: %s"):format(seed, tostring(why)))
end

describe("upstreams with small limits in a storm", function()
  for seed = 1, 2 do
    it("leave no count behind, and admit what their limits say (" .. seed .. ")", function() run(seed) end)
  end
end)
