-- What `./dev soak upgrades` watches beside the calls: clients made with the official SDKs, counters of /metrics, event
-- streams that are left and resumed, and keys of the store. Each has start(self), which gives something with `stop()`;
-- `self` is the run, `self.fail(text, …)` counts a violation.
local cjson = require "cjson.safe"
local channels = require "spec.soak.channels"
local children = require "spec.helpers.children"
local node = require "spec.helpers.node"
local upgrading = require "spec.helpers.upgrading"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local watch = {}

local PATIENCE <const> = 60

--- Whether a call whose HTTP answer this is found the store's owner away.
function watch.is_away(answer)
  local text = answer and answer:match '"text":"(%l+)"'
  return text ~= nil and upgrading.is_away(text)
end

local function every(ms, f)
  local timer = uv.new_timer()
  timer:start(ms, ms, f)
  return timer
end

-- -- clients of the official SDKs ------------------------------------------------------------------------------------------------

--- They call `sdk` every `ms`. The result of stop() is their sum: { calls, away, connected, failures }.
function watch.sdks(self, ms)
  local g, rest, sum, code = self.g, "", nil, nil
  local input, output = uv.new_pipe(false), uv.new_pipe(false)
  local handle, pid
  handle, pid = uv.spawn(node.path, {
    args = { node.folder .. "/upgraded.mjs", uv.fs_realpath "spec/upstreams", g.url, g.sse_url, ("https://localhost:%d/mcp"):format(self.tls_port),
      tostring(ms) },
    stdio = { input, output, 2 }, cwd = node.folder, env = { "PATH=" .. os.getenv "PATH", "HOME=/tmp", "NODE_EXTRA_CA_CERTS=" .. g.dir .. "/cert.pem" },
  }, function(exit)
    code = exit
    children.alive[pid] = nil
    handle:close()
  end)
  assert(handle, pid)
  children.alive[pid] = true
  output:read_start(function(_, bytes)
    if not bytes then return output:close() end
    rest = rest .. bytes
    for line in rest:gmatch "([^\n]*)\n" do
      local said = cjson.decode(line) or { why = line }
      if said.sum then
        sum = said.sum
      else
        self.fail("%s, at %s of %s: %s", said.who, said.at, said.doing, said.why)
      end
    end
    rest = rest:match "[^\n]*$"
  end)
  return { stop = function()
    input:close()
    wait.for_fact("the clients of the SDKs to end", PATIENCE, function() return code and output:is_closing() end)
    if not sum then self.fail("the clients of the SDKs ended with code %d", code) end
    return sum or { calls = 0, away = 0, connected = 0 }
  end }
end

-- -- counters --------------------------------------------------------------------------------------------------------------------

--- Reads /metrics every `ms`: no counter falls, and none vanishes.
function watch.counters(self, ms)
  local last, is_asking, reads = {}, false, 0
  local reader = channels.http1({ port = self.g.admin_port }, function() end)
  reader.connects = true
  local request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
  local timer = every(ms, function()
    if is_asking then return end
    is_asking = true
    reader:send(request, function(answer, why)
      is_asking = false
      if not answer then return self.fail("no /metrics: %s", why) end
      local now = {}
      for name, value in answer:gmatch "\n([%w_]+_total[^\n]-) ([%d.e+]+)%f[\r\n]" do now[name] = tonumber(value) end
      for name, value in pairs(last) do
        if not now[name] or now[name] < value then self.fail("the counter %s fell from %g to %s", name, value, now[name]) end
      end
      last, reads = now, reads + 1
    end)
  end)
  return { stop = function()
    timer:close()
    wait.for_fact("/metrics", PATIENCE, function() return not is_asking end)
    local count = 0
    for _ in pairs(last) do count = count + 1 end
    return { reads = reads, counters = count }
  end }
end

-- -- events ----------------------------------------------------------------------------------------------------------------------

local HEAD <const> = "Host: localhost\r\nAccept: application/json, text/event-stream\r\nMcp-Session-Id: %s\r\nMCP-Protocol-Version: 2025-11-25\r\n"

local call_steps

