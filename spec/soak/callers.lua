-- Callers of a cluster through a balancer, of the stateless revision, of sessions and of HTTP+SSE. Each has one call at a
-- time, whose id is always 1, on a kept connection; what each call came to is held against what the nodes have run.
--   local all = callers.start { name = "load", port =, modern = 10, sessions = 10, sse = 10, most = 100000, rate = 200, report = function(text) … end }
--   … all:stop() ; all:reckon(texts of the nodes' logs)
-- Outcomes: "ok"; "no store" (it ran, and the store did not answer); "again" (503) and "unknown session" (404), which must
-- not have run; "lost" (an error which says that it may have run) and "cut" (its connection has ended), which may have run
-- once: "lost" not after its answer. Which of them are right at a time, `may(outcome, caller)` says; without it "ok" alone is.
local channels = require "spec.soak.channels"
local cjson = require "cjson.safe"
local client = require "spec.helpers.client"
local sse = require "spec.helpers.sse"
local uv = require "luv"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local callers = {}
callers.__index = callers

local REVISIONS <const> = { "2025-03-26", "2025-06-18", "2025-11-25" }
local MODERN <const> = "2026-07-28"
local PATIENCE_MS <const> = 90000 -- for one call: a node stands still for 30 s
local LATE_S <const> = 0.2        -- between an answer and the time of a line in a log of what ran before
local TOOLS <const> = { "mark", "mark", "mark", "count", "steps", "pause" }

-- each call leaves a line, and a node logs 1,000 a second of one event at most
callers.constants = { log_repeat = 1000000 }

callers.scripts = {
  ["tools/mark.lua"] = [[return tool { "Leaves a line.", input = { key = t.string }, function(args)
    log.info("ran", { key = args.key })
    return args.key
  end }]],
  ["tools/count.lua"] = [[return tool { "Counts.", input = { key = t.string }, function(args)
    log.info("ran", { key = args.key })
    local _, why = store.incr "count"
    return why and args.key .. " " .. why or args.key
  end }]],
  ["tools/steps.lua"] = [[return tool { "Says how far it is.", input = { key = t.string }, function(args, call)
    log.info("ran", { key = args.key })
    for i = 1, 3 do
      call:progress(i, 3)
      sleep(0.005)
    end
    return args.key
  end }]],
  ["tools/pause.lua"] = [[return tool { "Takes a while.", input = { key = t.string }, function(args)
    log.info("ran", { key = args.key })
    sleep(0.05)
    return args.key
  end }]],
}

local function now_s()
  local seconds, micros = uv.gettimeofday()
  return seconds + micros / 1e6
end

-- -- messages ---------------------------------------------------------------------------------------------------------------

local function request(path, headers, message)
  local body = (cjson.encode(message):gsub("\\/", "/"):gsub('"(%l+)":%[%]', '"%1":{}'))
  local lines = { "POST " .. path .. " HTTP/1.1", "Host: localhost", "Accept: " .. wire.both, "Content-Type: application/json", "Content-Length: " .. #body }
  for name, value in pairs(headers) do lines[#lines + 1] = name .. ": " .. value end
  return table.concat(lines, "\r\n") .. "\r\n\r\n" .. body
end

-- The status, the headers, and the JSON-RPC answer in a whole answer of HTTP/1.1; or nothing.
local function read(text)
  local head, after = text:match "^(.-\r\n)\r\n()"
  if not head then return end
  local status, headers = client.read_head(head)
  local body = client.decoder("POST", status, headers)(text:sub(after))
  if not (headers["content-type"] or ""):find("event-stream", 1, true) then return status, headers, cjson.decode(body) end
  local answer
  sse.new(function(event)
    local json = type(event.json) == "table" and event.json
    if json and json.id == 1 and not json.method then answer = json end
  end):feed(body)
  return status, headers, answer
end

-- -- a caller ---------------------------------------------------------------------------------------------------------------

local caller = {}
caller.__index = caller

local function after(ms, f)
  local timer = uv.new_timer()
  timer:start(ms, 0, function()
    timer:close()
    f()
  end)
end

function caller:complain(text, ...) self.all.report(("%s: "):format(self.name) .. text:format(...)) end

-- A call, or an `initialize`, is over.
local function finish(self, outcome, detail)
  local call, all = self.call, self.all
  if not call then return end
  self.call = nil
  call.timer:close()
  all.counts[outcome] = (all.counts[outcome] or 0) + 1
  if call.key then
    all.outcomes[call.key] = outcome
    all.ended[call.key] = outcome == "lost" and now_s() or nil
  end
  local is_right = outcome == "ok" or all.may and all.may(outcome, self)
  if not is_right then self:complain("%s of %s: %s (after %.1f s)", outcome, call.key or "initialize", detail or "", now_s() - call.began) end
  -- the answer to a call whose POST was lost may still come on the stream, and has the same id as the next
  if outcome == "unknown session" or (outcome == "cut" or outcome == "lost") and self.kind == "sse" then self:leave_session() end
  if outcome == "ok" or outcome == "no store" then return self:go_on() end
  after(math.random(50, 500), function() self:go_on() end)
end

local function begin(self, key)
  local timer = uv.new_timer()
  timer:start(PATIENCE_MS, 0, function()
    self:complain("%s has had no answer for %d s", key or "initialize", PATIENCE_MS // 1000)
    self:leave_session()
    finish(self, "silent")
  end)
  self.call = { key = key, timer = timer, began = now_s() }
end

function caller:leave_session()
  self.session, self.endpoint, self.is_known = nil, nil, nil
  if self.stream then self.stream:close() end
  self.stream = nil
  if self.http then self.http:close() end
  self.http = nil
end

-- Sends bytes on the kept connection; `done(text)`, or done(nil, why).
local function send(self, bytes, done)
  self.http = self.http or channels.http1({ port = self.all.port }, function() end)
  self.http:send(bytes, done)
end

-- What an error or a status means; nil if it is an answer to look into.
local function outcome_of(status, headers, json)
  local message = json and json.error and json.error.message or ""
  if status == 503 and headers["retry-after"] and message:find "try again" then return "again" end
  if status == 503 and headers["retry-after"] and message:find "too old" then return "again" end
  if status == 404 and message:find "no such session" then return "unknown session" end
  if message:find "may have run" then return "lost" end
end

local function take_answer(self, json, status)
  local key = self.call.key
  local text = json and json.result and not json.result.isError and json.result.content and json.result.content[1].text
  if not key and json and json.result and json.result.serverInfo then return true end
  if text and text == key then
    finish(self, "ok")
  elseif text == key .. " unavailable" or text == key .. " unknown" then
    finish(self, "no store", text)
  elseif text then
    finish(self, "foreign", text)
  else
    finish(self, "odd", ("status %s, %s"):format(tostring(status), cjson.encode(json)))
  end
end

function caller:headers(message)
  if self.kind == "modern" then return wire.mirrored(message) end
  return { ["Mcp-Session-Id"] = self.session, ["MCP-Protocol-Version"] = self.session and self.revision >= "2025-06-18" and self.revision or nil }
end

-- Posts a message whose answer comes with it. `done(json, headers)` for an answer that is not an error.
local function post(self, message, done)
  send(self, request("/mcp", self:headers(message), message), function(text, why)
    if not self.call then return end
    if not text then return finish(self, "cut", why) end
    local status, headers, json = read(text)
    if not status then return finish(self, "cut", "within its head") end
    local outcome = outcome_of(status, headers, json)
    if outcome then return finish(self, outcome, json.error.message) end
    if status == 200 and not json then return finish(self, "cut", "within its body") end
    if status ~= 200 and status ~= 202 then return finish(self, "odd", text) end
    done(json, headers, status)
  end)
end

-- -- sessions ---------------------------------------------------------------------------------------------------------------

local function initialized(self)
  self.all.opened = self.all.opened + 1
  finish(self, "ok")
end

local function note_initialized(self, path)
  local note = wire.message(nil, "notifications/initialized")
  send(self, request(path, self:headers(note), note), function(text, why)
    if not self.call then return end
    local status, headers, json = read(text or "")
    local outcome = status and outcome_of(status, headers, json)
    if status == 202 then return initialized(self) end
    if outcome then return finish(self, outcome, json.error.message) end
    finish(self, text and "odd" or "cut", text or why) -- the session is there nevertheless
  end)
end

local function open_session(self)
  begin(self)
  post(self, wire.initialize_message(self.revision, 1), function(json, headers)
    if not take_answer(self, json) then return end
    self.session = headers["mcp-session-id"]
    note_initialized(self, "/mcp")
  end)
end

-- A message of the client on HTTP+SSE, whose answer comes on the stream.
local function post_sse(self, message)
  send(self, request(self.endpoint, {}, message), function(text, why)
    if not self.call then return end
    if not text then return finish(self, "cut", why) end
    local status, headers, json = read(text)
    if status == 202 then return end
    local outcome = status and outcome_of(status, headers, json)
    finish(self, outcome or "odd", outcome and json.error.message or text)
  end)
end

local function open_stream(self)
  begin(self)
  local stream
  local function over(why)
    if self.stream ~= stream then return end
    if not self.call then -- between two calls
      self:leave_session()
      self.all.counts["stream ended"] = (self.all.counts["stream ended"] or 0) + 1
      if not (self.all.may and self.all.may("cut", self)) then self:complain("its stream ended: %s", why) end
      return
    end
    finish(self, "cut", why)
  end
  stream = channels.events({ port = self.all.port }, "GET /sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n", function(event)
    if self.stream ~= stream then return end
    if event.event == "endpoint" then
      self.endpoint = event.data
      return post_sse(self, wire.initialize_message(self.revision, 1))
    end
    local json = type(event.json) == "table" and event.json
    if not json or json.method or json.id ~= 1 then return end
    if not self.call then return self:complain("an answer to no call: %s", event.data) end
    local message = json.error and json.error.message or ""
    if message:find "may have run" then return finish(self, "lost", message) end
    if not take_answer(self, json) then return end
    self.is_known = true
    note_initialized(self, self.endpoint)
  end, over)
  self.stream = stream
end

-- -- calls ------------------------------------------------------------------------------------------------------------------

local function call_tool(self)
  local all = self.all
  self.calls = self.calls + 1
  all.calls = all.calls + 1
  local key, tool = ("%s-%d-%d"):format(all.name, self.number, self.calls), TOOLS[math.random(#TOOLS)]
  begin(self, key)
  local meta = self.kind == "modern" and wire.meta() or {}
  if tool == "steps" then meta.progressToken = key end
  local message = wire.message(1, "tools/call", { name = tool, arguments = { key = key }, _meta = next(meta) and meta or nil })
  if self.kind == "sse" then return post_sse(self, message) end
  post(self, message, function(json, _, status) take_answer(self, json, status) end)
end

-- The end of a caller: its session is deleted, until the answer says that it is gone.
local function end_session(self)
  local all = self.all
  local function over()
    self:leave_session()
    all.at_work = all.at_work - 1
  end
  if not self.session then return over() end
  self.tries = (self.tries or 0) + 1
  local line = "DELETE /mcp HTTP/1.1\r\nHost: localhost\r\nMcp-Session-Id: %s\r\n\r\n"
  send(self, line:format(self.session), function(text)
    local status = read(text or "")
    if status == 204 or status == 404 or self.tries > 20 then return over() end
    after(200, function() end_session(self) end)
  end)
end

function caller:go_on()
  local all = self.all
  if all.is_over or all.most and all.calls >= all.most then
    end_session(self)
  elseif self.kind == "sessions" and not self.session then
    open_session(self)
  elseif self.kind == "sse" and not self.endpoint then
    open_stream(self)
  elseif self.kind == "sse" and not self.is_known then -- its `initialize` was refused
    begin(self)
    post_sse(self, wire.initialize_message(self.revision, 1))
  elseif all.rate and all.allowed < 1 then
    all.waiting[#all.waiting + 1] = self
  else
    all.allowed = all.allowed - 1
    call_tool(self)
  end
end

-- -- public functions -------------------------------------------------------------------------------------------------------

--- `options`: name (what the keys of its calls begin with), port, modern, sessions and sse (callers of each kind), most
--- (calls), rate (calls a second), report, may.
function callers.start(options)
  local self = setmetatable({
    name = options.name, port = options.port, report = options.report, may = options.may, most = options.most, rate = options.rate,
    allowed = 0, waiting = {}, calls = 0, opened = 0, outcomes = {}, ended = {}, counts = {}, at_work = 0, timer = uv.new_timer(), list = {},
  }, callers)
  local last = uv.hrtime()
  self.timer:start(10, 10, function()
    local now, waiting = uv.hrtime(), self.waiting
    if not self.rate then return end
    self.allowed = math.min(self.allowed + self.rate * (now - last) / 1e9, self.rate / 10)
    last, self.waiting = now, {}
    for _, one in ipairs(waiting) do one:go_on() end
  end)
  for _, kind in ipairs { "modern", "sessions", "sse" } do
    for i = 1, options[kind] or 0 do
      local number = #self.list + 1
      local revision = kind == "modern" and MODERN or kind == "sse" and "2024-11-05" or REVISIONS[i % #REVISIONS + 1]
      local one = { all = self, kind = kind, number = number, revision = revision, calls = 0, name = revision .. " no. " .. number }
      self.list[number] = setmetatable(one, caller)
    end
  end
  self.at_work = #self.list
  for _, one in ipairs(self.list) do one:go_on() end
  return self
end

--- Waits until the last call is over: with `most` after so many, else of those that run now.
function callers:stop(seconds)
  if not self.most then self.is_over = true end
  wait.for_fact(function() return ("the last of %d calls; %d callers are at work"):format(self.calls, self.at_work) end, seconds or PATIENCE_MS / 1000,
    function() return self.at_work == 0 end)
  self.timer:close()
end

local function time_of(text)
  local year, month, day, hour, minute, second = text:match "^(%d+)-(%d+)-(%d+)T(%d+):(%d+):([%d.]+)Z$"
  local function noon(y, m, d) return os.time { year = y, month = m, day = d, hour = 12, isdst = false } end
  return noon(year, month, day) - noon(1970, 1, 1) + hour * 3600 + minute * 60 + tonumber(second)
end

--- Holds the outcomes against what the nodes have run, by the texts of their logs; returns how many calls ran.
function callers:reckon(logs)
  local ran, count = {}, 0
  for _, text in ipairs(logs) do
    for at, key in text:gmatch("(%d%d%d%d%-%S+) info +ran [^\n]-key=(" .. self.name .. "%-%d+%-%d+)") do
      ran[key], count = (ran[key] or 0) + 1, count + 1
      local outcome, ended = self.outcomes[key], self.ended[key]
      if not outcome then self.report(key .. " ran, and nobody has called it") end
      if ran[key] == 2 then self.report(("%s ran twice; it was '%s'"):format(key, outcome)) end
      if outcome == "again" or outcome == "unknown session" then self.report(("%s was '%s', and ran"):format(key, outcome)) end
      if ended and time_of(at) > ended + LATE_S then self.report(("%s ran %.1f s after it was answered with an error"):format(key, time_of(at) - ended)) end
    end
  end
  for key, outcome in pairs(self.outcomes) do
    if (outcome == "ok" or outcome == "no store") and not ran[key] then self.report(("%s is '%s', and never ran"):format(key, outcome)) end
  end
  return count
end

return callers
