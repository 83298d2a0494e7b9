-- Every request of the protocol, its client gone at every point of its life: over HTTP/1.1, HTTP/2 and stdio, in all
-- revisions.
--   local report = gone.run { seconds = 600, seed = 1, say = print }     -- report.violations is empty if all is well
-- A visitor chooses a revision, a transport, a request and a point: before the end of its head or body, right after it,
-- some milliseconds later (while it is authenticated, decoded, or handled, or an upstream has it), when some bytes or a
-- question or the whole answer has come. Then it leaves: by FIN, RST, RST_STREAM, GOAWAY, or as a process that ends. At
-- the end all gauges of the gateway are 0, and it has neither crashed nor complained.
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local http2 = require "spec.helpers.http2"
local upstream = require "spec.helpers.upstream"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local gone = {}

local VISITORS <const>, STDIO <const> = 24, 1 -- clients, and processes of `moonpool stdio`, at the same time
local PATIENCE <const> = 60
local SESSIONS <const> = 8 -- sessions that one principal may have: so few that some clients are refused
local WITHIN <const> = 5 -- seconds after which a session ends if it is not known whether its client has the answer
local SHOWN <const> = 20

local REVISIONS <const> = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" }

local scripts = {
  ["auth/main.lua"] = [[
return auth { function(request)
  local token = request.bearer or "anonymous"
  if token:find "^slow" then sleep(0.01) end
  if token:find "^bad" then return nil, "no" end
  return { id = token, scopes = { "all" } }
end }]],
  ["policy/pause.lua"] = 'return policy { tools = { "paused" }, function(call, next) sleep(0.01) local answer = next(call) sleep(0.01) return answer end }',
  ["tools/quick.lua"] = 'return tool { "Quick.", input = { text = t.string { default = "" } }, function(args) return args.text end }',
  ["tools/paused.lua"] = 'return tool { "Paused.", function() return "paused" end }',
  ["tools/slow.lua"] = [[return tool { "Slow.", function(_, call)
  local _ <close> = closing(function() sleep(0.002) end)
  for i = 1, 5 do call:progress(i, 5) sleep(0.01) end
  return "slow"
end }]],
  ["tools/large.lua"] = 'return tool { "Large.", function() return ("x"):rep(300000) end }',
  ["tools/job.lua"] = 'return tool { "Job.", task = "optional", function(_, call) call:status "at work" sleep(0.05) return "done" end }',
  ["tools/ask.lua"] = [[return tool { "Ask.", function(_, call)
  local yes, why = call:elicit("sure", "Sure?", { yes = t.boolean })
  return yes and "yes" or "no: " .. tostring(why)
end }]],
  ["tools/sample.lua"] = 'return tool { "Sample.", function(_, call) return try(call:sample("thought", "What?")).content.text end }',
  ["tools/roots.lua"] = 'return tool { "Roots.", function(_, call) return tostring(#try(call:roots("roots"))) end }',
  ["tools/change.lua"] = [[return tool { "Change.", function()
  local f = enabled("tool", "quick") and disable or enable
  f("tool", "paused")
  enable("tool", "paused")
  resource_updated "note://one"
  return "changed"
end }]],
  ["resources/note.lua"] = 'return resource { "A note.", uri = "note://one", function() sleep(0.005) return "text" end }',
  ["prompts/hello.lua"] = 'return prompt { "Hello.", function() sleep(0.005) return "hello" end }',
}

-- -- requests --------------------------------------------------------------------------------------------------------------------

local LARGE <const> = ("[12345],"):rep(45000)
local CAPABILITIES <const> = '{"elicitation":{"form":{}},"sampling":{},"roots":{}}'

local function tool(name, arguments) return "tools/call", ('{"name":"%s","arguments":%s'):format(name, arguments or "{}") end

