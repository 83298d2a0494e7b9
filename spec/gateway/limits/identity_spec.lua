-- A value by which a script knows a call is never that of another call: what one caller left is not another one's.
local gateway = require "spec.helpers.gateway"

local scripts = {
  ["tools/know.lua"] = [[
local known = {}
local ways = {
  running = function() return (coroutine.running()) end,
  inner = function()
    local co
    coroutine.wrap(function() co = coroutine.running() end)()
    return co
  end,
  parallel = function() return (parallel { function() return (coroutine.running()) end })[1] end,
  waited = function() sleep(0) return (coroutine.running()) end,
  call = function(call) return call end,
  text = function() return tostring(coroutine.running()) end,
  format = function() return ("%s"):format(coroutine.running()) end,
  ["inner text"] = function()
    local text
    coroutine.wrap(function() text = tostring(coroutine.running()) end)()
    return text
  end,
}
return tool { "Knows.", input = { way = t.string }, function(args, call)
  local it = ways[args.way](call)
  if it == nil then return "nothing" end
  local before = known[it]
  known[it] = true
  return before and "known" or "new"
end }]],
}

describe("a coroutine or call that a script has as a value", function()
  it("is of one call alone", function()
    local g <close> = gateway.start { workers = 1, scripts = scripts }
    local c <close> = g:client "2026-07-28"
    for _, way in ipairs { "running", "inner", "parallel", "waited", "call", "text", "format", "inner text" } do
      for _ = 1, 300 do
        assert.equal("new", c:call("tools/call", { name = "know", arguments = { way = way } }).result.content[1].text, way)
      end
    end
  end)
end)
