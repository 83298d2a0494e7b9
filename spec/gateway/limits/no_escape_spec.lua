-- Code that Lua runs outside of the call's own function: message handlers, __tostring of errors, closers of coroutines.
-- It is ended like any other code that does not end, and chains of coroutines that close each other end in an error.
local gateway = require "spec.helpers.gateway"
local offenders = require "spec.helpers.offenders"

local tool = offenders.tool
local LOOP <const> = "function() while true do end end"

local bodies = {
  handler = "xpcall(error, " .. LOOP .. ")",
  handlers = "while true do xpcall(error, " .. LOOP .. ") end",
  handler_of_handler = "while true do xpcall(error, function() xpcall(error, " .. LOOP .. ") end) end",
  handler_inside = "coroutine.wrap(function() while true do xpcall(error, " .. LOOP .. ") end end)()",
  handler_in_metamethod = "local t = setmetatable({}, { __index = function() while true do xpcall(error, " .. LOOP .. ") end end }) return t.x",
  handler_that_is_coroutine = "while true do xpcall(error, coroutine.wrap(" .. LOOP .. ")) end",
  handler_in_closer = "local c <close> = closing(function() xpcall(error, " .. LOOP .. ") end) while true do end",
  error_that_tells = "error(setmetatable({}, { __tostring = " .. LOOP .. " }))",
  error_that_counts = "error(setmetatable({}, { __len = " .. LOOP .. ", __index = " .. LOOP .. ", __pairs = " .. LOOP .. " }))",
  closed_coroutine = [[local co = coroutine.create(function() local c <close> = closing(]] .. LOOP .. [[) coroutine.yield() end)
    coroutine.resume(co) coroutine.close(co)]],
  failed_wrap = "coroutine.wrap(function() local c <close> = closing(" .. LOOP .. ") error 'x' end)()",
  failed_coroutine = [[coroutine.resume(coroutine.create(function() local c <close> = closing(]] .. LOOP .. [[) error 'x' end))]],
  closers_of_closers = [[local function again() local c <close> = closing(function() again() end) while true do end end again()]],
  closers_that_catch = [[local c <close> = closing(function() while true do pcall(]] .. LOOP .. [[) end end) while true do end]],
  many_closers = [[local function deep(n) local c <close> = closing(]] .. LOOP .. [[) if n > 0 then deep(n - 1) else while true do end end end deep(180)]],
  close_that_is_coroutine = [[local c <close> = setmetatable({}, { __close = coroutine.wrap(]] .. LOOP .. [[) }) while true do end]],
}

