-- B-121: schemas that would fetch, never end, or take too much time: the tool does not load and the error says why,
-- nothing is fetched, and a schema that loads is checked in bounded time. Schemas come only from scripts.
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local stub = require "spec.helpers.stub"

-- Processor time in seconds.
local function seconds_of(g)
  local file <close> = assert(io.open("/proc/" .. g.pid .. "/stat"))
  local user, system = file:read("a"):match "^.*%) %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ (%d+) (%d+)"
  return (tonumber(user) + tonumber(system)) / 100
end

local SLACK <const> = (os.getenv "ASAN_OPTIONS" or os.getenv "TSAN_OPTIONS") and 20 or 2

local function with(schema) return "return tool { 'T.', output = t.schema(" .. schema .. "), function() return {} end }" end

local doubling = [[(function()
  local defs = { l0 = { type = "integer" } }
  for i = 1, 20 do
    local below = "#/$defs/l" .. i - 1
    defs["l" .. i] = { allOf = { { ["$ref"] = below }, { title = "again", ["$ref"] = below } } }
  end
  return { ["$defs"] = defs, ["$ref"] = "#/$defs/l20" }
end)()]]

local function large(megabytes)
  return ([[(function()
    local all = {}
    for i = 1, %d do all["p" .. i] = { type = "object", description = ("x"):rep(1000) .. i } end
    return { properties = all }
  end)()]]):format(megabytes * 1000)
end

local function bombs(url)
  return {
    http = { with('{ properties = { a = { ["$ref"] = "' .. url .. '/s.json" } } }'), "schemas are never fetched" },
    id = { with('{ ["$id"] = "' .. url .. '/", ["$ref"] = "s.json" }'), "schemas are never fetched" },
    dynamic = { with('{ ["$dynamicRef"] = "' .. url .. '/s.json#x" }'), "schemas are never fetched" },
    dialect = { with('{ ["$schema"] = "' .. url .. '/s.json" }'), "is not known" },
    file = { with '{ items = { ["$ref"] = "file:///etc/passwd" } }', "schemas are never fetched" },
    path = { with '{ ["$ref"] = "/etc/passwd" }', "schemas are never fetched" },
    mutual = {
      with '{ ["$defs"] = { a = { ["$ref"] = "#/$defs/b" }, b = { ["$ref"] = "#/$defs/a" } }, ["$ref"] = "#/$defs/a" }', "leads to itself in a circle",
    },
    doubling = { with(doubling), "more than 10000 schemas apply to one value" },
    large = { with(large(11)), "more than 10000 schemas" },
    deep = { with '(function() local s = true for _ = 1, 100 do s = { items = s } end return s end)()', "deeper than 64 levels" },
    pattern = { with '{ pattern = ("(a+)+"):rep(2000) }', "longer than 4096 bytes" },
    nested = { with '{ pattern = ("("):rep(1000) .. ("+)"):rep(1000) }', "too deeply nested" },
    counted = { with '{ pattern = "((((a{999}){999}){999}){999})" }', "too large" },
  }
end

describe("B-121 a schema", function()
  it("that refers outside, goes round or explodes is an error of its file, in no time, and nothing is fetched", function()
    local server <close> = stub.start(function(_, reply) reply:json {} end)
    for name, case in pairs(bombs(server.url)) do
      local dir = gateway.prepare { scripts = { ["tools/bomb.lua"] = "\n" .. case[1], ["tools/ok.lua"] = "return tool { 'Ok.', function() return 1 end }" } }
      local most = ("--cpu=%d"):format(SLACK // 2) -- limit of processor time in seconds, after which the process is killed
      local code, _, err = gateway.run_program("/usr/bin/prlimit", { most, gateway.binary, "check", dir .. "/moonpool.yaml" }, { seconds = 60 })
      assert.equal(78, code, name .. ": " .. err)
      assert.truthy(err:find("tools/bomb.lua", 1, true), err)
      assert.truthy(err:find(case[2], 1, true), name .. ": " .. err)
      os.execute("rm -r '" .. dir .. "'")
    end
    assert.equal(0, server.accepted)
  end)

  -- Each row: the schema of argument v, and a value for it.
  local slow = {
    tree = { [[{ ["$id"] = "x:tree", ["$defs"] = { a = { anyOf = { { properties = { x = { ["$ref"] = "#/$defs/a" } }, required = { "y" } },
      { properties = { x = { title = "again", ["$ref"] = "#/$defs/a" } }, required = { "z" } } } } }, ["$ref"] = "#/$defs/a" }]], function()
        local value = cjson.decode "{}"
        for _ = 1, 60 do value = { x = value } end
        return value
      end },
    pattern = { '{ pattern = "^(a+)+$" }', function() return ("a"):rep(50000) .. "!" end },
    patterns = { '(function() local all = {} for i = 1, 2000 do all[i] = { pattern = "(a|b)*" .. i .. "$" } end return { anyOf = all } end)()',
      function() return ("ab"):rep(200) end },
    unique = { "{ uniqueItems = true }", function()
      local list = {}
      for i = 1, 2000 do list[i] = { i % 1999 } end
      return list
    end },
  }

  it("that loads validates any value in 50 ms", function()
    local scripts = {}
    for name, case in pairs(slow) do
      scripts["tools/" .. name .. ".lua"] = "return tool { 'T.', input = { v = t.schema(" .. case[1] .. ") }, function() return 'fits' end }"
    end
    local g <close> = gateway.start { scripts = scripts, workers = 1 }
    local me = g:client "2026-07-28"
    for name, case in pairs(slow) do
      local value, before = case[2](), seconds_of(g)
      for _ = 1, 5 do
        local result = me:result("tools/call", { name = name, arguments = { v = value } }, 20)
        assert.is_true(result.isError, name)
        assert.truthy(result.content[1].text:find "argument", result.content[1].text)
      end
      local each = (seconds_of(g) - before) * 1000 / 5
      assert.is_true(each < 50 * SLACK, ("%s took %.0f ms of the processor"):format(name, each))
    end
    me:close()
    assert.has_nothing_left(g)
  end)
end)
