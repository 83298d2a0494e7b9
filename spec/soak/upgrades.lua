-- Upgrades under load: `./dev soak upgrades [MINUTES]`, and three of them in the suite.
--   local report = upgrades.run { upgrades = 20, seconds = 600, rate = 1000, streams = 500, sse = 100, tasks = 50, say = print }
--   report.violations is empty if all is well.
-- Callers without a session keep their connections, or connect for each call, also over TLS and HTTP/2, and resume TLS
-- sessions; sessions of all stateful revisions are opened before each upgrade and called on new connections ever after;
-- clients of the official SDKs call and connect; sessions of HTTP+SSE call; event streams stay open, or are left and
-- resumed; calls take 20 s, and tasks longer than the time between two upgrades. No connection is refused, no call
-- fails or is cancelled, no session, stream, event or task is lost, and nothing is answered twice. Over all processes a
-- counter in the store is exact, keys are what they were set to, a quota counts once, a job runs once, a switch holds,
-- and no counter of /metrics falls. At the end the file of the store is whole. On a machine that stands still for 50 ms
-- a call may get `unavailable` or `unknown` from the store, as it is promised: such calls are counted, and may be in the
-- counter or not.
local certificates = require "spec.helpers.certificates"
local channels = require "spec.soak.channels"
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local http2 = require "spec.helpers.http2"
local lasting = require "spec.soak.upgrade_lasting"
local upgrading = require "spec.helpers.upgrading"
local uv = require "luv"
local wait = require "spec.helpers.wait"
local watch = require "spec.soak.upgrade_watch"
local wire = require "spec.helpers.wire"

local upgrades = {}

local REVISIONS <const> = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25" }
local PATIENCE <const> = 60
local SHOWN <const> = 20
local QUOTA <const> = 100

