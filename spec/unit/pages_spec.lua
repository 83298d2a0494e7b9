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

-- The sizes of the pages, and all names in the order in which they came.
local function walk(vm, kind, revision)
  local sizes, names, cursor = {}, {}, nil
  repeat
    local result = assert(vm:read(kind.method, { cursor = cursor }, { revision = revision }))
    sizes[#sizes + 1] = #result[kind.member]
    for _, entry in ipairs(result[kind.member]) do names[#names + 1] = entry[kind.name] end
    cursor = result.nextCursor
  until not cursor
  return table.concat(sizes, " "), names
end

for _, kind in ipairs(kinds) do
  describe(kind.method, function()
    after_each(host.stop)

    it("comes in pages of a hundred, in every era", function()
      local vm = host.start(scripts(kind, 250))
      for _, revision in ipairs { "2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05" } do
        local sizes, names = walk(vm, kind, revision)
        assert.equal("100 100 50", sizes)
        assert.equal(250, #names)
        for i = 2, #names do assert.is_true(names[i - 1] < names[i]) end
      end
      assert.equal("100", (walk(host.start(scripts(kind, 100)), kind)))
      assert.equal("100 1", (walk(host.start(scripts(kind, 101)), kind)))
    end)

    it("knows its own cursors alone", function()
      local vm = host.start(scripts(kind, 101))
      local cursor = vm:read(kind.method).nextCursor
      assert.same({ nil, nil }, { vm:read(kind.method, { cursor = cursor }).nextCursor })
      for _, wrong in ipairs { "", "n0100", cursor:sub(2), cursor:upper(), 7, true, {}, "sealed:cursor other/list\0n0100" } do
        local result, err = vm:call(kind.method, { cursor = wrong })
        assert.is_nil(result)
        assert.same({ code = -32602, message = "unknown cursor" }, err)
      end
    end)
  end)
end

describe("a cursor", function()
  after_each(host.stop)

  it("goes on where it stood after the list has changed", function()
    local kind = kinds[1]
    local cursor = host.start(scripts(kind, 150)):read(kind.method).nextCursor
    local changed = scripts(kind, 250)
    changed["tools/n0100.lua"], changed["tools/n0001.lua"], changed["tools/n0101.lua"] = nil, nil, nil
    local result = host.start(changed):read(kind.method, { cursor = cursor })
    assert.equal("n0102", result.tools[1].name)
    assert.equal("n0201", result.tools[100].name)
    result = host.start(scripts(kind, 50)):read(kind.method, { cursor = cursor })
    assert.same({ 0, nil }, { #result.tools, result.nextCursor })
  end)
end)
