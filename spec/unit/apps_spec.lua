local host = require "spec.helpers.host"

local page = [[return resource { "A chart.", uri = "ui://demo/chart", meta = { team = "web" },
  ui = { csp = { connectDomains = { "https://api.x" }, frameDomains = {} }, permissions = { camera = true, microphone = false }, prefersBorder = true },
  "<!doctype html>" }]]

describe("MCP Apps", function()
  after_each(host.stop)

  it("show a page of ours beside a tool's answer", function()
    local vm = host.start {
      ["resources/chart.lua"] = page,
      ["tools/chart.lua"] = 'return tool { "C.", ui = "ui://demo/chart", meta = { team = "web" }, function() return "A text for all." end }',
      ["tools/press.lua"] = 'return tool { "P.", ui = { "ui://demo/chart", visibility = { "app" } }, function() end }',
    }
    assert.is_nil(vm.errors, vm.errors and vm.errors[1])
    local tools = vm:list()
    assert.same({ team = "web", ui = { resourceUri = "ui://demo/chart" } }, tools.chart._meta)
    assert.same({ ui = { resourceUri = "ui://demo/chart", visibility = { "app" } } }, tools.press._meta)
    assert.same(tools.chart._meta, vm:list("2025-06-18").chart._meta)
    assert.is_nil(vm:list("2025-03-26").chart._meta)
    local entry = vm:read("resources/list").resources[1]
    assert.equal("text/html;profile=mcp-app", entry.mimeType)
    local ui = { csp = { connectDomains = { "https://api.x" }, frameDomains = {} }, permissions = { camera = {} }, prefersBorder = true }
    assert.same({ team = "web", ui = ui }, entry._meta)
    local contents = vm:call("resources/read", { uri = "ui://demo/chart" }).contents
    assert.same({ { uri = "ui://demo/chart", mimeType = "text/html;profile=mcp-app", text = "<!doctype html>", _meta = { ui = ui } } }, contents)
    assert.is_nil(vm:call("resources/read", { uri = "ui://demo/chart" }, { revision = "2025-03-26" }).contents[1]._meta)
    assert.equal("ui://demo/chart", vm:call("resources/read", { uri = "ui://demo/chart" }).contents[1].uri)
    assert.same({ ui = ui }, vm:call("resources/read", { uri = "ui://demo/chart" }).contents[1]._meta)
    assert.same({ ["io.modelcontextprotocol/ui"] = {} }, vm:call("server/discover", {}).capabilities.extensions)
  end)

  it("may come from a template", function()
    assert.is_nil(host.start {
      ["resources/chart.lua"] = 'return resource { "C.", uri = "ui://demo/{name}", "<!doctype html>" }',
      ["tools/chart.lua"] = 'return tool { "C.", ui = "ui://demo/chart", function() end }',
    }.errors)
  end)

  it("are refused when they show nothing, or have a field that no client reads", function()
    local told = table.concat(host.start {
      ["resources/chart.lua"] = page, ["resources/odd.lua"] = [[return resource { "O.", uri = "ui://odd", ui = { border = true, domain = 1,
        permissions = { kamera = true }, csp = { connectDomain = {} } }, "x" }]],
      ["tools/a.lua"] = 'return tool { "A.", ui = "ui://demo/chrat", function() end }',
      ["tools/b.lua"] = 'return tool { "B.", ui = "https://x", function() end }',
      ["tools/c.lua"] = 'return tool { "C.", ui = { "ui://demo/chart", visibility = { "me" }, visible = 1 }, function() end }',
    }.errors, "\n")
    for _, part in ipairs {
      "no resource serves 'ui://demo/chrat'", "hint: did you mean 'ui://demo/chart'?", "'ui' must be the URI of a page", "'visibility' may contain only",
      "'ui' has no 'visible'", "'ui' has no 'border'", "'domain' must be a string", "'permissions' has no 'kamera'\n", "did you mean 'camera'?",
      "'csp' has no 'connectDomain'",
    } do
      assert.truthy(told:find(part, 1, true), part .. "\n" .. told)
    end
  end)
end)
