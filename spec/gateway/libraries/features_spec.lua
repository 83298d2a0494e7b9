-- Resources, prompts, completion and pages through the real binary, to clients with sessions and without.
local gateway = require "spec.helpers.gateway"

local scripts = {
  ["tools/chart.lua"] = 'return tool { "Shows a chart.", ui = "ui://chart", function() return "42" end }',
  ["resources/chart.lua"] = 'return resource { "A chart.", uri = "ui://chart", ui = { prefersBorder = true }, "<!doctype html>" }',
  ["resources/order.lua"] = [[return resource {
    "An order.", uri = "orders://{region}/{id}", ttl = 30 * seconds, complete = { region = { "eu", "us" } },
    function(vars, call)
      if vars.id == "0" then return nil end
      if vars.id == "bug" then error "secret" end
      sleep(0.01)
      return { id = vars.id, region = vars.region, method = call.method }
    end }]],
  ["resources/image.lua"] = 'return resource { "An image.", uri = "x:image", mime = "image/png", function() return bytes "\\0\\1\\255" end }',
  ["prompts/review.lua"] = [[return prompt {
    "Review a change.", title = "Review", args = { language = t.string { complete = { "c", "lua" } } },
    function(args)
      sleep(0.01)
      return { user("Review this " .. args.language .. "."), assistant(embed("x:image", bytes("\0\255", "image/png"))) }
    end }]],
}
for i = 1, 250 do scripts[("resources/many/r%03d.lua"):format(i)] = ('return resource { "One of many.", uri = "many:%03d", "%d" }'):format(i, i) end

local function error_of(me, method, params)
  local answer, response = me:call(method, params)
  return answer.error, response.status
end

describe("resources and prompts", function()
  for _, revision in ipairs { "2024-11-05", "2025-03-26", "2025-11-25", "2026-07-28" } do
    local modern = revision == "2026-07-28"

    it("are there for a client of " .. revision, function()
      local g <close> = gateway.start { scripts = scripts }
      local me = g:client(revision)

      local capabilities = (modern and me:result "server/discover" or me.server).capabilities
      assert.same({ subscribe = true, listChanged = true }, capabilities.resources)
      assert.same({ listChanged = true }, capabilities.prompts)
      assert.equal(revision ~= "2024-11-05", capabilities.completions ~= nil)

      local read = me:result("resources/read", { uri = "orders://eu/12" })
      assert.same({ { uri = "orders://eu/12", mimeType = "application/json", text = '{"id":"12","method":"resources/read","region":"eu"}' } }, read.contents)
      assert.equal(modern and 30000 or nil, read.ttlMs)
      assert.equal("AAH/", me:result("resources/read", { uri = "x:image" }).contents[1].blob)

      local missing, status = error_of(me, "resources/read", { uri = "orders://eu/0" })
      assert.same({ code = modern and -32602 or -32002, message = "resource not found", data = { uri = "orders://eu/0" } }, missing)
      if modern then assert.equal(400, status) end
      local broken = error_of(me, "resources/read", { uri = "orders://eu/bug" })
      assert.equal(-32603, broken.code)
      assert.truthy(broken.message:find "^internal error %x%x%x%x$")
      g:wait_log("resource failed", { id = broken.message:sub(-4) })

      local got = me:result("prompts/get", { name = "review", arguments = { language = "lua" } })
      assert.same({ role = "user", content = { type = "text", text = "Review this lua." } }, got.messages[1])
      assert.same({ uri = "x:image", mimeType = "image/png", blob = "AP8=" }, got.messages[2].content.resource)
      assert.equal("argument 'language' is missing", error_of(me, "prompts/get", { name = "review" }).message)
      assert.equal(revision >= "2025-06-18", me:result("prompts/list").prompts[1].title ~= nil)

      for ref, argument in pairs {
        [{ type = "ref/prompt", name = "review" }] = { name = "language", value = "l" },
        [{ type = "ref/resource", uri = "orders://{region}/{id}" }] = { name = "region", value = "u" },
      } do
        local values = me:result("completion/complete", { ref = ref, argument = argument }).completion.values
        assert.same({ argument.name == "region" and "us" or "lua" }, values)
      end
      assert.equal(revision >= "2025-06-18", me:result("tools/list").tools[1]._meta ~= nil)

      if me.delete then me:delete() end
      me:close()
      assert.has_nothing_left(g)
    end)
  end

  it("are listed in pages whose cursors are valid on every worker, and refused when another made them", function()
    local g <close> = gateway.start { scripts = scripts, workers = 2, config = { limits = { page = "8KiB" } } }
    local seen, pages, cursor = {}, 0, nil
    repeat
      local me <close> = g:client "2026-07-28" -- a connection for each call, so that all workers are used
      local page = me:result("resources/list", { cursor = cursor })
      for _, entry in ipairs(page.resources) do seen[#seen + 1] = entry.uri end
      pages, cursor = pages + 1, page.nextCursor
    until not cursor
    assert.equal(252, #seen)
    assert.is_true(pages >= 3)
    table.sort(seen)
    for i = 2, #seen do assert.not_equal(seen[i - 1], seen[i]) end

    local me = g:client "2025-11-25"
    cursor = me:result("resources/list").nextCursor
    assert.is_true(#me:result("resources/list", { cursor = cursor }).resources > 50)
    local last = cursor:sub(-1) == "A" and "Q" or "A"
    for _, wrong in ipairs { "", "x", cursor .. "A", cursor:sub(1, -2) .. last, cursor:sub(2), ("A"):rep(100) } do
      assert.same({ code = -32602, message = "unknown cursor" }, (error_of(me, "resources/list", { cursor = wrong })))
    end
    assert.same({ code = -32602, message = "unknown cursor" }, (error_of(me, "resources/templates/list", { cursor = cursor })))
    me:delete()
    me:close()
    assert.has_nothing_left(g)
  end)

  it("are unknown methods if nothing is served", function()
    local g <close> = gateway.start { scripts = { ["tools/t.lua"] = 'return tool { "T.", function() end }' } }
    local me = g:client "2026-07-28"
    for _, method in ipairs { "resources/list", "resources/templates/list", "prompts/list", "completion/complete" } do
      local err, status = error_of(me, method)
      assert.same({ -32601, 404 }, { err.code, status }, method)
    end
    me:close()
    assert.has_nothing_left(g)
  end)
end)
