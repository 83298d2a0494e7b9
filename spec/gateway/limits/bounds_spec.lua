-- Every C function that a script reaches is bounded: a table lists the bound of one call of each function, and the
-- worst known call takes no longer than the table says.
local beat = require "spec.helpers.beat"
local bounds = require "spec.helpers.bounds"
local reachable = require "spec.helpers.reachable"
local upstream = require "spec.helpers.upstream"

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

-- Functions that this spec does not measure: those that only other measured functions call, and those whose arguments
-- no caller chooses.
local unmeasured = {
  ["math.max (Lua's)"] = "called with what the functions in their place have counted", ["string.format (Lua's)"] = "the same",
  ["setmetatable (Lua's)"] = "the same", ["lua-cjson encode"] = "the same", ["keys.generate"] = "the command line alone",
  ["host.served.publish"] = "goes by the tools of the configuration", ["moonpool.channel:send"] = "measured as whole answers below",
  ["host.script.guarded"] = "Lua with a time of its own",
}

describe("each function that may hold a worker for more than 20 ms", function()
  it("is measured in its worst case", function()
    for _, row in ipairs(bounds.rows) do
      assert.is_true(row.ms <= 20 or #row.worst > 0 or unmeasured[row.name] ~= nil, row.name .. " and its kin have no worst case in spec/helpers/bounds.lua")
    end
  end)
end)

describe("an answer of an upstream with 15 MiB", function()
  local SIZE <const>, VALUES <const> = 15 << 20, 900000
  local shapes = {
    text = '"' .. ("x"):rep(SIZE) .. '"', escapes = '"' .. ("\\u00e9"):rep(SIZE // 6) .. '"', space = "[" .. (" "):rep(SIZE) .. "0]",
    zeros = "[" .. ("0,"):rep(VALUES) .. "0]",
    digits = "0." .. ("123456789"):rep(SIZE // 9),
  }
  for revision, transport in pairs { ["2025-11-25"] = "http", ["2025-06-18"] = "stdio" } do
    it("holds its worker for no longer than 50 ms, whatever is in it, over " .. transport, function()
      local u <close> = upstream.start { revision = revision, transport = transport }
      local g <close> = beat.start { config = {
        upstreams = upstream.entries({ one = u }, { one = { prefix = "" } }),
        limits = { call = { time = "5m", cpu = "60s", memory = "512MiB" }, lua_memory = "1GiB" },
      } }
      local c <close> = g:client "2026-07-28"
      c:result "tools/list"
      for name, text in pairs(shapes) do
        local ms, answer = beat.within(50, name, function()
          u:when("tools/call echo", function(x) x:run(function() x:result('{"content":[],"structuredContent":{"a":' .. text .. "}}") end) end, 1)
          return beat.during(g, function() return c:call("tools/call", { name = "echo", arguments = { n = 1 } }) end)
        end)
        -- most of these results are longer than limits.call.output, which is an error
        assert.is_table(answer.result or answer.error, name)
        if os.getenv "BOUNDS" then print(("%-20s %6.1f of 50 ms"):format(name, ms)) end
      end
    end)
  end
end)

describe("the worst case of", function()
  local limits = { call = { time = "5m", cpu = "60s", memory = "160MiB" } } -- room for the text of a call that reaches json.encode's own bound
  local function measure(g, row, is_own)
    for _, worst in ipairs(row.worst) do
      if (worst.is_own or false) == is_own then
        local ms, got = beat.within(row.ms, worst[1] .. "\n" .. worst[2], function() return beat.longest(g, worst[1], worst[2]) end)
        assert.is_true(got.ok, worst[2] .. ": " .. tostring(got.value))
        if os.getenv "BOUNDS" then print(("%-90s %6.1f of %d ms"):format(worst[2]:sub(1, 90), ms, row.ms)) end
      end
    end
    -- the other gateway has an upstream that keeps an event stream open
    if not is_own then assert.has_nothing_left(g) end
  end

  for _, row in ipairs(bounds.rows) do
    local has_own, has_others = false, false
    for _, worst in ipairs(row.worst) do
      has_own, has_others = has_own or worst.is_own, has_others or not worst.is_own
    end
    if has_others then
      it(row.name .. " and its kin holds the worker no longer than the table says", function()
        local g <close> = beat.start { config = { limits = limits, scripts = { allow = { net = { "127.0.0.1:1" } } } } }
        measure(g, row, false)
      end)
    end
    if has_own then
      it(row.name .. " and its kin, which the gateway calls, holds the worker no longer than the table says", function()
        local u <close> = upstream.start()
        local g <close> = beat.start { config = { scripts = { path = "scripts", trust = "full" }, upstreams = upstream.entries { one = u }, limits = limits } }
        measure(g, row, true)
      end)
    end
  end
end)
