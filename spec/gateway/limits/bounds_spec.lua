-- Every C function that a script reaches is bounded: a table lists the bound of one call of each function, and the
-- worst known call takes no longer than the table says.
local beat = require "spec.helpers.beat"
local bounds = require "spec.helpers.bounds"
local reachable = require "spec.helpers.reachable"

describe("the table of bounds", function()
  it("has every function of C that a strict script reaches, and no other", function()
    local there, missing, gone = {}, {}, {}
    for name in reachable.list():gmatch "[^\n]+" do
      there[name] = true
      if not bounds.names[name] then missing[#missing + 1] = name end
    end
    for name in pairs(bounds.names) do
      if not there[name] and not name:find "^instruction " then gone[#gone + 1] = name end
    end
    table.sort(gone)
    assert.equal("", table.concat(missing, "\n"), "no row in spec/helpers/bounds.lua has these")
    assert.equal("", table.concat(gone, "\n"), "no script reaches these")
  end)
end)

describe("each function of Lua's libraries", function()
  it("is called in a measured worst case of its row", function()
    local missing = {}
    for name, row in pairs(bounds.names) do
      local short = name:match "^%l+$" or name:match "^%l[%l%d]+%.(%l+)$"
      if short and (_G[name] or (_G[name:match "^[%l%d]+"] or {})[short]) then
        local is_measured = false
        for _, worst in ipairs(row.worst) do is_measured = is_measured or (" " .. worst[1] .. " " .. worst[2] .. " "):find("%f[%w]" .. short .. "%f[%W]") end
        if not is_measured then missing[#missing + 1] = name end
      end
    end
    table.sort(missing)
    assert.equal("", table.concat(missing, "\n"), "no worst case in spec/helpers/bounds.lua calls these")
  end)
end)

describe("the worst case of", function()
  local config = { limits = { call = { time = "5m", cpu = "60s", memory = "160MiB" } } } -- room for the text of a call that reaches json.encode's own bound
  for _, row in ipairs(bounds.rows) do
    if #row.worst > 0 then
      it(row.name .. " and its kin holds the worker no longer than the table says", function()
        local g <close> = beat.start { config = config }
        for _, worst in ipairs(row.worst) do
          local ms, got = beat.longest(g, worst[1], worst[2])
          assert.truthy(ms, worst[2] .. ": " .. tostring(got))
          assert.is_true(got.ok, worst[2] .. ": " .. tostring(got.value))
          if os.getenv "BOUNDS" then print(("%-90s %6.1f of %d ms"):format(worst[2]:sub(1, 90), ms, row.ms)) end
          assert.truthy(ms <= row.ms * beat.factor(), ("%s\n%s\na turn of %.1f ms, not %d"):format(worst[1], worst[2], ms, row.ms))
        end
        assert.has_nothing_left(g)
      end)
    end
  end
end)
