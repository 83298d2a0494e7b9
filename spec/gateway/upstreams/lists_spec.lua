-- One upstream that is wrong, slow or absent costs only itself: the lists of the others come in time, and without its
-- bad entries.
local free_port = require "spec.helpers.free_port"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local faults = upstream.faults

local function names(c, method, member)
  local found, cursor = {}, nil
  repeat
    local page = c:result(method or "tools/list", { cursor = cursor })
    for _, entry in ipairs(page[member or "tools"]) do found[#found + 1] = entry.name end
    cursor = page.nextCursor
  until not cursor
  return found
end

local function has(list, name)
  for _, one in ipairs(list) do
    if one == name then return true end
  end
  return false
end

local GOOD <const> = '{"name":"good","inputSchema":{"type":"object"}}'

-- For each row: what the upstream does, and which of its tools are served.
local ROWS <const> = {
  ["never answers"] = { faults.hangs() },
  ["answers an error"] = { faults.error(-32603, "broken") },
  ["has null for a list"] = { faults.list "null" },
  ["has null in a list"] = { faults.list('[null,' .. GOOD .. ',null]'), "good" },
  ["has a list that is no list"] = { faults.list '{"name":"good"}' },
  ["has entries without names"] = { faults.list('[{},{"name":7},{"name":""},[],"good",' .. GOOD .. "]"), "good" },
  ["has entries with broken schemas"] = { faults.list('[{"name":"a","inputSchema":7},{"name":"b","inputSchema":[]},' .. GOOD .. "]"), "good" },
  ["gives the same cursor again and again"] = { faults.cyclic(GOOD), "good" },
  ["gives a login page"] = { faults.html() },
  ["closes the connection"] = { faults.dies() },
  ["answers by 500"] = { faults.status(500) },
}

describe("a list", function()
  for what, row in pairs(ROWS) do
    it("of several upstreams, one of which " .. what, function()
      local bad <close> = upstream.start { revision = "2025-11-25", name = "bad" }
      local fine <close> = upstream.start { revision = "2025-06-18", name = "fine" }
      bad:when("tools/list", row[1])
      local g <close> = upstream.gateway({ bad = bad, fine = fine }, {
        entries = { bad = { list_wait = "1s", timeout = "2s" }, fine = { list_wait = "10s" } },
      })
      local c <close> = g:client "2026-07-28"
      wait.for_fact("the tools of the good upstream", 20, function() return has(names(c), "fine_echo") end)
      if row[2] then wait.for_fact("its good tool", 20, function() return has(names(c), "bad_" .. row[2]) end) end
      for _, name in ipairs(names(c)) do
        assert.is_true(name:find "^fine_" ~= nil or name == "bad_" .. tostring(row[2]), name)
      end
      assert.equal('{"n":1}', upstream.text(c:call("tools/call", { name = "fine_echo", arguments = { n = 1 } })))
    end)
  end

  it("of several upstreams, one of which is not there", function()
    local fine <close> = upstream.start { revision = "2025-06-18" }
    local absent, missing = { url = ("http://127.0.0.1:%d/mcp"):format(free_port()) }, { command = { "/nonexistent/program" } }
    local g <close> = upstream.gateway { absent = absent, missing = missing, fine = fine }
    local c <close> = g:client "2026-07-28"
    wait.for_fact("the tools of the good upstream", 20, function() return has(names(c), "fine_echo") end)
    assert.equal(12, #names(c))
  end)

  it("of a million tools is cut at the limit", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:when("tools/list", faults.endless(1000000, 5000))
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client "2026-07-28"
    wait.for_fact("the tools", 30, function() return c:result("tools/list", {}).tools[1] end)
    assert.equal(10000, #names(c))
    assert.is_true(#u:all { method = "tools/list" } <= 101)
  end)

  it("in pages is read to its end", function()
    local u <close> = upstream.start { revision = "2025-11-25", page = 2 }
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client "2025-11-25"
    assert.equal(12, #names(c))
    assert.equal(6, #u:all { method = "tools/list" })
  end)
end)
