local host = require "spec.helpers.host"
local json = host.json

local legacy = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25" }

local scripts = { ["tools/rich.lua"] = [[
return tool {
  "Rich.", title = "Rich tool", read_only = true, icons = { { src = "https://x/i.png" } }, output = t.object { n = t.number },
  function() return { n = 1 } end,
}]], ["tools/list.lua"] = [[
return tool { "List.", output = t.list(t.number), function() return json.array { 1, 2 } end }]], ["tools/blocks.lua"] = [[
local old = text("old", { audience = { "user" }, modified = "2026-01-01T00:00:00Z" })
return tool { "Blocks.", function()
  return { audio("abc"), link("file:///a.txt", { "About", title = "A" }), link("x:y", { name = "x:y" }), old }
end }]] }

describe("one script, served in each era", function()
  local vm
  before_each(function() vm = host.start(scripts) end)
  after_each(host.stop)

  it("is listed with what the era knows", function()
    local rows = {
      ["2026-07-28"] = { title = true, icons = true, outputSchema = true, annotations = true, list_output = true, cache = true },
      ["2025-11-25"] = { title = true, icons = true, outputSchema = true, annotations = true },
      ["2025-06-18"] = { title = true, outputSchema = true, annotations = true },
      ["2025-03-26"] = { annotations = true },
      ["2024-11-05"] = {},
    }
    for revision, has in pairs(rows) do
      local tools, _, result = vm:list(revision)
      for _, field in ipairs { "title", "icons", "outputSchema", "annotations" } do
        assert.equal(has[field] or false, tools.rich[field] ~= nil, revision .. " " .. field)
      end
      assert.equal(has.list_output or false, tools.list.outputSchema ~= nil, revision)
      for _, field in ipairs { "ttlMs", "cacheScope", "resultType", "_meta" } do
        assert.equal(has.cache or false, result[field] ~= nil, revision .. " " .. field)
      end
    end
    assert.same({ readOnlyHint = true, title = "Rich tool" }, vm:list("2025-03-26").rich.annotations)
    assert.same({ readOnlyHint = true }, vm:list("2025-06-18").rich.annotations)
  end)

  it("is listed in the same order and the same bytes each time", function()
    for _, revision in ipairs { "2026-07-28", table.unpack(legacy) } do
      local _, first = vm:list(revision)
      local _, second, decoded = vm:list(revision)
      assert.equal(first, second)
      assert.same({ "blocks", "list", "rich" }, { decoded.tools[1].name, decoded.tools[2].name, decoded.tools[3].name })
    end
  end)

  it("has structured content where the era knows it, an object where it must be one", function()
    for revision, expected in pairs {
      ["2026-07-28"] = { '{"n":1}', "[1,2]" }, ["2025-11-25"] = { '{"n":1}' }, ["2025-06-18"] = { '{"n":1}' },
      ["2025-03-26"] = {}, ["2024-11-05"] = {},
    } do
      local rich, list = vm:tool("rich", {}, { revision = revision }), vm:tool("list", {}, { revision = revision })
      assert.equal(expected[1], rich.structuredContent and json.bytes(rich.structuredContent), revision)
      assert.equal(expected[2], list.structuredContent and json.bytes(list.structuredContent), revision)
      assert.equal('{"n":1}', rich.content[1].text)
      assert.equal("[1,2]", list.content[1].text)
      assert.equal(revision == "2026-07-28" and "complete" or nil, rich.resultType)
      assert.equal(revision == "2026-07-28", rich._meta ~= nil)
    end
  end)

  it("has only blocks that the era knows, and leaves the script's own alone", function()
    local function kinds(revision)
      local types = {}
      for i, block in ipairs(vm:tool("blocks", {}, { revision = revision }).content) do types[i] = block.type end
      return table.concat(types, " ")
    end
    assert.equal("audio resource_link resource_link text", kinds "2026-07-28")
    assert.equal("audio resource_link resource_link text", kinds "2025-06-18")
    assert.equal("audio text text text", kinds "2025-03-26")
    assert.equal("resource text text text", kinds "2024-11-05")
    local content = vm:tool("blocks", {}, { revision = "2024-11-05" }).content
    assert.same({ uri = "moonpool:audio/1", mimeType = "audio/wav", blob = "YWJj" }, content[1].resource)
    assert.equal("A: file:///a.txt", content[2].text)
    assert.equal("x:y", content[3].text)
    assert.same({ audience = { "user" } }, content[4].annotations)
    assert.equal("2026-01-01T00:00:00Z", vm:tool("blocks", {}).content[4].annotations.lastModified)
  end)
end)

describe("methods", function()
  after_each(host.stop)

  it("exist in the eras that have them, and nowhere else", function()
    local vm = host.start {}
    for method, where in pairs {
      initialize = "legacy", ping = "legacy", ["logging/setLevel"] = "legacy", ["server/discover"] = "modern",
      ["tools/list"] = "both", ["resources/list"] = "none", ["tasks/get"] = "none", ["tools/LIST"] = "none", [""] = "none",
    } do
      for _, revision in ipairs { "2026-07-28", table.unpack(legacy) } do
        local modern = revision == "2026-07-28"
        local params = { level = "info", protocolVersion = "2025-11-25" }
        local _, err = vm:call(method, params, { revision = revision, initialized = method ~= "initialize" })
        local there = where == "both" or where == (modern and "modern" or "legacy")
        assert.equal(not there and -32601 or nil, err and err.code, method .. " " .. revision)
      end
    end
    assert.equal(-32601, select(2, vm:call("initialize", {}, {})).code)
    assert.equal("unknown method 'tools/lst': did you mean 'tools/list'?", select(2, vm:call("tools/lst", {})).message)
  end)
end)
