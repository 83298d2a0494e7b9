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
  table = function(_, args) return tostring(args) end,
  meta = function(call) return ("%s"):format(call.meta) end,
  ["function"] = function(_, args) return tostring(function() return args end) end,
  object = function() return tostring(regex.new "a+") end,
  closer = function() return tostring(closing(function() end)) end,
  text = function() return tostring(coroutine.running()) end,
  format = function() return ("%s"):format(coroutine.running()) end,
  ["inner text"] = function()
    local text
    coroutine.wrap(function() text = tostring(coroutine.running()) end)()
    return text
  end,
}
return tool { "Knows.", input = { way = t.string }, function(args, call)
  local it = ways[args.way](call, args)
  if it == nil then return "nothing" end
  local before = known[it]
  known[it] = true
  return before and "known" or "new"
end }]],
}

describe("a value by which a script knows a call", function()
  it("is of that call alone", function()
    local g <close> = gateway.start { workers = 1, scripts = scripts }
    local c <close> = g:client "2026-07-28"
    for _, way in ipairs { "running", "inner", "parallel", "waited", "call", "text", "format", "inner text", "table", "meta", "function",
      "object", "closer" } do
      for _ = 1, 300 do
        assert.equal("new", c:call("tools/call", { name = "know", arguments = { way = way } }).result.content[1].text, way)
      end
    end
  end)
end)
