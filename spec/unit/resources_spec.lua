local host = require "spec.helpers.host"
local json = host.json

local legacy = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25" }

local order = [[return resource {
  "An order, as JSON.\nIn full.", uri = "orders://{region}/{id}", mime = "application/json", ttl = 30 * seconds,
  title = "Order", complete = { region = { "eu", "us" } }, icons = { { src = "https://x/i.png" } },
  audience = { "user" }, priority = 0.5, modified = "2026-01-01T00:00:00Z", meta = { ["example.com/team"] = "web" },
  function(vars, call)
    if vars.id == "0" then return nil end
    if vars.id == "bug" then error "secret" end
    if vars.id == "down" then return nil, "the shop is closed" end
    if vars.id == "failed" then fail "the shop burnt down" end
    if vars.id == "able" then call:require "sampling" end
    return { region = vars.region, id = vars.id, who = call.principal.id }
  end }]]

local function returning(expression, options)
  return ('return resource { "R.", uri = "x:r", %s function() return %s end }'):format(options or "", expression)
end

local function read(vm, uri, fields) return vm:call("resources/read", { uri = uri }, fields) end

describe("resources", function()
  local vm
  before_each(function()
    vm = host.start {
      ["resources/shop/order.lua"] = order,
      ["resources/resources.lua"] = [[return {
        b = resource { "B.", uri = "text://b", size = 1, "b" }, a = resource { "A.", uri = "text://a", public = true, ttl = 0.5, "a" } }]],
      ["resources/latest.lua"] = 'return resource { "Latest.", uri = "orders://{region}/latest", function(vars) return "newest of " .. vars.region end }',
    }
    assert.is_nil(vm.errors, vm.errors and vm.errors[1])
  end)
  after_each(host.stop)

  it("are listed by URI, templates apart", function()
    local list = vm:read "resources/list"
    assert.same({ { uri = "text://a", name = "a", description = "A." }, { uri = "text://b", name = "b", description = "B.", size = 1 } }, list.resources)
    assert.equal(5000, list.ttlMs)
    assert.equal("public", list.cacheScope)
    local templates = vm:read("resources/templates/list").resourceTemplates
    assert.equal("orders://{region}/latest", templates[1].uriTemplate)
    assert.same({
      uriTemplate = "orders://{region}/{id}", name = "shop_order", title = "Order", description = "An order, as JSON.\nIn full.",
      mimeType = "application/json", icons = { { src = "https://x/i.png" } }, _meta = { ["example.com/team"] = "web" },
      annotations = { audience = { "user" }, priority = 0.5, lastModified = "2026-01-01T00:00:00Z" },
    }, templates[2])
    assert.equal("resource  text://a  A.\nresource  text://b  B.\nresource  orders://{region}/latest  Latest.\n" ..
      "resource  orders://{region}/{id}  An order, as JSON.\n", (vm.moonpool.describe "list"))
  end)

  it("are sent to each era with the fields that it defines", function()
    for revision, has in pairs {
      ["2026-07-28"] = { title = true, icons = true, _meta = true, lastModified = true },
      ["2025-11-25"] = { title = true, icons = true, _meta = true, lastModified = true },
      ["2025-06-18"] = { title = true, _meta = true, lastModified = true }, ["2025-03-26"] = {}, ["2024-11-05"] = {},
    } do
      local result = vm:read("resources/templates/list", {}, { revision = revision })
      local entry = result.resourceTemplates[2]
      for _, field in ipairs { "title", "icons", "_meta" } do assert.equal(has[field] or false, entry[field] ~= nil, revision .. field) end
      assert.equal(has.lastModified or false, entry.annotations.lastModified ~= nil)
      assert.same({ "user" }, entry.annotations.audience)
      assert.equal(revision == "2026-07-28", result.ttlMs ~= nil)
    end
  end)

  it("are read by URI, a fixed one before a template, and the closest template first", function()
    local result = read(vm, "orders://eu/12")
    assert.same({ { uri = "orders://eu/12", mimeType = "application/json", text = '{"id":"12","region":"eu","who":"anonymous"}' } }, result.contents)
    assert.same({ 30000, "private", "complete" }, { result.ttlMs, result.cacheScope, result.resultType })
    assert.equal("newest of eu", read(vm, "orders://eu/latest").contents[1].text)
    result = read(vm, "text://a")
    assert.same({ { uri = "text://a", mimeType = "text/plain", text = "a" } }, result.contents)
    assert.same({ 500, "public" }, { result.ttlMs, result.cacheScope })
    result = read(vm, "text://a", { revision = "2025-11-25" })
    assert.is_nil(result.ttlMs or result.cacheScope or result.resultType)
  end)

  it("that do not exist have the era's code, and say which", function()
    for _, uri in ipairs { "orders://eu/0", "nowhere://", "", "orders://eu/..", "text://a ", "orders://" .. ("x"):rep(70000) } do
      assert.same({ code = -32602, message = "resource not found", data = { uri = uri } }, select(2, read(vm, uri)))
      for _, revision in ipairs(legacy) do
        local _, err = read(vm, uri, { revision = revision })
        assert.same({ -32002, uri }, { err.code, err.data.uri })
      end
    end
    assert.equal("params.uri must be a string", select(2, read(vm, nil)).message)
  end)

  it("fail with their reason when that was expected, else with an id alone", function()
    assert.same({ code = -32603, message = "the shop is closed" }, select(2, read(vm, "orders://eu/down")))
    assert.same({ code = -32603, message = "the shop burnt down" }, select(2, read(vm, "orders://eu/failed")))
    assert.same({}, vm.logs)
    local _, err = read(vm, "orders://eu/bug")
    assert.equal(-32603, err.code)
    assert.truthy(err.message:find "^internal error %x%x%x%x$")
    assert.equal("resource failed", vm.logs[1].event)
    assert.equal("scripts/resources/shop/order.lua:7: secret", vm.logs[1].fields.why)
    assert.equal("shop_order", vm.logs[1].fields.name)
    assert.equal(-32021, select(2, read(vm, "orders://eu/able")).code)
    assert.equal(-32603, select(2, read(vm, "orders://eu/able", { revision = "2025-11-25" })).code)
  end)
end)