-- Each gives a method and the params without their last brace. `since` and `till`: revisions that have it.
local requests = {
  { f = function() return "ping", "{" end, till = "2025-11-25" }, { f = function() return "server/discover", "{" end, since = "2026-07-28" },
  { f = function() return "tools/list", "{" end }, { f = function() return "resources/list", "{" end }, { f = function() return "prompts/list", "{" end },
  { f = function() return "resources/templates/list", "{" end }, { f = function() return "resources/read", '{"uri":"note://one"' end },
  { f = function() return "prompts/get", '{"name":"hello"' end },
  { f = function() return "completion/complete", '{"ref":{"type":"ref/prompt","name":"hello"},"argument":{"name":"a","value":""}' end },
  { f = function() return "logging/setLevel", '{"level":"debug"' end, till = "2025-11-25" },
  { f = function() return "resources/subscribe", '{"uri":"note://one"' end, till = "2025-11-25" },
  { f = function() return "resources/unsubscribe", '{"uri":"note://one"' end, till = "2025-11-25" },
  { f = function() return "subscriptions/listen", '{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["note://one"]}' end, since = "2026-07-28",
    often = 3 },
  { f = function() return "tasks/list", "{" end, since = "2025-11-25", till = "2025-11-25" },
  { f = function() return "tasks/get", '{"taskId":"none"' end, since = "2025-11-25" },
  { f = function() return "tasks/result", '{"taskId":"none"' end, since = "2025-11-25", till = "2025-11-25" },
  { f = function() return "tasks/cancel", '{"taskId":"none"' end, since = "2025-11-25" },
  { f = function() return "tasks/update", '{"taskId":"none","inputResponses":{}' end, since = "2026-07-28" },
  { f = function() return "tools/call", '{"name":"job","arguments":{},"task":{"ttl":200}' end, since = "2025-11-25", till = "2025-11-25" },
  { f = function() return tool "job" end, since = "2026-07-28", task = true },
  { f = function() return tool "quick" end }, { f = function() return tool("quick", '{"text":"x","extra":[' .. LARGE .. "1]}") end, often = 2 },
  { f = function() return tool "paused" end }, { f = function() return tool "slow" end, often = 2 }, { f = function() return tool "large" end },
  { f = function() return tool "ask" end, often = 4 }, { f = function() return tool "sample" end, often = 2 }, { f = function() return tool "roots" end },
  { f = function() return tool "change" end }, { f = function() return tool "none" end },
  { f = function() return tool("hold", '{"key":"x"}') end, often = 2 }, { f = function() return tool("echo", '{"text":"x"}') end },
  { f = function() return "no/such", "{" end },
}

