-- `moonpool test`: runs the specs beside the scripts, in the scripts' Lua state.
local gateway = require "spec.helpers.gateway"

local scripts = {
  ["tools/greet.lua"] = [[return tool { "Greets.", input = { name = t.string }, function(args) return "Hello, " .. args.name end }]],
  ["tools/fetch.lua"] = [[return tool { "Fetches.", function() return try(http.post("https://api.example/x", { json = { a = 1 } })):json() end }]],
  ["tools/sure.lua"] = [[return tool { "Asks.", function(_, call)
    local yes, why = call:elicit("sure", "Really?", { confirm = t.boolean })
    if not yes then return nil, why end
    return call:sample("haiku", "A haiku").content.text end }]],
  ["tools/late.lua"] = [[return tool { "Waits an hour.", timeout = 7200, function() local from = os.time() sleep(3600) return os.time() - from end }]],
  ["tools/once.lua"] = [[local n = 0 return tool { "Counts.", function(_, call) return call:once("n", function() n = n + 1 return n end) end }]],
  ["resources/note.lua"] = [[return resource { "A note.", uri = "note://{id}", function(vars) return "note " .. vars.id end }]],
  ["prompts/ask.lua"] = [[return prompt { "Ask.", args = { what = t.string }, function(args) return args.what end }]],
}

local good = [[
describe("the greeter", function()
  local count = 0
  before_each(function() count = count + 1 end)
  it("greets", function()
    assert.equal("Hello, Ann", call("greet", { name = "Ann" }).text)
    assert.equal(1, count)
  end)
  it("begins anew", function() assert.equal(1, count) end)
  it("begins each call anew", function() assert.truthy(call("once").text ~= call("once").text) end)
  it("refuses as clients see it", function()
    local result, why = call("greet", { name = 3 })
    assert.is_nil(result)
    assert.contains("name", why)
  end)
  describe("with fakes", function()
    it("asks other servers", function()
      local asked = fake.http { ["POST https://api.example/x"] = function(request) return { json = { got = request.body } } end }
      assert.same({ got = '{"a":1}' }, call("fetch").structured)
      assert.equal("application/json", asked[1].headers["content-type"])
    end)
    it("goes without them", function()
      fake.http {}
      assert.contains("no answer", select(2, call("fetch")))
    end)
    it("asks people", function()
      fake.answers { sure = { confirm = true }, haiku = "old pond" }
      assert.equal("old pond", call("sure").text)
      fake.answers { sure = false }
      assert.same({ nil, "declined" }, { call("sure") })
      fake.answers {}
      assert.same({ nil, "cancelled" }, { call("sure") })
    end)
    it("has time", function()
      fake.time(1000)
      assert.equal(1000, os.time())
      assert.equal("3600", call("late").text)
      assert.equal("1970-01-01", os.date "!%Y-%m-%d")
    end)
    it("leaves them behind", function() assert(os.time() > 1e9) end)
  end)
  it("reads and prompts", function()
    assert.equal("note 7", read("note://7").text)
    assert.equal("why", get_prompt("ask", { what = "why" })[1].content.text)
    assert.error(function() error "gone" end, "gone")
  end)
end)
]]

local bad = [[
it("compares", function() assert.equal(1, 2) end)
it("compares tables", function()
  assert.same({ a = 1, "x" }, { a = 2, "x" }, "as told")
end)
it("has a bug", function() local none; return none.x end)
it("never ends", function() while true do end end)
it("tries", function() try(call("greet", {})) end)
it("is fine after all", function() end)
]]

local function run(more, ...)
  local all = {}
  for path, text in pairs(scripts) do all[path] = text end
  for path, text in pairs(more) do all[path] = text end
  local dir = gateway.prepare { scripts = all, config = { limits = { call = { cpu = "200ms" } } } }
  local code, out, err = gateway.exec({ "test", ... }, { cwd = dir })
  os.execute("rm -rf '" .. dir .. "'")
  return code, out, err
end

