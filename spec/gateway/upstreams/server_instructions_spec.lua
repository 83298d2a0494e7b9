-- Instructions of upstreams: clients get them where the configuration says so, behind those of the configuration, if
-- they see anything of the upstream, and not if they are withheld.
local credentials = require "spec.helpers.credentials"
local gateway = require "spec.helpers.gateway"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local TEXT <const> = "Search before you create.\nAsk the \"user\"."
local WHOLE <const> = "Instructions of the server 'one', whose tools and prompts have names that begin with 'one_' here:\n" .. TEXT

-- The instructions that a new client of a revision gets.
local function instructions(g, revision, options)
  local c <close> = g:client(revision, options)
  if revision ~= "2026-07-28" then return c.server.instructions end
  local result = c:result("server/discover", {})
  return result.instructions, result
end

describe("the instructions of an upstream", function()
  for _, kind in ipairs(upstream.kinds()) do
    it(("of %s over %s reach clients by `instructions: true`, also the first ones, behind those of the configuration"):format(kind[1], kind[2]), function()
      local u <close> = upstream.start { revision = kind[1], transport = kind[2], instructions = TEXT }
      local g <close> = upstream.gateway({ one = u }, {
        entries = { one = { instructions = true } }, config = { server = { instructions = "Be brief." } }, workers = 2,
      })
      for _, revision in ipairs { "2024-11-05", "2025-11-25", "2026-07-28" } do assert.equal("Be brief.\n\n" .. WHOLE, (instructions(g, revision))) end
    end)
  end

  it("reach no client without the key", function()
    local u <close> = upstream.start { instructions = TEXT }
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client "2025-11-25"
    wait.for_fact("the list", 20, function() return #c:result("tools/list", {}).tools > 0 end)
    for _, revision in ipairs { "2025-11-25", "2026-07-28" } do assert.is_nil((instructions(g, revision))) end
  end)

  it("reach those clients alone that see something of it", function()
    local u <close> = upstream.start { instructions = TEXT }
    local g <close> = upstream.gateway({ one = u }, {
      entries = { one = { instructions = true, prefix = "" } },
      scripts = {
        ["auth/main.lua"] = credentials.script,
        ["upstreams/one.lua"] = 'return upstream { visible = function(who) return who.id == "user:ann" end }',
      },
    })
    for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
      assert.equal("Instructions of the server 'one':\n" .. TEXT, (instructions(g, revision, { token = "ann-1" })))
      local none, discovered = instructions(g, revision, { token = "bob-1" })
      assert.is_nil(none)
      assert.equal(discovered and "private", discovered and discovered.cacheScope)
    end
  end)

  it("are withheld if they have characters that people do not see, or are not approved", function()
    local u <close> = upstream.start { instructions = "Read this.\u{200B}" }
    local other <close> = upstream.start { instructions = TEXT }
    local config = { one = { instructions = true }, other = { instructions = true } }
    local g <close> = upstream.gateway({ one = u, other = other }, { entries = config, workers = 1 })
    local function withheld()
      local found = {}
      for _, name in ipairs { "one", "other" } do
        for _, one in ipairs(g:status().upstreams[name].withheld or {}) do
          if one.kind == "instructions" then found[#found + 1] = name .. ": " .. one.why end
        end
      end
      return table.concat(found, ", ")
    end
    assert.matches("Instructions of the server 'other'", (instructions(g, "2025-11-25")), 1, true)
    assert.is_nil((instructions(g, "2025-11-25")):find("server 'one'", 1, true))
    assert.matches("^one: .*invisible", withheld())
    local _, out, err = gateway.exec({ "check", "--connect" }, { cwd = g.dir })
    assert.truthy((out .. err):find("its instructions are withheld: they have the invisible character", 1, true), out .. err)

    assert.equal(0, (gateway.exec({ "lock", "other", "--yes" }, { cwd = g.dir })))
    local path = g.dir .. "/moonpool.lock"
    local file = assert(io.open(path, "rb"))
    local lines = file:read "a"
    file:close()
    assert.truthy(lines:find("other  instructions  -", 1, true), lines)
    file = assert(io.open(path .. ".new", "wb"))
    file:write((lines:gsub("(other  instructions  %-  v2:sha256:)%x%x%x%x", "%10000")))
    file:close()
    assert(os.rename(path .. ".new", path))
    wait.for_fact("the lock", 20, function() return withheld():find("other: its definition differs from the approved one", 1, true) end)
    assert.is_nil((instructions(g, "2026-07-28")))
  end)
end)