describe("what a resource returns", function()
  after_each(host.stop)

  local function contents(expression, options)
    local vm = host.start { ["resources/r.lua"] = returning(expression, options) }
    assert.is_nil(vm.errors, vm.errors and vm.errors[1])
    local result, err = read(vm, "x:r")
    return result and result.contents, err, vm
  end

  it("becomes text, a blob, or JSON", function()
    for expression, expected in pairs {
      ['"t"'] = { mimeType = "text/plain", text = "t" }, ["42"] = { mimeType = "text/plain", text = "42" },
      ["false"] = { mimeType = "text/plain", text = "false" }, ["{ 1, 2 }"] = { mimeType = "application/json", text = "[1,2]" },
      ["json.null"] = { mimeType = "application/json", text = "null" }, ['text "t"'] = { mimeType = "text/plain", text = "t" },
      ['bytes "abc"'] = { mimeType = "application/octet-stream", blob = "YWJj" },
      ['bytes("abc", "image/png")'] = { mimeType = "image/png", blob = "YWJj" },
    } do
      expected.uri = "x:r"
      assert.same({ expected }, contents(expression), expression)
    end
    assert.equal("image/gif", contents('bytes "abc"', 'mime = "image/gif",')[1].mimeType)
    assert.equal("text/csv", contents('"a,b"', 'mime = "text/csv",')[1].mimeType)
  end)

  it("may be several", function()
    assert.same({
      { uri = "x:r", mimeType = "text/plain", text = "a" }, { uri = "x:b", mimeType = "text/html", text = "<b>" },
      { uri = "x:c", mimeType = "image/png", blob = "YQ==" }, { uri = "x:r", mimeType = "application/octet-stream", blob = "Yg==" },
    }, contents '{ "a", embed("x:b", "<b>", "text/html"), embed("x:c", bytes("a", "image/png")), bytes "b" }')
  end)

  it("is a fault when it is none of these", function()
    for expression, why in pairs {
      ['"\\255"'] = "is not UTF-8", ["print"] = "is not JSON", ['image("x")'] = "cannot hold a block of type image",
      ['{ bytes "a", {} }'] = "item 2 of the returned list", ['{ bytes "a", "\\255" }'] = "item 2 of the returned list: the returned text is not UTF-8",
    } do
      local result, err, vm = contents(expression)
      assert.is_nil(result)
      assert.truthy(err.message:find "^internal error")
      assert.truthy(vm.logs[1].fields.why:find(why, 1, true), vm.logs[1].fields.why)
    end
  end)

  it("is not what a tool returns", function()
    local vm = host.start { ["tools/t.lua"] = 'return tool { "T.", function() return bytes "x" end }' }
    assert.truthy(vm:tool("t", {}).content[1].text:find "^internal error")
    assert.truthy(vm.logs[1].fields.why:find("embed(uri, bytes(…))", 1, true))
  end)
end)

