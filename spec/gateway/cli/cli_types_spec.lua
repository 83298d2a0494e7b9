-- `moonpool types`: its output for editors with LuaLS is valid Lua, follows the grammar of LuaLS, and follows the
-- scripts.
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local example = require "spec.helpers.example"
local luacats = require "spec.helpers.luacats"
local uv = require "luv"

local read = example.read
local dir

local function moonpool(...) return gateway.exec({ ... }, { cwd = dir }) end

local function write(path, text)
  local file <close> = assert(io.open(dir .. "/" .. path, "wb"))
  file:write(text)
end

local names = { "moonpool", "moonpool_spec", "moonpool_scripts" }

-- The errors in all files that were written, and the text of the types of the served scripts.
local function written()
  local texts = {}
  for i, name in ipairs(names) do texts[i] = { name, read(dir .. "/lua/types/" .. name .. ".d.lua") } end
  return luacats.complaints(texts), texts[3][2]
end

local function has(text, ...)
  for _, part in ipairs { ... } do assert.truthy(text:find(part, 1, true), part .. "\nis not in\n" .. text) end
end

describe("moonpool types", function()
  before_each(function() dir = gateway.new_folder() end)
  after_each(function() gateway.run_program("/bin/rm", { "-r", dir }) end)

  it("writes what the build has where nothing is served, and leaves settings alone", function()
    local code, out = moonpool("types", ".")
    assert.equal(0, code)
    assert.equal("wrote ./lua/types/moonpool.d.lua\nwrote ./lua/types/moonpool_spec.d.lua\nwrote ./.luarc.json\n", out)
    for _, name in ipairs { "lua/types/moonpool.d.lua", "lua/types/moonpool_spec.d.lua" } do
      assert.equal(read(name), read(dir .. "/" .. name))
    end
    local before = read(dir .. "/.luarc.json")
    out = select(2, moonpool("types", "."))
    assert.truthy(out:find("left ./.luarc.json as it is", 1, true))
    assert.equal(before, read(dir .. "/.luarc.json"))
  end)

  it("has a class of each tool's arguments and output, and follows the scripts", function()
    assert.equal(0, (moonpool("new", "tool", "greet")))
    write("scripts/tools/trip.lua", [=[return tool {
      "Plan a trip.\nSlowly.",
      input = {
        to = t.string "Where to, ]] @and \"how\"", days = t.integer { default = 3 }, by = t.one_of { "train", "bus" },
        stops = t.list(t.tuple { t.number, t.any_of { t.string, t.boolean } }, { optional = true }), price = t.nullable(t.number),
        tree = t.define("node", function(node) return t.object { name = t.const "x", below = t.optional(t.list(node)), odd = t.one_of { 'a"b', 1 } } end),
        more = t.map(t.list(t.one_of { 1, 2 })), deep = t.object { ["a-b"] = t.boolean, c = t.optional(t.object {}) }, ["x-y"] = t.string, ["end"] = t.any,
      },
      output = { cost = t.number "In all", sights = t.list(t.string) },
      function() return { cost = 1, sights = {} } end,
    }]=])
    assert.equal(0, (moonpool("types", ".")))
    local complaints, text = written()
    assert.same({}, complaints)
    has(text, "\n---@class moonpool.args.greet\n---@field name string  Whom it is about\n---@field times? integer  How often\n",
      "\n--- The arguments of the tool trip: Plan a trip.\n---@class moonpool.args.trip\n",
      '\n---@field ["x-y"] string\n',
      '\n---@class moonpool.args.trip.node\n---@field below? moonpool.args.trip.node[]\n---@field name "x"\n---@field odd string|1\n',
      '---@field by "train"|"bus"\n---@field days? integer\n---@field deep { ["a-b"]: boolean, c?: table }\n---@field end any\n',
      "\n---@field more table<string, (1|2)[]>\n---@field price number|userdata\n---@field stops? { [1]: number, [2]: string|boolean }[]\n",
      '\n---@field to string  Where to, ]] @and "how"\n---@field tree moonpool.args.trip.node\n',
      "\n---@class moonpool.output.trip\n---@field cost number  In all\n---@field sights string[]\n",
      '\n---| "greet" # ', '\n---@overload fun(name: "greet", arguments: moonpool.args.greet): moonpool.spec.Result?, string?\n',
      '\n---@overload fun(name: "trip", arguments: moonpool.args.trip): moonpool.result.trip?, string?\n',
      "\n---@class moonpool.result.trip: moonpool.spec.Result\n---@field structured moonpool.output.trip\n")
    write("scripts/tools/greet.lua", '--- Greet.\n---@param whom? string\nreturn function(whom) return whom end\n')
    assert.equal(0, (moonpool("types", ".")))
    complaints, text = written()
    assert.same({}, complaints)
    has(text, "\n---@class moonpool.args.greet\n---@field whom? string\n", '\n---@overload fun(name: "greet", arguments?: moonpool.args.greet)')
  end)

  it("has names of prompts and resources, and the variables of templates", function()
    for _, kind in ipairs { "prompt", "resource" } do assert.equal(0, (moonpool("new", kind, "page"))) end
    write("scripts/resources/fixed.lua", 'return resource { "Fixed.", uri = "a://b", "text" }')
    write("scripts/resources/more.lua", 'return resource { "More.", uri = "m://{a}/{+b}{?c,d}", function() return "x" end }')
    assert.equal(0, (moonpool("types", ".")))
    local complaints, text = written()
    assert.same({}, complaints)
    has(text, "\n---@class moonpool.prompt.page\n---@field subject string  What it is about\n---@field tone? string  How it should sound\n",
      '\n---@overload fun(name: "page", arguments?: moonpool.prompt.page): table[]?, string?\n',
      '\n---@alias moonpool.ResourceUri\n---| "a://b" # Fixed.\n',
      "\n---@class moonpool.vars.more\n---@field a string\n---@field b string\n---@field c? string\n---@field d? string\n",
      '\n---@overload fun(kind: "prompt", name: moonpool.PromptName): boolean\n')
  end)

  it("are well-formed for every example", function()
    for _, name in ipairs { "hello", "notes", "weather", "ask-the-user", "jobs", "conformance" } do
      assert.equal(0, (gateway.exec { "types", "-c", "examples/" .. name .. "/moonpool.yaml", dir }))
      assert.same({}, (written()), name)
    end
  end)

  it("accepts comments for arguments whose names look like scopes of a field", function()
    assert.equal(0, (moonpool("new", "tool", "greet")))
    write("scripts/tools/seen.lua", 'return tool { "Seen.", input = { public = t.string, private = t.optional(t.integer), ["end"] = t.any }, function() end }')
    assert.equal(0, (moonpool("types", ".")))
    local complaints, text = written()
    assert.same({}, complaints)
    has(text, '---@field ["public"] string\n', '---@field ["private"]? integer\n', "---@field end any\n")
  end)

  it("lets scripts/lib be followed where the scripts are", function()
    write("moonpool.yaml", "scripts: lua\n")
    assert.truthy(uv.fs_mkdir(dir .. "/lua", 493))
    assert.equal(0, (moonpool("types", ".")))
    has(read(dir .. "/.luarc.json"), '"lua/lib/?.lua", "lua/lib/?/init.lua"')
  end)

  it("declares io and debug for scripts that have them, and for no others", function()
    assert.equal(0, (moonpool("new", "tool", "greet")))
    assert.equal(0, (moonpool("types", ".")))
    assert.same({ io = "disable", debug = "disable" }, cjson.decode(read(dir .. "/.luarc.json"))["runtime.builtin"])
    assert.truthy(os.remove(dir .. "/.luarc.json"))
    write("moonpool.yaml", "scripts: {trust: full}\n")
    assert.equal(0, (moonpool("types", ".")))
    assert.is_nil(cjson.decode(read(dir .. "/.luarc.json"))["runtime.builtin"])
  end)

  it("leaves the types of the scripts unchanged while the scripts have mistakes, and prints why", function()
    assert.equal(0, (moonpool("new", "tool", "greet")))
    assert.equal(0, (moonpool("types", ".")))
    local _, before = written()
    write("scripts/tools/greet.lua", "return tool {")
    local code, out, err = moonpool("types", ".")
    assert.equal(78, code)
    has(err, "scripts/tools/greet.lua:1: ", "left ./lua/types/moonpool_scripts.d.lua as it was")
    has(out, "wrote ./lua/types/moonpool.d.lua")
    local _, after = written()
    assert.equal(before, after)
  end)
end)
