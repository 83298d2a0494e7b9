-- What of `./dev soak upgrades` lasts over upgrades: event streams, sessions of HTTP+SSE that call, and tasks of
-- 2025-11-25. Each has a function with the name of the thing, which gives something with `stop()`; `self` is the run,
-- `self.fail(text, …)` counts a violation.
local cjson = require "cjson.safe"
local channels = require "spec.soak.channels"
local uv = require "luv"
local wait = require "spec.helpers.wait"
local watch = require "spec.soak.upgrade_watch"
local wire = require "spec.helpers.wire"

local lasting = {}

local PATIENCE <const> = 60
local REVISION <const> = "2025-11-25"

local function message(id, method, params) return (cjson.encode(wire.message(id, method, params)):gsub('"arguments":%[%]', '"arguments":{}')) end

local function request(method, path, session, body)
  local lines = { method .. " " .. path .. " HTTP/1.1", "Host: localhost", "Accept: " .. (method == "GET" and "text/event-stream" or wire.both) }
  if session then
    lines[#lines + 1] = "Mcp-Session-Id: " .. session
    lines[#lines + 1] = "MCP-Protocol-Version: " .. REVISION
  end
  if body then
    lines[#lines + 1] = "Content-Type: application/json"
    lines[#lines + 1] = "Content-Length: " .. #body
  end
  return table.concat(lines, "\r\n") .. "\r\n\r\n" .. (body or "")
end

-- A client that connects for each request, so that any process may get it.
local function new_poster(self)
  local poster = channels.http1({ port = self.g.port }, function() end)
  poster.connects = true
  self.clients[#self.clients + 1] = poster
  return poster
end

-- Waits until `is_done(one)` is true for all; `what(one)` tells of those for which it does not become true.
local function await(self, list, seconds, is_done, what)
  local is_well = pcall(wait.for_fact, "all of them", seconds, function()
    for _, one in ipairs(list) do
      if not is_done(one) then return false end
    end
    return true
  end)
  for _, one in ipairs(is_well and {} or list) do
    if not is_done(one) then self.fail("%s", what(one)) end
  end
end

-- Opens a session; `done(session)`.
local function open_session(poster, fail, done)
  poster:send(request("POST", "/mcp", nil, message(0, "initialize", wire.initialize_message(REVISION).params)), function(answer, why)
    local session = answer and answer:lower():match "\r\nmcp%-session%-id: (%x+)"
    if not session then return fail("initialize", why or answer) end
    poster:send(request("POST", "/mcp", session, '{"jsonrpc":"2.0","method":"notifications/initialized"}'), function(said, failed)
      if not (said and said:find "^HTTP/1.1 202") then return fail("notifications/initialized", failed or said) end
      done(session)
    end)
  end)
end

-- -- event streams -----------------------------------------------------------------------------------------------------------------

local CHANGED <const> = "notifications/tools/list_changed"

local function open_stream(self, one)
  one.connection = channels.events({ port = self.g.port }, request("GET", "/mcp", one.session), function(event)
    local json = type(event.json) == "table" and event.json or {}
    if event.id and one.ids[event.id] then self.fail("an event stream gave the event %s twice", event.id) end
    if event.id then one.ids[event.id] = true end
    if json.method == CHANGED then one.changes = one.changes + 1 end
  end, function(why)
    one.has_ended = true
    self.fail("an event stream ended: %s", why)
  end)
end

--- `count` sessions with an event stream each, which stays open. `expect(what)` waits until each stream has had one
--- more word of changed tools than when `mark()` was called.
function lasting.streams(self, count)
  local all = {}
  for i = 1, count do
    local one = { changes = 0, marked = 0, ids = {} }
    all[i] = one
    open_session(new_poster(self), function(doing, why)
      one.has_ended = true
      self.fail("%s for an event stream failed: %s", doing, why)
    end, function(session)
      one.session = session
      open_stream(self, one)
    end)
    if i % 20 == 0 or i == count then
      await(self, all, PATIENCE, function(which) return which.connection or which.has_ended end, function() return "a session was not opened" end)
    end
  end
  local streams = { count = count }
  function streams.mark()
    for _, one in ipairs(all) do one.marked = one.changes end
  end
  function streams.expect(what)
    await(self, all, PATIENCE, function(one) return one.changes > one.marked or one.has_ended end,
      function() return "an event stream had no word of " .. what end)
  end
  function streams.stop()
    for _, one in ipairs(all) do
      local poster = new_poster(self)
      poster:send(request("DELETE", "/mcp", one.session), function(answer, why)
        one.is_left = true
        if not (answer and answer:find "^HTTP/1.1 2") then self.fail("the session of an event stream cannot be ended: %s", why or answer) end
      end)
      if one.connection then one.connection:close() end
    end
    await(self, all, PATIENCE, function(one) return one.is_left end, function() return "the session of an event stream was not ended" end)
  end
  return streams
end

-- -- HTTP+SSE ----------------------------------------------------------------------------------------------------------------------

local function post(self, one, body)
  one.is_posting = true
  one.poster:send(request("POST", one.path, nil, body), function(answer, why)
    one.is_posting = false
    if not (answer and answer:find "^HTTP/1.1 202") then self.fail("a message of an HTTP+SSE session was not taken: %s", why or answer) end
  end)
end

local function ask(self, one, method, params)
  one.id = one.id + 1
  one.waits = one.id
  post(self, one, message(one.id, method, params))
end

local function take_sse(self, one, event)
  local json = type(event.json) == "table" and event.json or {}
  if event.event == "endpoint" then
    one.path = event.data
    ask(self, one, "initialize", wire.initialize_message("2024-11-05").params)
  elseif json.id and json.id ~= one.waits then
    self.fail("an HTTP+SSE session got an answer that it does not wait for: %s", event.data)
  elseif json.id then
    one.waits = nil
    if not json.result then
      self.fail("a call of an HTTP+SSE session failed: %s", event.data)
    elseif json.id > 1 and json.result.isError then
      self.away = self.away + 1
      if not watch.is_away(event.data) then self.fail("a call of an HTTP+SSE session failed: %s", event.data) end
    elseif json.id > 1 then
      self.counted, self.sse_calls = self.counted + 1, self.sse_calls + 1
    end
  end
end

local function call_sse(self, one)
  if one.has_ended or one.waits or one.is_posting then return end
  if not one.is_ready then
    one.is_ready = true
    return post(self, one, '{"jsonrpc":"2.0","method":"notifications/initialized"}')
  end
  ask(self, one, "tools/call", { name = "count", arguments = {} })
end

--- `count` sessions of HTTP+SSE, each of which calls every `ms`.
function lasting.sse(self, count, ms)
  local all, at, path = {}, 0, assert(self.g.sse_url:match "//[^/]+(/.*)$")
  for i = 1, count do
    local one = { poster = new_poster(self), id = 0, is_posting = true }
    all[i] = one
    one.connection = channels.events({ port = self.g.port }, request("GET", path), function(event) take_sse(self, one, event) end, function(why)
      one.has_ended = true
      self.fail("the event stream of an HTTP+SSE session ended: %s", why)
    end)
  end
  local function is_idle(one) return one.has_ended or (one.id > 0 and not one.waits and not one.is_posting) end
  await(self, all, PATIENCE, is_idle, function() return "an HTTP+SSE session did not begin" end)
  local timer = uv.new_timer()
  timer:start(1, math.max(1, ms // count), function()
    at = at % count + 1
    call_sse(self, all[at])
  end)
  return { count = count, stop = function()
    timer:close()
    await(self, all, PATIENCE, is_idle, function() return "a call of an HTTP+SSE session got no answer" end)
  end, close = function()
    for _, one in ipairs(all) do one.connection:close() end
  end }
end

-- -- tasks -------------------------------------------------------------------------------------------------------------------------

local POLL_MS <const> = 2000

--- The tool of the tasks. It counts each that has run; where the store is away, again, so that the text tells how often
--- it has tried.
lasting.task_tool = [[return tool { "Lasts.", task = "required", timeout = 600, input = { seconds = t.number, name = t.string }, function(args)
  local tries, sum = 0, nil
  sleep(args.seconds)
  while not sum do
    local why
    tries = tries + 1
    sum, why = store.incr("lasted")
    if why and why ~= "unavailable" and why ~= "unknown" then error(why) end
    if not sum then sleep(0.2) end
  end
  return args.name .. " after " .. tries
end }]]

local run_task

local function ask_later(self, one, method, params, done)
  local timer = uv.new_timer()
  timer:start(POLL_MS, 0, function()
    timer:close()
    self.ask_task(one, method, params, done)
  end)
end

local function leave(self, one)
  one.poster:send(request("DELETE", "/mcp", one.session), function(answer, why)
    if not (answer and answer:find "^HTTP/1.1 2") then self.fail("the session of a task cannot be ended: %s", why or answer) end
    run_task(self, one)
  end)
end

local function finish(self, one, answer)
  local tries = answer:match('"text":"' .. one.name .. ' after (%d+)"')
  if not tries then
    self.fail("the task %s ended with: %s", one.name, answer)
  else
    self.tasks_done, self.task_away = self.tasks_done + 1, self.task_away + tonumber(tries) - 1
  end
  leave(self, one)
end

local function poll(self, one)
  ask_later(self, one, "tasks/get", { taskId = one.task }, function(answer)
    local status = answer:match '"status":"([%a_]+)"'
    if status == "working" then return poll(self, one) end
    if status ~= "completed" then self.fail("the task %s is: %s", one.name, answer) end
    self.ask_task(one, "tasks/result", { taskId = one.task }, function(result) finish(self, one, result) end)
  end)
end

function run_task(self, one)
  if self.is_over then
    one.is_over = true
    return
  end
  self.tasks_begun = self.tasks_begun + 1
  one.name, one.task = "t" .. self.tasks_begun, nil
  open_session(one.poster, function(doing, why)
    self.fail("%s for a task failed: %s", doing, why)
    one.is_over = true
  end, function(session)
    one.session = session
    local params = { name = "lasting", arguments = { seconds = one.seconds * (1 + math.random()), name = one.name }, task = { ttl = 1800000 } }
    self.ask_task(one, "tools/call", params, function(answer)
      one.task = answer:match '"taskId":"(%x+)"'
      if not one.task then
        self.fail("no task was made: %s", answer)
        return leave(self, one)
      end
      if one.waits then
        self.ask_task(one, "tasks/result", { taskId = one.task }, function(result) finish(self, one, result) end)
      else
        poll(self, one)
      end
    end)
  end)
end

--- `count` tasks at once, each in a session of its own, which take `seconds` to twice as long. For half of them,
--- tasks/get is sent again and again; for the other half, tasks/result, which waits.
function lasting.tasks(self, count, seconds)
  local all = {}
  self.tasks_begun, self.tasks_done, self.task_away = 0, 0, 0
  -- Asks again while the store is away.
  function self.ask_task(one, method, params, done)
    one.poster:send(request("POST", "/mcp", one.session, message(1, method, params)), function(answer, why)
      if answer and answer:find("cannot be reached for the moment", 1, true) then
        self.away = self.away + 1
        return ask_later(self, one, method, params, done)
      end
      if not answer then self.fail("%s of the task %s failed: %s", method, one.name, why) end
      done(answer or "")
    end)
  end
  for i = 1, count do
    all[i] = { poster = new_poster(self), seconds = seconds, waits = i % 2 == 0 }
    run_task(self, all[i])
  end
  return { stop = function()
    await(self, all, 2 * seconds + PATIENCE, function(one) return one.is_over end, function(one) return "the task " .. one.name .. " has not ended" end)
  end }
end

return lasting