describe("resources that are wrong", function()
  after_each(host.stop)

  it("are refused with what to do", function()
    local all = {}
    for i, text in ipairs {
      'return resource { uri = "x:a", function() end }', 'return resource { "A.", function() end }', 'return resource { "A.", uri = "no uri", "a" }',
      'return resource { "A.", uri = "x:{a", "a" }', 'return resource { "A.", uri = "x:a", tll = 3, "a" }',
      'return resource { "A.", uri = "x:b", ttl = -1, priority = 2, audience = { "me" }, size = 1.5, "a" }',
      'return resource { "A.", uri = "x:{id}", complete = { di = {} }, size = 3, "a" }', "return function() end", "return 1",
      'return resource { "A.", uri = "x:same", "a" }', 'return resource { "A.", uri = "x:same", "b" }',
      'return resource { "A.", uri = "x:page", ui = {}, "a" }', 'return resource { "A.", uri = "ui://page", mime = "text/html", "a" }',
      'return resource { "A.", uri = "x:i", public = true, visible = print, icons = { { src = "http://x" } }, meta = { "x" }, scopes = {}, "a" }',
    } do all["resources/r" .. string.char(96 + i) .. ".lua"] = text end
    local told = table.concat(host.start(all).errors, "\n")
    for _, part in ipairs {
      "ra.lua:1: a resource begins with its description", "the resource has no 'uri'", "'no uri' is not a URI", "a brace has no matching brace",
      "resource has no option 'tll'", "hint: did you mean 'ttl'?", "'ttl' must be at least 0", "'priority' must be from 0 to 1", "'audience' may contain only",
      "'size' must be an integer, got a number", "the URI has no value 'di' to complete", "hint: did you mean 'id'?", "a template has no 'size'",
      "'rh' is a function, not a resource", "'ri' is a number, not a resource", "the URI 'x:same' is taken by scripts/resources/rj.lua",
      "only a page can have 'ui'", "a ui:// resource is 'text/html;profile=mcp-app'", "icon 1 has no 'src'", "'meta' has a field without a name",
      "'scopes' names no scope", "a resource with 'scopes' or 'visible' cannot be 'public'",
    } do
      assert.truthy(told:find(part, 1, true), part .. "\n" .. told)
    end
  end)
end)

describe("a server without resources", function()
  after_each(host.stop)

  it("does not know their methods", function()
    local vm = host.start {}
    for _, method in ipairs { "resources/list", "resources/templates/list", "resources/read" } do
      for _, revision in ipairs { "2026-07-28", table.unpack(legacy) } do
        assert.equal(-32601, select(2, vm:call(method, { uri = "x:a" }, { revision = revision })).code)
      end
    end
    vm = host.start { ["resources/r.lua"] = returning "1" }
    assert.equal('"resourceTemplates":[]', json.bytes(vm:call("resources/templates/list", {})):match '"resourceTemplates":%[%]')
  end)
end)
