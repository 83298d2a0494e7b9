-- Byte-preserving tables: what Lua did not change is encoded as the very bytes that it was decoded from
-- (core/vm/json/source.h).
local cjson = require "cjson"
local json = require("modules").json.lua

local digits = "1234567890123456789012345"

local function row(text, change, result)
  local value = assert(json.preserving(text))
  value = change and change(value) or value
  assert.equal(result or text, json.encode(value), text)
  collectgarbage()
  assert.equal(result or text, json.encode(value), "once more: " .. text)
end

local function set(name, new)
  return function(t) t[name] = new end
end

describe("a preserving table", function()
  it("that nobody changed is written byte for byte", function()
    for _, text in ipairs {
      "{}", "{ }", "[]", "[ ]", '{"b":1,"a":2}', '{ "b" : 1.0 , "a":[1e400, -1E-400,0.10,1e2] }', '{"z":' .. digits .. ',"_":{"":[[],{},null,true,false]}}',
      '{"\\u0061":"\\u0041\\/\\ud834\\udd1e","é":"é"}', "[" .. digits .. "," .. digits .. ".5]", '[{"a":{"a":{"a":[-0,-0.0,9007199254740993]}}}]',
      '{"a":"\\u0000","\\u0000":"\\\\"}', "[9223372036854775807,9223372036854775808,-9223372036854775809]",
    } do row(text) end
  end)

  it("is written on one line", function()
    row('{\n"a": [1,\r\n2.0]\n}', nil, '{ "a": [1,  2.0] }')
  end)

  it("keeps the bytes around a member that is changed", function()
    local text = '{ "b": 1.0, "x" : ' .. digits .. ' , "a":"\\u0041" }'
    row(text, set("b", 2), '{ "b": 2, "x" : ' .. digits .. ' , "a":"\\u0041" }')
    row(text, set("a", "B"), '{ "b": 1.0, "x" : ' .. digits .. ' , "a":"B" }')
    row(text, set("x", nil), '{ "b": 1.0,"a":"\\u0041" }')
    row(text, set("b", nil), '{"x" : ' .. digits .. ' , "a":"\\u0041" }')
    row(text, set("a", nil), '{ "b": 1.0, "x" : ' .. digits .. "}")
    row(text, set("c", json.null), '{ "b": 1.0, "x" : ' .. digits .. ' , "a":"\\u0041","c":null}')
    row(text, function(t) t.a, t.b, t.x = nil, nil, nil end, "{}")
    row(text, function(t)
      t.a, t.b, t.x = nil, nil, nil
      t.z, t.y = 1, 2
    end, '{"y":2,"z":1}')
    row("{}", set("a", 1), '{"a":1}')
    row('{"a":{"b":' .. digits .. ',"c":1}}', function(t) t.a.c = 2 end, '{"a":{"b":' .. digits .. ',"c":2}}')
    row('{"a":{"b":{"c":{"d":1,"e":1.0}}},"f":' .. digits .. "}", function(t) t.a.b.c.d = nil end, '{"a":{"b":{"c":{"e":1.0}}},"f":' .. digits .. "}")
  end)

  it("keeps the bytes around an element that is changed", function()
    row("[1.0, 2.0, 3.0 ]", set(2, "x"), '[1.0, "x", 3.0 ]')
    row("[1.0, 2.0, 3.0 ]", set(3, nil), "[1.0, 2.0]")
    row("[1.0, 2.0 ]", set(3, 4), "[1.0, 2.0,4]")
    row("[]", set(1, 4), "[4]")
    row("[1.0]", set(1, nil), "[]")
    row("[1.0,[" .. digits .. "]]", function(t) table.insert(t, 1, 7) end, "[7,1.0,[" .. digits .. "]]")
    row('[{"a":1.0},{"a":' .. digits .. "},3]", function(t) table.remove(t, 1) end, '[{"a":' .. digits .. "},3]")
    for _, change in ipairs { set(1, nil), set(5, 1), set("a", 1), set(0, 1), set(1.5, 1) } do
      local t = json.preserving "[1,2,3]"
      change(t)
      assert.has_error(function() json.encode(t) end)
    end
  end)

  it("takes its bytes along, wherever it is put", function()
    local inner = '{ "x":' .. digits .. ' , "a":1.0}'
    row('{"a":' .. inner .. ',"b":[' .. digits .. "]}", function(t) return { t.b, { t.a }, t.a } end, "[[" .. digits .. "],[" .. inner .. "]," .. inner .. "]")
    row('{"a":{"n":1.0},"b":{"n":' .. digits .. "}}", function(t) t.a, t.b = t.b, t.a end, '{"a":{"n":' .. digits .. '},"b":{"n":1.0}}')
    row('{"a":[1.0,[2.0]]}', function(t) t.a[1] = t.a[2] end, '{"a":[[2.0],[2.0]]}')
    local many = {}
    for i = 1, 100 do many[i] = ('{"n":%d.0}'):format(i) end
    row("[" .. table.concat(many, ", ") .. "]", function(t) return { t[77], t[100], t[1], t[50] } end, '[{"n":77.0},{"n":100.0},{"n":1.0},{"n":50.0}]')
    local outer = json.preserving '{"n":1.0}'
    outer.inner = json.preserving(inner)
    assert.equal('{"n":1.0,"inner":' .. inner .. "}", json.encode(outer))
  end)

  it("is an ordinary table in every way that changes it", function()
    row('{"a":1.0,"b":2}', function(t) rawset(t, "a", 3) end, '{"a":3,"b":2}')
    row('{"a":1.0,"b":2}', function(t)
      while next(t) do t[next(t)] = nil end
    end, "{}")
    row('{"a":1.0,"b":2}', function(t)
      for k in pairs(t) do t[k] = k end
    end, '{"a":"a","b":"b"}')
    row("[3.0,1.0,2.0]", function(t) table.sort(t) end, "[1.0,2.0,3.0]")
    row('{"b":1.0,"a":2.0}', function(t) return setmetatable(t, { __order = { "a" } }) end, '{"a":2.0,"b":1.0}')
    row('{"b":1.0,"a":2.0}', function(t) return setmetatable(t, {}) end, '{"a":2.0,"b":1.0}')
    row('{"b":1.0,"a":2.0}', function(t) return setmetatable({}, { __frozen = t }) end, '{"b":1.0,"a":2.0}')
    row("[1,2]", function(t) return setmetatable(t, nil) end, "[1,2]")
    row('{"a":1}', function(t) return json.object(t) end, '{"a":1}')
    row("{}", function(t) t[1] = "x" end, '["x"]')
    row("{}", function(t) return json.array(t) end, "[]")
    row('{"a":{}}', function(t) t.a[1] = 2 end, '{"a":[2]}')
    row('{"a":[]}', function(t) t.a = {} end, '{"a":{}}')
    row('{"a":1}', function(t) t.a, t[1], t[2] = nil, 5, 6 end, "[5,6]")
    row('{"a":1,"b":1.0,"c":0}', function(t) t.a, t.b, t.c = 1.0, 1, -0.0 end, '{"a":1.0,"b":1,"c":-0.0}')
    row('{"a":1.0}', function(t) t.a = 0.5 + 0.5 end, '{"a":1.0}')
    row('{"a":null,"b":"x"}', function(t) t.a, t.b = json.empty_array, json.null end, '{"a":[],"b":null}')
    row('{"a":{"b":1}}', function(t) t.a = json.raw '{ "b":1}' end, '{"a":{ "b":1}}')
    for _, change in ipairs { set(1, 1), set(true, 1), set("f", print), set("a", 0 / 0) } do
      local t = json.preserving '{"a":1}'
      change(t)
      assert.has_error(function() json.encode(t) end)
    end
    local t = json.preserving '{"a":{"b":{}}}'
    t.a.b.c = t
    assert.error_matches(function() json.encode(t) end, "a table inside itself at .a.b.c", 1, true)
    t.a.b.c = nil
    t.a.b["d e"] = { print }
    assert.error_matches(function() json.encode(t) end, 'a function at .a.b["d e"][1]', 1, true)
    t = json.preserving '[{"a":[1]}]'
    t[1].a[1] = print
    assert.error_matches(function() json.encode(t) end, "a function at [1].a[1]", 1, true)
    t[1].a = print
    assert.error_matches(function() json.encode(t) end, "a function at [1].a", 1, true)
  end)

  it("is refused with a repeated key, as any table is", function()
    for _, text in ipairs { '{"a":1,"\\u0061":2}', '[{"b":{"a":1,"a":2}}]' } do
      local value, why = json.preserving(text)
      assert.is_nil(value)
      assert.same({ json.decode(text) }, { value, why })
    end
    assert.same({ json.decode "[1" }, { json.preserving "[1" })
  end)

  it("holds its text only as long as it lives", function()
    collectgarbage()
    local before = collectgarbage "count"
    for _ = 1, 50 do json.encode(json.preserving("[" .. ('{"a":[1.0]},'):rep(10000) .. "1]")) end
    collectgarbage()
    assert.is_true(collectgarbage "count" - before < 200)
    local inner = json.preserving("[" .. ('{"a":[1.0]},'):rep(1000) .. '{"b":1.0}]')[1001]
    collectgarbage()
    assert.equal('{"b":1.0}', json.encode(inner), "a table alone holds the text that it came from")
  end)
end)

