-- Garbage of scripts is collected between their turns: a script that drops its values may allocate without limit, a
-- script that keeps them reaches its memory limit, and no other script pays for it (B-127).
local gateway = require "spec.helpers.gateway"
local offenders = require "spec.helpers.offenders"

local tool = offenders.tool

local MEMORY <const> = 8 * 1024 * 1024

local scripts = {
  -- Allocates some 100 MB, of which little stays alive: texts, tables, closures, coroutines.
  ["tools/churn.lua"] = tool [[
    local kept, sum = {}, 0
    for i = 1, 200000 do
      local made = { i, tostring(i), function() return i end, { {}, {} } }
      if i % 100 == 0 then made[5] = coroutine.wrap(function() coroutine.yield(i) end) end
      kept[i % 64 + 1] = made
      sum = sum + made[3]()
    end
    return tostring(sum)]],
  -- Allocates about 100 MB, too, in many short stretches.
  ["tools/doze.lua"] = tool [[
    local n = 0
    for _ = 1, 300 do
      sleep(0.001)
      for _ = 1, 20 do n = n + #(("x"):rep(5000) .. n) end
    end
    return "rested"]],
  -- Waits at the bottom of a deep stack and again after an error has undone it: the stack grows in one stretch and shrinks in another.
  ["tools/dive.lua"] = tool [[
    local function dive(n) if n == 0 then sleep(0) error "up" end return 1 + dive(n - 1) end
    for _ = 1, 60 do pcall(dive, 10000) sleep(0) end
    return "surfaced"]],
  -- Keeps its values, and never runs for long.
  ["tools/hoard.lua"] = tool [[
    local kept = {}
    while true do
      sleep(0.001)
      kept[#kept + 1] = ("x"):rep(20000) .. #kept
    end]],
  -- Leaves much garbage each time.
  ["tools/litter.lua"] = tool [[
    local kept = {}
    for i = 1, 20000 do kept[i] = { i } end
    return "done"]],
  -- Leaves so little garbage that it ends within one time slice.
  ["tools/crumbs.lua"] = tool [[
    local kept = {}
    for i = 1, 5000 do kept[i] = { i } end
    return "done"]],
}

-- One call of gsub leaves some 4 MB of texts of one size. It runs in a metamethod, where a task cannot be preempted.
local refused_script = tool [[
    local word = ("x"):rep(50)
    local text = (word .. " "):rep(2000)
    local pattern = ("("):rep(30) .. "%w+" .. (")"):rep(30)
    return tostring(setmetatable({}, { __tostring = function() return tostring(select(2, text:gsub(pattern, string.len))) end }))]]

local function started()
  return gateway.start { scripts = scripts, workers = 1, config = { limits = { call = { cpu = "30s", memory = MEMORY .. "B" } } } }
end

local function text_of(stream)
  local answer = stream:answer(30)
  assert(answer.result, answer.error and answer.error.message)
  return answer.result.content[1].text
end

local function lua_bytes(g) return g:status().gauges.lua_bytes end

describe("memory that a call's own stretch gives back", function()
  it("is not counted as held, however often it grows again", function()
    local g <close> = started()
    local c <close> = g:client "2026-07-28"
    assert.equal("surfaced", text_of(c:open("tools/call", { name = "dive" })))
  end)
end)

describe("garbage", function()
  it("of one call may be many times its memory limit, also in several calls at once", function()
    local g <close> = started()
    local c <close> = g:client "2026-07-28"
    local churning, dozing = {}, {}
    for i = 1, 3 do churning[i], dozing[i] = c:open("tools/call", { name = "churn" }), c:open("tools/call", { name = "doze" }) end
    for i = 1, 3 do
      assert.equal("20000100000", text_of(churning[i]))
      assert.equal("rested", text_of(dozing[i]))
    end
    for why, count in pairs(g:status().counters.tool_aborted) do assert.equal(0, count, why) end
  end)

  it("that one call frees is not credited to another, which ends because of the memory that it keeps", function()
    local g <close> = started()
    local c <close> = g:client "2026-07-28"
    local hoard = c:open("tools/call", { name = "hoard" })
    local answered = 0
    while not hoard:has_begun() do
      assert.equal("done", c:call("tools/call", { name = "litter" }).result.content[1].text)
      answered = answered + 1
      assert(lua_bytes(g) < 6 * MEMORY)
    end
    assert.equal("the call took more memory than limits.call.memory", hoard:answer(20).error.message)
    assert.truthy(answered > 3, answered)
  end)

  it("that is collected because memory was refused lets the call go on, however often that happens before it is preempted", function()
    local g <close> = gateway.start { scripts = { ["tools/refused.lua"] = refused_script }, workers = 1,
      config = { limits = { call = { cpu = "30s", memory = "1MiB" } } } }
    local c <close> = g:client "2026-07-28"
    for _ = 1, 10 do assert.equal("2000", c:result("tools/call", { name = "refused" }).content[1].text) end
    assert.equal(0, g:status().counters.tool_aborted.memory)
  end)

  it("is never more than a few times what lives, however many calls leave it", function()
    local g <close> = started()
    local c <close> = g:client "2026-07-28"
    local most = 0
    for _ = 1, 40 do -- 40 calls leave about 100 MB of garbage
      c:call("tools/call", { name = "litter" })
      most = math.max(most, lua_bytes(g))
    end
    assert(most < 16 * 1024 * 1024, most)
  end)

  it("of short calls that come back to back is collected before there is much of it", function()
    local g <close> = started()
    local clients, streams, most = {}, {}, 0
    for i = 1, 8 do clients[i] = g:client "2026-07-28" end
    for _ = 1, 60 do -- 480 calls leave about 300 MB of garbage; eight at once hold 5 MB
      for i, c in ipairs(clients) do streams[i] = c:open("tools/call", { name = "crumbs" }) end
      for _, stream in ipairs(streams) do
        assert.equal("done", text_of(stream))
        stream:close()
        most = math.max(most, lua_bytes(g))
      end
    end
    assert(most < 14 * 1024 * 1024, most)
    for _, c in ipairs(clients) do c:close() end
    assert.has_nothing_left(g)
  end)
end)
