-- Regular expressions use memory outside of Lua: it is bounded as well.
local code = require "spec.helpers.code"
local memory = require "spec.helpers.memory"

local function held(g)
  local file <close> = assert(io.open("/proc/" .. g.pid .. "/status"))
  return tonumber(file:read "a":match "VmRSS:%s*(%d+)")
end

describe("regular expressions", function()
  it("match in memory that all expressions share", function()
    local g <close> = code.start { workers = 1, env = memory.environment() }
    local me = g:client "2026-07-28"
    local before = held(g)
    assert.equal("limit", code.run(me, [[
      kept = {}
      local text, why = ("a"):rep(15000)
      for i = 1, 40 do
        kept[i] = regex.new("(?:(a)|b)*[^a" .. i .. "]")
        why = select(2, kept[i]:find(text))
      end
      return why]], 20))
    assert.is_true(held(g) - before < 40 << 10, "not four megabytes for each that ran")
    me:close()
    assert.has_nothing_left(g)
  end)

  it("count as memory of the call that compiles them", function()
    local g <close> = code.start { workers = 1, env = memory.environment(), config = { limits = { call = { memory = "16MiB" } } } }
    local me = g:client "2026-07-28"
    local answer = me:call("tools/call", code.params [[
      local kept = {}
      for i = 1, 2000 do kept[i] = regex.new("(?:abcdefghij){1,1500}" .. i) end
      return #kept]], 20)
    assert.equal("the call took more memory than limits.call.memory", answer.error.message)
    me:close()
    assert.has_nothing_left(g)
  end)
end)
