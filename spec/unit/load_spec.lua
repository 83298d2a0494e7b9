local host = require "spec.helpers.host"

local add = "--- Add.\n---@param a number\n---@param b number\nreturn function(a, b) return a + b end"

describe("loading scripts", function()
  after_each(host.stop)

  it("names a tool by its path", function()
    local vm = host.start { ["tools/orders/refund.lua"] = add, ["tools/add.lua"] = add }
    assert.same("tool  add  Add.\ntool  orders_refund  Add.\n", (vm.moonpool.describe "list"))
  end)

  it("reports every problem of every file, with its line, excerpt and hint", function()
    local vm = host.start {
      ["tools/a.lua"] = "return function( end",
      ["tools/b.lua"] = 'return tool {\n  "B.",\n  inputs = { degrees = t.number },\n  function() end,\n}',
      ["tools/c.lua"] = "local x = nothing\nreturn x",
      ["tools/d.lua"] = "",
      ["tools/e.lua"] = 'return tool { "E.", input = { n = t.nubmer }, function() end }',
      ["tools/f.lua"] = add,
    }
    assert.equal(5, #vm.errors)
    assert.truthy(vm.errors[1]:find("scripts/tools/a.lua:1: ", 1, true))
    assert.equal("scripts/tools/b.lua:3: tool has no option 'inputs'\n    inputs = { degrees = t.number },\n" ..
      "  hint: did you mean 'input'? options are input, output, title, timeout, concurrency, requires, scopes, visible, task, prepare, poll, enabled, " ..
      "icons, meta, ui, read_only, destructive, idempotent, open_world, open",
      vm.errors[2])
    assert.truthy(vm.errors[3]:find("scripts/tools/c.lua:1: unknown name 'nothing'\n    local x = nothing", 1, true))
    assert.truthy(vm.errors[4]:find("scripts/tools/d.lua: the file returns nothing", 1, true))
    assert.truthy(vm.errors[5]:find("scripts/tools/e.lua:1: there is no type t.nubmer", 1, true))
    assert.truthy(vm.errors[5]:find("hint: did you mean 'number'?", 1, true))
  end)

  it("refuses two tools of one name and says which files", function()
    local vm = host.start { ["tools/a_b.lua"] = add, ["tools/a/b.lua"] = add }
    assert.equal("scripts/tools/a_b.lua:1: the name 'a_b' is taken by scripts/tools/a/b.lua\n    --- Add.\n  hint: rename one of them", vm.errors[1])
  end)

  it("refuses names that clients could not call", function()
    local vm = host.start { ["tools/bad name.lua"] = add, ["tools/" .. ("x"):rep(129) .. ".lua"] = add }
    assert.equal(2, #vm.errors)
    assert.truthy(vm.errors[1]:find("'bad name' is not a valid name for a tool", 1, true))
  end)

  it("refuses a tool without description or handler, and wrong options", function()
    local vm = host.start {
      ["tools/a.lua"] = "return tool { }",
      ["tools/b.lua"] = 'return tool { "B.", timeout = -1, read_only = "yes", scopes = { "x y", "x:*" }, function() end }',
      ["tools/c.lua"] = 'return tool { "C.", input = t.schema { type = "string" }, function() end }',
      ["tools/d.lua"] = 'return { "D.", function() end }',
      ["tools/e.lua"] = 'return tool { "E.", timeout = "5s", scopes = "e:read", function() end }',
    }
    local all = table.concat(vm.errors, "\n")
    for _, part in ipairs {
      "the tool has no description", "the tool has no handler", "'timeout' must be above 0", "'read_only' must be a boolean, got a string",
      "'x y' is not a scope", "'x:*' has a '*': only principals may hold such a scope", "the input of a tool must be an object",
      "the file returns a table that is not a tool", "'timeout' must be a number, got a string", "hint: as in timeout = 30 * seconds",
      "'scopes' must be a table, got a string", "hint: as in scopes = { \"orders:read\" }",
    } do
      assert.truthy(all:find(part, 1, true), part .. "\n" .. all)
    end
  end)

  it("distinguishes a handler without a description from no handler", function()
    local vm = host.start { ["tools/a.lua"] = "return tool {\n  function() end,\n}" }
    assert.same({ 'scripts/tools/a.lua:1: a tool begins with its description\n    return tool {\n  hint: as in ' ..
      'tool { "What it does.", function(args) … end }' }, vm.errors)
  end)

  it("lists the options where none is near", function()
    local vm = host.start { ["tools/a.lua"] = 'return tool { "A.", colour = "b", function() end }' }
    assert.truthy(vm.errors[1]:find("tool has no option 'colour'\n    return tool { \"A.\", colour", 1, true), vm.errors[1])
    assert.truthy(vm.errors[1]:find("\n  hint: options are input, ", 1, true), vm.errors[1])
  end)

  it("asks after a comma where Lua wants the table to end", function()
    local vm = host.start {
      ["tools/a.lua"] = 'return tool {\n  "A.", input = {}\n  function() end,\n}', ["tools/b.lua"] = 'return { 1 2 }', ["tools/c.lua"] = "return { 1",
    }
    assert.equal("scripts/tools/a.lua:3: '}' expected (to close '{' at line 1) near 'function'\n    function() end,\n  hint: is a comma missing before it?",
      vm.errors[1])
    assert.matches("hint: is a comma missing", vm.errors[2])
    assert.is_nil(vm.errors[3]:find("comma", 1, true))
  end)

  it("names the replacement of os.getenv and the like", function()
    local vm = host.start { ["tools/a.lua"] = 'local key = os.getenv "KEY"\nreturn key' }
    assert.equal("scripts/tools/a.lua:1: attempt to call a nil value (field 'getenv')\n    local key = os.getenv \"KEY\"\n" ..
      "  hint: scripts have no os.getenv: env \"NAME\" reads a variable that is granted", vm.errors[1])
    vm = host.start { ["tools/a.lua"] = "--- A.\nreturn function() os.execute 'ls' end" }
    assert.is_true(vm:tool("a", {}).isError)
    assert.equal("scripts have no os.execute: exec { … } runs a program that is granted", vm.logs[1].fields.hint)
  end)

  it("refuses folders that are no kind of script", function()
    local vm = host.start { ["tool/add.lua"] = add }
    assert.equal("scripts/tool/add.lua: folder 'tool' is not a kind of script\n  hint: did you mean 'tools'?", vm.errors[1])
  end)

  it("points at the line of a wrong option of a type", function()
    local vm = host.start { ["tools/a.lua"] = 'return tool {\n  "A.",\n  input = {\n    n = t.number { mni = 1 },\n  },\n  function() end,\n}' }
    assert.truthy(vm.errors[1]:find("scripts/tools/a.lua:4: t.number has no option 'mni'\n    n = t.number { mni = 1 },\n  hint: did you mean 'min'?", 1, true),
      vm.errors[1])
  end)

  it("leaves specs beside scripts alone", function()
    assert.is_nil(host.start({ ["tools/add_spec.lua"] = "describe(1)" }).errors)
  end)
end)

describe("require in scripts", function()
  after_each(host.stop)

  it("finds scripts/lib, run once for all", function()
    local vm = host.start {
      ["lib/shared/counter.lua"] = 'log.info "loaded"\nlocal n = 0\nreturn { up = function() n = n + 1 return n end }',
      ["tools/a.lua"] = '--- A.\nreturn function() return require("shared.counter").up() end',
      ["tools/b.lua"] = 'local counter = require "shared.counter"\n--- B.\nreturn function() return counter.up() end',
    }
    assert.is_nil(vm.errors)
    assert.equal("1", vm:tool("a", {}).content[1].text)
    assert.equal("2", vm:tool("b", {}).content[1].text)
    assert.equal(1, #vm.logs)
  end)

  it("reports libraries that are missing, broken, or require each other", function()
    local vm = host.start {
      ["lib/alpha.lua"] = 'return require "beta"',
      ["lib/beta.lua"] = 'local alpha = require "alpha"\nreturn alpha',
      ["lib/broken.lua"] = "return +",
      ["tools/t.lua"] = 'local x = require "alpah"\nreturn x',
    }
    local all = table.concat(vm.errors, "\n")
    assert.truthy(all:find("scripts/lib/beta.lua:1: libraries require each other: alpha -> beta -> alpha", 1, true), all)
    assert.truthy(all:find("scripts/lib/broken.lua:1:", 1, true), all)
    assert.truthy(all:find("scripts/tools/t.lua:1: there is no library 'alpah': scripts/lib/alpah.lua does not exist\n" ..
      "    local x = require \"alpah\"\n  hint: did you mean 'alpha'?", 1, true), all)
    vm = host.start { ["tools/t.lua"] = 'local x = require "vector.clock"\nreturn x' }
    assert.equal("scripts/tools/t.lua:1: there is no library 'vector.clock': scripts/lib/vector/clock.lua does not exist\n" ..
      "    local x = require \"vector.clock\"\n  hint: libraries are files in lib/, and cjson; moonpool's own libraries need no require", vm.errors[1])
  end)

  it("gives cjson, to each script its own", function()
    local vm = host.start {
      ["tools/a.lua"] = 'local cjson = require "cjson"\ncjson.encode = nil\n--- A.\nreturn function() return tostring(cjson.encode) end',
      ["tools/b.lua"] = 'local cjson = require "cjson"\n--- B.\nreturn function() return cjson.encode { 1, 2 } end',
    }
    assert.is_nil(vm.errors)
    assert.equal("[1,2]", vm:tool("b", {}).content[1].text)
  end)
end)
