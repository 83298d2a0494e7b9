-- The values that a strict script can reach are a list (B-129), found here from inside the library; surface_spec walks
-- it in the binary.
local host = require "spec.helpers.host"

local expected = require("spec.helpers.reach").everything

local function reachable(base)
  local found, seen = {}, {}
  local function visit(prefix, value)
    if type(value) ~= "table" or seen[value] then return end
    seen[value] = true
    local names = {}
    for name in next, value do names[#names + 1] = name end
    table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
    for _, name in ipairs(names) do
      found[#found + 1] = prefix .. tostring(name)
      visit(found[#found] .. ".", value[name])
    end
    local mt = base.getmetatable(value)
    if type(mt) == "table" then
      found[#found + 1] = prefix .. "<metatable>"
      visit(found[#found] .. ".", mt)
    end
  end
  visit("", base)
  table.sort(found)
  return table.concat(found, "\n") .. "\n"
end

describe("what a script can reach", function()
  after_each(host.stop)

  it("is this list, and nothing beyond", function()
    host.start { ["tools/it.lua"] = "return tool { 'It.', function() return 1 end }" }
    local _, base = require("moonpool.registry.sandbox").new(function() end, "scripts/tools/it.lua")
    assert.equal(expected, reachable(base))
  end)
end)