local scripts = {
  ["tools/count.lua"] = 'return tool { "Counts.", function() return tostring(try(store.incr "counted")) end }',
  ["tools/sdk.lua"] = 'return tool { "Counts.", function() return tostring(try(store.incr "sdk")) end }',
  ["tools/few.lua"] = 'return tool { "Few calls.", function() return "one more" end }',
  ["policy/few.lua"] = ("return { few = quota { tools = { 'few' }, by = 'all', most = %d, per = 'month' } }"):format(QUOTA),
  ["tools/lasting.lua"] = lasting.task_tool,
  ["tools/lasted.lua"] = 'return tool { "How many tasks have run.", function() return try(store.get "lasted") end }',
  ["tools/wait.lua"] = 'return tool { "Waits.", input = { seconds = t.number }, timeout = 120, function(args) sleep(args.seconds) return "waited" end }',
  ["tools/off.lua"] = 'return tool { "Is switched off and on.", function() return "on" end }',
  ["tools/ticks.lua"] = 'return tool { "How often the job ran.", function() return try(store.get "ticks") end }',
  ["jobs/tick.lua"] = 'return job { "Ticks.", every = 1, function() try(store.incr "ticks") end }',
  ["tools/steps.lua"] = [[return tool { "Steps.", input = { n = t.integer }, timeout = 120, function(args, call)
    for i = 1, args.n do
      call:progress(i, args.n)
      sleep(0.1)
    end
    return "done"
  end }]],
  ["tools/set.lua"] = [[return tool { "Sets a key.", input = { key = t.string, value = t.string }, function(args)
    try(store.set(args.key, args.value))
    return "set"
  end }]],
  ["tools/keys.lua"] = [[return tool { "All keys.", function()
    local all = {}
    for i = 0, 99 do
      local value, why = store.get("k" .. i)
      if not value and why then try(nil, why) end
      all[#all + 1] = ("k%d=%s"):format(i, value)
    end
    return table.concat(all, " ")
  end }]],
}

local function elapsed(self) return (uv.hrtime() - self.began) / 1e9 end

local function violate(self, text, ...)
  self.violation_count = self.violation_count + 1
  if #self.violations < SHOWN then
    local told = ("%.1f s, %d older: "):format(elapsed(self), #self.g:older()) .. text:format(...)
    self.violations[#self.violations + 1] = told
    self.say("  ! " .. told)
  end
end

-- -- callers: requests in raw bytes, which cost this process little -------------------------------------------------------------

local function message_of(is_stateful, name, arguments)
  local message = wire.message(1, "tools/call", { name = name, arguments = arguments or {}, _meta = not is_stateful and wire.meta() or nil })
  return (cjson.encode(message):gsub('"arguments":%[%]', '"arguments":{}')), message
end

local function headers_of(session, revision, message)
  local headers = session and { ["Mcp-Session-Id"] = session, ["MCP-Protocol-Version"] = revision } or wire.mirrored(message)
  headers.Accept, headers["Content-Type"] = wire.both, "application/json"
  return headers
end

local function request_of(session, revision, name, arguments)
  local body, message = message_of(session, name, arguments)
  local headers = headers_of(session, revision, message)
  headers.Host, headers["Content-Length"] = "localhost", tostring(#body)
  local lines = { "POST /mcp HTTP/1.1" }
  for key, value in pairs(headers) do lines[#lines + 1] = key .. ": " .. value end
  return table.concat(lines, "\r\n") .. "\r\n\r\n" .. body
end

-- The same over HTTP/2: the block of headers, and the body.
local function block_of(session, revision, name)
  local body, message = message_of(session, name)
  local headers = {}
  for key, value in pairs(headers_of(session, revision, message)) do headers[key:lower()] = value end
  return http2.block(http2.fields { headers = headers }), body
end

local function is_right(answer)
  return answer and answer:find('"result"', 1, true) and not answer:find('"isError":true', 1, true)
end

-- Calls as long as the load lasts and the rate allows it.
local function call_again(self, one)
  if self.is_over then
    self.under_way = self.under_way - 1
    return one.client:close()
  end
  if self.allowed < 1 then
    self.waiting[#self.waiting + 1] = one
    return
  end
  self.allowed = self.allowed - 1
  one.send(function(answer, why, is_unread)
    if is_unread then -- the client sends it on another connection
      self.moved = self.moved + 1
    elseif not why and is_right(answer) then
      self.counted = self.counted + 1
    elseif watch.is_away(answer) then
      self.away = self.away + 1
    else
      violate(self, "a call of %s failed: %s", one.name, why or answer)
    end
    if one.client.is_resumed == false and one.client.resumes and one.client.opened > 1 then
      violate(self, "%s did not resume its TLS session", one.name)
    end
    call_again(self, one)
  end)
end

-- Lets `rate` calls a second begin, in steps of 10 ms.
local function pace(self, rate)
  local timer, last = uv.new_timer(), uv.hrtime()
  timer:start(10, 10, function()
    local now = uv.hrtime()
    self.allowed = math.min(self.allowed + rate * (now - last) / 1e9, rate / 10)
    last = now
    local waiting = self.waiting
    self.waiting = {}
    for _, one in ipairs(waiting) do call_again(self, one) end
  end)
  return timer
end

local function start_caller(self, name, client, send)
  self.under_way = self.under_way + 1
  self.clients[#self.clients + 1] = client
  call_again(self, { name = name, client = client, send = send })
end

local function tls_of(self, alpn) return { name = "localhost", ca = self.g.dir .. "/cert.pem", alpn = alpn } end

-- `how`: connects (for each call), resumes (its TLS session).
local function start_http1(self, name, where, how, request)
  local client = channels.http1(where, function(why) violate(self, "%s was closed while it was idle: %s", name, why) end)
  client.connects, client.resumes = how.connects, how.resumes
  start_caller(self, name, client, function(done) client:send(request, done) end)
end

-- Calls with a session and without one, in turn.
local function start_http2(self, name, where, dwells)
  local client, turn, c = channels.http2(where, { dwells = dwells }), 0, self.g:client "2025-06-18"
  self.readers[#self.readers + 1] = c
  local blocks, bodies = {}, {}
  blocks[0], bodies[0] = block_of(nil, nil, "count")
  blocks[1], bodies[1] = block_of(c.session, "2025-06-18", "count")
  start_caller(self, name, client, function(done)
    turn = 1 - turn
    client:send(blocks[turn], bodies[turn], done)
  end)
end

local function start_callers(self, count)
  local plain, request = { port = self.g.port }, request_of(nil, nil, "count")
  for i = 1, count do
    local connects = i % 2 == 0
    start_http1(self, connects and "a new connection" or "a kept connection", plain, { connects = connects }, request)
  end
  local function over_tls(name, how)
    start_http1(self, name .. " over TLS", { port = self.tls_port, tls = tls_of(self) }, how, request)
  end
  over_tls("a kept connection", {})
  over_tls("a new connection", { connects = true })
  over_tls("a resumed connection", { connects = true, resumes = true })
  for _, dwells in ipairs { false, true } do
    local which = dwells and "HTTP/2 to the last GOAWAY" or "HTTP/2 to the first GOAWAY"
    start_http2(self, which, plain, dwells)
    start_http2(self, which .. " over TLS", { port = self.tls_port, tls = tls_of(self, "h2") }, dwells)
  end
end

-- A caller of a session: each call on a connection of its own, which any process may get.
local function start_session_caller(self, c)
  start_http1(self, "a session of " .. c.revision .. " from round " .. c.round, { port = self.g.port }, { connects = true },
    request_of(c.session, c.revision, "count"))
end

-- -- what lives through the upgrades -----------------------------------------------------------------------------------------------

local function let_connect_anew(c)
  if c.kept then c.kept:close() end
  c.kept = nil
end

-- The text of a tool's answer; nil and the answer if it is an error. Asks again while the store is away.
local function text_of(self, c, name)
  let_connect_anew(c)
  local answer = c:call("tools/call", { name = name, arguments = {} }, PATIENCE)
  local result = answer and answer.result
  if not result then return nil, cjson.encode(answer) end
  local text = result.content[1].text
  if result.isError and (upgrading.is_away(text) or text:find("cannot be counted", 1, true)) then
    self.away = self.away + 1
    return text_of(self, c, name)
  end
  if result.isError then return nil, cjson.encode(answer) end
  return text
end

-- Opens a session of each revision, with a call that takes long, and a caller.
local function open_sessions(self, round, long)
  for _, revision in ipairs(REVISIONS) do
    local c = self.g:client(revision)
    c.round = round
    self.sessions[#self.sessions + 1] = c
    self.calls[#self.calls + 1] = { from = c, at = c:open("tools/call", { name = "wait", arguments = { seconds = long } }) }
    if c.session then start_session_caller(self, c) end
  end
end

local function switch(self, which)
  local code, _, err = gateway.exec({ "switch", "--admin", "127.0.0.1:" .. self.g.admin_port, which, "tool", "off" }, { seconds = PATIENCE })
  if code ~= 0 then violate(self, "moonpool switch %s failed: %s", which, err) end
end

-- A tool that is switched off is off for the sessions of all processes within a second or two, and each event stream
-- tells it.
local function try_switch(self)
  self.streams.mark()
  switch(self, "off")
  for _, c in ipairs(self.sessions) do
    wait.for_fact("the switch for a session of round " .. c.round, PATIENCE, function() return text_of(self, c, "off") == nil end)
  end
  self.streams.expect "a tool that is switched off"
  self.streams.mark()
  switch(self, "on")
  wait.for_fact("the switch back", PATIENCE, function() return text_of(self, self.sessions[1], "off") == "on" end)
  self.streams.expect "a tool that is switched on"
end

local function try_quota(self)
  local had, away = 0, self.away
  for i = 1, QUOTA + 20 do
    local text = text_of(self, self.sessions[i % #self.sessions + 1], "few")
    if text then had = had + 1 end
  end
  away = self.away - away -- perhaps counted
  if had > QUOTA or had < QUOTA - away then violate(self, "a quota of %d calls gave %d", QUOTA, had) end
end

local function answer_calls(self)
  for _, call in ipairs(self.calls) do
    local answer = call.at:answer(PATIENCE)
    if not (answer and answer.result and answer.result.content[1].text == "waited") then
      violate(self, "a long call of %s from round %d was not answered: %s", call.from.revision, call.from.round, cjson.encode(answer))
    end
  end
end

-- What the gateway itself takes for an error is one.
local function check_log(self)
  for line in self.g:log():gmatch "[^\n]+" do
    if line:find "^%S+ error " then violate(self, "the log has: %s", line) end
  end
end

-- -- the run -----------------------------------------------------------------------------------------------------------------------

local function connections(self)
  local count = 0
  for _, client in ipairs(self.clients) do count = count + client.opened end
  return count
end

local function run_rounds(self, options)
  for round = 1, options.upgrades do
    local before, since = self.counted, elapsed(self)
    open_sessions(self, round, options.long or 20)
    self.g:replace()
    self.g:must_upgrade()
    wait.for_fact("the next upgrade", options.seconds + PATIENCE, function() return elapsed(self) >= round * options.seconds / options.upgrades end)
    self.say(("%d upgrades in %.0f s: %d calls, %.0f a second now, %d connections, %d older processes"):format(round, elapsed(self), self.counted,
      (self.counted - before) / (elapsed(self) - since), connections(self), #self.g:older()))
  end
end

-- Ends the load, and looks at what it has left.
local function stop_load(self)
  self.is_over, self.loaded = true, elapsed(self)
  for _, one in ipairs(self.waiting) do call_again(self, one) end
  self.waiting = {}
  wait.for_fact("the last calls", PATIENCE, function() return self.under_way == 0 end)
  self.model = self.keys.stop()
  self.sdk = self.sdks.stop()
  self.steps.stop()
  self.sse.stop()
  self.tasks.stop()
end

local function compare_keys(self, c, who)
  local text, why = text_of(self, c, "keys")
  if text then watch.compare(self, self.model, text, who) else violate(self, "the keys cannot be read by %s: %s", who, why) end
end

local function check_all(self)
  local ticks, seconds = tonumber((text_of(self, self.sessions[1], "ticks"))), elapsed(self)
  if ticks > seconds + 2 or (self.is_long and ticks < seconds / 2) then violate(self, "a job that runs every second ran %d times in %.0f s", ticks, seconds) end
  answer_calls(self)
  for i, c in ipairs(self.sessions) do
    self.counted = self.counted + 1
    local text, why = text_of(self, c, "count")
    local more = (tonumber(text) or -1) - self.counted
    if more < 0 or more > self.away then
      violate(self, "the counter is %s for a session of %s from round %d, not %d", text or why, c.revision, c.round, self.counted)
    end
    if i % #REVISIONS == 0 then compare_keys(self, c, "a session from round " .. c.round) end
  end
  local more = tonumber((text_of(self, self.sessions[1], "sdk"))) - 1 - self.sdk.calls
  if more < 0 or more > self.sdk.away + 1 then violate(self, "the counter of the SDKs is %d above their %d calls", more, self.sdk.calls) end
  more = tonumber((text_of(self, self.sessions[1], "lasted"))) - self.tasks_done
  if more < 0 or more > self.task_away then violate(self, "%d tasks have their result, and %d more have run", self.tasks_done, more) end
  try_switch(self)
  try_quota(self)
  self.streams.stop()
  self.sse.close()
  self.counters = self.metrics.stop()
  if self.is_long then check_log(self) end
end

local function close_all(self)
  for _, list in ipairs { self.sessions, self.readers } do
    for _, c in ipairs(list) do
      if c.delete then c:delete() end
      c:close()
    end
  end
  wait.for_fact("the older processes to end", PATIENCE, function() return #self.g:older() == 0 end)
end

-- Another gateway finds in the file what was stored.
local function check_file(self, path)
  self.g:stop()
  local g <close> = gateway.start { scripts = scripts, config = { store = { file = path } } }
  local c <close> = g:client "2025-06-18"
  local text = text_of(self, c, "count")
  local more = (tonumber(text) or -1) - self.counted - 1
  if more < 0 or more > self.away then violate(self, "the counter in the file is %s, not %d", text, self.counted) end
  compare_keys(self, c, "the next gateway")
end

local function start(path)
  local here = certificates.here()
  return upgrading.start { workers = 2, scripts = scripts, files = { ["cert.pem"] = here.certificate, ["key.pem"] = here.key }, config = {
    listen = {
      { address = "127.0.0.1:0", http2 = "on" },
      { address = "127.0.0.1:0", http2 = "on", tls = { certificate = "cert.pem", key = "key.pem" } },
    },
    store = { file = path }, sessions = { max = 10000, per_principal = 10000 }, limits = { calls_in_flight = 10000 },
  } }
end

-- The port of the second address that the gateway listens on.
local function tls_port(g)
  return wait.for_fact("the second address in the log", PATIENCE, function()
    for port in g:log():gmatch "listening +address=127%.0%.0%.1:(%d+) for=mcp" do
      if tonumber(port) ~= g.port then return tonumber(port) end
    end
  end)
end

--- `options`: upgrades, seconds, rate, streams, sse, tasks, and perhaps long (seconds of the long calls) and say.
function upgrades.run(options)
  local path = os.tmpname()
  local g <close> = start(path)
  local self = { g = g, tls_port = tls_port(g), say = options.say or function() end, began = uv.hrtime(), violations = {},
    violation_count = 0, counted = 0, sse_calls = 0, away = 0, moved = 0, events = 0, resumed = 0, under_way = 0, allowed = 0, waiting = {}, clients = {},
    sessions = {}, calls = {}, readers = {} }
  self.is_long = options.seconds >= 20 * options.upgrades -- a short run, as in CI, may have a machine that stands still
  function self.fail(...) violate(self, ...) end
  self.streams = lasting.streams(self, options.streams)
  self.sse = lasting.sse(self, options.sse, 5000)
  self.tasks = lasting.tasks(self, options.tasks, 1.2 * options.seconds / options.upgrades)
  self.sdks, self.metrics, self.steps = watch.sdks(self, options.rate >= 500 and 100 or 500), watch.counters(self, 2000), watch.events(self, 4)
  self.keys = watch.keys(self, request_of)
  local timer = pace(self, options.rate)
  start_callers(self, math.max(8, options.rate // 25))
  run_rounds(self, options)
  stop_load(self)
  timer:close()
  check_all(self)
  self.seconds, self.connected = elapsed(self), connections(self)
  close_all(self)
  check_file(self, path)
  os.remove(path)
  return self
end

function upgrades.describe(report)
  local sdk, counters = report.sdk, report.counters
  return table.concat({
    ("%d calls on %d connections in %.0f s, %.0f a second; of %d the store was away, %d were sent again after GOAWAY"):format(report.counted,
      report.connected, report.seconds, report.counted / report.loaded, report.away, report.moved),
    ("SDKs: %d calls, %d connects, %d away; %d events, %d streams resumed; %d counters read %d times"):format(sdk.calls, sdk.connected, sdk.away,
      report.events, report.resumed, counters.counters, counters.reads),
    ("%d event streams, %d calls of %d HTTP+SSE sessions, %d tasks to their end; %.0f connections a second"):format(report.streams.count, report.sse_calls,
      report.sse.count, report.tasks_done, report.connected / report.seconds),
    ("%d violations"):format(report.violation_count), table.concat(report.violations, "\n"),
  }, "\n")
end

return upgrades
