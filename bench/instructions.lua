-- instructions.lua: user-space instructions of one request, by its shape. `./dev bench instructions [--check |
-- --record] [SHAPE…]` calls it.
-- The gateway runs under callgrind with one worker and one keep-alive connection; a command of valgrind's vgdb sets the
-- count to 0 before the requests, and another one writes it down behind them.
-- Shapes with an upstream, and those that are observed otherwise than by metrics, are measured when they are named: the
-- former need build/release/bench_upstream. They have no recorded figure, and each has a gateway of its own.
-- A request is sent when the worker sleeps, so that each takes the same number of turns; and the worker's thread alone
-- counts, but where a request is observed: what other threads do once a second is more per request on a busy machine.
-- --check compares with bench/instructions.txt and fails above ALLOWED; a shape above it is measured up to TRIES times
-- in all, and the lowest figure counts. --record writes that file.
-- The shape `start` is a whole process with one worker: its start, one request and its end. Each module of Lua adds to
-- it, so it may grow more.
local uv = require "luv"
local lfs = require "lfs"
local beneath = require "bench.beneath"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local signing_in = require "spec.helpers.signing_in"
local wait = require "spec.helpers.wait"

local COUNT <const> = 2000 -- requests
local WARM <const> = 50 -- requests, before as many others show which thread is the worker
local TRIES <const> = 5
local PATIENCE_NS <const> = 2e9
local ALLOWED <const> = 1.03 -- times the recorded figure
local TOKEN <const> = ("o"):rep(32)
local RECORDED <const> = "bench/instructions.txt" -- lines of "SHAPE INSTRUCTIONS"

local scripts = {
  ["tools/add.lua"] = "--- Add.\n---@param a number\n---@param b number\nreturn function(a, b) return a + b end",
  ["tools/add_table.lua"] = 'return tool { "Add.", input = { a = t.number, b = t.number }, function(args) return args.a + args.b end }',
  ["tools/add_call.lua"] = 'return tool { "Add.", input = { a = t.number, b = t.number }, function(args, call) return args.a + args.b end }',
  ["tools/greet.lua"] = '--- Greet.\n---@param name string\nreturn function(name) return ("Hello, %s! It is good to see you here."):format(name) end',
  ["tools/pair.lua"] = [[return tool { "Both.", input = { a = t.number, b = t.number }, output = { sum = t.number, product = t.number },
    function(args) return { sum = args.a + args.b, product = args.a * args.b } end }]],
  ["tools/nested.lua"] = [[return tool { "Place.", input = { at = t.object { x = t.number, y = t.number }, name = t.string },
    function(args) return args.name .. " at " .. args.at.x .. ", " .. args.at.y end }]],
  ["tools/limited.lua"] = [[return tool { "Limited.", input = { n = t.number { min = 1, max = 9 }, e = t.one_of { "a", "b" }, s = t.string { max = 5 } },
    function() return "fits" end }]],
  ["tools/listed.lua"] = [[return tool { "Listed.", input = { list = t.list(t.number), code = t.schema { type = "string", pattern = "^a+$" } },
    function() return "fits" end }]],
  ["tools/orders.lua"] = [[return tool { "Orders.", input = { orders = t.optional(t.list(t.object { id = t.integer, at = t.object { x = t.number } })),
    either = t.optional(t.schema { anyOf = { { type = "string" }, { type = "integer" } } }), form = t.optional(t.schema { oneOf = {
      { type = "object", properties = { kind = { const = "circle" }, radius = { type = "number" } }, required = { "kind", "radius" } },
      { type = "object", properties = { kind = { const = "square" }, side = { type = "number" } }, required = { "kind", "side" } } } }) },
    function() return "fits" end }]],
  ["resources/fixed.lua"] = 'return resource { "A text.", uri = "text://fixed", mime = "text/plain", "fixed" }',
  ["resources/made.lua"] = 'return resource { "A text.", uri = "text://made", mime = "text/plain", function() return "made" end }',
}

-- `params` are the members of the object, as text: a table's would come in another order in each run, and the order has
-- its cost.
local function call_of(name, arguments)
  return { method = "tools/call", name = name, params = ('"name":"%s","arguments":%s'):format(name, arguments) }
