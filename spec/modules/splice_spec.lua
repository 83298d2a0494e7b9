-- core/json/splice.c: members of an object are changed in its bytes; everything else stays byte for byte.
local cjson = require "cjson"
local json = require("modules").json.lua

local rows = {
  -- text, edits, result
  { '{"a":1}', {}, '{"a":1}' },
  { ' {"a":1}\n', {}, '{"a":1}' },
  { '{}', { { "drop", "a" } }, '{}' },
  { '{}', { { "set", "a", "1" } }, '{"a":1}' },
  { '{ }', { { "set", "a", "1" }, { "set", "b", "[2]" } }, '{"a":1,"b":[2]}' },
  { '{"a":1}', { { "drop", "a" } }, '{}' },
  { '{"a":1}', { { "set", "a", "2" } }, '{"a":2}' },
  { '{"a":1}', { { "rename", "a", "b" } }, '{"b":1}' },
  { '{"a":1,"b":2,"c":3}', { { "drop", "a" } }, '{"b":2,"c":3}' },
  { '{"a":1,"b":2,"c":3}', { { "drop", "b" } }, '{"a":1,"c":3}' },
  { '{"a":1,"b":2,"c":3}', { { "drop", "c" } }, '{"a":1,"b":2}' },
  { '{"a":1,"b":2,"c":3}', { { "drop", "a" }, { "drop", "b" } }, '{"c":3}' },
  { '{"a":1,"b":2,"c":3}', { { "drop", "b" }, { "drop", "c" }, { "set", "d", "4" } }, '{"a":1,"d":4}' },
  { '{"a":1,"b":2,"c":3}', { { "drop", "a" }, { "drop", "b" }, { "drop", "c" }, { "set", "d", "4" } }, '{"d":4}' },
  { '{ "a" : 1e400 , "b":1.0, "\\u0063":"\\u0041" }', { { "set", "b", "0" } }, '{ "a" : 1e400 , "b":0, "\\u0063":"\\u0041" }' },
  { '{ "a" : 1e400 , "b":1.0, "\\u0063":"\\u0041" }', { { "drop", "c" } }, '{ "a" : 1e400 , "b":1.0}' },
  { '{"\\u0061\\"":1,"b":2}', { { "rename", 'a"', 'q"' }, { "set", "b", "3" } }, '{"q\\"":1,"b":3}' },
  { '{"a":{"x":"}","y":[1,{"a":2}]},"b":2}', { { "drop", "b" } }, '{"a":{"x":"}","y":[1,{"a":2}]}}' },
  { '{"a":{"x":1,"x":2}}', { { "set", "b", "1" } }, '{"a":{"x":1,"x":2},"b":1}' },
  -- _meta
  { '{"_meta":{"t":1,"u":2},"a":1}', { { "set", "t", "7", meta = true } }, '{"_meta":{"t":7,"u":2},"a":1}' },
  { '{"_meta":{"t":1,"u":2},"a":1}', { { "drop", "t", meta = true } }, '{"_meta":{"u":2},"a":1}' },
  { '{"_meta":{"t":1, "u":2 },"a":1}', { { "drop", "u", meta = true }, { "drop", "a" } }, '{"_meta":{"t":1}}' },
  { '{"_meta":{"t":1},"a":1}', { { "drop", "t", meta = true } }, '{"_meta":{},"a":1}' },
  { '{"_meta":{"t":1},"t":2}', { { "rename", "t", "v", meta = true } }, '{"_meta":{"v":1},"t":2}' },
  { '{"a":1}', { { "set", "t", "7", meta = true }, { "set", "u", '"x"', meta = true } }, '{"a":1,"_meta":{"t":7,"u":"x"}}' },
  { '{}', { { "set", "t", "7", meta = true }, { "set", "b", "1" } }, '{"b":1,"_meta":{"t":7}}' },
  { '{"a":1}', { { "drop", "t", meta = true }, { "rename", "x", "y", meta = true } }, '{"a":1}' },
  { '{"_meta":{"\\u0074":[{}]}}', { { "set", "t", "7", meta = true } }, '{"_meta":{"\\u0074":7}}' },
  { '{"a":1,"_meta":{"t":1}}', { { "drop", "a" }, { "set", "t", "2", meta = true }, { "set", "z", "3" } }, '{"_meta":{"t":2},"z":3}' },
  { '{"a":1,"_meta":{"t":1}}', { { "drop", "_meta" }, { "set", "t", "2", meta = true } }, '{"a":1,"_meta":{"t":2}}' },
  { '{"_meta":3}', { { "set", "a", "1" } }, '{"_meta":3,"a":1}' },
  { '{"x":{"_meta":{"t":1}}}', { { "drop", "t", meta = true } }, '{"x":{"_meta":{"t":1}}}' },
  -- renames whose new name is free, because its member goes
  { '{"a":1,"b":2}', { { "rename", "a", "b" }, { "rename", "b", "a" } }, '{"b":1,"a":2}' },
  { '{"a":1,"b":2}', { { "rename", "a", "b" }, { "drop", "b" } }, '{"b":1}' },
}

