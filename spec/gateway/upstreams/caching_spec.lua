-- How long clients may keep a list, and whether they may share it: of what an upstream says and what the gateway says, the
-- stricter holds. A list that an upstream keeps for one user is never said to be everybody's.
local upstream = require "spec.helpers.upstream"

local NEWEST <const> = "2026-07-28"
local LISTS <const> = { tools = "tools/list", prompts = "prompts/list", resources = "resources/list", templates = "resources/templates/list" }
local OURS <const> = 5000

-- An upstream whose pages of tools end with these members, in turn.
local function saying(pages)
  local u = upstream.start { revision = NEWEST, listen = false }
  u:when("tools/list", function(x)
    local n = math.tointeger(tonumber(x.params.cursor or "1"))
    local more = pages[n + 1] and (',"nextCursor":"%d"'):format(n + 1) or ""
    x:result(('{"resultType":"complete","tools":[{"name":"t%d","inputSchema":{"type":"object"}}]%s%s}'):format(n, more, pages[n]))
  end)
  return u
end

local function said(ttl, scope) return (',"ttlMs":%d,"cacheScope":"%s"'):format(ttl, scope) end

local function shown(g, method)
  local c <close> = g:client(NEWEST)
  local result = c:result(method)
  return { result.ttlMs, result.cacheScope }
end

describe("the lifetime of a list", function()
  for _, case in ipairs {
    { { said(0, "private") }, 0, "private" }, { { said(100, "public") }, 100, "public" }, { { said(60000, "public") }, OURS, "public" },
    { { said(60000, "private") }, OURS, "private" }, { { "" }, 0, "private" }, { { ',"ttlMs":-5,"cacheScope":7' }, 0, "private" },
    { { said(60000, "public"), said(300, "private"), said(900, "public") }, 300, "private" },
  } do
    it("is the stricter one of the upstream's pages " .. table.concat(case[1], " then "), function()
      local u <close> = saying(case[1])
      local g <close> = upstream.gateway { one = u }
      for _ = 1, 2 do assert.same({ case[2], case[3] }, shown(g, "tools/list")) end
    end)
  end

  it("is the strictest one of several upstreams, for each list by itself", function()
    local a <close> = saying { said(2000, "public") }
    local b <close> = saying { said(700, "private") }
    for _, u in ipairs { a, b } do
      u:when("prompts/list", function(x) x:result('{"resultType":"complete","prompts":[]' .. said(60000, "public") .. "}") end)
    end
    local g <close> = upstream.gateway { one = a, two = b }
    assert.same({ 700, "private" }, shown(g, "tools/list"))
    assert.same({ OURS, "public" }, shown(g, "prompts/list"))
  end)

  it("is the gateway's own where upstreams speak an older revision, which says nothing", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway { one = u }
    for _, method in pairs(LISTS) do assert.equal(OURS, shown(g, method)[1]) end
  end)
end)
