-- What a policy has in its hands, `call` and `next`: what it cannot reach with them, and what they are when it keeps them.
local gateway = require "spec.helpers.gateway"
local scrape = require "spec.helpers.scrape"

local scripts = {
  ["tools/echo.lua"] = [[
    local times = 0
    return tool { "Says how often it ran.", input = { what = t.string, n = t.integer { default = 0 } }, function(args)
      times = times + 1
      if args.what == "catch" then error "a bug" end
      return args.what .. " " .. args.n .. " " .. times
    end }]],
  ["tools/slow.lua"] = [[return tool { "Waits.", timeout = 0.2, function() sleep(20) end }]],
  ["policy/1.lua"] = [[
    local kept = {}
    local cases = {}
    function cases.pairs(call, next)
      local count = 0
      for _ in pairs(call) do count = count + 1 end
      return count .. " members, " .. next(call)
    end
    function cases.metatable(call) return tostring(getmetatable(call)) end
    function cases.replace(call) return tostring((pcall(setmetatable, call, { __index = {} }))) .. " " .. call.name end
    function cases.name(call) return tostring(call):gsub("0x%x+", "ADDRESS") end
    function cases.fields(call)
      return table.concat({ call.kind, call.name, tostring(call.uri), tostring(call.upstream), tostring(call.phase), call.method,
        tostring(call.principal), tostring(call.nothing) }, " ")
    end
    function cases.twice(call, next) return next(call) .. ", " .. next() end
    function cases.keep(call, next)
      kept.call, kept.next = call, next
      return next(call)
    end
    function cases.later(call)
      local ok, why = pcall(function() return kept.call.principal end)
      local value = kept.next()
      return table.concat({ tostring(ok), why:match "this call has ended" or why, kept.call.name, kept.call.args.what, value, call.args.what }, ", ")
    end
    function cases.catch(call, next)
      local ok, why = pcall(next, call)
      return tostring(ok) .. " " .. why:match "a bug$"
    end
    function cases.sleep(call, next)
      sleep(0.001)
      local value = next(call)
      sleep(0.001)
      return value .. " after a while"
    end
    function cases.swap(call, next)
      call.args = { what = "swapped", n = 2 }
      return next(call)
    end
    function cases.wrong(call, next)
      call.args = { what = 5, n = 1 }
      return next(call)
    end
    function cases.nothing(call, next) next(call) end
    function cases.wait() sleep(20) end
    return policy { tools = { "echo" }, function(call, next) return cases[call.args.what](call, next) end }]],
  ["policy/2.lua"] = [[return policy { tools = { "*" }, function(call, next) return next(call) end }]],
}

describe("a policy's call and next", function()
  local g, c

  lazy_setup(function()
    g = gateway.start { scripts = scripts, workers = 1, config = { limits = { call = { time = "500ms" } } } }
    c = g:client "2026-07-28"
  end)
  lazy_teardown(function()
    local _ <close> = g -- luacheck: ignore 211
    c:close()
  end)

  local function text(what)
    local block = c:result("tools/call", { name = "echo", arguments = { what = what, n = 1 } }).content[1]
    return block and block.text
  end

  -- The text but for the number of times that the tool has run.
  local function said(what) return (text(what):gsub(" %d+$", "")) end

  it("list no members, and have no metatable that a script could reach", function()
    assert.equal("0 members, pairs 1", said "pairs")
    assert.equal("nil", text "metatable")
    assert.equal("false echo", text "replace")
    assert.equal("moonpool.turn: ADDRESS", text "name")
  end)

  it("have the fields of the call, and those of the policy", function()
    assert.equal("tool echo nil nil nil tools/call anonymous nil", text "fields")
  end)

  it("run the tool as often as next is called", function()
    local first, second = text "twice":match "^twice 1 (%d+), twice 1 (%d+)$"
    assert.equal(tonumber(first) + 1, tonumber(second))
  end)

  it("may be kept: next runs what is behind it, and fields of a call that has ended are an error", function()
    assert.equal("keep 1", said "keep")
    assert.match("^false, this call has ended, echo, keep, keep 1 %d+, later$", text "later")
  end)

  it("raise errors of what is behind them, which may be caught", function() assert.equal("false a bug", text "catch") end)

  it("may be used between waits", function() assert.match("^sleep 1 %d+ after a while$", text "sleep") end)

  it("replace the arguments, which have to fit", function()
    assert.equal("swapped 2", said "swap")
    local id = text "wrong":match "^internal error (%x+)$"
    assert.match("they do not fit: argument 'what' must be a string", g:wait_log("tool failed", { id = id }).fields.why, 1, true)
  end)

  it("give nothing where the policy returns nothing, which is logged", function()
    assert.is_nil(text "nothing")
    g:wait_log("policy returned nothing", { policy = "1" })
  end)

  it("end with the time limit of the call", function()
    for _, params in ipairs { { name = "echo", arguments = { what = "wait" } }, { name = "slow" } } do
      assert.equal("the call took too long", c:call("tools/call", params).error.message)
    end
  end)

  it("leave counts of the decisions", function()
    local function decided(how) return ('moonpool_policy_decisions_total{policy="1",decision="%s"}'):format(how) end
    scrape.wait(g, { [decided "passed"] = 8, [decided "answered"] = 5 })
    c:close()
    assert.has_nothing_left(g)
  end)
end)

describe("policies around one thing", function()
  -- The text of a tool's result behind so many policies; and why it failed, if it did.
  local function behind(count)
    local many = { ["tools/a.lua"] = "return tool { 'Says yes.', function() return 'yes' end }" }
    for i = 1, count do many["policy/p" .. i .. ".lua"] = "return policy { function(call, next) return next(call) end }" end
    local g <close> = gateway.start { scripts = many, workers = 1 }
    local c <close> = g:client "2026-07-28"
    local result = c:result("tools/call", { name = "a" })
    return result.content[1].text, result.isError and g:wait_log("tool failed").fields.why
  end

  it("are 128 at most: a call through more is refused", function()
    assert.equal("yes", (behind(128)))
    local text, why = behind(129)
    assert.match("^internal error", text)
    assert.equal("129 policies are around it, and at most 128 can be", why)
  end)
end)

describe("the metatable of a policy's call", function()
  it("does nothing with other values, where scripts have the whole library of Lua", function()
    local g <close> = gateway.start { workers = 1, config = { scripts = { trust = "full" } }, scripts = {
      ["tools/a.lua"] = "return tool { 'Says yes.', function() return 'yes' end }",
      ["policy/a.lua"] = [[return policy { function(call)
        local made, list = debug.getmetatable(call), {}
        for _, name in ipairs { "__index", "__newindex", "__close" } do
          list[#list + 1] = name .. " " .. tostring((pcall(made[name], io.stdout, "args", "error")))
        end
        return table.concat(list, ", ") end }]],
    } }
    local c <close> = g:client "2026-07-28"
    assert.equal("__index false, __newindex false, __close false", c:result("tools/call", { name = "a" }).content[1].text)
  end)
end)