-- A stream of the call: of its request, or one that resumes it after the event `reader.last`.
local function follow(self, reader, request)
  reader.connection = channels.events({ port = self.g.port }, request, function(event) reader:take(event) end, function(why)
    self.fail("an event stream ended after step %d: %s", reader.step, why)
    reader.is_over = true
  end)
end

local function take_event(self, reader, event)
  reader.last = event.id or reader.last
  local json = type(event.json) == "table" and event.json or {}
  if json.method == "notifications/progress" then
    if json.params.progress ~= reader.step + 1 then
      self.fail("after step %d an event stream gave step %s", reader.step, json.params.progress)
    end
    reader.step = json.params.progress
    self.events = self.events + 1
  elseif json.id then
    if reader.step ~= reader.steps then self.fail("an event stream gave %d of %d steps, and %s", reader.step, reader.steps, event.data) end
    reader.connection:close()
    if self.is_over then reader.is_over = true else call_steps(self, reader) end
  end
end

function call_steps(self, reader)
  reader.step, reader.last = 0, nil
  local body = cjson.encode { jsonrpc = "2.0", id = 1, method = "tools/call",
    params = { name = "steps", arguments = { n = reader.steps }, _meta = { progressToken = "t" } } }
  follow(self, reader, ("POST /mcp HTTP/1.1\r\n" .. HEAD .. "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s")
    :format(reader.session, #body, body))
end

-- Leaves the stream, and resumes it on another connection.
local function come_back(self, reader)
  if reader.is_over or not reader.last then return end
  reader.connection:close()
  self.resumed = self.resumed + 1
  follow(self, reader, ("GET /mcp HTTP/1.1\r\n" .. HEAD .. "Last-Event-ID: %s\r\n\r\n"):format(reader.session, reader.last))
end

--- `count` sessions with a call of 50 steps, one after the other, whose clients leave the stream about every 2 s.
function watch.events(self, count)
  local readers, at = {}, 0
  for i = 1, count do
    local c = self.g:client "2025-11-25"
    self.readers[#self.readers + 1] = c
    readers[i] = { session = c.session, steps = 50, take = function(reader, event) take_event(self, reader, event) end }
    call_steps(self, readers[i])
  end
  local timer = every(2000 // count, function()
    at = at % count + 1
    come_back(self, readers[at])
  end)
  return { stop = function()
    timer:close()
    wait.for_fact("the last steps", PATIENCE, function()
      for _, reader in ipairs(readers) do
        if not reader.is_over then return false end
      end
      return true
    end)
  end }
end

-- -- keys ------------------------------------------------------------------------------------------------------------------------

local KEYS <const> = 100

--- Sets keys through sessions of all processes, one after the other. `request_of(session, name, arguments)` makes a
--- request. stop() gives the model: for each key what it may be.
function watch.keys(self, request_of)
  local model, number, writer = {}, 0, channels.http1({ port = self.g.port }, function() end)
  writer.connects = true
  local is_asking = false
  local timer = every(20, function()
    if is_asking then return end
    number, is_asking = number + 1, true
    local key, value = "k" .. number * 7919 % KEYS, tostring(number)
    local c = self.sessions[number % math.max(#self.sessions, 1) + 1]
    local session = c and c.session and c or nil
    writer:send(request_of(session and session.session, session and session.revision, "set", { key = key, value = value }), function(answer, why)
      is_asking = false
      if answer and answer:find('"text":"set"', 1, true) then
        model[key] = { [value] = true }
      elseif watch.is_away(answer) then
        model[key] = model[key] or { ["nil"] = true }
        model[key][value] = true
      else
        self.fail("a key was not set: %s", why or answer)
      end
    end)
  end)
  return { stop = function()
    timer:close()
    wait.for_fact("the last key", PATIENCE, function() return not is_asking end)
    return model
  end }
end

--- `text`: what the tool `keys` has said. Violations are told of `who`.
function watch.compare(self, model, text, who)
  local has = {}
  for key, value in text:gmatch "(k%d+)=(%d+)" do has[key] = value end
  for key, values in pairs(model) do
    if not values[has[key] or "nil"] then self.fail("%s is %s for %s, and was set to %s", key, has[key], who, next(values)) end
  end
end

return watch