local names = {}
for name in pairs(bodies) do names[#names + 1] = name end
table.sort(names)

local function scripts()
  local made = { ["tools/ok.lua"] = tool "return 'ok'" }
  for name, body in pairs(bodies) do made["tools/" .. name .. ".lua"] = tool(body) end
  return made
end

describe("code that does not stop where no function of a script was called", function()
  local g

  lazy_setup(function() g = gateway.start { scripts = scripts(), workers = 1, config = { limits = { call = { cpu = "200ms" } } } } end)
  lazy_teardown(function() local _ <close> = g end) -- luacheck: ignore 211

  for _, name in ipairs(names) do
    it(("(%s) is ended, and its worker serves on"):format(name), function()
      local c <close> = g:client "2026-07-28"
      local other <close> = g:client "2026-07-28"
      local answer = c:open("tools/call", { name = name }):answer(20)
      assert.truthy(answer.error or answer.result.isError)
      assert.equal("ok", other:call("tools/call", { name = "ok" }).result.content[1].text)
      g:wait_status(function(status) return status.gauges.tasks == 0 and status.gauges.cleanups == 0 and status.gauges.requests_in_flight == 0 end)
    end)
  end

  it("lets the gateway stop", function()
    local one <close> = gateway.start { scripts = scripts(), workers = 1, config = { limits = { call = { cpu = "60s", time = "60s" }, drain = "200ms" } } }
    local clients = {}
    for i, name in ipairs(names) do
      clients[i] = one:client "2026-07-28"
      clients[i]:open("tools/call", { name = name })
    end
    one:wait_status(function(status) return status.counters.requests > #names end)
    one:signal "sigterm"
    assert.equal(0, (one:wait_exit(20)))
    for _, c in ipairs(clients) do c:close() end
  end)
end)

local CHAIN <const> = [[
  local function link(before)
    local co = coroutine.create(function()
      local c <close> = setmetatable({}, { __close = function() if before then %s end end })
      %s
    end)
    coroutine.resume(co)
    return co
  end
  local last
  for i = 1, 30000 do last = link(last) end
]]

describe("a chain of coroutines that close each other", function()
  local closing = CHAIN:format("assert(coroutine.close(before))", "coroutine.yield()")
  local g

  lazy_setup(function()
    g = gateway.start { workers = 1, scripts = {
      ["tools/ok.lua"] = tool "return 'ok'",
      ["tools/close.lua"] = tool(closing .. "local ok, why = coroutine.close(last) return tostring(ok) .. ' ' .. tostring(why)"),
      ["tools/wrap.lua"] = tool([[
        local last
        for i = 1, 30000 do
          local before = last
          last = coroutine.wrap(function() local c <close> = closing(function() if before then before() end end) error 'end' end)
        end
        local ok, why = pcall(last) return tostring(ok) .. ' ' .. tostring(why):sub(-200)]]),
      ["tools/cancelled.lua"] = tool(closing .. "local c <close> = closing(function() coroutine.close(last) end) log.info 'waits' sleep(60)"),
    } }
  end)
  lazy_teardown(function() local _ <close> = g end) -- luacheck: ignore 211

  it("ends in an error that can be read", function()
    local c <close> = g:client "2026-07-28"
    local text = c:open("tools/call", { name = "close" }):answer(20).result.content[1].text
    assert.matches("^false .*stack overflow", text)
    text = c:open("tools/call", { name = "wrap" }):answer(20).result.content[1].text
    assert.matches("^false ", text)
  end)

  it("disturbs no other call when a cancelled call begins it", function()
    local c, other = g:client "2026-07-28", g:client "2026-07-28"
    c:open("tools/call", { name = "cancelled" })
    g:wait_log("waits", nil, 20)
    c:close()
    g:wait_status(function(status) return status.gauges.tasks == 0 end)
    assert.equal("ok", other:call("tools/call", { name = "ok" }).result.content[1].text)
    other:close()
  end)
end)

describe("closers of coroutines", function()
  local function run(body)
    local g <close> = gateway.start { workers = 1, scripts = { ["tools/run.lua"] = "return tool { 'T.', function(_, call)\n" .. body .. "\nend }" } }
    local c <close> = g:client "2026-07-28"
    local result = c:result("tools/call", { name = "run" })
    return result.content[1].text
  end

  it("run when the coroutine is closed, innermost first, and may wait", function()
    assert.equal("inner outer true suspended dead", run [[
      local told = {}
      local co = coroutine.create(function()
        local outer <close> = closing(function() sleep(0.01) told[#told + 1] = "outer" end)
        pcall(function()
          local inner <close> = closing(function() sleep(0.01) told[#told + 1] = "inner" end)
          coroutine.yield()
        end)
        told[#told + 1] = "went on"
      end)
      coroutine.resume(co)
      local was = coroutine.status(co)
      local closed = tostring(coroutine.close(co))
      told[#told + 1] = closed
      return table.concat(told, " ") .. " " .. was .. " " .. coroutine.status(co)]])
  end)

  it("may fail, and coroutine.close says so", function()
    assert.equal("false scripts/tools/run.lua:3: oh", run [[
      local co = coroutine.create(function()
        local c <close> = closing(function() error "oh" end) coroutine.yield() end)
      coroutine.resume(co)
      local ok, why = coroutine.close(co) return tostring(ok) .. " " .. why]])
  end)

  it("run when the coroutine fails, and the error is the coroutine's", function()
    assert.equal("closed false scripts/tools/run.lua:4: oh dead", run [[
      local told
      local co = coroutine.create(function() local c <close> = closing(function() sleep(0.01) told = "closed" end) coroutine.yield(1)
        error "oh" end)
      assert(select(2, coroutine.resume(co)) == 1)
      local ok, why = coroutine.resume(co) return told .. " " .. tostring(ok) .. " " .. why .. " " .. coroutine.status(co)]])
  end)

  it("pass values as Lua's own do", function()
    assert.equal("1,2 3,4 5 true,6 dead true", run [[
      local co = coroutine.wrap(function(a, b) local c, d = coroutine.yield(a, b) local e = coroutine.yield(c, d) return e end)
      local a, b = co(1, 2) local c, d = co(3, 4) local e = co(5)
      local new = coroutine.create(function(...) return select("#", ...) end)
      local ok, n = coroutine.resume(new, 1, 2, 3, 4, 5, 6)
      local unused = coroutine.create(print)
      return ("%d,%d %d,%d %d %s,%d %s %s"):format(a, b, c, d, e, ok, n, coroutine.status(new), coroutine.close(unused))]])
  end)

  it("have their errors passed to xpcall's handler, which may wait", function()
    assert.equal("false handled scripts/tools/run.lua:3: oh", run [[
      local ok, why = xpcall(function()
        error "oh" end, function(value) sleep(0.01) return "handled " .. value end)
      return tostring(ok) .. " " .. why]])
  end)
end)

-- What C does with a stack in one step (a hook that is set, the collector, an error on its way) visits all of its calls.
describe("calls within each other", function()
  it("end in an error that can be caught, again and again, in coroutines and below handlers too", function()
    local g <close> = gateway.start { workers = 1, scripts = { ["tools/calls.lua"] = tool [[
      local n
      local function again() n = n + 1 return 1 + again() end
      local function deepest(call, ...)
        n = 0
        local ok, why = call(...)
        assert(not ok and tostring(why):find("stack overflow", 1, true), why)
        return n
      end
      local found = {}
      for i = 1, 20 do
        found[#found + 1] = deepest(pcall, again)
        found[#found + 1] = deepest(xpcall, again, function(why) return tostring(why) end)
        found[#found + 1] = deepest(coroutine.resume, coroutine.create(again))
      end
      return math.min(table.unpack(found)) .. " " .. math.max(table.unpack(found))]] } }
    local c <close> = g:client "2026-07-28"
    local least, most = c:result("tools/call", { name = "calls" }, 20).content[1].text:match "^(%d+) (%d+)$"
    assert.is_true(tonumber(least) > 19000, least)
    assert.is_true(tonumber(most) < 20100, most)
  end)
end)
