-- resource { uri = "notes://{id}", list = function(call) … end }: resources/list has the existing resources of a
-- template.
local gateway = require "spec.helpers.gateway"

local scripts = {
  ["resources/note.lua"] = [[return resource { "A note.", uri = "notes://{id}", mime = "text/plain",
    list = function(call)
      store.incr "asked"
      return {
        { id = 3, name = "Cars", title = "All cars", description = "What we drive.", size = 12 },
        { id = "a b/ü" }, { uri = "notes://9", mime = "text/markdown" }, { id = "fixed", name = "Not this one" },
      }
    end,
    function(vars) return "note " .. vars.id end }]],
  ["resources/fixed.lua"] = [[return resource { "Fixed.", uri = "notes://fixed", "fixed" }]],
  ["resources/deep.lua"] = [[return resource { "Files.", uri = "files://{region}/{+path}{?rev}",
    list = function() return { { region = "eu", path = "a/b c.txt", rev = 7 }, { region = "us", path = "x" } } end,
    function(vars) return vars.region .. " " .. vars.path .. " " .. (vars.rev or "none") end }]],
  ["resources/none.lua"] = [[return resource { "No list.", uri = "other://{id}", function() return "x" end }]],
}

local function start(more, options)
  local all = {}
  for path, text in pairs(scripts) do all[path] = text end
  for path, text in pairs(more or {}) do all[path] = text end
  options = options or {}
  options.scripts, options.workers = all, 1
  return gateway.start(options)
end