end

local function read_of(uri)
  return { method = "resources/read", name = uri, params = ('"uri":"%s"'):format(uri) }
end

local pass_on = 'return policy { tools = { "*" }, function(call, next) return next(call) end }'

local shapes = {
  { name = "positional", message = call_of("add", '{"a":1,"b":2}'), expect = '"3"' },
  { name = "table", message = call_of("add_table", '{"a":1,"b":2}'), expect = '"3"' },
  { name = "call", message = call_of("add_call", '{"a":1,"b":2}'), expect = '"3"' },
  { name = "text", message = call_of("greet", '{"name":"Ann"}'), expect = "Hello, Ann" },
  { name = "session", message = call_of("add", '{"a":1,"b":2}'), expect = '"3"', revision = "2025-11-25" },
  { name = "structured", message = call_of("pair", '{"a":2,"b":3}'), expect = '"product":6' },
  { name = "deep", message = call_of("orders", '{"orders":[{"id":1,"at":{"x":1}},{"id":2,"at":{"x":2}}]}'), expect = "fits" },
  { name = "nested", message = call_of("nested", '{"at":{"x":1,"y":2},"name":"Ann"}'), expect = "Ann at" },
  { name = "refused", message = call_of("add", '{"a":1,"b":"two"}'), expect = "isError" },
  { name = "refused_bound", message = call_of("limited", '{"n":10,"e":"a","s":"x"}'), expect = "at most" },
  { name = "refused_choice", message = call_of("limited", '{"n":9,"e":"c","s":"x"}'), expect = "one of" },
  { name = "refused_name", message = call_of("limited", '{"n":9,"e":"a","s":"x","m":1}'), expect = "no argument" },
  { name = "refused_two", message = call_of("limited", '{"n":10,"e":"c","s":"x"}'), expect = "2 arguments" },
  { name = "refused_three", message = call_of("limited", '{"n":10,"e":"c","s":"longer"}'), expect = "3 arguments" },
  { name = "refused_pattern", message = call_of("listed", '{"list":[1],"code":"b"}'), expect = "pattern" },
  { name = "refused_item", message = call_of("listed", '{"list":[1,"x"],"code":"a"}'), expect = "list[1]" },
  { name = "refused_nested", message = call_of("nested", '{"at":{"x":1,"y":"2"},"name":"Ann"}'), expect = "at.y" },
  { name = "refused_deep", message = call_of("orders", '{"orders":[{"id":1,"at":{"x":1}},{"id":2,"at":{"x":"y"}}]}'), expect = "orders[1].at.x" },
  { name = "refused_any", message = call_of("orders", '{"either":true}'), expect = "a string or an integer" },
  { name = "refused_form", message = call_of("orders", '{"form":{"kind":"square"}}'), expect = "nearest is form 2" },
  { name = "forward", message = call_of("beneath_search", '{"query":"a text","limit":3}'), expect = "0123456789", upstream = "2026-07-28" },
  { name = "forward_old", message = call_of("beneath_search", '{"query":"a text","limit":3}'), expect = "0123456789", upstream = "2025-11-25",
    revision = "2025-11-25" },
  { name = "forward_up", message = call_of("beneath_search", '{"query":"a text","limit":3}'), expect = "0123456789", upstream = "2025-11-25" },
  -- valgrind does not survive the alarm that a longer stretch of Lua gets: build/unlimited has none
  { name = "forward_policy", message = call_of("beneath_search", '{"query":"a text","limit":3}'), expect = "0123456789", upstream = "2026-07-28",
    policy = pass_on },
  -- what set-ups cost a local tool: through a policy that passes the call on, and with a line of the audit
  { name = "policy", message = call_of("add", '{"a":1,"b":2}'), expect = '"3"', policy = pass_on },
  { name = "audited", message = call_of("add", '{"a":1,"b":2}'), expect = '"3"', is_named = true, audit = true },
  -- with traces configured; a collector is not needed, as nothing is sent in this time
  { name = "unsampled", message = call_of("add", '{"a":1,"b":2}'), expect = '"3"', traces = { sample = 0 }, is_named = true },
  { name = "sampled", message = call_of("add", '{"a":1,"b":2}'), expect = '"3"', traces = { sample = 1 }, is_named = true },
  -- without metrics, and with a tap that admits none of the calls: what it costs to be observed is the difference from
  -- `positional`
  { name = "unmetered", message = call_of("add", '{"a":1,"b":2}'), expect = '"3"', metrics = "off", is_named = true },
  { name = "tapped", message = call_of("add", '{"a":1,"b":2}'), expect = '"3"', tap = "/api/tap?tool=none", is_named = true },
  -- with taps that show each call, one or as many as may be open; the figure has also the admin thread, which sends the
  -- events to the readers
  { name = "shown", message = call_of("add", '{"a":1,"b":2}'), expect = '"3"', tap = "/api/tap", is_named = true },
  { name = "shown_8", message = call_of("add", '{"a":1,"b":2}'), expect = '"3"', tap = "/api/tap", taps = 8, is_named = true },
  -- with an API key of 32 bytes, and with an access token of the gateway's own sign-in, of 260: with a key of that length
  -- the first costs 3 % less than the second, whose figure depends on the machine: twice a second more is checked
  { name = "keyed", message = call_of("add", '{"a":1,"b":2}'), expect = '"3"', auth = "key" },
  { name = "signed_in", message = call_of("add", '{"a":1,"b":2}'), expect = '"3"', auth = "sign_in", allowed = 1.1 },
  { name = "list", message = { method = "tools/list", params = "" }, expect = "add_table" },
  { name = "read", message = read_of "text://fixed", expect = "fixed" },
  { name = "made", message = read_of "text://made", expect = "made" },
  { name = "start", message = call_of("add", '{"a":1,"b":2}'), expect = '"3"', is_whole = true, allowed = 1.1 },
}