local refused = {
  { "", {}, "text ends too early" },
  { "[]", {}, "not an object" },
  { '"x"', {}, "not an object" },
  { '{"a":1', { { "drop", "a" } }, "text ends too early" },
  { '{"a":1}}', { { "drop", "a" } }, "text after the value" },
  { '{"a":1,"\\u0061":2}', {}, "repeated key" },
  { '{"a":1,"a":2}', { { "drop", "a" } }, "repeated key" },
  { '{"_meta":{"a":1,"a":2}}', {}, "repeated key" },
  { '{"a":1,"b":2}', { { "rename", "a", "b" } }, "repeated key" },
  { '{"b":2,"a":1}', { { "rename", "a", "b" } }, "repeated key" },
  { '{"a":1}', { { "rename", "a", "b" }, { "set", "b", "2" } }, "repeated key" },
  { '{"a":1,"b":2}', { { "rename", "a", "c" }, { "rename", "b", "c" } }, "repeated key" },
  { '{"_meta":{"a":1,"b":2}}', { { "rename", "a", "b", meta = true } }, "repeated key" },
  { '{"_meta":3}', { { "set", "t", "7", meta = true } }, '"_meta" is not an object' },
}

describe("the splice of an object", function()
  it("changes what it should, and no other byte", function()
    for _, row in ipairs(rows) do assert.equal(row[3], json.splice(row[1], row[2]), row[1]) end
  end)

  it("is refused where a member would be doubtful", function()
    for _, row in ipairs(refused) do
      local text, why = json.splice(row[1], row[2])
      assert.is_nil(text, row[1])
      assert.matches(row[3], why, 1, true)
    end
    local many = {}
    for i = 1, 257 do many[i] = ('"k%d":1'):format(i) end
    assert.is_nil((json.splice("{" .. table.concat(many, ",") .. "}", {})))
    local edits = {}
    for i = 1, 33 do edits[i] = { "drop", "k" .. i } end
    assert.has_error(function() json.splice("{}", edits) end)
  end)

  it("has the values of a decoded object that is changed in the same way", function()
    math.randomseed(4711)
    local random = math.random
    local function pick(list) return list[random(#list)] end
    for _ = 1, 3000 do
      local members, model, meta, expected, edits, used = {}, {}, {}, {}, {}, {}
      local place = random(0, 6)
      for i = 1, random(0, 6) do
        local name = pick { "a", "b", "c", "d", "_meta" }
        if not model[name] then
          local value = pick { "1", "1.0", '"\\u0041"', "[1, 2]", "{}", "null", '{"a" :1}' }
          if name == "_meta" then value = pick { "{}", '{"a":1}', '{ "b" : [1] ,"a":{"x":1}}' } end
          model[name] = value
          if name == "_meta" then meta = cjson.decode(value) end
          members[#members + 1] = (i == place and " " or "") .. '"' .. name .. '"' .. pick { "", " " } .. ":" .. value .. pick { "", "\n" }
        end
      end
      local text = "{" .. table.concat(members, ",") .. "}"
      for name, value in pairs(model) do expected[name] = cjson.decode(value) end
      for _ = 1, random(0, 5) do
        local name, in_meta = pick { "a", "b", "c", "e" }, random(1, 3) == 1
        local key = name .. tostring(in_meta)
        if not used[key] then
          used[key] = true
          if random(1, 2) == 1 then
            edits[#edits + 1] = { "drop", name, meta = in_meta }
            if in_meta then meta[name] = nil else expected[name] = nil end
          else
            edits[#edits + 1] = { "set", name, "[7]", meta = in_meta }
            if in_meta then meta[name] = { 7 } else expected[name] = { 7 } end
          end
        end
      end
      expected._meta = (model._meta or next(meta)) and meta or nil
      local got = assert(json.splice(text, edits))
      assert.same(expected, cjson.decode(got), text .. " -> " .. got)
      assert.truthy(json.decode(got), got)
    end
  end)
end)
