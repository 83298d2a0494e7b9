-- Garbage of large calls is collected once a worker is quiet, and its memory returned; a quiet worker does nothing
-- after that.
local gateway = require "spec.helpers.gateway"
local memory = require "spec.helpers.memory"
local task_client = require "spec.helpers.task_client"
local wait = require "spec.helpers.wait"

local MIB <const>, SIZE <const> = 1 << 20, 4 << 20

local scripts = {
  ["tools/take.lua"] = [[return tool { "Takes a text.", input = { text = t.string }, function(args) return tostring(#args.text) end }]],
  ["tools/give.lua"] = [[return tool { "Gives a text.", input = { n = t.integer }, function(args) return ("x"):rep(args.n) end }]],
  ["tools/make.lua"] = [[return tool { "Makes values.", function()
    for _ = 1, 20 do
      local kept = {}
      for i = 1, 20000 do kept[i] = { tostring(i) } end
    end
    return "done" end }]],
}

-- Each row: a name, the number of calls, the name and the arguments of the tool, and the bytes that may be left where
-- the allocator keeps a block of one answer.
local CASES <const> = {
  { "arguments of 4 MB", 60, "take", { text = ("x"):rep(SIZE) } }, { "results of 4 MB", 20, "give", { n = SIZE }, SIZE + MIB },
  { "many small values", 10, "make", {} },
}

local function ticks(g)
  local file <close> = assert(io.open("/proc/" .. g.pid .. "/stat"))
  local user, system = file:read("a"):match "%) %S (.*)$":match(("%S+ "):rep(10) .. "(%S+) (%S+)")
  return tonumber(user) + tonumber(system)
end

local function turns(g)
  local sum = 0
  for _, count in pairs(g:status().counters.memory_turns) do sum = sum + count end
  return sum
end

local function start(case)
  local g = gateway.start { workers = 1, scripts = scripts, config = { limits = { body = "8MiB" } }, env = memory.environment() }
  return { g = g, what = case[1], case = case }
end

local function call(one)
  local case = one.case
  one.allowed = one.before + one.before // 5 + (case[5] or 0)
  local me = one.g:client "2026-07-28"
  for _ = 1, case[2] do me:result("tools/call", { name = case[3], arguments = case[4] }) end
  me:close()
end

-- Sums over all gateways: the turns that returned memory, and the ticks of processor time.
local function sums(all)
  local count, used = 0, 0
  for _, one in ipairs(all) do count, used = count + turns(one.g), used + ticks(one.g) end
  return count, used
end

describe("a worker that was called with much, and is quiet,", function()
  it("returns the memory, and then does nothing", function()
    if os.getenv "TSAN_OPTIONS" or os.getenv "ASAN_OPTIONS" then return pending "sanitizers keep memory" end
    local all <close> = setmetatable({}, { __close = function(self) for _, one in ipairs(self) do one.g:stop() end end })
    for i, case in ipairs(CASES) do all[i] = start(case) end
    for i, before in ipairs(memory.resting_all(all)) do all[i].before = before end
    for _, one in ipairs(all) do
      call(one)
      local function what() return ("at most %d MiB after %s; there are %d"):format(one.allowed // MIB, one.what, one.g:rss() // MIB) end
      wait.for_fact(what, 10, function() return one.g:rss() <= one.allowed end)
    end
    wait.for_fact("the turns for memory to end", 20, function()
      local count = sums(all)
      wait.quietly(2)       -- the gateway checks twice, half a second apart, whether clients come or leave
      return sums(all) == count
    end)
    local count, used = sums(all)
    wait.quietly(3)
    local count_after, used_after = sums(all)
    -- ticks, of the 300 that each gateway could have used
    assert.is_true(used_after - used <= 10 * #all, "much processor time")
    assert.equal(count, count_after)
  end)
end)

describe("what calls held at once", function()
  it("is not kept when they have ended, with upstreams in the configuration, too", function()
    if os.getenv "TSAN_OPTIONS" or os.getenv "ASAN_OPTIONS" then return pending "sanitizers keep memory" end
    local COUNT <const> = 40
    local config <const> = { upstreams = { away = { url = "http://127.0.0.1:1/mcp" } } }
    local g <close> = gateway.start { workers = 1, env = memory.environment(), config = config, scripts = {
      ["tools/meet.lua"] = ([[local here = 0
        return tool { "Waits until all are here.", input = { text = t.string }, function(args)
          here = here + 1
          while here < %d do sleep(0.01) end
          return "ended"
        end }]]):format(COUNT),
    } }
    local allowed, clients, streams = memory.resting(g) + 12 * MIB, {}, {}
    for i = 1, COUNT do
      clients[i] = g:client "2026-07-28"
      streams[i] = clients[i]:open("tools/call", { name = "meet", arguments = { text = ("x"):rep(MIB - 1024) } })
    end
    for i = 1, COUNT do
      assert.equal("ended", streams[i]:answer(30).result.content[1].text)
      clients[i]:close()
    end
    local function what() return ("at most %d MiB; there are %d"):format(allowed // MIB, g:rss() // MIB) end
    wait.for_fact(what, 20, function() return g:rss() <= allowed end)
  end)
end)

-- While 40 calls wait, the quiet worker collects garbage, and finds that the calls hold all of its memory. Garbage of
-- calls that end afterwards does not count as growth.
describe("a worker whose work held much while it was quiet", function()
  local COUNT <const> = 40
  local waits = [[return tool { "Waits for a word.", %s input = { text = t.string }, function(args)
    while not store.get "word" do sleep(0.05) end
    return "ended" end }]]
  for kind, more in pairs { calls = "", tasks = "task = 'required'," } do
    it("returns the memory once they end (" .. kind .. ")", function()
      if os.getenv "TSAN_OPTIONS" or os.getenv "ASAN_OPTIONS" then return pending "sanitizers keep memory" end
      local g <close> = gateway.start { workers = 1, env = memory.environment(), scripts = {
        ["tools/wait.lua"] = waits:format(more),
        ["tools/say.lua"] = "return tool { 'Says the word.', function() store.set('word', true) return 'said' end }",
      } }
      local allowed, clients, streams = memory.resting(g) + 12 * MIB, {}, {}
      local text = ("x"):rep(MIB - 1024)
      for i = 1, COUNT do
        clients[i] = g:client("2026-07-28", { capabilities = task_client.CAN })
        streams[i] = clients[i]:open("tools/call", { name = "wait", arguments = { text = text } })
      end
      g:wait_status(function(status) return status.gauges.tasks >= COUNT and status.gauges.lua_bytes >= COUNT * #text end)
      wait.for_fact("turns for memory that end", 30, function()
        local count = turns(g)
        wait.quietly(2)
        return count > 0 and turns(g) == count
      end)
      assert.is_true(g:rss() > allowed)
      local other <close> = g:client "2026-07-28"
      other:call("tools/call", { name = "say" })
      local function what() return ("at most %d MiB; there are %d"):format(allowed // MIB, g:rss() // MIB) end
      wait.for_fact(what, 20, function() return g:rss() <= allowed end)
      for i = 1, COUNT do
        assert.truthy(streams[i]:answer(20).result)
        clients[i]:close()
      end
    end)
  end
end)
