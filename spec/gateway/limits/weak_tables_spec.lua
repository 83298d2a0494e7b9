-- Weak tables are not for scripts: the collector's atomic step would hold up the worker in every cycle.
local code = require "spec.helpers.code"

-- A key without other references, and enough garbage for some GC cycles.
local later = [[
local mt = {}
local t = setmetatable({}, mt)
mt[MODE_NAME] = "k"
for i = 1, 100 do t[{}] = i end
for round = 1, 200 do
  local waste = {}
  for i = 1, 2000 do waste[i] = { i } end
  sleep(0)
end
local left = 0
for _ in pairs(t) do left = left + 1 end
return left]]

describe("a weak table", function()
  it("is refused when the metatable already has __mode", function()
    local g <close> = code.start { workers = 1 }
    local me = g:client "2026-07-28"
    for _, mode in ipairs { "'k'", "'v'", "'kv'", "false", "{}" } do
      local why = code.run(me, ("return select(2, pcall(setmetatable, {}, { __mode = %s }))"):format(mode))
      assert.truthy(why:find("__mode is not available to scripts", 1, true), why)
    end
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is an ordinary one where __mode is written later, however its name is made", function()
    local g <close> = code.start { workers = 1 }
    local me = g:client "2026-07-28"
    for _, name in ipairs { "'__mode'", "'__' .. 'mode'", "('edom__'):reverse()", "json.decode '\"__mode\"'" } do
      assert.equal(100, code.run(me, (later:gsub("MODE_NAME", name)), 30), name)
    end
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is weak for scripts with trust: full, so the specs above see what they look for", function()
    local g <close> = code.start { workers = 1, config = { scripts = { trust = "full" } } }
    local me = g:client "2026-07-28"
    assert.truthy(code.run(me, (later:gsub("MODE_NAME", "'__mode'")), 30) < 100)
    me:close()
  end)
end)

describe("an ephemeron table in random order", function()
  it("does not slow down the collector", function()
    local g <close> = code.start { workers = 1 }
    local me = g:client "2026-07-28"
    assert.equal(20000, code.run(me, [=[
      local mt = {}
      local keys, t = {}, setmetatable({}, mt)
      mt.__mode = "k"
      for i = 1, 20000 do keys[i] = {} end
      for i = #keys, 2, -1 do local j = math.random(i) keys[i], keys[j] = keys[j], keys[i] end
      for i = 1, #keys - 1 do t[keys[i]] = keys[i + 1] end
      local first = keys[1]
      keys = nil
      local before = os.clock()
      for round = 1, 50 do
        local waste = {}
        for i = 1, 2000 do waste[i] = { i } end
        sleep(0)
      end
      assert(os.clock() - before < 5, "some seconds of the processor went to the collector")
      local n, key = 0, first
      while key do n, key = n + 1, t[key] end
      return n]=], 60))
    me:close()
    assert.has_nothing_left(g)
  end)
end)
