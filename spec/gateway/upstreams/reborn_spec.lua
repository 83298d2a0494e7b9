-- A program that has died and is started again may be another version of itself: its lists are read again at once, and
-- not at `refresh`, and what it notifies of later is known, too.
local credentials = require "spec.helpers.credentials"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local function names_of(c)
  local names = {}
  for i, tool in ipairs(c:result("tools/list", {}).tools) do names[i] = tool.name end
  table.sort(names)
  return table.concat(names, " ")
end

local function lists(c, expected)
  wait.for_fact("the tools " .. expected, 30, function() return names_of(c) == expected end)
end

local function call(c, name) return upstream.text(c:call("tools/call", { name = name, arguments = { n = 1 } })) end

describe("a program that has died, and whose next life has other tools", function()
  for _, revision in ipairs { "2025-06-18", "2026-07-28" } do
    it("has its lists read again at once, and its notifications after that (" .. revision .. ")", function()
      local u <close> = upstream.start { revision = revision, transport = "stdio" }
      u:offer("tools", { "first", "stays" })
      local g <close> = upstream.gateway({ one = u }, { workers = 2, entries = { one = { prefix = "", refresh = "1h", list_wait = "20s" } } })
      local c <close> = g:client "2025-11-25"
      lists(c, "first stays")
      local stream = c:get_stream()
      call(c, "stays")
      u:offer("tools", { "second", "stays" })
      for _, child in ipairs(u:alive()) do child:order("exit", "1") end
      lists(c, "second stays")
      stream:wait_event("notifications/tools/list_changed", 20)
      call(c, "second")
      if u.is_modern then wait.for_fact("a request that listens", 20, function() return #u:listening() == 1 end) end
      u:offer("tools", { "third", "stays" })
      u:announce "notifications/tools/list_changed"
      lists(c, "stays third")
      stream:close()
    end)
  end

  it("has them read again in the program of a client alone", function()
    local u <close> = upstream.start { revision = "2025-06-18", transport = "stdio" }
    local function offer(version)
      u:when("tools/list", function(x)
        local name = x.session.number > 3 and version or "first"
        x:result(('{"tools":[{"name":"%s","inputSchema":{"type":"object"}},{"name":"stays","inputSchema":{"type":"object"}}]}'):format(name))
      end)
    end
    u:offer("tools", { "first", "second", "stays" })
    offer "second"
    local g <close> = upstream.gateway({ one = u }, {
      workers = 2, entries = { one = { prefix = "", refresh = "1h", list_wait = "20s" } }, scripts = { ["auth/main.lua"] = credentials.script },
    })
    local c <close> = g:client("2025-11-25", { token = "ann-1", capabilities = { roots = {} } })
    lists(c, "first stays")
    call(c, "stays")                                       -- the client's own program, the third: two have read lists
    assert.equal(3, #u:all { kind = "start" })
    for _, child in ipairs(u:alive()) do
      if child.number == 3 then child:order("exit", "1") end
    end
    g:wait_log("upstream process ended", {}, 20)
    call(c, "stays")
    lists(c, "second stays")
    call(c, "second")
    local other <close> = g:client("2025-11-25", { token = "bob-1", capabilities = {} })
    lists(other, "first stays")
  end)
end)
