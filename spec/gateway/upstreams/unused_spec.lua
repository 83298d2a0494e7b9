-- A gateway without upstreams loads nothing of what serves them: each Lua state would carry it, at each start and
-- reload.
local trusted = require "spec.helpers.trusted"

local LOADED <const> = [[
  local found = {}
  for name in pairs(package.loaded) do
    local kind = name:match "^moonpool%.upstream" or name:match "^moonpool%.registry%.federated" or name:match "^moonpool%.registry%.follow"
    if kind then found[#found + 1] = name end
  end
  table.sort(found)
  return found]]

describe("a gateway without upstreams", function()
  it("loads no module for them, at its start or at a reload", function()
    local g <close> = trusted.start { workers = 1 }
    local me = g:client "2026-07-28"
    local expected = { "moonpool.upstream.config", "moonpool.upstream.hops" }
    assert.same(expected, trusted.run(me, LOADED))
    local file = assert(io.open(g.dir .. "/scripts/tools/other.lua", "w"))
    file:write 'return tool { "Another.", function() return "x" end }'
    file:close()
    g:wait_log("reloaded", {}, 20)
    assert.same(expected, trusted.run(me, LOADED))
    me:close()
  end)
end)
