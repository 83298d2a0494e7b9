package.path = "./lua/?.lua;" .. package.path
local template = require "moonpool.things.template"

local function match(text, uri)
  local made, why = template.compile(text)
  return template.match(assert(made, why), uri)
end

describe("a URI template", function()
  it("finds its values in a URI made from it", function()
    for _, row in ipairs {
      { "orders://{region}/{id}", "orders://eu/12", { region = "eu", id = "12" } },
      { "files://{+path}", "files://a/b/c.txt", { path = "a/b/c.txt" } },
      { "files://{+path}/{name}.txt", "files://a/b/c.txt.txt", { path = "a/b", name = "c.txt" } },
      { "x:{a}-{b}.json", "x:1-2-3.json.json", { a = "1", b = "2-3.json" } },
      { "x:{a,b}", "x:1,2", { a = "1", b = "2" } },
      { "x:{+a}a{b}", "x:p/a/ab", { a = "p/a/", b = "b" } },
      { "x:{a}{/b,c}", "x:p", { a = "p" } },
      { "x:{a}{/b,c}", "x:p/q", { a = "p", b = "q" } },
      { "x:{a}{/b,c}", "x:p/q/r", { a = "p", b = "q", c = "r" } },
      { "x:find{?q,page}", "x:find", {} },
      { "x:find{?q,page}", "x:find?", {} },
      { "x:find{?q,page}", "x:find?page=2&q=a%26b", { q = "a&b", page = "2" } },
      { "x:{a}", "x:a%20b%C3%A9", { a = "a b\u{e9}" } },
      { "x:{a}", "x:2026-07-28T12:00:00Z", { a = "2026-07-28T12:00:00Z" } },
      { "x:fixed", "x:fixed", {} },
    } do
      assert.same(row[3], match(row[1], row[2]), row[1] .. " " .. row[2])
    end
  end)

  it("does not fit what it does not make", function()
    for _, row in ipairs {
      { "orders://{region}/{id}", "orders://eu/12/3" }, { "orders://{region}/{id}", "orders:///12" }, { "orders://{region}/{id}", "orders://eu" },
      { "orders://{region}/{id}", "Orders://eu/12" }, { "x:{a,b}", "x:1,2,3" }, { "x:{a}{/b,c}", "x:p/q/r/s" }, { "x:{a}{/b}", "x:p/" },
      { "x:find{?q}", "x:find?z=1" }, { "x:find{?q}", "x:find?q=1&q=2" }, { "x:{a}", "x:" }, { "x:{a}", "x:a?b" }, { "x:{a}", "x:a#b" },
      { "x:fixed", "x:fixedly" }, { "x:{a}", "x:a b" }, { "x:{a}", "x:a\n" }, { "x:{a}", "" },
    } do
      assert.is_nil(match(row[1], row[2]), row[1] .. " " .. row[2])
    end
  end)

  it("gives no value that is badly encoded, or climbs out of where it is put", function()
    for _, value in ipairs { "%zz", "%4", "%", "%FF", "%00", "..", "%2E%2E", "..%2Fetc", "a%2F..%2Fb",
      ".", "./a", "a/./b", "a%2Fb", "a%2fb", "%2e%2e%5Cx", "a%5C..", "../b", "a/../b" } do
      assert.is_nil(match("x:{+a}", "x:" .. value), value)
    end
    assert.same({ a = "a/b..c" }, match("x:{a}", "x:a%2Fb..c"))
  end)

  it("is refused with the reason when it is none", function()
    for text, why in pairs {
      ["x:{a"] = "a brace has no matching brace", ["x:a}"] = "a brace has no matching brace", ["x:{}"] = "'' is not a name",
      ["x:{a}{b}"] = "nothing separates '{a}' and '{b}'", ["x:{#a}"] = "there is no '{#…}' in URI templates", ["x:{a*}"] = "'a*' has a modifier",
      ["x:{a:3}"] = "'a:3' has a modifier", ["x:?a={?b}"] = "a '?' and '{?…}' do not go together", ["x:{?b}/c"] = "'{?…}' must be at the end",
      ["x:{a}/{a}"] = "'a' appears twice", ["x:{a-b}"] = "'a-b' is not a name", ["x:{" .. ("a,"):rep(2):sub(1, -2) .. "}"] = "'a' appears twice",
    } do
      assert.equal(why, select(2, template.compile(text)), text)
    end
    local many = {}
    for i = 1, 17 do many[i] = "{v" .. i .. "}" end
    assert.equal("more than 16 values", select(2, template.compile("x:" .. table.concat(many, "/"))))
  end)

  it("takes no longer for a URI that nearly fits in many ways", function()
    local values = {}
    for i = 1, 16 do values[i] = "{+v" .. i .. "}" end
    local made = template.compile("x:" .. table.concat(values, "a") .. "!")
    local function steps(length) -- counted in Lua's instructions: the time depends on the machine
      local count = 0
      debug.sethook(function() count = count + 1 end, "", 100)
      local matched = template.match(made, "x:" .. ("a"):rep(length))
      debug.sethook()
      assert.is_nil(matched)
      return count
    end
    local few = steps(2000)
    assert(steps(64 * 1024) <= 40 * (few + 10), "more than the length accounts for")
    assert(few < 10000, few .. " hundred instructions")
    local query = template.compile "x:s{?q}"
    assert.is_nil(template.match(query, "x:s?" .. ("q&"):rep(32 * 1024)))
  end)
end)