describe("resources of a template", function()
  it("are listed with their words, in every revision, and can be read", function()
    local g <close> = start()
    for _, revision in ipairs { "2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26" } do
      local c = g:client(revision)
      local list = c:result("resources/list").resources
      local uris = {}
      for i, entry in ipairs(list) do uris[i] = entry.uri end
      assert.same({ "files://eu/a/b%20c.txt?rev=7", "files://us/x", "notes://3", "notes://9", "notes://a%20b%2F%C3%BC", "notes://fixed" }, uris)
      local three = list[3]
      assert.equal("Cars", three.name)
      assert.equal("What we drive.", three.description)
      assert.equal("text/plain", three.mimeType)
      assert.equal(12, three.size)
      assert.equal(revision >= "2025-06-18" and "All cars" or nil, three.title)
      assert.same({ uri = "notes://9", name = "9", description = "A note.", mimeType = "text/markdown" }, list[4])
      assert.equal("Fixed.", list[6].description)
      assert.equal("note a b/ü", c:result("resources/read", { uri = uris[5] }).contents[1].text)
      assert.equal("eu a/b c.txt 7", c:result("resources/read", { uri = uris[1] }).contents[1].text)
      assert.equal(3, #c:result("resources/templates/list").resourceTemplates)
      if revision ~= "2026-07-28" then c:delete() end
      c:close()
    end
    assert.has_nothing_left(g)
  end)

  it("are listed in pages", function()
    local g <close> = start({ ["resources/many.lua"] = [[return resource { "Many.", uri = "many://{id}",
      list = function() local rows = {} for i = 1, 250 do rows[i] = { id = ("%03d"):format(i) } end return rows end,
      function(vars) return vars.id end }]] }, { config = { limits = { page = "4KiB" } } })
    local c = g:client "2025-11-25"
    local seen, pages, cursor = {}, 0, nil
    repeat
      local result = c:result("resources/list", { cursor = cursor })
      for _, entry in ipairs(result.resources) do
        assert.is_nil(seen[entry.uri])
        seen[entry.uri], seen[#seen + 1] = true, entry.uri
      end
      pages, cursor = pages + 1, result.nextCursor
    until not cursor
    assert.is_true(pages >= 3)
    assert.equal(256, #seen)
    assert.equal(-32602, c:call("resources/list", { cursor = "made up" }).error.code)
    c:close()
  end)

  it("are bounded, and a fault of one template leaves the others listed", function()
    local g <close> = start({
      ["resources/many.lua"] = [[return resource { "Many.", uri = "many://{id}",
        list = function() local rows = {} for i = 1, 10 do rows[i] = { id = i } end return rows end, function() return "x" end }]],
      ["resources/bug.lua"] = [[return resource { "Bug.", uri = "bug://{id}", list = function() error "a bug" end, function() return "x" end }]],
      ["resources/wrong.lua"] = [[return resource { "Wrong.", uri = "wrong://{id}",
        list = function() return { { id = "fine" }, { nme = 1 }, 7, { uri = "else://1" } } end, function() return "x" end }]],
      ["resources/refused.lua"] = [[return resource { "Refused.", uri = "refused://{id}", list = function() return nil, "not now" end,
        function() return "x" end }]],
      ["resources/asks.lua"] = [[return resource { "Asks.", uri = "asks://{id}", list = function(call) return { { id = call.principal.id } } end,
        function() return "x" end }]],
      ["resources/endless.lua"] = [[return resource { "Endless.", uri = "endless://{id}", timeout = 1,
        list = function() return setmetatable({}, { __index = function(_, i) return { id = i } end }) end, function() return "x" end }]],
    }, { constants = { listed = 5 } })
    local c = g:client "2026-07-28"
    local count = {}
    for _, entry in ipairs(c:result("resources/list").resources) do
      local scheme = entry.uri:match "^%a+"
      count[scheme] = (count[scheme] or 0) + 1
    end
    assert.same({ files = 2, notes = 4, many = 5, wrong = 1, asks = 1, endless = 5 }, count)
    assert.match("let the client narrow", g:wait_log("resource list incomplete", { name = "many" }).fields.hint)
    assert.equal("row 2 of 'list': it has no 'id'", g:wait_log("resource list incomplete", { name = "wrong" }).fields.why)
    g:wait_log("list of resources failed", { name = "bug" })
    assert.equal("not now", g:wait_log("resource list incomplete", { name = "refused" }).fields.why)
    assert.equal(2, g:status().counters.dropped.listed)
    c:close()
  end)

  it("are listed for principals that may see the template, and may depend on the principal", function()
    local g <close> = start({
      ["auth/main.lua"] = [[return auth { function(request)
        return { id = request.bearer, scopes = request.bearer == "ann" and { "secret:read" } or {} } end }]],
      ["resources/secret.lua"] = [[return resource { "Secret.", uri = "secret://{id}", scopes = { "secret:read" },
        list = function(call) return { { id = "of-" .. call.principal.id } } end, function(vars) return vars.id end }]],
    })
    local function listed(token)
      local c <close> = g:client("2026-07-28", { token = token })
      local result = c:result("resources/list")
      local found = {}
      for _, entry in ipairs(result.resources) do found[#found + 1] = entry.uri:match "^secret:.*" end
      return table.concat(found, " "), result.cacheScope
    end
    local told, scope = listed "ann"
    assert.equal("secret://of-ann", told)
    assert.equal("private", scope)
    assert.equal("", (listed "bob"))
  end)

  it("may wait, for example for http", function()
    local g <close> = start { ["resources/slow.lua"] = [[return resource { "Slow.", uri = "slow://{id}",
      list = function() sleep(0.01) return { { id = store.get "asked" and "after" or "before" } } end, function() return "x" end }]] }
    local c = g:client "2026-07-28"
    local has
    for _, entry in ipairs(c:result("resources/list").resources) do has = has or entry.uri == "slow://after" end
    assert.is_true(has)
    c:close()
  end)

  it("are for templates alone", function()
    local dir = gateway.prepare { scripts = { ["resources/a.lua"] = "return resource { 'A.', uri = 'a://b', list = function() end, 'x' }" } }
    local code, out, err = gateway.exec { "check", dir .. "/moonpool.yaml" }
    assert.not_equal(0, code)
    assert.match("only a template", out .. err, 1, true)
  end)
end)

describe("link", function()
  it("takes a name, or options", function()
    local g <close> = gateway.start { workers = 1, scripts = { ["tools/links.lua"] = [[return tool { "Links.", function()
      return { link("notes://3", "Cars"), link("notes://3", { "What we drive.", title = "All cars" }) }
    end }]] } }
    local c = g:client "2026-07-28"
    local content = c:result("tools/call", { name = "links" }).content
    assert.same({ type = "resource_link", uri = "notes://3", name = "Cars" }, content[1])
    assert.same({ type = "resource_link", uri = "notes://3", name = "3", title = "All cars", description = "What we drive." }, content[2])
    c:close()
  end)
end)
