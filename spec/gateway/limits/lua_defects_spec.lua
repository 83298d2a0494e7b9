-- Defects that some release of Lua 5.4 has and scripts reach: none of them ends the gateway or blocks the worker.
-- docs/dev/lua.md lists them all.
local beat = require "spec.helpers.beat"
local code = require "spec.helpers.code"

describe("Recursion in 'getobjname'", function()
  local shapes = {
    fields = [["local a = ... return a" .. (".b"):rep(N) .. " + 1"]],
    indices = [["local a, k = ..., 'b' return a" .. ("[k]"):rep(N) .. " + 1"]],
    ["in parentheses"] = [["local a = ... return " .. ("("):rep(90) .. "a" .. (".b.b.b)"):rep(90) .. (".b"):rep(N) .. " + 1"]],
    ["with comments"] = [["local a = ... return a" .. (" --[==[ ] + ]==] .b --x\n"):rep(N) .. " + 1"]],
    ["with indices within"] = [["local a = ... return a" .. ("[a.k.k.k.k]"):rep(N) .. ".b + 1"]],
    ["behind a method"] = [["local a = ... return a:m()" .. (".b"):rep(N) .. " + 1"]],
    ["in a table"] = [["local a = ... return { 1, a" .. (".b"):rep(N) .. " + 1 }"]],
    ["in a call"] = [["local a = ... return print(a.b, a" .. (".b"):rep(N) .. " + 1)"]],
    ["as an index"] = [["local a = ... return a[a" .. (".b"):rep(N) .. " + 1]"]],
  }
  local setup = "local a = {} a.b, a.k, a[a] = a, a, a function a.m() return a end "

  it("is not reached: such an expression is refused", function()
    local g <close> = code.start { workers = 1 }
    local me = g:client "2026-07-28"
    for name, shape in pairs(shapes) do
      for _, n in ipairs { 210, 5000 } do
        local why = code.run(me, setup .. "local f, why = load(" .. shape:gsub("N", n) .. ") return why or 'compiled'")
        assert.truthy(why:find("more than 200 field accesses in one expression", 1, true), name .. ": " .. tostring(why))
      end
    end
    me:close()
    assert.has_nothing_left(g)
  end)

  it("leaves expressions of every ordinary kind alone", function()
    local g <close> = code.start { workers = 1 }
    local me = g:client "2026-07-28"
    assert.same({ "table", "table", 300, "string", 1001, 900 }, code.run(me, [=[
      local function run(text) return assert(load(text))() end
      local fields, calls, list = ("a.b, "):rep(1000), "local t " .. ("t = a.b.c[1].d\n"):rep(500), {}
      for i = 1, 300 do list[i] = "[a.b.c] = a.b['x']" end
      local head = "local a = { b = { c = { { d = 1 } }, x = 2 } } "
      return {
        type(run(head .. "return { " .. fields .. "}")), type(run(head .. calls .. "return a")),
        run(head .. "local n = 0 " .. ("n = n + a.b.c[1].d "):rep(300) .. "return n"),
        type(run("return '" .. ("a.b."):rep(1000) .. "' -- " .. (".b"):rep(1000))),
        #run("return [[" .. ("a[b]"):rep(250) .. " ]]"),
        run("local o = { n = 0 } function o:add() self.n = self.n + 1 return self end return o" .. (":add()"):rep(900) .. ".n"),
      }]=]))
    me:close()
    assert.has_nothing_left(g)
  end)

  it("takes no time where the limit allows it, in the longest function there may be", function()
    if os.getenv "TSAN_OPTIONS" then return pending "ThreadSanitizer's build compiles it in more time than there is" end
    local g <close> = beat.start()
    local prepare = setup .. [[local s = "local a = ... local x " .. ("x = a "):rep(150000) .. "return a" .. (".b"):rep(200) .. " + 1"
      local f = assert(load(s))]]
    local _, got = beat.within(150, "the longest function", function() return beat.longest(g, prepare, "return select(2, pcall(f, a))") end)
    assert.truthy(got.value:find("attempt to perform arithmetic on a table value (field 'b')", 1, true), got.value)
    assert.has_nothing_left(g)
  end)

  it("is refused in files, with its place", function()
    local ok, why = pcall(code.start, { workers = 1, config = { scripts = { broken = "refuse" } }, scripts = {
      ["lib/long.lua"] = "local a = {}\na.b = a\nreturn function() return a" .. (".b"):rep(300) .. " + 1 end",
    } })
    assert.is_false(ok)
    assert.truthy(why:find("scripts/lib/long.lua:3: more than 200 field accesses in one expression", 1, true), why)
  end)
end)

describe("'utf8.codes' accepts spurious continuation bytes", function()
  it("and raises an error, without reading beyond the text", function()
    local g <close> = code.start { workers = 1 }
    local me = g:client "2026-07-28"
    local why = code.run(me, [[local ok, why = pcall(function() for _ in utf8.codes "ab\xff" do end end) return tostring(why)]])
    assert.truthy(why:find("invalid UTF-8 code", 1, true), why)
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("what releases of Lua 5.4 got wrong", function()
  local cases = {
    ["the stack after __concat, which forged values"] = { "abcR", [[
      local function grow(n) if n > 0 then return (grow(n - 1)) end end
      local x = setmetatable({}, { __concat = function(a) grow(200) return tostring(a) .. "R" end })
      return "a" .. "b" .. "c" .. x]] },
    ["'break' out of a loop with a closing value, whose body keeps the loop's variable"] = { "loop y", [[
      local closed = {}
      local function closing(name) return setmetatable({}, { __close = function() closed[#closed + 1] = name end }) end
      local function each() return next, { 1 }, nil, closing "loop" end
      local function run()
        for _, e in each() do local f = function() return e end if f() then break end end
        local y <close> = closing "y"
      end
      run()
      return table.concat(closed, " ")]] },
    ["bitwise operations of constants"] = { "3 attempt to perform bitwise operation on a table value", [[
      local x <const> = 1
      local ok, why = pcall(load "local t <const> = ... return t | 3.0", {})
      return (x | 2.0) .. " " .. why:match "attempt[^(]*value"]] },
    ["an index that is a comparison"] = { "yn", [[
      local t, a, b = { [true] = "y", [false] = "n" }, 1, 1
      return t[a == b] .. t[a ~= b] ]] },
    ["a field of the text '_ENV', called a global"] = { "field 'u'", [[
      local ok, why = pcall(function() return ("_ENV").u + 1 end)
      return why:match "%((.-)%)"]] },
  }

  for name, case in pairs(cases) do
    it("is right: " .. name, function()
      local g <close> = code.start { workers = 1 }
      local me = g:client "2026-07-28"
      assert.equal(case[1], code.run(me, case[2]))
      me:close()
      assert.has_nothing_left(g)
    end)
  end
end)