describe("moonpool test", function()
  it("runs specs that pass", function()
    local code, out, err = run { ["tools/greeter_spec.lua"] = good }
    assert.equal("", err)
    assert.equal(0, code, out)
    assert.truthy(out:find("\nok    scripts/tools/greeter_spec.lua  the greeter with fakes has time\n", 1, true), out)
    assert.equal("10 specs, all fine", out:match "([^\n]+)\n$")
  end)

  it("prints the line and the reason of a failure, and goes on", function()
    local code, out = run { ["tools/bad_spec.lua"] = bad }
    assert.equal(1, code)
    assert.truthy(out:find([[
FAIL  scripts/tools/bad_spec.lua  compares
    scripts/tools/bad_spec.lua:1: expected 1, got 2
        it("compares", function() assert.equal(1, 2) end)
]], 1, true), out)
    assert.truthy(out:find('bad_spec.lua:3: as told: expected { "x", a = 1 }, got { "x", a = 2 }\n', 1, true), out)
    assert.truthy(out:find("bad_spec.lua:5: attempt to index a nil value", 1, true), out)
    assert.truthy(out:find("never ends\n    the call ran Lua for longer than limits.call.cpu\n", 1, true), out)
    assert.truthy(out:find("tries\n    failed: ", 1, true), out)
    assert.truthy(out:find("ok    scripts/tools/bad_spec.lua  is fine after all\n6 specs, 5 failed\n", 1, true), out)
  end)

  -- { code of a spec, part of the report, part of the hint }: names of busted, Jest and pytest, and wrong arguments
  local habits = {
    { "assert.equals(1, 1)", "there is no assert.equals", "assert.equal(expected, got)" },
    { "assert.are.same({}, {})", "there is no assert.are", "as in assert.equal(expected, got), .same" },
    { "assert.is_true(true)", "there is no assert.is_true", "assert.equal(true, got)" },
    { "assert.has_error(f)", "there is no assert.has_error", "assert.error(f, part)" },
    { "assert.matches('a', 'a')", "there is no assert.matches", "assert.truthy(text:find(pattern))" },
    { "assert.is_not_nil(1)", "there is no assert.is_not_nil", "assert.truthy(got)" },
    { "assert.contain('a', 'a')", "there is no assert.contain", "did you mean 'contains'? assertions are contains, equal, error" },
    { "pending('later')", "specs have no 'pending'", "--[[ … ]]" },
    { "spy.on(fake, 'http')", "specs have no 'spy'", "fake.http" },
    { "expect(1).toBe(1)", "specs have no 'expect'", "assert.equal(expected, got)" },
    { "call('greet', 'Ann')", "the arguments must be a table, got a string", 'call("greet", { name = "Ann" })' },
    { "get_prompt('ask', 1)", "the arguments must be a table, got a number", "as in get_prompt(" },
    { "return 'a' + 'b'", "attempt to add a 'string' with a 'string'", "texts are joined by .." },
  }
  local around = {
    { "setup(function() end)", "specs have no 'setup'", "before_each(f)" }, { "beforeEach(function() end)", "specs have no 'beforeEach'", "before_each(f)" },
    { "test('x', function() end)", "specs have no 'test'", "it(\"…\", function() … end)" },
    { "context('x', function() end)", "specs have no 'context'", "describe(\"…\", function() … end)" },
  }

  it("says of names and habits from other tools what to write", function()
    local specs, all = {}, {}
    for _, row in ipairs(habits) do all[#all + 1] = { "it('x', function()\n  local f = print\n  " .. row[1] .. "\nend)", 3, row } end
    for _, row in ipairs(around) do all[#all + 1] = { row[1], 1, row } end
    for i, one in ipairs(all) do specs[("tools/x%02d_spec.lua"):format(i)] = one[1] end
    local code, out = run(specs)
    assert.equal(1, code)
    for i, one in ipairs(all) do
      local file = ("scripts/tools/x%02d_spec.lua"):format(i)
      local told = out:match("FAIL  " .. file:gsub("%p", "%%%0") .. "[^\n]*\n(.-\n)%f[%S]") or out
      for _, part in ipairs { ("%s:%d: %s"):format(file, one[2], one[3][2]), "hint: ", one[3][3] } do
        assert.truthy(told:find(part, 1, true), one[3][1] .. "\n" .. told)
      end
    end
  end)

  it("counts a file that does not load as a failure", function()
    local code, out = run { ["tools/bad_spec.lua"] = "describe(", ["tools/good_spec.lua"] = "it('is', function() end)" }
    assert.equal(1, code)
    assert.truthy(out:find("FAIL  scripts/tools/bad_spec.lua\n    scripts/tools/bad_spec.lua:1: ", 1, true), out)
    assert.truthy(out:find("ok    scripts/tools/good_spec.lua  is\n2 specs, 1 failed\n", 1, true), out)
  end)

  it("runs only what is below a path, when one is named", function()
    local specs = { ["tools/a/one_spec.lua"] = "it('is one', function() end)", ["tools/b/two_spec.lua"] = "it('is two', function() end)" }
    local _, out = run(specs, "scripts/tools/b")
    assert.equal("ok    scripts/tools/b/two_spec.lua  is two\n1 spec, all fine\n", out)
    local code, _, err = run(specs, "elsewhere")
    assert.equal(2, code)
    assert.equal("moonpool: elsewhere is not below scripts", err:match "^[^\n]+")
  end)

  it("takes it for a failure that there is nothing to run", function()
    local code, _, err = run {}
    assert.equal(1, code)
    assert.equal("moonpool: there are no specs", err:match "^[^\n]+")
  end)

  it("runs the specs of the examples", function()
    local code, out = gateway.exec { "test", "-c", "examples/weather/moonpool.yaml" }
    assert.equal(0, code, out)
    local dir = gateway.prepare { scripts_path = require "luv".fs_realpath "scripts" }
    code, out = gateway.exec({ "test" }, { cwd = dir })
    os.execute("rm -rf '" .. dir .. "'")
    assert.equal(0, code, out)
  end)

  it("is nothing that a client can ask for", function()
    local g <close> = gateway.start { scripts = { ["tools/a_spec.lua"] = "it('is', function() end)" } }
    local c = g:client "2026-07-28"
    assert.equal(-32601, c:call("moonpool/specs", {}).error.code)
    c:close()
    assert.has_nothing_left(g)
  end)
end)
