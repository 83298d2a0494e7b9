-- The order of merged lists: what scripts have, by name; then the things of each upstream, in the order of the
-- configuration, each in the order in which the upstream lists them. Pages follow that order.
local gateway = require "spec.helpers.gateway"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local OWN <const> = {
  ["tools/b_own.lua"] = [[return tool { "B.", function() return "" end }]], ["tools/a_own.lua"] = [[return tool { "A.", function() return "" end }]],
}

local function start(entries)
  local text = 'listen: "127.0.0.1:0"\nadmin: {listen: "127.0.0.1:0"}\nworkers: 2\nlimits: {page: 8KiB}\nupstreams:\n'
  return gateway.start { scripts = OWN, config = text .. entries }
end

-- The names in the list, and the number of its pages.
local function names(c)
  local found, cursor, pages = {}, nil, 0
  repeat
    local page = c:result("tools/list", { cursor = cursor })
    for _, entry in ipairs(page.tools) do found[#found + 1] = entry.name end
    cursor, pages = page.nextCursor, pages + 1
  until not cursor
  return found, pages
end

describe("a merged list", function()
  for _, revision in ipairs { "2024-11-05", "2026-07-28" } do
    it("keeps the order of the configuration and of each upstream, for a client of " .. revision, function()
      local one <close> = upstream.start { revision = "2025-11-25" }
      local two <close> = upstream.start { revision = "2026-07-28" }
      one:offer("tools", { "zeta", "alpha", "mid" })
      two:offer("tools", { "last", "first" })
      local g <close> = start(('  zoo: {url: "%s"}\n  ape: {url: "%s"}\n'):format(one.url, two.url))
      local c <close> = g:client(revision)
      local wanted = { "a_own", "b_own", "zoo_zeta", "zoo_alpha", "zoo_mid", "ape_last", "ape_first" }
      wait.for_fact("all tools", 20, function() return #names(c) == #wanted end)
      assert.same(wanted, names(c))
    end)
  end

  it("of many pages has each entry once, also where entries come and go between two pages", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local list = {}
    for i = 1, 350 do list[i] = ("t%03d"):format((i * 37) % 351) end
    u:offer("tools", list)
    local g <close> = start(('  many: {url: "%s", refresh: 1s}\n'):format(u.url))
    local c <close> = g:client "2026-07-28"
    wait.for_fact("all tools", 20, function() return #names(c) == 352 end)
    local all, pages = names(c)
    assert.is_true(pages >= 3, pages .. " pages")
    for i, name in ipairs(list) do assert.equal("many_" .. name, all[i + 2]) end
    local page = c:result("tools/list", {})
    local cursor, last = page.nextCursor, #page.tools - 2 -- two are tools of scripts
    -- first the last entry of the first page is removed, then some entries before it
    for _, gone in ipairs { { [last] = true }, { [3] = true, [4] = true, [last - 1] = true } } do
      local kept = {}
      for i, name in ipairs(list) do
        if not gone[i] then kept[#kept + 1] = name end
      end
      u:offer("tools", kept)
      wait.for_fact("the shorter list", 20, function() return #names(c) == #kept + 2 end)
      assert.equal("many_" .. list[last + 1], c:result("tools/list", { cursor = cursor }).tools[1].name)
    end
  end)
end)
