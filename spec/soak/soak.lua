-- The soak: a gateway with two workers before upstreams of all kinds, under a steady load of clients of all revisions,
-- while upstreams are killed, stopped, silent and answer wrongly, the configuration is reloaded, clients leave and
-- cancel, and the gateway itself is killed and started again.
--   local report = soak.run { seconds = 1800, kill_every = 180, rate = 80, say = print }     -- report.violations is empty if all is well
-- Of each call exactly one outcome is wanted, and an honest one: "ok" only if the upstream ran the call once, `not_run`
-- only if it did not. What an upstream has run is in its journal (spec/soak/upstream.lua). At the end of the load all
-- gauges are 0, and the descriptors, the processes and the memory are those of before. The time is that of the loop: a
-- machine that stands still counts 0.1 s, so that a slow machine only makes fewer calls.
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local process = require "spec.helpers.process"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local soak = {}

local CLIENTS <const> = 12
local REVISIONS <const> = { "2025-11-25", "2026-07-28", "2025-06-18", "2024-11-05", "2025-03-26" }
local RUNNING <const> = 64 -- calls at once
local LONGEST_TURN <const> = 0.1 -- seconds
local ANSWER_WITHIN <const> = 60 -- seconds; timeout_total is far less
local CANCELLED_FOR <const> = 3 -- seconds that a cancelled call may still be answered
local PATIENCE <const> = 60
local IDLE_S <const>, UNUSED_NS <const> = 10, 5e9 -- sessions.idle; a client that was not used for this time is not used again
local SHOWN <const> = 40 -- violations
local MEMORY_MORE <const> = 24 << 20 -- bytes

local UPSTREAMS <const> = {
  -- nothing disturbs this upstream: each of its calls must be answered
  { name = "steady", transport = "http", revision = "2025-11-25", is_calm = true },
  { name = "web", transport = "http", revision = "2025-11-25", asks = true }, { name = "new", transport = "http", revision = "2026-07-28" },
  { name = "sse", transport = "sse", revision = "2024-11-05", asks = true }, { name = "kid", transport = "stdio", revision = "2025-06-18", asks = true },
  { name = "imp", transport = "stdio", revision = "2026-07-28" },
}

local AT_REST <const> = require "spec.helpers.at_rest" { upstream_catalogue_bytes = true, body_bytes = true }

local function read(path)
  local file <close> = io.open(path, "rb")
  return file and file:read "a" or ""
end

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

-- -- what was found ------------------------------------------------------------------------------------------------------------

