-- A fault of a script ends its call and nothing else, for any value that the script raises, returns or drops, at any
-- place (B-78).
local uv = require "luv"
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"

local CALLERS <const> = 100 -- callers of each fault: more than a thousand calls in all

local function tool(body) return "return tool { 'T.', function(args, call) " .. body .. " end }" end

-- Each row: the code of the tool, and the answer to its caller: "fault", "limit", or the text.
local faults = {
  boom = { 'error "boom"', "fault" },
  nilret = { "return nil", "the tool returned neither a result nor a reason" },
  error_nil = { "error()", "fault" },
  error_table = { "error { code = 1 }", "fault" },
  error_cycle = { "local a = {} a.a = a error(a)", "fault" },
  error_userdata = { "error(json.null)", "fault" },
  error_function = { "error(print)", "fault" },
  error_telling = { "error(setmetatable({}, { __tostring = function() error 'again' end }))", "fault" },
  error_untold = { "error(setmetatable({}, { __tostring = function() return 5 end }))", "fault" },
  error_bytes = { 'error "\\xff\\0\\r\\n\\27[31m"', "fault" },
  error_long = { 'error(("x"):rep(1 << 20))', "fault" },
  collected = { "setmetatable({}, { __gc = function() error 'x' end })", "fault" },
  collected_late = {
    "local mt = {} setmetatable({}, mt) mt.__gc = function() error 'x' end for _ = 1, 100 do local _ = ('x'):rep(10000) end return 'on'", "on",
  },
  closing = { "local a <close> = closing(function() error 'x' end) return 'done'", "fault" },
  coroutine = { "coroutine.wrap(function() error { 1 } end)()", "fault" },
  dead = { "local co = coroutine.wrap(function() end) co() co()", "fault" },
  side_by_side = { "parallel { function() sleep(0.001) error 'x' end, function() sleep(60) end }", "fault" },
  after_sleep = { "sleep(0.001) error 'x'", "fault" },
  handler = { "xpcall(error, function() error 'x' end) return 'on'", "on" },
  to_json = {
    "return setmetatable({}, { __tojson = function() error 'x' end, __pairs = function() error 'x' end, __index = function() error 'x' end })", "{}",
  },
  of_functions = { "return { f = print }", "fault" },
  of_coroutines = { "return coroutine.create(print)", "fault" },
  recursion = { "local function f() return 1 + f() end return f()", "fault" },
  recursion_in_c = { "local function f() return (('x'):gsub('x', f)) end return f()", "fault" },
  recursion_in_pcall = { "local function f() return pcall(f) end f() return 'on'", "on" },
  recursion_telling = { "local t = setmetatable({}, { __tostring = function(t) return tostring(t) end }) return tostring(t)", "fault" },
  recursion_of_coroutines = { "local function f() return coroutine.wrap(f)() end return f()", "fault" },
  deep = { "local t = {} for _ = 1, 100000 do t = { t } end return t", "fault" },
  progress = { "call:progress('x')", "fault" },
  log_line = { "log.info(setmetatable({}, { __tostring = function() error 'x' end })) return 'on'", "on" }, -- an unprintable value is shown as <table>
  yield = { "coroutine.yield(1)", nil },
}

local broken = {
  ["jobs/often.lua"] = "return job { 'Fails.', every = 0.1, function() error { 'in a timer' } end }",
  ["resources/bad.lua"] = "return resource { 'Bad.', uri = 'bad://one', function() error(nil) end }",
  ["prompts/bad.lua"] = "return prompt { 'Bad.', function() return { { {} } } end }",
  ["prompts/ask.lua"] = "return prompt { 'Ask.', args = { a = t.string { complete = function() error {} end } }, function() return 'x' end }",
}

local scripts = { ["tools/echo.lua"] = "return tool { 'Echo.', input = { text = t.string }, function(args) sleep(0.001) return args.text end }" }
for name, fault in pairs(faults) do scripts["tools/" .. name .. ".lua"] = tool(fault[1]) end
for path, text in pairs(broken) do scripts[path] = text end

local function judge(name, answer, expected)
  local said = name .. ": " .. cjson.encode(answer)
  if expected == "fault" then
    assert.is_true(answer.result and answer.result.isError or answer.error and answer.error.code == -32603, said)
  elseif expected then
    assert.is_table(answer.result, said)
    assert.equal(expected, (answer.result.content[1] or { text = "" }).text, said)
  else
    assert.is_true(answer.result ~= nil or answer.error ~= nil, said)
  end
end

local IS_SANITIZED <const> = os.getenv "ASAN_OPTIONS" or os.getenv "TSAN_OPTIONS"

describe("B-78 a fault", function()
  it("of any kind ends its own call, while others are answered", function()
    local g <close> = gateway.start {
      scripts = scripts, config = { log = { level = "error" }, limits = { call = { cpu = IS_SANITIZED and "20s" or "2s" } } },
    }
    local me = g:client "2026-07-28"
    local callers = {}
    for i = 1, 20 do callers[i] = g:client "2026-07-28" end
    local sent = 0
    for name, fault in pairs(faults) do
      local stream = me:open("tools/call", { name = name })
      local streams = {}
      for i, caller in ipairs(callers) do
        for k = 1, CALLERS // #callers do
          local message = caller:message("tools/call", { name = "echo", arguments = { text = "t" .. k } })
          caller.kept = caller.kept or g:connect()
          caller.kept:send { method = "POST", path = "/mcp", headers = caller:headers(message), body = message }
          sent = sent + 1
          streams[i] = k
        end
      end
      judge(name, stream:answer(20), fault[2])
      for i, caller in ipairs(callers) do
        for k = 1, streams[i] do
          local answer = caller.kept:read_response(20):json()
          assert.equal("t" .. k, answer.result and answer.result.content[1].text, name .. ": another's call")
        end
      end
      stream:close()
      me.connections = {}
    end
    assert.is_true(sent >= 1000)
    for _, params in ipairs {
      { "resources/read", { uri = "bad://one" } }, { "prompts/get", { name = "bad" } },
      { "completion/complete", { ref = { type = "ref/prompt", name = "ask" }, argument = { name = "a", value = "" } } },
    } do
      assert.equal(-32603, me:call(params[1], params[2]).error.code, params[1])
    end
    g:wait_log("job failed")
    assert.equal(0, g:status().counters.tool_aborted.cpu, "a deep stack made the clock's hook slow")
    for _, caller in ipairs(callers) do
      caller.kept:close()
      caller:close()
    end
    me:close()
    uv.run "nowait"
    assert.is_true(g:is_alive())
    g:stop()
  end)
end)
