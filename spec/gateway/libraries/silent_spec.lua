-- Tools and policies that return nothing: their results are empty, and the log and `moonpool check` say so.
local gateway = require "spec.helpers.gateway"

local scripts = {
  ["tools/quiet.lua"] = [[return tool { "Quiet.", function() store.set("x", 1) end }]],
  ["tools/says.lua"] = [[return tool { "Says.", function() return "something" end }]],
  ["tools/other.lua"] = [[return tool { "Other.", function() return "something" end }]],
  ["policy/forgets.lua"] = [[return policy { "Forgets.", tools = { "says" }, function(call, next)
    next(call)
  end }]],
  ["policy/around.lua"] = [[return policy { "Fine.", order = -1, function(call, next) return next(call) end }]],
  ["policy/refuses.lua"] = [[return policy { "Refuses.", tools = { "other" }, function(call) fail "no" end }]],
}

local function count(g, event)
  local n = 0
  for _ in g:log():gmatch(event) do n = n + 1 end
  return n
end

describe("a script that returns nothing", function()
  it("is logged, once", function()
    local g <close> = gateway.start { workers = 1, scripts = scripts }
    local c = g:client "2026-07-28"
    for _ = 1, 3 do
      assert.same({}, c:result("tools/call", { name = "quiet" }).content)
      assert.same({}, c:result("tools/call", { name = "says" }).content)
      assert.is_true(c:result("tools/call", { name = "other" }).isError)
    end
    local told = g:wait_log("policy returned nothing", { policy = "forgets" }).fields
    assert.equal("scripts/policy/forgets.lua", told.file)
    assert.match("return next(call)", told.hint, 1, true)
    told = g:wait_log("tool returned nothing", { name = "quiet" }).fields
    assert.equal("scripts/tools/quiet.lua", told.file)
    assert.equal(1, count(g, "policy returned nothing"))
    assert.equal(2, count(g, "tool returned nothing"))          -- the policy of `says` returns nothing
    c:close()
  end)

  it("is reported by check if it is a policy that never returns", function()
    local dir = gateway.prepare { scripts = scripts }
    local _, out, err = gateway.exec { "check", dir .. "/moonpool.yaml" }
    local said = out .. err
    assert.match("scripts/policy/forgets.lua:1: the policy 'forgets' never returns a value: its clients get empty results", said, 1, true)
    assert.match("hint: write 'return next(call)'", said, 1, true)
    assert.not_match("around.lua", said, 1, true)
    assert.not_match("refuses.lua", said, 1, true)
  end)
end)