local by_revision = {}
for _, revision in ipairs(REVISIONS) do
  local list = {}
  for _, request in ipairs(requests) do
    local has = revision >= (request.since or revision) and revision <= (request.till or revision)
    for _ = 1, has and request.often or (has and 1 or 0) do list[#list + 1] = request end
  end
  by_revision[revision] = list
end

local function initialize(revision, is_large)
  return ('{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"%s","capabilities":%s,"clientInfo":{"name":"gone","version":"1"}%s}}')
    :format(revision, CAPABILITIES, is_large and ',"extra":[' .. LARGE .. "1]" or "")
end

-- A message of a revision, and the headers that go with it over HTTP.
local function message_of(self, revision)
  local request = by_revision[revision][self.random(#by_revision[revision])]
  local method, params = request.f()
  self.ids = self.ids + 1
  local meta = revision < "2026-07-28" and ('"_meta":{"progressToken":%d}'):format(self.ids)
    or ('"_meta":{"progressToken":%d,"io.modelcontextprotocol/protocolVersion":"%s","io.modelcontextprotocol/clientCapabilities":%s}'):format(self.ids,
      revision, request.task and '{"extensions":{"io.modelcontextprotocol/tasks":{}}}' or CAPABILITIES)
  params = params .. (#params > 1 and "," or "") .. meta .. "}"
  local text = ('{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}'):format(self.ids, method, params)
  if revision == "2025-03-26" and self.random(4) == 1 then
    text = ('[%s,{"jsonrpc":"2.0","id":%d,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}]'):format(text, self.ids + 1000000)
  end
  local headers = {}
  if revision >= "2025-06-18" then headers["mcp-protocol-version"] = revision end
  if revision >= "2026-07-28" then
    headers["mcp-method"] = method
    local named = method == "tools/call" or method == "prompts/get"
    local mirrored = cjson.decode(params)
    headers["mcp-name"] = named and mirrored.name or method == "resources/read" and mirrored.uri or mirrored.taskId
  end
  return text, headers, method
end

-- -- visitors: coroutines that wait for their connection -----------------------------------------------------------------------------

local function count(self, name) self.counts[name] = (self.counts[name] or 0) + 1 end

-- Runs the loop until `fact()` or `ms` have passed; gives the fact's value.
local function await(ms, fact)
  local co, timer = coroutine.running(), uv.new_timer()
  local until_when, value = uv.now() + ms, nil
  local function look()
    value = fact and fact()
    if value or uv.now() >= until_when then
      timer:stop()
      timer:close()
      assert(coroutine.resume(co))
    end
  end
  timer:start(0, 1, look)
  coroutine.yield()
  return value
end

local connection = {}
connection.__index = connection

local function connect(self)
  local it = setmetatable({ tcp = uv.new_tcp(), got = "" }, connection)
  it.tcp:connect("127.0.0.1", self.g.port, function(err)
    it.failed, it.is_open = err, not err
    if err then return end
    it.tcp:read_start(function(fault, bytes)
      if bytes then it.got = it.got .. bytes else it.failed = fault or "EOF" end
    end)
  end)
  await(5000, function() return it.is_open or it.failed end)
  if not it.is_open then
    self.refused = self.refused + 1
    it:leave "close"
    return nil
  end
  return it
end

function connection:write(bytes)
  if not self.tcp:is_closing() then self.tcp:write(bytes, function() self.is_sent = true end) end
end

-- All that was written is with the kernel.
function connection:flush()
  await(2000, function() return self.tcp:is_closing() or self.failed or self.tcp:get_write_queue_size() == 0 end)
end

function connection:leave(how)
  if self.tcp:is_closing() then return end
  if how == "RST" and self.is_open then
    self.tcp:close_reset()
  elseif how == "half" and self.is_open and not self.failed then
    self.tcp:shutdown(function() end)
    await(200, function() return self.failed end)
    if not self.tcp:is_closing() then self.tcp:close() end
  else
    self.tcp:close()
  end
end

local function http1(method, path, headers, body)
  local lines = { method .. " " .. path .. " HTTP/1.1", "host: 127.0.0.1", "accept: application/json, text/event-stream" }
  for name, value in pairs(headers) do lines[#lines + 1] = name .. ": " .. value end
  if body then
    lines[#lines + 1] = "content-type: application/json"
    lines[#lines + 1] = "content-length: " .. #body
  end
  return table.concat(lines, "\r\n") .. "\r\n\r\n" .. (body or "")
end

local function http2_of(method, path, headers, body)
  local all = { accept = "application/json, text/event-stream", ["content-type"] = body and "application/json" or nil }
  for name, value in pairs(headers) do all[name] = value end
  local block = http2.block(http2.fields { method = method, path = path, headers = all })
  local parts = { http2.frame(http2.HEADERS, http2.END_HEADERS | (body and 0 or http2.END_STREAM), 1, block) }
  for at = 1, body and #body or 0, 16384 do
    parts[#parts + 1] = http2.frame(http2.DATA, at + 16384 > #body and http2.END_STREAM or 0, 1, body:sub(at, at + 16383))
  end
  return table.concat(parts)
end

-- Waits for the point of a life, whose request is `text`, and sends as much of it.
local POINTS <const> = { "head", "body", "at once", "at once", "soon", "soon", "later", "first byte", "event", "question", "answer" }

local function live(self, c, text)
  local point = POINTS[self.random(#POINTS)]
  count(self, point)
  local head = text:find("\r\n\r\n", 1, true) or 40
  if point == "head" then
    c:write(text:sub(1, self.random(math.min(head, #text))))
  elseif point == "body" then
    c:write(text:sub(1, self.random(math.min(head, #text), #text)))
  else
    c:write(text)
  end
  c:flush()
  local begun = #c.got
  if point == "soon" then
    await(self.random(0, 6))
  elseif point == "later" then
    await(self.random(6, 60))
  elseif point == "first byte" then
    await(300, function() return #c.got > begun or c.failed end)
  elseif point == "event" then
    await(300, function() return c.got:find("data: {", begun + 1, true) or c.failed end)
  elseif point == "question" then
    await(300, function()
      return c.failed or c.got:find('"elicitation/create"', begun + 1, true) or c.got:find("sampling/createMessage", begun + 1, true)
        or c.got:find("input_required", begun + 1, true) or c.got:find("roots/list", begun + 1, true)
    end)
  elseif point == "answer" then
    await(300, function() return c.got:find('"id":%d+,"?[re]', begun + 1) or c.failed end)
  end
end

local TOKENS <const> = { "ann", "bob", "slow-ann", "slow-bob", "bad" }
local WAYS <const> = { "close", "RST", "half" }
local H2_WAYS <const> = { "RST_STREAM", "GOAWAY", "close", "RST", "half" }

-- One request over HTTP/1.1 or HTTP/2, whose client leaves; gives what it has read.
local function visit(self, method, path, headers, body)
  local c = connect(self)
  if not c then return end
  if self.random(3) > 1 then
    live(self, c, http1(method, path, headers, body))
    c:leave(WAYS[self.random(#WAYS)])
    return c.got
  end
  local window = self.random(4) == 1 and 0 or 65535
  c:write(http2.preface .. http2.settings { [http2.INITIAL_WINDOW_SIZE] = window })
  local text, way = http2_of(method, path, headers, body), H2_WAYS[self.random(#H2_WAYS)]
  if way == "RST_STREAM" and self.random(2) == 1 then
    c:write(text .. http2.rst(1))
  else
    live(self, c, text)
    if way == "RST_STREAM" then c:write(http2.rst(1)) end
    if way == "GOAWAY" then c:write(http2.frame(http2.GOAWAY, 0, 0, (">I4I4"):pack(0, http2.INTERNAL_ERROR))) end
  end
  c:flush()
  if way == "RST_STREAM" then await(self.random(0, 3)) end
  c:leave(way)
  return c.got
end

-- One whole exchange on a connection of its own; gives the bytes of the answer.
local function ask(self, method, path, headers, body)
  local c = connect(self)
  if not c then return "" end
  headers.connection = "close"
  c:write(http1(method, path, headers, body))
  await(10000, function() return c.failed end)
  c:leave "close"
  return c.got
end

local function in_session(self, revision)
  local token = TOKENS[self.random(4)]
  local id = ask(self, "POST", "/mcp", { authorization = "Bearer " .. token }, initialize(revision)):match "[Mm]cp%-[Ss]ession%-[Ii]d: (%x+)"
  if not id then return count(self, "no session") end
  local function headers(more)
    local all = { authorization = "Bearer " .. token, ["mcp-session-id"] = id }
    for name, value in pairs(more or {}) do all[name] = value end
    return all
  end
  for _ = 1, self.random(6) do
    if self.random(6) == 1 then
      visit(self, "GET", "/mcp", headers { ["mcp-protocol-version"] = revision })
    else
      local text, more = message_of(self, revision)
      if self.random(5) == 1 then -- its session ends meanwhile
        coroutine.wrap(function()
          await(self.random(0, 30))
          ask(self, "DELETE", "/mcp", headers())
        end)()
      end
      visit(self, "POST", "/mcp", headers(more), text)
    end
  end
  if self.random(4) == 1 then visit(self, "DELETE", "/mcp", headers()) end
  ask(self, "DELETE", "/mcp", headers())
end

-- A client of 2024-11-05: its stream, and POSTs whose answers come on it.
local function on_sse(self)
  local token = TOKENS[self.random(4)]
  local headers = { authorization = "Bearer " .. token }
  if self.random(3) == 1 then return visit(self, "GET", "/sse", headers) end
  local c = connect(self)
  if not c then return end
  c:write(http1("GET", "/sse", headers))
  local path = await(5000, function() return c.failed and "" or c.got:match "event: endpoint\r?\ndata: (%S+)" end)
  if path and path ~= "" then
    if self.random(4) == 1 then
      visit(self, "POST", path, headers, initialize("2024-11-05", self.random(2) == 1))
    else
      ask(self, "POST", path, headers, initialize "2024-11-05")
    end
    for _ = 1, self.random(4) do
      local text = message_of(self, "2024-11-05")
      if self.random(2) == 1 then visit(self, "POST", path, headers, text) else ask(self, "POST", path, headers, text) end
    end
    await(self.random(0, 40))
  end
  c:leave(WAYS[self.random(#WAYS)])
end

local function journey(self)
  local revision = REVISIONS[self.random(#REVISIONS)]
  local token = TOKENS[self.random(#TOKENS)]
  count(self, revision)
  if revision == "2024-11-05" then
    on_sse(self)
  elseif revision == "2026-07-28" then
    local text, headers = message_of(self, revision)
    headers.authorization = "Bearer " .. token
    visit(self, "POST", "/mcp", headers, text)
  elseif self.random(3) == 1 then
    local got = visit(self, "POST", "/mcp", { authorization = "Bearer " .. token }, initialize(revision, self.random(2) == 1))
    local id = (got or ""):match "[Mm]cp%-[Ss]ession%-[Ii]d: (%x+)"
    if id then
      ask(self, "DELETE", "/mcp", { authorization = "Bearer " .. token, ["mcp-session-id"] = id })
    elseif (got or ""):find('"serverInfo"', 1, true) then
      self.kept = self.kept + 1 -- over HTTP/2 the id is compressed
    else
      self.abandoned = self.abandoned + 1
    end
  else
    in_session(self, revision)
  end
end

-- -- stdio: the client's process is gone ----------------------------------------------------------------------------------------------

local function violate(self, text)
  self.violation_count = self.violation_count + 1
  if #self.violations < SHOWN then self.violations[#self.violations + 1] = text end
  self.say("  ! " .. text)
end

local BAD <const> = { "internal error", "stack traceback", "AddressSanitizer", "ThreadSanitizer", "LeakSanitizer", "runtime error:", "Assertion `" }

local function look_at_log(self, log)
  for line in log:gmatch "[^\n]+" do
    for _, bad in ipairs(BAD) do
      if line:find(bad, 1, true) then return violate(self, "the log says: " .. line:sub(1, 300)) end
    end
  end
end

local function over_stdio(self)
  local dir = gateway.prepare { scripts = self.stdio_scripts, config = { limits = { call = { time = "1s" }, drain = "500ms" }, auth = "none" } }
  local input, out = uv.new_pipe(false), uv.new_pipe(false)
  local process = gateway.spawn(uv.fs_realpath(gateway.binary), { "stdio", "moonpool.yaml" }, dir, { cwd = dir, stdin = input, stdout = out })
  local got, is_reading = "", true
  out:read_start(function(_, bytes) got = got .. (bytes or "") end)
  local revision = REVISIONS[self.random(#REVISIONS)]
  local lines = {}
  if revision < "2026-07-28" then lines[1] = initialize(revision, self.random(3) == 1) end
  for _ = 1, self.random(8) do lines[#lines + 1] = message_of(self, revision) end
  local text = table.concat(lines, "\n") .. "\n"
  if self.random(3) == 1 then text = text:sub(1, self.random(#text)) end
  input:write(text, function() end)
  if self.random(3) > 1 then await(10000, function() return #got > 0 or process.code end) end
  await(self.random(0, 40))
  local way = self.random(4)
  if way == 1 and is_reading then
    out:read_stop()
    out:close()
  elseif way == 2 then
    uv.kill(process.pid, "sigterm")
  end
  await(self.random(0, 10))
  if not input:is_closing() then input:close() end
  if not await(20000, function() return process.code end) then
    violate(self, "moonpool stdio does not end after its client has left")
    uv.kill(process.pid, "sigkill")
    await(5000, function() return process.code end)
  elseif process.signal ~= 0 or process.code == 99 then
    if not (way == 2 and process.signal == 15) then violate(self, ("moonpool stdio ended with code %d and signal %d"):format(process.code, process.signal)) end
  end
  if not out:is_closing() then out:close() end
  local file <close> = io.open(dir .. "/stderr", "rb")
  look_at_log(self, file and file:read "a" or "")
  gateway.run_program("/bin/rm", { "-rf", dir })
  self.processes = self.processes + 1
end

-- -- the whole -----------------------------------------------------------------------------------------------------------------------

local AT_REST <const> = require "spec.helpers.at_rest" {
  upstream_catalogue_bytes = true, body_bytes = true, upstream_listen_streams = true, upstream_channels = true,
}

local function busy_gauges(status)
  local list = {}
  local function add(prefix, value)
    for name, inner in pairs(value) do
      if AT_REST[name] then -- luacheck: ignore 542
      elseif type(inner) == "table" then add(prefix .. name .. " ", inner)
      elseif inner ~= 0 then list[#list + 1] = ("%s%s=%s"):format(prefix, name, inner) end
    end
  end
  add("", status.gauges)
  table.sort(list)
  return list[1] and table.concat(list, ", ")
end

-- Takes the upstreams out of the configuration, whose listen streams would stay otherwise.
local function drop_upstreams(self)
  local path = self.g.dir .. "/moonpool.yaml"
  local file <close> = assert(io.open(path, "rb"))
  local config = cjson.decode(file:read "a")
  config.upstreams = nil
  local out <close> = assert(io.open(path, "wb"))
  out:write(cjson.encode(config))
  out:flush()
  local response = self.g:admin("/reload", "POST")
  if response.status ~= 200 then violate(self, "a reload failed: " .. response.body) end
end

-- No session may be left of clients that left before they had the answer to `initialize`: it ends before it is idle.
local function look_at_sessions(self)
  pcall(self.g.wait_status, self.g, function(status)
    self.left = math.max(0, status.gauges.sessions.http + (status.counters.sessions_closed.idle or 0) - self.kept)
    return self.left == 0
  end, 3 * WITHIN)
  if self.g:is_alive() and self.left > 0 then
    violate(self, ("%d sessions are left of %d clients without an answer"):format(self.left, self.abandoned))
  end
end

local function rest(self)
  local last
  if self.g:is_alive() then look_at_sessions(self) end
  if self.g:is_alive() then drop_upstreams(self) end
  local ok = pcall(wait.for_fact, "the gauges", PATIENCE, function()
    if not self.g:is_alive() then return true end
    last = busy_gauges(self.g:status())
    return not last
  end)
  if not self.g:is_alive() then
    violate(self, "the gateway has ended: " .. self.g:log():sub(-1500))
  elseif not ok then
    violate(self, "gauges of the gateway at rest: " .. last)
  end
end

-- `visitor(self)` again and again, as a coroutine, until the time is over and the least number of lives has passed.
local function begin(self, visitor)
  self.running = self.running + 1
  local co = coroutine.create(function()
    await(1)
    while (uv.hrtime() < self.until_when or self.lives < self.least) and self.violation_count == 0 and self.refused < 50 do
      visitor(self)
      self.lives = self.lives + 1
    end
    self.running = self.running - 1
  end)
  assert(coroutine.resume(co))
end

-- `options`: seconds, least (lives, however long they take; 0), seed, say, visitors, stdio (processes at once; 0: none).
function gone.run(options)
  local seed = options.seed or os.time()
  math.randomseed(seed)
  local self = {
    random = math.random, counts = {}, violations = {}, violation_count = 0, lives = 0, least = options.least or 0, processes = 0,
    refused = 0, abandoned = 0, kept = 0,
    ids = 1, running = 0,
    say = options.say or function() end, seed = seed,
  }
  self.say(("  seed %d"):format(seed))
  self.stdio_scripts = {}
  for path, text in pairs(scripts) do
    if not path:find "^auth" then self.stdio_scripts[path] = text end
  end
  local u <close> = setmetatable({}, { __close = function(it) it.stub:close() end })
  u.stub = upstream.start { revision = "2025-06-18", transport = "http" }
  local entries = upstream.entries({ one = u.stub }, upstream.plain { one = u.stub })
  for _, entry in pairs(entries) do entry.timeout = "500ms" end
  self.g = gateway.start { workers = 2, scripts = scripts, constants = { initialize_within_ms = WITHIN * 1000 }, config = {
    listen = { { address = "127.0.0.1:0", http2 = "on" } }, upstreams = entries,
    sessions = { max = 100000, per_principal = SESSIONS, idle = 4 * WITHIN .. "s" },
    limits = { call = { time = "1s" } }, heartbeat = "60s",
  } }
  local _ <close> = setmetatable({}, { __close = function()
    if self.g:is_alive() then self.g:kill() end
    gateway.run_program("/bin/rm", { "-rf", self.g.dir })
  end }) -- luacheck: ignore 211
  self.until_when = uv.hrtime() + options.seconds * 1e9
  for _ = 1, options.visitors or VISITORS do begin(self, journey) end
  for _ = 1, options.stdio or STDIO do begin(self, over_stdio) end
  while self.running > 0 and self.g:is_alive() do uv.run "once" end
  rest(self)
  look_at_log(self, self.g:log())
  if self.g:is_alive() then
    self.status = self.g:status()
    local ok, why = pcall(self.g.stop, self.g) -- fails on a report of a sanitizer, too
    if not ok then violate(self, tostring(why)) end
  end
  return self
end

function gone.describe(report)
  local lines, names = {}, {}
  for name in pairs(report.counts) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do lines[#lines + 1] = ("%s %d"):format(name, report.counts[name]) end
  local calls = report.status and report.status.counters.calls or 0
  local head = ("seed %d: %d lives, %d processes of stdio, %d calls, %d sessions left of %d clients without an answer"):format(report.seed, report.lives,
    report.processes, calls, report.left or -1, report.abandoned)
  return ("%s; %s\n%d violations\n%s"):format(head, table.concat(lines, ", "), report.violation_count, table.concat(report.violations, "\n"))
end

return gone
