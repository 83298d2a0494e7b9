-- Upgrades under load: `./dev soak upgrades [MINUTES]`, and three of them in the suite.
--   local report = upgrades.run { upgrades = 20, seconds = 600, rate = 1000, streams = 200, say = print }     -- report.violations is empty if all is well
-- Callers without a session keep their connections, or connect for each call; sessions of all stateful revisions are opened before each upgrade and called
-- on new connections ever after; event streams stay open; calls take 20 s. No connection is refused, no call fails or is cancelled, no session and no stream
-- is lost. Over all processes a counter in the store is exact, a quota counts once, a job runs once, and a switch holds. On a machine that stands still for
-- 50 ms a call may get `unavailable` from the store, as it is promised: such calls are counted, and may be in the counter or not.
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local upgrading = require "spec.helpers.upgrading"
local uv = require "luv"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local upgrades = {}

local CALLERS <const> = 16 -- of them half connect for each call
local REVISIONS <const> = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25" }
local PATIENCE <const> = 60
local SHOWN <const> = 20
local QUOTA <const> = 100

local scripts = {
  ["tools/count.lua"] = 'return tool { "Counts.", function() return tostring(try(store.incr "counted")) end }',
  ["tools/few.lua"] = 'return tool { "Few calls.", function() return "one more" end }',
  ["policy/few.lua"] = ("return { few = quota { tools = { 'few' }, by = 'all', most = %d, per = 'month' } }"):format(QUOTA),
  ["tools/wait.lua"] = 'return tool { "Waits.", input = { seconds = t.number }, timeout = 120, function(args) sleep(args.seconds) return "waited" end }',
  ["tools/off.lua"] = 'return tool { "Is switched off and on.", function() return "on" end }',
  ["tools/ticks.lua"] = 'return tool { "How often the job ran.", function() return try(store.get "ticks") end }',
  ["jobs/tick.lua"] = 'return job { "Ticks.", every = 1, function() try(store.incr "ticks") end }',
}