local function violate(self, text, ...)
  text = select("#", ...) > 0 and text:format(...) or text
  self.violation_count = self.violation_count + 1
  if #self.violations < SHOWN then
    self.violations[#self.violations + 1] = ("at %.0f s: %s"):format(self.now, text)
    self.say("  ! " .. text)
  end
end

local function count(self, group, name)
  local counts = self.counts[group] or {}
  self.counts[group] = counts
  counts[name] = (counts[name] or 0) + 1
end

-- -- upstreams -------------------------------------------------------------------------------------------------------------------

local function start_upstream(self, up)
  up.input, up.output = uv.new_pipe(false), uv.new_pipe(false)
  up.starts = (up.starts or 0) + 1
  up.folder = up.folder or self.dir .. "/" .. up.name
  uv.fs_mkdir(up.folder, 493) -- 0755
  local rate = up.is_calm and 0 or self.wrong_rate
  local line = ""
  up.entry, up.is_killed = nil, nil
  up.process = gateway.spawn("/usr/bin/lua5.4", {
    "spec/soak/upstream.lua", up.transport, up.revision, tostring(up.port or 0), up.folder .. "/journal", tostring(rate), tostring(up.starts),
  }, up.folder, { stdin = up.input, stdout = up.output })
  up.output:read_start(function(_, bytes)
    line = line .. (bytes or "")
    local json = not up.entry and cjson.decode(line:match "^[^\n]*\n" or "")
    if json then up.entry, up.port = json.entry, json.port end
  end)
end

local function close_pipes(up)
  for _, pipe in ipairs { up.input, up.output } do
    if not pipe:is_closing() then pipe:close() end
  end
end

local function wait_upstream(up)
  wait.for_fact("the upstream " .. up.name, PATIENCE, function()
    if up.process.code then error(up.name .. " ended: " .. read(up.folder .. "/stderr"), 0) end
    return up.entry
  end)
end

local function order(up, text)
  if not up.process.code then up.input:write(text .. "\n", function() end) end
end

-- The programs of an upstream over stdio that run below the gateway.
local function programs_of(up)
  local path, list = up.entry.command[3], {}
  for name in require "lfs".dir "/proc" do
    if name:find "^%d+$" and read("/proc/" .. name .. "/cmdline"):find("child.lua\0" .. path, 1, true) then list[#list + 1] = math.tointeger(name) end
  end
  return list
end

-- -- the gateway -------------------------------------------------------------------------------------------------------------------

local function config_of(self)
  local entries = {}
  for _, up in ipairs(self.upstreams) do
    local entry = {}
    for key, value in pairs(up.entry) do entry[key] = value end
    if up.is_calm then
      entry.timeout, entry.list_wait = "60s", "20s"
    else
      entry.timeout, entry.timeout_total, entry.open, entry.list_wait = "2s", "6s", "5s", "1s"
      entry.circuit = { failures = 5, open = "200ms..2s" }
    end
    entry.process = { idle_stop = "2s" }
    entries[up.name] = entry
  end
  return {
    upstreams = entries, sessions = { idle = IDLE_S .. "s" }, limits = { upstreams = { answer = "1MiB" } },
    scripts = { path = "scripts", watch = "false" },
  }
end

local function start_gateway(self)
  local constants = { upstream_pending_ms = 10000 }
  if self.gateway then
    self.gateway = gateway.start { dir = self.gateway.dir, constants = constants }
  else
    self.gateway = gateway.start { workers = 2, config = config_of(self), constants = constants }
  end
  self.life = self.life + 1
  for _, up in ipairs(self.upstreams) do up.is_listed = false end
end

-- Processes of this gateway: they have its folder as theirs, or name the socket of an upstream's program.
local function processes_of(self)
  local list, dir = {}, assert(uv.fs_realpath(self.gateway.dir))
  for name in require "lfs".dir "/proc" do
    if name:find "^%d+$" and not process.is_gone(name) then
      local command = read("/proc/" .. name .. "/cmdline")
      local is_ours = uv.fs_readlink("/proc/" .. name .. "/cwd") == dir
      for _, up in ipairs(self.upstreams) do
        local words = up.entry and up.entry.command
        is_ours = is_ours or words and command:find("child.lua\0" .. words[3], 1, true) ~= nil
      end
      if is_ours then list[#list + 1] = ("%s %s"):format(name, (command:gsub("%z", " "))) end
    end
  end
  return list
end

local function look_at_log(self)
  for line in self.gateway:log():gmatch "[^\n]+" do
    local event = line:match "^%S+ error +(.-) +[%w_.]+=" or line:match "^%S+ error +(.*)$"
    if event then count(self, "errors in the log", event) end
    for _, bad in ipairs { "internal error", "stack traceback", "AddressSanitizer", "ThreadSanitizer", "runtime error:", "Assertion `" } do
      if line:find(bad, 1, true) then violate(self, "the log says: %s", line:sub(1, 400)) end
    end
  end
end

-- -- calls and their outcomes -----------------------------------------------------------------------------------------------------------

local function finish(self, call, outcome)
  if call.outcome then return violate(self, "%s has two outcomes: %s and %s", call.key, call.outcome, outcome) end
  call.outcome = outcome
  self.running[call] = nil
  self.running_count = self.running_count - 1
  call.client.running[call] = nil
  if not call.stream.on_sse then call.stream:close() end
  self.outcomes[call.n] = outcome
  count(self, "outcomes", outcome)
  count(self, call.up and call.up.name or "lists", outcome)
  if call.up and call.up.is_calm and (outcome == "not_run" or outcome == "unknown") then
    violate(self, "%s of the upstream that is never disturbed is '%s': %s", call.key, outcome, call.text)
  end
end

-- The outcome that a message gives to a call.
local function outcome_of(self, call, json)
  local result, fault = json.result, json.error
  call.text = cjson.encode(json):sub(1, 300)
  if call.tool == "list" then
    if type(result) == "table" and type(result.tools) == "table" then return "ok" end
  elseif result and not result.isError then
    local block = (result.content or {})[1]
    if block and block.text == call.key then
      call.up.is_listed = true
      return "ok"
    end
  elseif fault and fault.code == -32603 and type(fault.data) == "table" then
    count(self, "reasons of " .. tostring(fault.data.outcome), tostring(fault.data.reason))
    if fault.data.outcome == "not_run" or fault.data.outcome == "unknown" then return fault.data.outcome end
  elseif fault and fault.code == -32602 and fault.message:find "^unknown tool" and not call.up.is_listed then
    return "absent" -- the list of this upstream was never read in this life of the gateway
  end
  violate(self, "%s of %s was answered by %s", call.key, call.up and call.up.name or "the gateway", call.text)
  return "odd"
end

local ANN <const> = { action = "accept", content = { name = "Ann" } }

local function params_of(call)
  if call.tool == "list" then return {} end
  return { name = call.up.name .. "_" .. call.tool, arguments = { key = call.key }, _meta = call.tool == "steps" and { progressToken = call.key } or nil }
end

local function repeat_with_answers(call, result)
  local params = params_of(call)
  params.requestState, params.inputResponses = result.requestState, {}
  for name in pairs(result.inputRequests) do params.inputResponses[name] = ANN end
  call.stream:close()
  call.stream, call.events_seen, call.ended = call.client.c:open("tools/call", params), 0, nil
end

-- Takes one message of a call.
local function take(self, call, json)
  if json.method == "notifications/progress" then
    if json.params.progressToken ~= call.key then violate(self, "%s got progress of %s", call.key, tostring(json.params.progressToken)) end
    if call.answer then violate(self, "%s got progress after its answer", call.key) end
    if json.params.progress <= (call.progress or 0) then violate(self, "the progress of %s does not rise", call.key) end
    call.progress = json.params.progress
    self.progress = self.progress + 1
  elseif json.method == "elicitation/create" then
    self.questions = self.questions + 1
    call.client.c:post { jsonrpc = "2.0", id = json.id, result = ANN }
  elseif json.method then
    count(self, "other messages", json.method)
  elseif call.answer then
    violate(self, "%s has two answers: %s and %s", call.key, call.text, cjson.encode(json):sub(1, 300))
  elseif json.result and json.result.resultType == "input_required" then
    self.questions = self.questions + 1
    if math.random() < 0.2 then return finish(self, call, "left") end
    repeat_with_answers(call, json.result)
  else
    call.answer = outcome_of(self, call, json)
  end
end

local function poll_stream(self, call)
  local connection = call.stream.connection
  connection:messages()
  local is_over = connection.eof or connection.error
  while call.events_seen < #connection.events and call.stream.connection == connection and not call.outcome do
    call.events_seen = call.events_seen + 1
    local json = connection.events[call.events_seen].json
    if json then take(self, call, json) end
  end
  if call.outcome or call.stream.connection ~= connection then return end
  local response = connection.responses[1]
  if response and response.done then
    if not response.sse then
      local json = response:json()
      if json then take(self, call, json) end
      if call.outcome or call.stream.connection ~= connection then return end
    end
    is_over = true
    call.status = response.status
  end
  if is_over then
    if call.answer then return finish(self, call, call.answer) end
    if call.cancelled then return finish(self, call, "cancelled") end
    violate(self, "%s of %s has no answer: its connection ended (%s, status %s)", call.key, call.up and call.up.name or "the gateway",
      connection.error or "end", tostring(call.status))
    finish(self, call, "none")
  end
end

-- Messages on the stream of a client of HTTP+SSE, by the id or the token of their call.
local function poll_sse(self, client)
  local connection = client.c.stream
  connection:messages()
  local events = connection.events
  connection.events = {}
  for _, event in ipairs(events) do
    local json = event.json
    if json then
      local call
      for one in pairs(client.running) do
        if json.method and one.key == (json.params or {}).progressToken or not json.method and one.stream.id == json.id then call = one end
      end
      if call then
        take(self, call, json)
        if call.answer then
          client.answered[json.id] = true
          finish(self, call, call.answer)
        end
      elseif json.id and not json.method and client.answered[json.id] then
        violate(self, "a client of HTTP+SSE got a second answer: %s", cjson.encode(json):sub(1, 300))
      end
    end
  end
  if connection.eof or connection.error then
    violate(self, "the stream of a client of HTTP+SSE ended: %s", connection.error or "end")
    client.is_broken = true
  end
end

local function new_client(self)
  self.clients_made = self.clients_made + 1
  local revision = REVISIONS[self.clients_made % #REVISIONS + 1]
  local can_answer = self.clients_made % 3 > 0 and revision >= "2025-06-18"
  local is_there, c = pcall(self.gateway.client, self.gateway, revision, { capabilities = can_answer and { elicitation = {} } or {} })
  if not is_there then return violate(self, "a client of %s cannot begin: %s", revision, c) end
  return { c = c, revision = revision, running = {}, answered = {}, is_sse = revision == "2024-11-05", used_at = uv.hrtime() }
end

local function close_client(self, client, outcome, deletes)
  for call in pairs(client.running) do finish(self, call, outcome) end
  if deletes and client.c.session then pcall(client.c.delete, client.c) end
  client.c:close()
  client.is_closed = true
end

local TOOLS <const> = { "work", "work", "work", "look", "slow", "steps", "quest", "list" }

local function start_call(self)
  local i = math.random(#self.clients)
  local client = self.clients[i]
  if uv.hrtime() - client.used_at > UNUSED_NS then -- the session may have ended before this request reaches the gateway
    close_client(self, client, "left", true)
    client = new_client(self) or client
    self.clients[i] = client
  end
  if client.is_broken then return end
  client.used_at = uv.hrtime()
  local tool, up = TOOLS[math.random(#TOOLS)], self.upstreams[math.random(#self.upstreams)]
  if tool == "quest" and not up.asks then tool = "work" end
  self.calls = self.calls + 1
  local call = {
    n = self.calls, key = "call-" .. self.calls, tool = tool, up = tool ~= "list" and up or nil, client = client, began = self.now, events_seen = 0,
  }
  local is_sent, stream = pcall(client.c.open, client.c, tool == "list" and "tools/list" or "tools/call", params_of(call))
  if not is_sent then return violate(self, "a request could not be sent: %s", stream) end
  call.stream = stream
  self.tools[call.n], self.outcomes[call.n] = tool, "running"
  self.running[call], client.running[call] = true, true
  self.running_count = self.running_count + 1
  if #client.c.connections > 200 then -- removes the connections of calls that are over
    local open = {}
    for _, connection in ipairs(client.c.connections) do
      if not connection.tcp:is_closing() then open[#open + 1] = connection end
    end
    client.c.connections = open
  end
  local luck = math.random()
  if luck < 0.03 and not client.is_sse then
    call.leaves_at = self.now + math.random() * 0.3
  elseif luck < 0.06 and client.revision ~= "2026-07-28" and tool ~= "list" then
    call.cancels_at = self.now + math.random() * 0.3
  end
end

-- Looks at all calls: what came, who leaves, who cancels, who waits too long.
local function poll(self)
  for _, client in ipairs(self.clients) do
    if client.is_sse and not client.is_broken then poll_sse(self, client) end
  end
  local list = {}
  for call in pairs(self.running) do list[#list + 1] = call end
  for _, call in ipairs(list) do
    if not call.outcome and not call.stream.on_sse then poll_stream(self, call) end
    if call.client.is_broken and not call.outcome then finish(self, call, "none") end
    if call.outcome then
      self.polled = self.polled + 1
    elseif call.leaves_at and self.now >= call.leaves_at then
      if math.random() < 0.5 then call.stream:hang_up() else call.stream:reset() end
      finish(self, call, "left")
    elseif call.cancels_at and self.now >= call.cancels_at and not call.cancelled then
      call.cancelled = self.now
      call.client.c:notify("notifications/cancelled", { requestId = call.stream.id })
    elseif call.cancelled and self.now >= call.cancelled + CANCELLED_FOR then
      finish(self, call, "cancelled")
    elseif self.now >= call.began + ANSWER_WITHIN then
      violate(self, "%s (%s of %s) has no outcome after %d s", call.key, call.tool, call.up and call.up.name or "the gateway", ANSWER_WITHIN)
      finish(self, call, "none")
    end
  end
end

-- One turn of the loop, of at most LONGEST_TURN on the soak's clock.
local function turn(self)
  uv.run "once"
  local now = uv.hrtime()
  local passed = math.min((now - self.turned_at) / 1e9, LONGEST_TURN)
  self.turned_at, self.now = now, self.now + passed
  for i = #self.later, 1, -1 do
    local one = self.later[i]
    if self.now >= one.at then
      table.remove(self.later, i)
      one.f()
    end
  end
  poll(self)
  return passed
end

local function after(self, seconds, f) table.insert(self.later, { at = self.now + seconds, f = f }) end

-- -- disturbances -----------------------------------------------------------------------------------------------------------------------

local function kill_pid(pid, signal) uv.kill(pid, signal) end

local disturbances = {}

function disturbances.kill(self, up)
  if up.transport == "stdio" then
    local list = programs_of(up)
    if #list > 0 then kill_pid(list[math.random(#list)], "sigkill") end
    return #list > 0
  end
  up.is_busy, up.is_killed = true, true
  kill_pid(up.process.pid, "sigkill")
  after(self, 0.1 + math.random() * 2.5, function()
    close_pipes(up)
    local entry = up.entry
    start_upstream(self, up)
    up.entry = entry -- its port is the same
    up.is_busy = false
  end)
  return true
end

function disturbances.stop(self, up)
  local pid = up.process.pid
  if up.transport == "stdio" then pid = programs_of(up)[1] end
  if not pid then return false end
  up.is_busy = true
  kill_pid(pid, "sigstop")
  after(self, 0.5 + math.random() * 4, function()
    kill_pid(pid, "sigcont")
    up.is_busy = false
  end)
  return true
end

function disturbances.hang(self, up)
  up.is_busy = true
  order(up, "hang")
  after(self, 0.5 + math.random() * 4, function()
    order(up, "behave")
    up.is_busy = false
  end)
  return true
end

local function load_config(self, config)
  write(self.gateway.dir .. "/moonpool.yaml", cjson.encode(config))
  local is_answered, response = pcall(self.gateway.admin, self.gateway, "/reload", "POST")
  if not is_answered or response.status ~= 200 then
    violate(self, "a reload failed: %s", is_answered and response.status .. " " .. response.body or response)
  end
end

-- Changes what belongs to the connection, or what does not, of all upstreams.
local function reload(self)
  local config = cjson.decode(read(self.gateway.dir .. "/moonpool.yaml"))
  self.reloads = self.reloads + 1
  for _, one in pairs(config.upstreams) do
    if self.reloads % 3 == 0 then
      one.describe = { look = "Number " .. self.reloads }
    elseif one.url then
      one.headers = { ["x-number"] = "n" .. self.reloads // 3 }
    else
      one.process.env = { NUMBER = "n" .. self.reloads // 3 }
    end
  end
  load_config(self, config)
end

local KINDS <const> = { "kill", "stop", "hang", "kill", "reload", "client" }

local function disturb(self)
  local kind = KINDS[math.random(#KINDS)]
  if kind == "reload" then
    reload(self)
  elseif kind == "client" then
    local i = math.random(#self.clients)
    close_client(self, self.clients[i], "left", math.random() < 0.5)
    self.clients[i] = new_client(self) or self.clients[i]
  else
    local up = self.upstreams[math.random(2, #self.upstreams)]
    if up.is_busy or not disturbances[kind](self, up) then return end
    kind = kind .. " " .. up.transport
  end
  count(self, "disturbances", kind)
end

-- -- phases -----------------------------------------------------------------------------------------------------------------------------

local function begin_clients(self)
  self.clients = {}
  for _ = 1, CLIENTS do self.clients[#self.clients + 1] = new_client(self) end
end

local function look_at_upstreams(self)
  for _, up in ipairs(self.upstreams) do
    if up.process.code and not up.is_killed then
      violate(self, "the upstream %s ended by itself (%d, %d): %s", up.name, up.process.code, up.process.signal, read(up.folder .. "/stderr"):sub(-300))
      up.is_killed = true
    end
  end
end

-- Load for `seconds`, with disturbances every `every` seconds or so.
local function load(self, seconds, every)
  local until_when, due, next_at = self.now + seconds, 0, self.now + every
  self.turned_at = uv.hrtime()
  while self.now < until_when do
    due = math.min(due + turn(self) * self.rate, 20)
    while due >= 1 do
      due = due - 1
      if self.running_count < RUNNING then start_call(self) end
    end
    for i, client in ipairs(self.clients) do
      if client.is_broken then
        close_client(self, client, "none")
        self.clients[i] = new_client(self) or client
      end
    end
    if every > 0 and self.now >= next_at then
      next_at = self.now + every * (0.5 + math.random())
      disturb(self)
      look_at_upstreams(self)
    end
  end
end

-- Ends the load: all calls are over, all clients have left, the upstreams are well again.
local function still(self)
  self.turned_at = uv.hrtime()
  while #self.later > 0 do turn(self) end
  for _, up in ipairs(self.upstreams) do
    wait_upstream(up)
    order(up, "behave")
  end
  self.turned_at = uv.hrtime()
  while next(self.running) do turn(self) end
  for _, client in ipairs(self.clients) do close_client(self, client, "left", true) end
  self.clients = {}
end

-- The gauges that are not 0, as text; nil if all are.
local function busy_gauges(status)
  local list = {}
  local function add(prefix, value)
    if type(value) == "table" then
      for name, inner in pairs(value) do
        if not AT_REST[name] then add(prefix .. " " .. name, inner) end
      end
    elseif value ~= 0 then
      list[#list + 1] = ("%s=%s"):format(prefix:sub(2), value)
    end
  end
  add("", status.gauges)
  table.sort(list)
  return list[1] and table.concat(list, ", ")
end

-- Descriptors of the gateway, without the connections to upstreams that its HTTP client keeps open for later requests:
-- their number, and a text that has the number of each kind.
local function descriptors_of(self)
  local ports, kept = {}, {}
  for _, up in ipairs(self.upstreams) do
    if up.port then ports[("%04X"):format(up.port)] = true end
  end
  for port, inode in read("/proc/net/tcp"):gmatch ": %x+:%x+ %x+:(%x+) 01 %S+ %S+ %S+%s+%d+%s+%d+ (%d+)" do -- 01 is ESTABLISHED
    if ports[port] then kept["socket:[" .. inode .. "]"] = true end
  end
  local number, kinds, folder = 0, {}, "/proc/" .. self.gateway.pid .. "/fd"
  for name in uv.fs_scandir_next, assert(uv.fs_scandir(folder)) do
    local target = uv.fs_readlink(folder .. "/" .. name) or ""
    if not kept[target] then
      local kind = target:match "^anon_inode:(.*)$" or target:match "^%a+:" or target
      number, kinds[kind] = number + 1, (kinds[kind] or 0) + 1
    end
  end
  local list = {}
  for kind, times in pairs(kinds) do list[#list + 1] = ("%s %d"):format(kind, times) end
  table.sort(list)
  return number, table.concat(list, ", ")
end

-- Takes all upstreams out of the configuration, whose listen streams would stay otherwise, and waits until the
-- gateway is at rest. Returns its descriptors, for whose number to be at most `most` it waits, its memory, and what the
-- descriptors are. The upstreams are in the configuration again afterwards.
local function rest(self, most)
  local last
  local g = self.gateway
  local config = cjson.decode(read(g.dir .. "/moonpool.yaml"))
  local upstreams = config.upstreams
  config.upstreams = nil
  load_config(self, config)
  local function is_quiet()
    last = busy_gauges(g:status())
    return not last
  end
  if not pcall(wait.for_fact, "the gauges", PATIENCE, is_quiet) then violate(self, "gauges of the gateway at rest: %s", last) end
  local programs
  local function is_alone()
    programs = process.below(g.pid)
    return #programs == 0
  end
  if not pcall(wait.for_fact, "the programs", PATIENCE, is_alone) then
    for _, pid in ipairs(programs) do violate(self, "a process of the gateway at rest: %s %s", pid, (read("/proc/" .. pid .. "/cmdline"):gsub("%z", " "))) end
  end
  local least, kinds, memory = math.huge, "", math.huge
  local function look()
    local number, text = descriptors_of(self)
    if number < least then least, kinds = number, text end
    memory = math.min(memory, g:rss())
    return least <= (most or 0)
  end
  if most then pcall(wait.for_fact, "the descriptors", PATIENCE / 2, look) end
  for _ = 1, 20 do
    wait.quietly(0.1)
    look()
  end
  config.upstreams = upstreams
  load_config(self, config)
  for _, up in ipairs(self.upstreams) do up.is_listed = false end
  return least, memory, kinds
end

local function kill_gateway(self)
  look_at_log(self)
  self.gateway:kill()
  count(self, "disturbances", "kill of the gateway")
  for _, client in ipairs(self.clients) do close_client(self, client, "gone") end
  self.clients = {}
  local left
  local function are_gone()
    left = processes_of(self)
    return #left == 0
  end
  if not pcall(wait.for_fact, "the end of all programs", PATIENCE, are_gone) then
    for _, one in ipairs(left) do
      violate(self, "a process outlived the gateway: %s", one)
      uv.kill(math.tointeger(one:match "^%d+"), "sigkill")
    end
  end
end

-- Compares the outcomes with the journals.
local function reckon(self)
  local ran = {}
  for _, up in ipairs(self.upstreams) do
    for line in read(up.folder .. "/journal"):gmatch "[^\n]+" do
      local kind, text = line:match "^(%S+)\t(.*)$"
      if kind == "mistake" then
        violate(self, "the upstream %s saw a mistake of its client: %s", up.name, text)
      else
        local n = math.tointeger(text:match "^call%-(%d+)$")
        if not n or not self.outcomes[n] then
          violate(self, "the upstream %s ran what nobody called: %s", up.name, text)
        else
          ran[n] = (ran[n] or 0) + 1
        end
      end
    end
  end
  for n = 1, self.calls do
    local outcome, tool, times = self.outcomes[n], self.tools[n], ran[n] or 0
    if outcome and tool ~= "list" then
      local most = tool == "look" and 2 or 1 -- a tool that only reads may be called again
      if times > most then violate(self, "call-%d (%s) ran %d times; its outcome was %s", n, tool, times, outcome) end
      if outcome == "ok" and times == 0 then violate(self, "call-%d (%s) is 'ok' and never ran", n, tool) end
      if (outcome == "not_run" or outcome == "absent") and times > 0 then violate(self, "call-%d (%s) is '%s' and ran", n, tool, outcome) end
    end
  end
end

-- -- the whole --------------------------------------------------------------------------------------------------------------------------

local function last_life(self, seconds)
  load(self, math.max(4, math.min(seconds / 4, 60)), 0) -- what the gateway loads once is there
  still(self)
  local descriptors, memory, kinds = rest(self)
  self.say(("  at rest: %d descriptors (%s), %.1f MB"):format(descriptors, kinds, memory / 1e6))
  begin_clients(self)
  load(self, seconds, self.every)
  still(self)
  local descriptors_after, memory_after, kinds_after = rest(self, descriptors)
  self.say(("  at rest again: %d descriptors (%s), %.1f MB"):format(descriptors_after, kinds_after, memory_after / 1e6))
  self.figures = { descriptors = { descriptors, descriptors_after }, memory = { memory, memory_after } }
  if descriptors_after > descriptors then
    violate(self, "%d descriptors at rest, %d before: %s; before: %s", descriptors_after, descriptors, kinds_after, kinds)
  end
  local has_sanitizer = os.getenv "ASAN_OPTIONS" or os.getenv "TSAN_OPTIONS"
  if memory_after > memory + MEMORY_MORE and not has_sanitizer then
    violate(self, "%.1f MB of memory at rest, %.1f MB before", memory_after / 1e6, memory / 1e6)
  end
end

local function run_phases(self, options)
  for _, up in ipairs(self.upstreams) do start_upstream(self, up) end
  for _, up in ipairs(self.upstreams) do wait_upstream(up) end
  start_gateway(self)
  begin_clients(self)
  local lives = math.max(1, math.floor(options.seconds * 2 / 3 / options.kill_every))
  for life = 1, lives do
    load(self, options.kill_every, self.every)
    self.say(("  %.0f s: %d calls; the gateway is killed (%d of %d), %d violations"):format(self.now, self.calls, life, lives, self.violation_count))
    kill_gateway(self)
    start_gateway(self)
    begin_clients(self)
  end
  last_life(self, math.max(5, options.seconds - lives * options.kill_every))
  look_at_log(self)
  self.gateway:stop()
  local left = processes_of(self)
  for _, one in ipairs(left) do violate(self, "a process outlived the gateway: %s", one) end
  for _, up in ipairs(self.upstreams) do
    up.is_killed = true
    close_pipes(up)
    wait.for_fact(up.name .. " to end", PATIENCE, function() return up.process.code end)
  end
  reckon(self)
end

local function remove(path)
  local entries = uv.fs_scandir(path)
  while entries do
    local name, kind = uv.fs_scandir_next(entries)
    if not name then break end
    if kind == "directory" then remove(path .. "/" .. name) else uv.fs_unlink(path .. "/" .. name) end
  end
  uv.fs_rmdir(path)
end

--- Runs a soak. `options`: seconds (of load, about), kill_every (seconds between kills of the gateway, in the first two
--- thirds), rate (calls a second), every (seconds between disturbances), wrong (the part of answers that are wrong),
--- seed, say (a function that prints).
--- Returns { violations =, violation_count =, calls =, counts =, figures =, … }. Folders are removed if there is no
--- violation.
function soak.run(options)
  local self = {
    say = options.say or function() end, rate = options.rate or 80, every = options.every or 2, wrong_rate = options.wrong or 0.01, dir = gateway.new_folder(),
    upstreams = {}, clients = {}, clients_made = 0, calls = 0, running = {}, running_count = 0, outcomes = {}, tools = {}, later = {}, counts = {},
    violations = {}, violation_count = 0, progress = 0, questions = 0, reloads = 0, life = 0, polled = 0, now = 0, turned_at = uv.hrtime(),
  }
  math.randomseed(options.seed or os.time())
  for i, up in ipairs(UPSTREAMS) do
    self.upstreams[i] = {}
    for key, value in pairs(up) do self.upstreams[i][key] = value end
  end
  local ticker = uv.new_timer()
  ticker:start(5, 5, function() end)
  local is_over, why = xpcall(run_phases, debug.traceback, self, options)
  ticker:close()
  if not is_over then
    violate(self, "the soak itself failed: %s", why)
    if self.gateway then self.gateway:kill() end
    for _, up in ipairs(self.upstreams) do
      if up.process and not up.process.code then up.process.handle:kill "sigkill" end
    end
  end
  if self.violation_count == 0 then
    remove(self.gateway.dir)
    remove(self.dir)
  else
    self.say(("  logs are in %s and %s"):format(self.gateway and self.gateway.dir or "", self.dir))
  end
  return self
end

local function sorted(t)
  local names = {}
  for name in pairs(t) do names[#names + 1] = name end
  table.sort(names)
  return names
end

--- The report as text.
function soak.describe(self)
  local out = {
    ("%d calls, %d messages of progress, %d questions, %d reloads, %d lives of the gateway, %.0f s"):format(
      self.calls, self.progress, self.questions, self.reloads, self.life, self.now),
  }
  for _, group in ipairs(sorted(self.counts)) do
    local parts = {}
    for _, name in ipairs(sorted(self.counts[group])) do parts[#parts + 1] = ("%s %d"):format(name, self.counts[group][name]) end
    out[#out + 1] = ("  %-24s %s"):format(group, table.concat(parts, ", "))
  end
  local f = self.figures
  if f then
    out[#out + 1] = ("  %-24s %d descriptors and %.1f MB before the last load, %d and %.1f MB after it"):format("at rest",
      f.descriptors[1], f.memory[1] / 1e6, f.descriptors[2], f.memory[2] / 1e6)
  end
  out[#out + 1] = self.violation_count == 0 and "no violation" or self.violation_count .. " violations:"
  for _, text in ipairs(self.violations) do out[#out + 1] = "  " .. text end
  return table.concat(out, "\n")
end

return soak
