-- Scripts cannot see addresses in memory: the texts of values have a number for each object that is not its address.
local code = require "spec.helpers.code"

-- Address ranges of the process, from /proc.
local function ranges_of(pid)
  local list = {}
  for line in io.lines("/proc/" .. pid .. "/maps") do
    local from, to = line:match "^(%x+)-(%x+)"
    list[#list + 1] = { tonumber(from, 16), tonumber(to, 16) }
  end
  return list
end

local values = [[{ {}, print, string.format, function() end, coroutine.create(print), regex.new 'a', http.get,
  setmetatable({}, { __name = 'Mine' }), tool }]]

local ways = {
  tostring = "tostring(value)",
  format = "('%s'):format(value)",
  ["format, two values"] = "('%s%s'):format(value, '')",
  ["format, a width"] = "('%40s'):format(value):match '^ *(.*)$'",
  ["format, a text first"] = "string.format('%s %s', 'text', value):sub(6)",
}

describe("the text of a value", function()
  it("has no address in it, and is the same as long as the object lives", function()
    local g <close> = code.start { workers = 1 }
    local me = g:client "2026-07-28"
    local ranges = ranges_of(g.pid)
    for name, way in pairs(ways) do
      local texts = assert(code.run(me, ([[
        local texts = {}
        for i, value in ipairs(%s) do
          texts[i] = %s
          assert(texts[i] == %s and texts[i] == tostring(value), "another text for one object")
        end
        return texts]]):format(values, way, way)))
      local seen = {}
      for _, text in ipairs(texts) do
        local number = text:match ": 0x(%x+)$"
        assert.truthy(number, name .. ": " .. text)
        assert.equal(14, #number)
        assert.is_nil(seen[text], "two objects with one text")
        seen[text] = true
        for _, range in ipairs(ranges) do
          local n = tonumber(number, 16)
          assert.falsy(n >= range[1] and n < range[2], name .. ": " .. text)
        end
      end
      assert.truthy(texts[1]:find "^table: 0x" and texts[2]:find "^function: 0x" and texts[5]:find "^thread: 0x")
      assert.truthy(texts[8]:find "^Mine: 0x")
    end
    me:close()
    assert.has_nothing_left(g)
  end)

  it("differs from run to run, where the address may be the same", function()
    local seen = {}
    for _ = 1, 2 do
      local g <close> = code.start { workers = 1 }
      local me = g:client "2026-07-28"
      local text = code.run(me, "return tostring(string.rep)")
      assert.is_nil(seen[text])
      seen[text] = true
      me:close()
    end
  end)

  it("is never made by %p", function()
    local g <close> = code.start { workers = 1 }
    local me = g:client "2026-07-28"
    for _, format in ipairs { "%p", "%20p", "%-20p", "%%%p", "%s %p", "%5.3p", "p%p" } do
      local why = code.run(me, ("return select(2, pcall(string.format, %q, 'text', {}))"):format(format))
      assert.truthy(why:find("invalid conversion", 1, true), format .. ": " .. tostring(why))
    end
    assert.equal("p 100% p", code.run(me, "return ('p %d%% p'):format(100)"))
    assert.equal("<nil true 1.5 x>", code.run(me, [[local named = setmetatable({}, { __tostring = function() return 'x' end })
      return ('<%s %s %s %s>'):format(nil, true, 1.5, named)]]))
    me:close()
    assert.has_nothing_left(g)
  end)
end)
