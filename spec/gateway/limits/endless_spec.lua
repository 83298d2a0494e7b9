-- lane: quiet
-- Scripts that do not end, in many variants (B-125), and scripts that allocate all memory (B-127): the call ends with
-- an error that says so, and no other call is affected.
local gateway = require "spec.helpers.gateway"
local offenders = require "spec.helpers.offenders"

local tool = offenders.tool

local endless, hungry = offenders.endless, offenders.hungry

local function scripts_of(bodies)
  local scripts = { ["tools/ok.lua"] = tool "return 'ok'" }
  for name, body in pairs(bodies) do scripts["tools/" .. name .. ".lua"] = tool(body) end
  return scripts
end

local function names_of(bodies)
  local names = {}
  for name in pairs(bodies) do names[#names + 1] = name end
  table.sort(names)
  return names
end

-- The answer on `stream`, while other clients call all the time; and how many of their calls were answered meanwhile.
local function answer_among_others(stream, other)
  local answered = 0
  while not stream:has_begun() do
    assert.equal("ok", other:call("tools/call", { name = "ok" }).result.content[1].text)
    answered = answered + 1
  end
  return stream:answer(20), answered
end

-- No other call may be delayed for long. The proof is the worker's own count of long turns, which does not depend on
-- other programs of the machine. A turn may still be long because the machine was busy, so a few of many may be long;
-- with a sanitizer, some more.
local FEW <const> = (os.getenv "ASAN_OPTIONS" or os.getenv "TSAN_OPTIONS") and 10 or 20
local function assert_short_turns(before, after)
  local long, all = 0, 0
  for within, count in pairs(after.counters.turns) do
    local more = count - (before.counters.turns[within] or 0)
    all = all + more
    if within == "100ms" or within == "longer" then long = long + more end
  end
  assert(long <= 2 + all // FEW, ("%d of %d turns took longer than 20 ms"):format(long, all))
end

describe("a handler without an end", function()
  local g

  lazy_setup(function() g = gateway.start { scripts = scripts_of(endless), workers = 1, config = { limits = { call = { cpu = "150ms" } } } } end)
  lazy_teardown(function() local _ <close> = g end) -- luacheck: ignore 211

  for _, name in ipairs(names_of(endless)) do
    it(("(%s) is ended with an error, and others are answered meanwhile"):format(name), function()
      local c <close> = g:client "2026-07-28"
      local other <close> = g:client "2026-07-28"
      local before = g:status()
      local answer, answered = answer_among_others(c:open("tools/call", { name = name }), other)
      assert.equal(-32603, answer.error.code)
      assert.truthy(answer.error.message:find "^the call ran ")
      assert.truthy(answered > 0)
      assert_short_turns(before, g:status())
      g:wait_log("call over its limit", { why = answer.error.message })
      g:wait_status(function(status) return status.gauges.tasks == 0 and status.gauges.requests_in_flight == 0 end)
    end)
  end

  it("wakes no thread but its worker's: the main one sleeps on through some hundred alarms", function()
    local function waits()
      local file <close> = assert(io.open(("/proc/%d/task/%d/status"):format(g.pid, g.pid)))
      return tonumber(file:read("a"):match "\nvoluntary_ctxt_switches:%s+(%d+)")
    end
    local c <close> = g:client "2026-07-28"
    local before = waits()
    assert.equal(-32603, c:call("tools/call", { name = "loop" }).error.code)
    assert.truthy(waits() - before < 40, waits() - before)
  end)
end)

describe("a handler that wants all memory", function()
  local g

  lazy_setup(function() g = gateway.start { scripts = scripts_of(hungry), workers = 1, config = { limits = { call = { memory = "16MiB" } } } } end)
  lazy_teardown(function() local _ <close> = g end) -- luacheck: ignore 211

  for _, name in ipairs(names_of(hungry)) do
    it(("(%s) is ended with an error"):format(name), function()
      local c <close> = g:client "2026-07-28"
      local other <close> = g:client "2026-07-28"
      local answer = answer_among_others(c:open("tools/call", { name = name }), other)
      if answer.error then
        assert.equal("the call took more memory than limits.call.memory", answer.error.message)
      else
        -- one allocation of the call was too large, and the error about that ended the call
        assert.truthy(answer.result.isError)
      end
      g:wait_status(function(status) return status.gauges.lua_bytes < 12 * 1024 * 1024 end, 10)
    end)
  end
end)

describe("sixty-four handlers without an end", function()
  it("share the worker, and other calls wait for one or two slices", function()
    local g <close> = gateway.start { scripts = scripts_of(endless), workers = 1, config = { limits = { call = { cpu = "60ms", time = "10m" } } } }
    local c, other = g:client "2026-07-28", g:client "2026-07-28"
    local streams = {}
    for i = 1, 64 do streams[i] = c:open("tools/call", { name = "loop" }) end
    local before = g:status()
    local _, answered = answer_among_others(streams[1], other)
    for i = 2, 64 do assert.equal(-32603, streams[i]:answer(60).error.code) end
    -- 64 calls of 60 ms each make hundreds of turns if they take turns, and only a few if they run one after another
    assert.truthy(answered > 64, answered)
    assert_short_turns(before, g:status())
    assert.equal(64, g:status().counters.tool_aborted.cpu)
    c:close()
    other:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a script that does not end while it loads", function()
  for what, body in pairs {
    ["by a loop"] = "while true do end",
    ["and catches what it can"] = "while true do pcall(function() while true do end end) end",
    ["in what its table does"] = "return tool { 'A.', input = setmetatable({}, { __pairs = function() while true do end end }), function() end }",
  } do
    it(what .. ", is an error of that file", function()
      local dir = gateway.prepare { scripts = { ["tools/a.lua"] = "local one = 1\n" .. body, ["tools/b.lua"] = tool "return 1" } }
      local code, _, err = gateway.run_program(gateway.binary, { "check", dir .. "/moonpool.yaml" },
        { seconds = 20, env = gateway.variables { constants = { load_ms = 500 } } })
      assert.equal(78, code)
      assert.truthy(err:find("tools/a.lua", 1, true), err)
      assert.truthy(err:find("runs for too long", 1, true), err)
    end)
  end
end)
