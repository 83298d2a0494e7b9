-- Views of lists: shared by principals with equal scopes, bounded, and hidden from others; and the principals that are
-- notified of a change.
local host = require "spec.helpers.host"

local function tools(count)
  local all = {}
  for i = 1, count do all[("tools/t%03d.lua"):format(i)] = ('return tool { "T.", scopes = { "s%d" }, function() end }'):format(i) end
  return all
end

describe("a list that depends on the principal", function()
  local vm
  after_each(host.stop)

  local function names(who, from)
    local found = {}
    for i, entry in ipairs(vm:read("tools/list", {}, { principal = vm:principal(who, from) }).tools) do found[i] = entry.name end
    return table.concat(found, " ")
  end

  it("is right for each of more principals than there are views kept", function()
    vm = host.start(tools(100))
    for _ = 1, 2 do
      for i = 1, 100 do assert.equal(("t%03d"):format(i), names { id = "p" .. i, scopes = { "s" .. i } }) end
      assert.equal("", names "anonymous")
      assert.equal(100 * 5 - 1, #names "local")
      assert.equal("t001 t002", names({ id = "x", scopes = { "top" } }, { implies = { top = { "s1", "s2" } } }))
    end
  end)

  it("has pages of what one sees, each its own", function()
    local scripts = {}
    for i = 1, 301 do
      scripts[("tools/t%03d.lua"):format(i)] = ('return tool { "T.", scopes = { "%s" }, function() end }'):format(i % 2 == 1 and "odd" or "even")
    end
    vm = host.start(scripts, { page = 8192 })
    local fields = { principal = vm:principal { id = "ann", scopes = { "odd" } } }
    local seen, cursor, pages = 0, nil, 0
    repeat
      local page = vm:read("tools/list", { cursor = cursor }, fields)
      assert.equal("private", page.cacheScope)
      for _, entry in ipairs(page.tools) do
        assert.equal(1, tonumber(entry.name:sub(2)) % 2)
        seen = seen + 1
      end
      cursor, pages = page.nextCursor, pages + 1
      if cursor then
        assert.equal(-32602, select(2, vm:call("tools/list", { cursor = cursor }, { principal = vm:principal { id = "eve", scopes = { "odd" } } })).code)
      end
    until not cursor
    assert.equal(151, seen)
    assert.is_true(pages >= 2)
  end)
end)

describe("a change is notified to", function()
  local vm
  after_each(host.stop)

  local scripts = {
    ["tools/a.lua"] = 'return tool { "A.", scopes = { "a" }, function() disable("tool", "b") enable("tool", "b") end }',
    ["tools/b.lua"] = 'return tool { "B.", scopes = { "b" }, function() end }',
    ["tools/open.lua"] = 'return tool { "Open.", function() end }',
  }

  local function told(changes)
    vm.audiences, vm.published = { "=", "=a", "=a b", "=*", "=b:*" }, {}
    vm.moonpool.deliver("reloaded", changes)
    local list = {}
    for i, row in ipairs(vm.published) do list[i] = row.topic .. row.audience end
    return table.concat(list, " | ")
  end

  it("principals that see it, saw it, or see another now", function()
    vm = host.start(scripts)
    local before = vm.moonpool.summary()
    local function after(changed)
      local all = {}
      for path, text in pairs(scripts) do all[path] = text end
      for path, text in pairs(changed) do all[path] = text or nil end
      vm = host.start(all)
      return select(2, vm.moonpool.difference(before, ""))
    end
    assert.equal("", after {})
    assert.equal("tools=a b | tools=*", told(after { ["tools/b.lua"] = 'return tool { "Other.", scopes = { "b" }, function() end }' }))
    assert.equal("tools=a b | tools=*", told(after { ["tools/b.lua"] = false }))
    assert.equal("tools= | tools=a | tools=b:*", told(after { ["tools/b.lua"] = 'return tool { "B.", function() end }' }))
    assert.equal("tools= | tools=b:*", told(after { ["tools/open.lua"] = 'return tool { "Open.", scopes = { "a" }, function() end }' }))
    assert.equal("tools= | tools=a | tools=a b | tools=* | tools=b:*", told(after { ["tools/new.lua"] = 'return tool { "N.", function() end }' }))
    assert.equal("tools=a | tools=a b | tools=*", told(after {
      ["tools/new.lua"] = 'return tool { "N.", scopes = { "a" }, function() end }', ["tools/off.lua"] = 'return tool { "O.", enabled = false, function() end }',
    }))
  end)

  it("principals that see what is switched", function()
    vm = host.start(scripts)
    vm.audiences = { "=", "=a", "=b" }
    vm:tool("a", {}, { principal = "local" })
    local list = {}
    for i, row in ipairs(vm.published) do list[i] = row.audience end
    assert.same({ "=b", "=b" }, list)
  end)
end)

describe("call:needs", function()
  after_each(host.stop)

  it("ends the call, unless its principal has the scopes", function()
    local vm = host.start { ["tools/n.lua"] = 'return tool { "N.", function(_, call) call:needs("a", "b") return "fine" end }' }
    assert.equal("fine", vm:tool("n", {}, { principal = { id = "x", scopes = { "a", "b:*", "b" } } }).content[1].text)
    local result = vm:tool("n", {}, { principal = { id = "x", scopes = { "a" } } })
    assert.equal("this needs the scope b, which x does not have", result.content[1].text)
    assert.is_nil(vm.last.forbidden)
    local who = vm:principal({ id = "x" }, { askable = { "a", "b" } })
    local _, err = vm:tool("n", {}, { principal = who })
    assert.same({ code = -32602, message = "this needs the scopes a b" }, err)
    assert.equal("a b", vm.last.forbidden)
    vm = host.start { ["tools/n.lua"] = 'return tool { "N.", function(_, call) call:needs "a b" end }' }
    assert.matches("internal error", vm:tool("n", {}, { principal = who }).content[1].text)
  end)
end)