-- -- random texts and random changes -----------------------------------------------------------------------------------------

local random = math.random
local function pick(list) return list[random(#list)] end
local count = 0

-- A random text. Every container has an integer of 25 digits that no other has: its mark.
local function make(depth)
  local space = pick { "", "", "", " ", "  " }
  local kind = depth == 0 and 1 or random(1, 6)
  if kind <= 3 then
    return pick { "1", "-2", "3.0", "1e2", "0.50", '"a"', '"\\u0041\\n"', '"\\""', "true", "false", "null", "-0.0", "12E-1", '""' }
  end
  count = count + 1
  local mark = ("1%04d12345678901234567891"):format(count)
  local parts = {}
  if kind <= 5 then
    local used = {}
    for i = 1, random(0, 5) do
      local name = pick { "a", "b", "c", "d", "\\u0065", "" }
      if not used[name] then
        used[name] = true
        parts[#parts + 1] = space .. '"' .. name .. '"' .. space .. ":" .. make(depth - 1) .. (i == 1 and space or "")
      end
    end
    table.insert(parts, random(1, #parts + 1), '"mark":' .. space .. mark)
    return "{" .. table.concat(parts, ",") .. space .. "}"
  end
  for i = 1, random(0, 4) do parts[i] = make(depth - 1) .. space end
  table.insert(parts, 1, mark)
  return "[" .. table.concat(parts, "," .. space) .. "]"
end

-- All tables of a value, with their twins in another decoding of the text; each table once.
local function twins(plain, preserving, list, seen)
  if type(plain) ~= "table" or seen[plain] then return list end
  seen[plain] = true
  list[#list + 1] = { plain = plain, preserving = preserving, is_array = #plain > 0 or getmetatable(plain) == json.array_mt }
  local names = {}
  for name in pairs(plain) do names[#names + 1] = name end
  table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
  for _, name in ipairs(names) do twins(plain[name], preserving[name], list, seen) end
  return list
end

-- Changes both twins in the same way.
local changes = {
  function(t, name) t.plain[name], t.preserving[name] = nil, nil end,
  function(t, name)
    local new = pick { 1, 1.0, "A\n", "x", true, json.null, -0.0, 100.0 }
    t.plain[name], t.preserving[name] = new, new
  end,
  function(t, name, other) t.plain[name], t.preserving[name] = other.plain, other.preserving end,
  function(t, name) t.plain[name], t.preserving[name] = { 1, 2 }, { 1, 2 } end,
  function(t)
    if not t.is_array then return end
    local at = random(1, #t.plain + 1)
    table.insert(t.plain, at, "new")
    table.insert(t.preserving, at, "new")
  end,
  function(t)
    if not t.is_array or #t.plain == 0 then return end
    local at = random(1, #t.plain)
    table.remove(t.plain, at)
    table.remove(t.preserving, at)
  end,
  function(t)
    for name in pairs(t.plain) do t.plain[name], t.preserving[name] = nil, nil end
  end,
  function(t)
    local order = { __order = { "c", "mark" } }
    setmetatable(t.plain, order)
    setmetatable(t.preserving, order)
  end,
}

local function name_in(t)
  if t.is_array then return random(1, #t.plain + 1) end
  return pick { "a", "b", "c", "d", "e", "", "new", "mark" }
end

local function marks(value, found, path)
  if type(value) ~= "table" or path[value] then return found end
  path[value] = true
  found[value] = true
  for _, inner in next, value do marks(inner, found, path) end
  path[value] = nil
  return found
end

describe("a preserving table, changed at random,", function()
  it("has the values of an ordinary table with the same changes, and the bytes of each table that was not changed", function()
    local seed = tonumber(os.getenv "PRESERVING_SEED") or 20261122
    math.randomseed(seed)
    local written, refused, kept = 0, 0, 0
    for round = 1, tonumber(os.getenv "PRESERVING_ROUNDS") or 6000 do
      count = 0
      local text = "[" .. make(4) .. "," .. make(4) .. "]"
      local plain, preserving = assert(json.decode(text)), assert(json.preserving(text))
      local list, changed, mark_of = twins(plain, preserving, {}, {}), {}, {}
      local spelled = {}
      for mark in text:gmatch "1%d%d%d%d12345678901234567891" do spelled[tonumber(mark)] = spelled[tonumber(mark)] and "?" or mark end
      for _, t in ipairs(list) do mark_of[t.plain] = t.is_array and t.plain[1] or t.plain.mark end
      for _ = 1, random(0, 4) do
        local t = pick(list)
        changed[t.plain] = true
        pick(changes)(t, name_in(t), pick(list))
      end
      local what = ("seed %d, round %d: %s"):format(seed, round, text)
      local good, expected = pcall(json.encode, plain)
      local fine, got = pcall(json.encode, preserving)
      assert.equal(good, fine, what .. " " .. tostring(expected) .. " " .. tostring(got))
      if good then
        written = written + 1
        assert.equal(json.encode(json.decode(expected)), json.encode(json.decode(got)), what .. " -> " .. got)
        assert.truthy(pcall(cjson.decode, got), got)
        for t in pairs(marks(plain, {}, {})) do
          local mark = not changed[t] and spelled[mark_of[t]]
          if mark and mark ~= "?" then
            kept = kept + 1
            assert.truthy(got:find(mark, 1, true), what .. " has lost " .. mark .. " -> " .. got)
          end
        end
        if not next(changed) then assert.equal(text, got, what) end
      else
        refused = refused + 1
      end
    end
    assert.is_true(written > 2 * refused and refused > 0 and kept > 2 * written, ("%d written, %d refused, %d tables kept"):format(written, refused, kept))
  end)
end)