local function read(path)
  local file <close> = assert(io.open(path))
  return file:read "a"
end

local function write(path, text)
  local file <close> = assert(io.open(path, "w"))
  file:write(text)
end

-- Headers and body of the shape's message, in the order in which the SDKs of TypeScript and Python write them.
local function request_of(g, shape)
  local revision, message = shape.revision or "2026-07-28", shape.message
  local headers = {
    { "host", "127.0.0.1" }, { "content-type", "application/json" }, { "accept", "application/json, text/event-stream" },
    { "mcp-protocol-version", revision },
  }
  local token = shape.auth and (shape.token or TOKEN)
  if token then headers[#headers + 1] = { "authorization", "Bearer " .. token } end
  local params = message.params
  if revision == "2026-07-28" then
    headers[#headers + 1] = { "mcp-method", message.method }
    if message.name then headers[#headers + 1] = { "mcp-name", message.name } end
    params = params .. (params == "" and "" or ",")
      .. '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}'
  else
    headers[#headers + 1] = { "mcp-session-id", g:client(revision).session }
  end
  return headers, ('{"method":"%s","params":{%s},"jsonrpc":"2.0","id":1}'):format(message.method, params)
end

-- Processor time of each thread, by the path of its state.
local function times_of_threads(pid)
  local folder, times = ("/proc/%d/task/"):format(pid), {}
  for name in lfs.dir(folder) do
    if name:find "^%d" then times[folder .. name .. "/stat"] = tonumber(read(folder .. name .. "/schedstat"):match "^%d+") end
  end
  return times
end

-- The path of the state of the thread that has used the most processor time since `before`: the worker.
local function busiest_thread(pid, before)
  local most, found = -1, nil
  for path, used in pairs(times_of_threads(pid)) do
    local more = used - (before[path] or 0)
    if more > most then most, found = more, path end
  end
  return found
end

-- Waits until the thread sleeps, at most PATIENCE_NS: after the answer was written it still ends its turn.
local function wait_asleep(stat)
  local deadline = uv.hrtime() + PATIENCE_NS
  while not read(stat):find "%) S" and uv.hrtime() < deadline do uv.sleep(0) end
end

local function copied(all)
  local made = {}
  for name, value in pairs(all) do made[name] = value end
  return made
end

-- The scripts and the configuration of the gateway for a shape; `below`: the upstream, or nil.
local function options_of(shape, below)
  local made = { workers = 1, scripts = scripts, config = { scripts = { watch = false } } }
  if shape.traces then
    made.config.traces = { otlp = "http://127.0.0.1:1" }
    for name, value in pairs(shape.traces) do made.config.traces[name] = value end
  end
  made.config.metrics = shape.metrics
  if shape.tap then made.config.admin = { listen = "127.0.0.1:0", tokens = { operate = { bench = TOKEN } } } end
  if shape.audit then made.config.log = { audit = "audit.jsonl" } end
  if below then made.scripts, made.config.upstreams = {}, { beneath = { url = below.url } } end
  made.scripts = copied(made.scripts)
  made.scripts["policy/all.lua"] = shape.policy
  if shape.auth == "key" then made.scripts["auth/key.lua"] = ('return auth.bearer { secret = %q, scopes = { "a", "b" } }'):format(TOKEN) end
  if shape.auth == "sign_in" then
    made.config.seal_keys, made.config.store = { TOKEN }, { file = "store.db" }
    made = signing_in.options(made.config, made)
  end
  return made
end

-- A connection that reads the tap, which lasts as long as the connection.
local function open_tap(g, path)
  local reader = client.connect(g, { admin = true })
  reader:send { path = path, headers = { Authorization = "Bearer " .. TOKEN } }
  assert(reader:read_head(20).status == 200)
  return reader
end

local native <const> = uv.fs_realpath(os.getenv "MOONPOOL" or "build/release/moonpool")
local reports = {} -- gateway -> how many reports its callgrind has written

-- The same for a shape with a sign-in, whose password a gateway without callgrind has checked: there it would take too
-- long.
local function start_signed_in(wrapper, shape)
  gateway.binary = native
  local before = gateway.start(options_of(shape))
  shape.token = signing_in.tokens(before, (signing_in.register(before))).access_token
  gateway.binary = wrapper
  local g = signing_in.again(before)
  return g, setmetatable({}, { __close = function() g:stop() end })
end

-- A gateway under callgrind for a shape, which is closed by leaving the scope of the second value.
local function start(wrapper, shape)
  gateway.binary = wrapper
  if shape.auth == "sign_in" then return start_signed_in(wrapper, shape) end
  local below = shape.upstream and beneath.start(shape.upstream, 1) or nil
  local g = gateway.start(options_of(shape, below))
  return g, setmetatable({}, { __close = function()
    g:stop()
    if below then below.stop() end
  end })
end

-- A function that makes a request of this shape when the worker sleeps, and waits for its answer.
local function requests_of(g, c, shape)
  local headers, body = request_of(g, shape)
  local worker
  local function ask()
    if worker then wait_asleep(worker) end
    c:send { method = "POST", path = "/mcp", headers = headers, body = body }
    return c:read_response(20)
  end
  local answer = ask()
  assert(answer.status < 500 and answer.body:find(shape.expect, 1, true), answer.body)
  for _ = 1, WARM do ask() end
  local before = times_of_threads(g.pid)
  for _ = 1, WARM do ask() end
  worker = busiest_thread(g.pid, before)
  return ask
end

-- Gives valgrind a command, which it takes while the gateway works. Returns how many requests that took.
local function order(g, command, ask)
  local code, has_sent, count, says = nil, false, 0, uv.new_pipe(false)
  local process = assert(uv.spawn("/usr/bin/vgdb", {
    args = { "--pid=" .. g.pid, "--max-invoke-ms=0", command }, stdio = { nil, nil, says },
  }, function(status) code = status end))
  says:read_start(function(_, text) has_sent = has_sent or text ~= nil and text:find "sending command" ~= nil end)
  wait.for_fact("vgdb", 20, function() return has_sent or code end)
  while not code do
    ask()
    count = count + 1
    pcall(wait.for_fact, "the end of vgdb", 0.05, function() return code end)
  end
  assert(code == 0, "vgdb ended with " .. code)
  says:close()
  process:close()
  return count
end

-- The totals of the threads, which callgrind has written as the files of its `number`th report; "" for that of the end.
local function totals_of(out, number)
  local list = {}
  for thread = 1, math.huge do
    local path = ("%s%s-%02d"):format(out, number, thread)
    if not uv.fs_stat(path) then break end
    list[thread] = tonumber(read(path):match "\ntotals: (%d+)") or 0
    os.remove(path)
  end
  assert(list[1], "callgrind wrote no totals")
  return list
end

-- Instructions of one request of this shape.
local function measure_request(g, out, shape)
  local taps = {}
  for i = 1, shape.tap and (shape.taps or 1) or 0 do taps[i] = open_tap(g, shape.tap) end
  local c = g:connect()
  local ask = requests_of(g, c, shape)
  order(g, "zero", ask)
  for _ = 1, COUNT do ask() end
  local count = COUNT + order(g, "dump", ask)
  c:close()
  for _, tap in ipairs(taps) do tap:close() end
  reports[g] = (reports[g] or 0) + 1
  local sum, most = 0, 0
  for _, total in ipairs(totals_of(out, "." .. reports[g])) do sum, most = sum + total, math.max(most, total) end
  return math.floor((shape.is_named and sum or most) / count + 0.5)
end

-- Instructions of a whole process that answers one request.
local function measure_whole(wrapper, out, shape)
  do
    local g, _ <close> = start(wrapper, shape)
    local headers, body = request_of(g, shape)
    local answer = g:connect():request { method = "POST", path = "/mcp", headers = headers, body = body }
    assert(answer.body:find(shape.expect, 1, true), answer.body)
  end
  local sum = 0
  for _, total in ipairs(totals_of(out, "")) do sum = sum + total end
  return sum
end

local function recorded()
  local known = {}
  local file <close> = io.open(RECORDED)
  for line in file and file:lines() or function() end do
    local name, count = line:match "^(%S+) (%d+)$"
    known[name or ""] = tonumber(count)
  end
  return known
end

local options, wanted = {}, {}
for _, word in ipairs(arg) do
  if word:find "^%-%-" then options[word] = true else wanted[word] = true end
end

local folder = gateway.new_folder()
local wrapper, out = folder .. "/moonpool", folder .. "/callgrind"
write(wrapper, ("#!/bin/sh\nexec valgrind -q --tool=callgrind --separate-threads=yes --callgrind-out-file=%s %s \"$@\"\n"):format(
  out, native))
uv.fs_chmod(wrapper, 493) -- 0755

local function is_own(shape)
  return shape.upstream or shape.is_named or shape.is_whole or shape.policy or shape.auth
end

local common, common_scope -- the gateway of all shapes without one of their own

local function measure(shape)
  if shape.is_whole then return measure_whole(wrapper, out, shape) end
  if not is_own(shape) then
    if not common then common, common_scope = start(wrapper, shape) end
    return measure_request(common, out, shape)
  end
  local g, _ <close> = start(wrapper, shape)
  return measure_request(g, out, shape)
end

local known, over = recorded(), 0
local lines = {}
print(("instructions of one request, of %d:"):format(COUNT))
for _, shape in ipairs(shapes) do
  local count, was, allowed = known[shape.name], known[shape.name], shape.allowed or ALLOWED
  if next(wanted) == nil and not (shape.upstream or shape.is_named) or wanted[shape.name] then
    count = measure(shape)
    for _ = 2, options["--check"] and TRIES or 1 do
      if was and count > was * allowed then count = math.min(count, measure(shape)) end
    end
    local is_over = was and count > was * allowed
    over = over + (is_over and 1 or 0)
    print(("  %-15s %7d%s"):format(shape.name, count, was and ("   recorded %7d   %+.1f %%%s"):format(was, (count / was - 1) * 100,
      is_over and "   too many" or "") or ""))
    io.stdout:flush()
  end
  if count and not (shape.upstream or shape.is_named) then lines[#lines + 1] = ("%s %d\n"):format(shape.name, count) end
end
if common_scope then getmetatable(common_scope).__close() end
if options["--record"] then write(RECORDED, table.concat(lines)) end
if os.getenv "BENCH_INSTRUCTIONS" then write(os.getenv "BENCH_INSTRUCTIONS", table.concat(lines)) end -- for bench.lua
for name in lfs.dir(folder) do os.remove(folder .. "/" .. name) end
uv.fs_rmdir(folder)
os.exit(not (options["--check"] and over > 0), false)
