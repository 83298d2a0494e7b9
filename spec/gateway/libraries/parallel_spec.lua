-- parallel { f, g }: functions run concurrently within one call: failures, limits, the end.
local code = require "spec.helpers.code"
local wait = require "spec.helpers.wait"

describe("parallel", function()
  local g, me
  lazy_setup(function()
    g = code.start { workers = 1, config = { limits = { call = { cpu = os.getenv "TSAN_OPTIONS" and "3s" or "300ms", memory = "16MiB" } } } }
    me = g:client "2026-07-28"
  end)
  lazy_teardown(function()
    me:close()
    assert.has_nothing_left(g)
    g:stop()
  end)

  local function run(text) return code.run(me, text) end

  it("waits for all at once and keeps their order", function()
    assert.same({ { "slow" }, { "quick" }, { "none", "why" }, { 6 }, true }, run [[
      local begun, most = 0, 0 -- how many sleep, and how many have slept at once
      local function rest(seconds)
        begun = begun + 1
        most = math.max(most, begun)
        sleep(seconds)
        begun = begun - 1
      end
      local found = parallel {
        function() rest(0.3) return "slow" end,
        function() rest(0.2) return "quick" end,
        function() return "none", "why" end,
        function()
          local inner = parallel { function() rest(0.1) return 1 end, function() rest(0.1) return 2 end, function() return 3 end }
          return inner[1][1] + inner[2][1] + inner[3][1]
        end,
      }
      found[5] = most >= 3 -- four, unless the machine stands still when they begin
      return found]])
    assert.same({ true, "why" }, run "local r = parallel { function() return nil, 'why' end } return { r[1][1] == nil, r[1][2] }")
  end)

  it("lets functions that wait inside coroutines of their own do so, and sends through the call", function()
    assert.same({ 1, 2 }, run [[
      local function inside(n)
        return function()
          local next_one = coroutine.wrap(function() sleep(0.01) call:progress(n, 2) coroutine.yield(n) end)
          return next_one()
        end
      end
      local found = parallel { inside(1), inside(2) }
      return { found[1][1], found[2][1] }]])
  end)

  it("cancels its other functions when one fails, and ends the call with that failure", function()
    for text, wanted in pairs {
      ["fail 'no such thing'"] = "no such thing", ["try(nil, 'not there')"] = "not there", ["error 'a bug'"] = "internal error",
    } do
      local value, why = run(([[
        parallel {
          function() local on_end <close> = closing(function() store.incr "ended" end) sleep(60) store.set("ran", true) end,
          function() sleep(0.01) %s end,
          function() sleep(60) end,
        }]]):format(text))
      assert.is_nil(value)
      assert.equal(wanted, why:sub(1, #wanted))
    end
    assert.same({ 3, true }, run 'local n = store.get "ended" store.delete "ended" return { n, store.get "ran" == nil }')
    assert.truthy(run [[return (select(2, pcall(parallel, { function() error("mine", 0) end })))  and "caught"]])
  end)

  it("takes 1 to 64 functions, and 256 with those below them", function()
    for _, list in ipairs { "{}", "7", "{ 7 }", "many(65)" } do
      assert.truthy(run([[
        function many(n) local l = {} for i = 1, n do l[i] = function() sleep(0) return i end end return l end
        local ok, why = pcall(parallel, ]] .. list .. [[) return not ok and tostring(why)]]):find "parallel takes", list)
    end
    assert.equal(64, run "local found = parallel(many(64)) return found[64][1]")
    assert.truthy(run [[
      local function deep(n) return function() parallel { deep(n + 1) } end end
      local ok, why = pcall(parallel, { deep(1) })
      return tostring(why)]]:find "more than 256 functions")
  end)

  it("is cancelled with its call, whatever its functions wait for, the inner first", function()
    local stream = me:open("tools/call", code.params [[
      local on_end <close> = closing(function() store.set("outer", store.incr "order") end)
      parallel {
        function() local on_end <close> = closing(function() store.set("inner", store.incr "order") end) sleep(60) end,
        function() parallel { function() sleep(60) end, function()
          local on_end <close> = closing(function() store.set("deep", store.incr "order") end)
          local f = coroutine.wrap(function() sleep(60) end) store.set("there", true) f() end } end,
        function() while true do sleep(0) end end,
      }]])
    wait.for_fact("it to be under way", 20, function() return run 'return store.get "there"' end)
    stream:close()
    wait.for_fact("it to be called off", 20, function() return run 'return store.get "outer"' end)
    local outer, inner, deep = table.unpack(run [[return { store.get "outer", store.get "inner", store.get "deep" }]])
    assert.truthy(outer == 3 and inner < 3 and deep < 3)
    run 'for _, key in ipairs(store.list()) do store.delete(key) end'
    g:wait_status(function(status) return status.gauges.tasks == 0 and status.gauges.ops == 0 end)
  end)

  it("counts the processor time and memory of its functions together", function()
    for text, why in pairs {
      ["for _ = 1, 1e12 do end"] = "limits.call.cpu",
      ["local all = {} for i = 1, 1e6 do all[i] = ('x'):rep(1000) .. i if i % 1000 == 0 then sleep(0) end end"] = "limits.call.memory",
    } do
      local answer = me:call("tools/call", code.params("local l = {} for i = 1, 8 do l[i] = function() " .. text .. " end end parallel(l)"), 10)
      assert.truthy(answer.error.message:find(why, 1, true))
    end
    assert.equal(1, run "return 1")
  end)
end)

it("is unwound where the gateway stops", function()
  local g <close> = code.start { workers = 1, config = { limits = { drain = "0s" } } }
  local me = g:client "2026-07-28"
  me:open("tools/call", code.params "parallel { function() sleep(60) end, function() parallel { function() sleep(60) end } end }")
  g:wait_status(function(status) return status.gauges.tasks == 4 end)
  g:stop()
  me:close()
end)
