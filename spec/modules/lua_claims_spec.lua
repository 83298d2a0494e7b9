-- What comments of core/ say about Lua, tried on the Lua that is linked (spec/helpers/lua_claims.c).
-- docs/dev/libraries.md names each.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"

local program = uv.fs_realpath(gateway.binary):gsub("[^/]*$", "lua_claims")

-- The words that the program prints.
local function see(name, text)
  local code, out, err = gateway.run_program(program, { name, text })
  assert.equal(0, code, name .. ": " .. err)
  local words = {}
  for word in out:gmatch "%S+" do words[#words + 1] = tonumber(word) or word end
  return words
end

-- What a text of Lua returns.
local function run(text) return see("run", ("print((function() %s end)())"):format(text)) end

describe("Lua's collector", function()
  it("frees all garbage before Lua asks again for memory that was refused, and runs no finalizer then", function()
    local kib, finalized = table.unpack(see "refused")
    assert.is_true(kib > 1000, kib)
    assert.equal(0, finalized)
  end)

  it("runs finalizers in its first cycle, and frees their objects in the second", function() assert.same({ 0, 1, 1, 1 }, see "cycles") end)

  it("runs the finalizers of a state that ends from the last object to the first", function()
    assert.same({ "third", "second", "first" }, see "last")
  end)

  it("frees all dead objects that are younger than the youngest live one in one step", function()
    local with, without = table.unpack(see "sweep")
    assert.is_true(with < 60 and without > 90, with .. " " .. without)
  end)

  it("takes quadratic time for weak keys, in one step", function()
    local small, large = table.unpack(see "weak")
    assert.is_true(large > 11 * small, ("%d us, %d us with 8 times the entries"):format(small, large))
  end)
end)

describe("Lua's memory", function()
  it("comes with the kind of a new object", function() assert.same({ 1, 1 }, see "kinds") end)

  it("has to shrink, or a text does not compile", function() assert.equal("not enough memory", table.concat(see "shrinking", " ")) end)

  it("does not grow by luaL_unref, by a key that is removed, and by a metatable that is there", function() assert.same({ 0, 0, 0 }, see "nothing") end)
end)

describe("a hook of Lua", function()
  it("does not run at the instruction at which the last one has yielded", function() assert.same({ 0 }, see "resumed") end)

  it("is set in time that grows with the frames of the stack", function()
    local few, many = table.unpack(see "frames")
    assert.is_true(many > 50 * few, ("%d us, %d us with 1000 times the frames"):format(few, many))
  end)
end)

describe("Lua", function()
  it("aborts the process at an error that nothing catches", function()
    local code = gateway.run_program(program, { "unprotected" })
    assert.equal(-6, code) -- SIGABRT
  end)

  it("refuses more than 200 nested brackets", function()
    local nested = [[local function nested(n) return load("return " .. ("("):rep(n) .. "1" .. (")"):rep(n)) ~= nil end return nested(150), nested(201)]]
    assert.same({ "true", "false" }, run(nested))
  end)

  it("loads compiled text that is broken", function()
    assert.is_true(run [[local whole, taken = string.dump(load "local a, b = ... return a + b, a .. b"), 0
      for at = 1, #whole do
        local broken = whole:sub(1, at - 1) .. string.char(whole:byte(at) ~ 0x41) .. whole:sub(at + 1)
        if load(broken, "it", "b") then taken = taken + 1 end
      end
      return taken ]][1] > 10)
  end)

  it("calls a message handler where the error is raised", function()
    assert.same({ "true" }, run [[local found
      local function fails() error "x" end
      xpcall(fails, function() found = debug.getinfo(3, "f").func == fails end)
      return found ]])
  end)

  it("gives the elements of a list in their order", function()
    assert.same({ "true" }, run [[local list, at = {}, 0
      for i = 1, 1000 do list[i] = i end
      for key in next, list do at = key == at + 1 and key or 0 end
      return at == 1000 ]])
  end)
end)