local function violate(self, text, ...)
  self.violation_count = self.violation_count + 1
  if #self.violations < SHOWN then
    self.violations[#self.violations + 1] = text:format(...)
    self.say("  ! " .. text:format(...))
  end
end

-- -- callers: requests in raw bytes, which cost this process little -------------------------------------------------------------

local function request_of(session, revision, name)
  local message = wire.message(1, "tools/call", { name = name, arguments = {}, _meta = not session and wire.meta() or nil })
  local headers = session and { ["Mcp-Session-Id"] = session, ["MCP-Protocol-Version"] = revision } or wire.mirrored(message)
  headers.Accept, headers["Content-Type"], headers.Host = wire.both, "application/json", "localhost"
  local body = cjson.encode(message):gsub('"arguments":%[%]', '"arguments":{}')
  headers["Content-Length"] = tostring(#body)
  local lines = { "POST /mcp HTTP/1.1" }
  for key, value in pairs(headers) do lines[#lines + 1] = key .. ": " .. value end
  return table.concat(lines, "\r\n") .. "\r\n\r\n" .. body
end

-- True once the answer is whole: its length has come, or its last chunk.
local function is_whole(text)
  local head, body = text:match "^(.-)\r\n\r\n(.*)$"
  local length = head and tonumber(head:lower():match "content%-length: (%d+)")
  if length then return #body >= length end
  return head and body:sub(-5) == "0\r\n\r\n"
end

-- Sends a request on the caller's connection, or on a new one; `done(text)` with the whole answer, or nil and the reason.
local function send(self, one, request, done)
  local text, is_over = "", false
  local function finish(answer, why)
    if is_over then return end
    is_over = true
    local closes = not answer or one.connects or answer:lower():find("\r\nconnection: close", 1, true)
    if closes and one.socket then
      if not one.socket:is_closing() then one.socket:close() end
      one.socket = nil
    end
    done(answer, why)
  end
  local function on_read(err, bytes)
    if not bytes then return finish(nil, err or "the connection ended") end
    text = text .. bytes
    if is_whole(text) then finish(text) end
  end
  local function write()
    one.socket:read_stop()
    one.socket:read_start(on_read)
    one.socket:write(request, function(err) if err then finish(nil, err) end end)
  end
  if one.socket then return write() end
  one.socket = uv.new_tcp()
  self.connected = self.connected + 1
  one.socket:connect("127.0.0.1", self.g.port, function(err)
    if err then return finish(nil, "not connected: " .. err) end
    write()
  end)
end

-- Calls as long as the load lasts and the rate allows it.
local function call_again(self, one)
  if self.is_over then
    self.under_way = self.under_way - 1
    if one.socket and not one.socket:is_closing() then one.socket:close() end
    return
  end
  if self.allowed < 1 then
    self.waiting[#self.waiting + 1] = one
    return
  end
  self.allowed = self.allowed - 1
  send(self, one, one.request, function(answer, why)
    if answer and answer:find("^HTTP/1.1 200") and answer:find('"result"', 1, true) and not answer:find('"isError":true', 1, true) then
      self.counted = self.counted + 1
    elseif answer and answer:find('"text":"unavailable"', 1, true) then
      self.away = self.away + 1
    else
      violate(self, "a call of %s failed: %s", one.name, why or answer)
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

local function start_callers(self)
  for i = 1, CALLERS do
    local connects = i % 2 == 0
    self.under_way = self.under_way + 1
    call_again(self, { connects = connects, name = connects and "a new connection" or "a kept connection", request = request_of(nil, nil, "count") })
  end
end

-- A caller of a session: each call on a connection of its own, which any process may get.
local function start_session_caller(self, c)
  self.under_way = self.under_way + 1
  call_again(self, { connects = true, name = "a session of " .. c.revision .. " from round " .. c.round, request = request_of(c.session, c.revision, "count") })
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
  if result.isError and (text == "unavailable" or text:find("cannot be counted", 1, true)) then
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

local function open_streams(self, count)
  for _ = 1, count do
    local c = self.g:client "2025-06-18"
    self.streams[#self.streams + 1] = c:get_stream().connection
    self.readers[#self.readers + 1] = c
  end
end

local function switch(self, which)
  local code, _, err = gateway.exec({ "switch", "--admin", "127.0.0.1:" .. self.g.admin_port, which, "tool", "off" }, { seconds = PATIENCE })
  if code ~= 0 then violate(self, "moonpool switch %s failed: %s", which, err) end
end

-- A tool that is switched off is off for the sessions of all processes within a second or two.
local function try_switch(self)
  switch(self, "off")
  for _, c in ipairs(self.sessions) do
    wait.for_fact("the switch for a session of round " .. c.round, PATIENCE, function() return text_of(self, c, "off") == nil end)
  end
  switch(self, "on")
  wait.for_fact("the switch back", PATIENCE, function() return text_of(self, self.sessions[1], "off") == "on" end)
end

local function try_quota(self)
  local had = 0
  for i = 1, QUOTA + 20 do
    local text = text_of(self, self.sessions[i % #self.sessions + 1], "few")
    if text then had = had + 1 end
  end
  if had ~= QUOTA then violate(self, "a quota of %d calls gave %d", QUOTA, had) end
end

local function answer_calls(self)
  for _, call in ipairs(self.calls) do
    local answer = call.at:answer(PATIENCE)
    if not (answer and answer.result and answer.result.content[1].text == "waited") then
      violate(self, "a long call of %s from round %d was not answered: %s", call.from.revision, call.from.round, cjson.encode(answer))
    end
  end
end

local function check_streams(self)
  for _, connection in ipairs(self.streams) do
    if connection:is_closed_by_peer() then violate(self, "an event stream has ended") end
  end
end

-- -- the run -----------------------------------------------------------------------------------------------------------------------

local function elapsed(self) return (uv.hrtime() - self.began) / 1e9 end

local function run_rounds(self, options)
  for round = 1, options.upgrades do
    open_sessions(self, round, options.long or 20)
    self.g:replace()
    self.g:must_upgrade()
    self.say(("%d upgrades in %.0f s: %d calls, %d connections, %d older processes"):format(round, elapsed(self), self.counted, self.connected,
      #self.g:older()))
    wait.for_fact("the next upgrade", options.seconds + PATIENCE, function() return elapsed(self) >= round * options.seconds / options.upgrades end)
  end
end

local function check_all(self)
  self.is_over = true
  for _, one in ipairs(self.waiting) do call_again(self, one) end
  self.waiting = {}
  wait.for_fact("the last calls", PATIENCE, function() return self.under_way == 0 end)
  local ticks, seconds = tonumber(text_of(self, self.sessions[1], "ticks")), elapsed(self)
  if ticks > seconds + 2 then violate(self, "a job that runs every second ran %d times in %.0f s", ticks, seconds) end
  answer_calls(self)
  for _, c in ipairs(self.sessions) do
    self.counted = self.counted + 1
    local text, why = text_of(self, c, "count")
    local more = (tonumber(text) or -1) - self.counted
    if more < 0 or more > self.away then
      violate(self, "the counter is %s for a session of %s from round %d, not %d", text or why, c.revision, c.round, self.counted)
    end
  end
  check_streams(self)
  try_switch(self)
  try_quota(self)
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

--- `options`: upgrades, seconds, rate, streams, and perhaps long (seconds of the long calls) and say.
function upgrades.run(options)
  local path = os.tmpname()
  local g <close> = upgrading.start { workers = 2, scripts = scripts, config = {
    store = { file = path }, sessions = { max = 10000, per_principal = 10000 }, limits = { calls_in_flight = 10000 },
  } }
  local self = { g = g, say = options.say or function() end, began = uv.hrtime(), violations = {}, violation_count = 0, counted = 0, away = 0, connected = 0,
    under_way = 0, allowed = 0, waiting = {}, sessions = {}, calls = {}, streams = {}, readers = {} }
  open_streams(self, options.streams)
  local timer = pace(self, options.rate)
  start_callers(self)
  run_rounds(self, options)
  check_all(self)
  timer:close()
  self.seconds = elapsed(self)
  close_all(self)
  os.remove(path)
  return self
end

function upgrades.describe(report)
  return ("%d calls on %d connections in %.0f s, of %d the store was away; %d violations\n%s"):format(report.counted, report.connected,
    report.seconds, report.away, report.violation_count, table.concat(report.violations, "\n"))
end

return upgrades
