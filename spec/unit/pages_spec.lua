local cjson = require "cjson"
local host = require "spec.helpers.host"

local kinds = {
  { method = "tools/list", member = "tools", name = "name", path = "tools/%s.lua", text = 'return tool { "T.", function() end }' },
  { method = "prompts/list", member = "prompts", name = "name", path = "prompts/%s.lua", text = 'return prompt { "P.", "p" }' },
  { method = "resources/list", member = "resources", name = "uri", path = "resources/%s.lua", text = 'return resource { "R.", uri = "x:%s", "r" }' },
  { method = "resources/templates/list", member = "resourceTemplates", name = "uriTemplate", path = "resources/%s.lua",
    text = 'return resource { "R.", uri = "x:%s/{id}", "r" }' },
}

local function named(i) return ("n%04d"):format(i) end

local function scripts(kind, count)
  local all = {}
  for i = 1, count do all[kind.path:format(named(i))] = kind.text:gsub("%%s", named(i)) end
  return all
end

-- The bytes of the entries on each page and of the first entry of each, and all names in the order in which they came.
local function walk(vm, kind, revision)
  local sizes, firsts, names, cursor = {}, {}, {}, nil
  repeat
    local result = assert(vm:read(kind.method, { cursor = cursor }, { revision = revision }))
    local bytes = 0
    for i, entry in ipairs(result[kind.member]) do
      names[#names + 1] = entry[kind.name]
      local size = #cjson.encode(entry):gsub("\\/", "/") + 1
      bytes, firsts[#sizes + 1] = bytes + size, i == 1 and size or firsts[#sizes + 1]
    end
    sizes[#sizes + 1] = bytes
    cursor = result.nextCursor
  until not cursor
  return sizes, firsts, names
end

for _, kind in ipairs(kinds) do
  describe(kind.method, function()
    after_each(host.stop)

    it("comes in pages of as many entries as limits.page has room for, in every era", function()
      local vm = host.start(scripts(kind, 250), { page = 4096 })
      for _, revision in ipairs { "2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05" } do
        local sizes, firsts, names = walk(vm, kind, revision)
        assert.is_true(#sizes >= 3, #sizes .. " pages")
        for i, bytes in ipairs(sizes) do
          assert.is_true(bytes <= 4096 and (not firsts[i + 1] or bytes + firsts[i + 1] > 4096), i .. ": " .. bytes)
        end
        assert.equal(250, #names)
        for i = 2, #names do assert.is_true(names[i - 1] < names[i]) end
      end
    end)

    it("has at least one entry on each page, and has no page more than it needs", function()
      assert.equal(3, #walk(host.start(scripts(kind, 3), { page = 10 }), kind))
      assert.equal(1, #walk(host.start(scripts(kind, 1), { page = 10 }), kind))
      assert.equal(1, #walk(host.start(scripts(kind, 300)), kind))
    end)

    it("knows its own cursors alone", function()
      local vm = host.start(scripts(kind, 2), { page = 10 })
      local cursor = vm:read(kind.method).nextCursor
      assert.is_nil(vm:read(kind.method, { cursor = cursor }).nextCursor)
      for _, wrong in ipairs { "", "n0100", cursor:sub(2), cursor:upper(), 7, true, {}, "sealed:cursor other/list\0n0100" } do
        local result, err = vm:call(kind.method, { cursor = wrong })
        assert.is_nil(result)
        assert.same({ code = -32602, message = "unknown cursor" }, err)
      end
    end)
  end)
end

describe("a thousand usual tools", function()
  after_each(host.stop)

  it("are on one page: many clients read no other", function()
    local all = {}
    for i = 1, 1000 do
      all[("tools/%s.lua"):format(named(i))] = ([[return tool { %q, input = {
        query = t.string "What is looked for, in the words of the person who asks.", limit = t.integer "How many are returned at most.",
        sort = t.string "By what the results are sorted: newest, oldest or relevance.", project = t.string "The id of a project.",
      }, function() end }]]):format(("Finds things in a system that many people use, by words or by their properties. "):rep(3))
    end
    local result = host.start(all):read "tools/list"
    assert.same({ 1000, nil }, { #result.tools, result.nextCursor })
  end)
end)

describe("a cursor", function()
  after_each(host.stop)

  it("goes on where it stood after the list has changed", function()
    local kind, few = kinds[1], { page = 4096 }
    local first = host.start(scripts(kind, 150), few):read(kind.method)
    local n = #first.tools
    local changed = scripts(kind, 250)
    for i = n, n + 1 do changed["tools/" .. named(i) .. ".lua"] = nil end
    changed["tools/n0001.lua"] = nil
    local result = host.start(changed, few):read(kind.method, { cursor = first.nextCursor })
    assert.equal(named(n + 2), result.tools[1].name)
    result = host.start(scripts(kind, n // 2), few):read(kind.method, { cursor = first.nextCursor })
    assert.same({ 0, nil }, { #result.tools, result.nextCursor })
  end)
end)
