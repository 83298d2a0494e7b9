-- An upstream of the soak, as a program of its own that can be killed: a stub of spec/helpers/upstream.lua that writes
-- each call that it runs to a journal before it answers, and now and then answers as no server should.
--   lua5.4 spec/soak/upstream.lua TRANSPORT REVISION PORT JOURNAL RATE SEED
-- RATE is the part of requests that is answered wrongly. PORT may be 0. The first line on stdout is a JSON object:
-- entry (of the configuration), port. Lines on stdin are orders: "hang" (takes requests, runs and answers none),
-- "behave". It ends when stdin does.
local cjson = require "cjson.safe"
local upstream = require "spec.helpers.upstream"
local uv = require "luv"

local TRANSPORT <const>, REVISION <const>, PORT <const>, JOURNAL <const> = arg[1], arg[2], math.tointeger(arg[3]), arg[4]
local RATE <const> = tonumber(arg[5])
local FORM <const> = '{"message":"Name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}'
local PORT_TRIES <const> = 200 -- the port of a program that was killed may be taken for a moment, as the port of somebody's connection
local TIDY_MS <const> = 1000

math.randomseed(math.tointeger(arg[6]))

local faults = upstream.faults
local journal = assert(uv.fs_open(JOURNAL, "a", 420)) -- 0644

-- In the file before anything is answered: what a killed program has written stays.
local function note(...) assert(uv.fs_write(journal, table.concat({ ... }, "\t"):gsub("\n", " ") .. "\n", -1)) end

local function later(ms, f)
  local timer = uv.new_timer()
  timer:start(ms, 0, function()
    timer:close()
    f()
  end)
end

-- Answers that no correct server gives. Those of the second half belong to one transport.
local wrong = {
  faults.answers "{}", faults.answers '{"jsonrpc":"2.0","id":%s}', faults.answers '{"jsonrpc":"2.0","id":123456789,"result":{"content":[]}}',
  faults.answers "not JSON", faults.answers '{"jsonrpc":"2.0","id":%s,"result":{"content":[', faults.answers "[]", faults.dies(), faults.twice(),
  faults.foreign { "987654321", '"x"' }, faults.oversized(2 << 20), faults.silent(), faults.late(300),
}
local more = {
  http = {
    faults.empty(200), faults.empty(202), faults.html(), faults.cut(20), faults.cut(20, "rst"), faults.ends_stream(), faults.compressed("gzip", "{}"),
    faults.answers_http(500, {}, "no"), faults.answers_http(418, {}, ""), faults.answers_http(302, { location = "http://127.0.0.1:9/" }),
    faults.status(503), faults.busy(429, 1),
  },
  sse = {},
  stdio = { faults.exits(1), faults.noise "a line that is no message\n", faults.pieces(7) },
}
table.move(more[TRANSPORT], 1, #more[TRANSPORT], #wrong + 1, wrong)
if TRANSPORT == "http" and REVISION ~= "2026-07-28" then
  for _, how in ipairs { "404", "404 empty", "400", "-32600", "not initialized" } do wrong[#wrong + 1] = faults.lost(how) end
end

local function start()
  for _ = 1, PORT_TRIES do
    local is_there, u = pcall(upstream.start, { transport = TRANSPORT, revision = REVISION, port = PORT })
    if is_there then return u end
    later(50, function() end)
    uv.run "once"
  end
  error("no port " .. PORT)
end

local broken_pipe = uv.new_signal()
broken_pipe:start("sigpipe", function() end) -- a client that has left does not end this program

local u = start()
local hangs = false

-- Nothing of what was received is kept: a soak has no end.
function u:note(entry) -- luacheck: ignore 212
  return entry
end

function u:blame(text, ...) -- luacheck: ignore 212
  -- where `initialize` was answered by 4xx, a client tries whether the address is one of HTTP+SSE
  if text == "%s has no session id" and (...) == "GET" then return end
  note("mistake", select("#", ...) > 0 and text:format(...) or text)
end

local function text_of(x) return x:complete(('{"content":[{"type":"text","text":"%s"}]}'):format(x.arguments.key)) end

-- Tools: each has the argument `key`, which the journal names and the answer repeats.
local function runs(f)
  return function(x, reply)
    note("ran", x.arguments.key)
    f(x, reply)
  end
end

u.handlers = {
  work = runs(function(x, reply) reply(text_of(x)) end),
  look = runs(function(x, reply) reply(text_of(x)) end),
  slow = runs(function(x, reply) later(math.random(50, 400), function() reply(text_of(x)) end) end),
  steps = runs(function(x, reply)
    local step = 0
    local function on()
      if x.over then return end
      step = step + 1
      if step == 4 then return reply(text_of(x)) end
      x:report(step, 3, "step " .. step)
      later(30, on)
    end
    on()
  end),
  quest = runs(function(x, reply)
    x:ask("elicitation/create", FORM, function() reply(text_of(x)) end)
  end),
}

local SCHEMA <const> = '"inputSchema":{"type":"object","properties":{"key":{"type":"string"}},"required":["key"]}'
u:offer("tools", {
  '{"name":"work",' .. SCHEMA .. "}", '{"name":"look",' .. SCHEMA .. ',"annotations":{"readOnlyHint":true}}', '{"name":"slow",' .. SCHEMA .. "}",
  '{"name":"steps",' .. SCHEMA .. "}", '{"name":"quest",' .. SCHEMA .. "}",
})

u:when("*", function(x)
  if hangs then return end
  if not x.modern and x.method ~= "initialize" and x.method ~= "ping" and not x.session.revision then return x.server:refuse_early(x) end
  if math.random() < RATE then return wrong[math.random(#wrong)](x) end
  x:serve()
end)

local tidy = uv.new_timer()
tidy:start(TIDY_MS, TIDY_MS, function()
  if u.web then u.web.requests = {} end
  u.listens = u:listening()
  for _, one in ipairs(u.children or {}) do one.lines, one.signals = {}, {} end
end)

local orders = {
  hang = function() hangs = true end,
  behave = function() hangs = false end,
}
local input, rest = uv.new_pipe(false), ""
input:open(0)
input:read_start(function(_, bytes)
  if not bytes then
    pcall(u.close, u, true) -- removes the socket of a program's stub
    os.exit(0)
  end
  rest = rest .. bytes
  for line in rest:gmatch "([^\n]*)\n" do orders[line]() end
  rest = rest:match "[^\n]*$"
end)

io.stdout:write(cjson.encode { entry = u.entry, port = u.port }, "\n")
io.stdout:flush()
uv.run()
