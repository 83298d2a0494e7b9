-- Pages of MCP Apps behind a gateway: the extension is declared to upstreams for clients that have it and to clients
-- for upstreams that have it, and the page that a tool names can be read, listed or not.
-- pairs: pages of tools; clients 2025-06-18..; upstreams 2025-11-25.. http
-- pairs: pages of tools; clients 2025-06-18..; upstreams 2025-06-18 stdio
local credentials = require "spec.helpers.credentials"
local raw = require "spec.helpers.upstream.raw"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local EXTENSION <const>, MIME <const> = "io.modelcontextprotocol/ui", "text/html;profile=mcp-app"
local CAN <const> = "io.modelcontextprotocol/clientCapabilities"
local SHOWS <const> = { extensions = { [EXTENSION] = { mimeTypes = { MIME } } } }
local DECLARES <const> = '{"tools":{},"resources":{},"extensions":{"' .. EXTENSION .. '":{}}}'
local PLAIN <const> = '{"tools":{},"resources":{}}'

local function tool(name, page)
  return ('{"name":"%s","inputSchema":{"type":"object"}%s}'):format(name, page and (',"_meta":{"ui":{"resourceUri":"%s"}}'):format(page) or "")
end

local function names_of(list)
  local names = {}
  for i, one in ipairs(list) do names[i] = one.name end
  return table.concat(names, " ")
end

local function shows(can)
  local one = type(can) == "table" and type(can.extensions) == "table" and can.extensions[EXTENSION]
  return one and one.mimeTypes[1] == MIME or false
end

-- An upstream that has the tool `chart`, with a page that no list names, for clients that show pages, and `table` for
-- the others.
local function start(options)
  options.capabilities = options.capabilities or DECLARES
  local u = upstream.start(options)
  local function able(x) return x.modern and x.meta[CAN] or x.session.capabilities end
  u:when("tools/list", function(x)
    local list = shows(able(x)) and tool("chart", "ui://chart/page") or tool "table"
    x:result(x:complete('{"tools":[' .. list .. "]}", true))
  end)
  u:when("resources/list", function(x) x:result(x:complete('{"resources":[]}', true)) end)
  u:when("resources/templates/list", function(x) x:result(x:complete('{"resourceTemplates":[]}', true)) end)
  u:when("resources/read", function(x)
    local uri = raw.quote(x.params.uri)
    x:result(x:complete(('{"contents":[{"uri":%s,"mimeType":"%s","text":"page of %s"}]}'):format(uri, MIME, options.mark or "one"), true))
  end)
  for _, name in ipairs { "chart", "table" } do
    u.handlers[name] = function(x, reply) reply(x:complete('{"content":[{"type":"text","text":"' .. name .. '"}]}')) end
  end
  return u
end

for _, row in ipairs { { "2025-11-25", "http" }, { "2025-06-18", "stdio" }, { "2026-07-28", "http" }, { "2026-07-28", "stdio" } } do
  describe(("an upstream with pages of %s over %s"):format(row[1], row[2]), function()
    it("is told which clients show pages, gives each its tools, and the pages that those name can be read", function()
      local u <close> = start { revision = row[1], transport = row[2] }
      local g <close> = upstream.gateway({ one = u }, { entries = { one = { prefix = "", uris = "wrap" } }, workers = 2 })
      for _, asks in ipairs { "2025-06-18", "2025-11-25", "2026-07-28" } do
        local with <close> = g:client(asks, { capabilities = SHOWS })
        local without <close> = g:client(asks, { capabilities = {} })
        local other <close> = g:client(asks, { capabilities = { extensions = { [EXTENSION] = { mimeTypes = { "text/other" } } } } })
        assert.equal("chart", names_of(with:result("tools/list", {}).tools), asks)
        assert.equal("table", names_of(without:result("tools/list", {}).tools), asks)
        assert.equal("table", names_of(other:result("tools/list", {}).tools), asks)
        local page = with:result("tools/list", {}).tools[1]._meta.ui.resourceUri
        assert.equal("ui://one+chart/page", page)
        local read = with:result("resources/read", { uri = page }).contents[1]
        assert.same({ page, MIME, "page of one" }, { read.uri, read.mimeType, read.text })
        assert.is_table(without:call("resources/read", { uri = page }).error)
        assert.is_table(with:call("resources/read", { uri = "ui://one+chart/other" }).error)
        assert.is_table(with:call("resources/read", { uri = "ui://chart/page" }).error)
        for _ = 1, 2 do
          assert.equal("chart", upstream.text(with:call("tools/call", { name = "chart", arguments = {} })))
          assert.equal("table", upstream.text(without:call("tools/call", { name = "table", arguments = {} })))
        end
      end
      for _, entry in ipairs(u:all { method = "tools/call" }) do
        local can = row[1] == "2026-07-28" and entry.json.params._meta[CAN] or entry.session.capabilities
        assert.equal(entry.json.params.name == "chart", shows(can), entry.text)
      end
      assert.is_true(#u:all { method = "resources/read" } > 0)
      for _, entry in ipairs(u:all { method = "resources/read" }) do assert.equal("ui://chart/page", entry.json.params.uri) end
    end)
  end)
end

describe("the extension for pages", function()
  local function declared(g, asks)
    local c <close> = g:client(asks)
    local can = c.server and c.server.capabilities or c:result("server/discover", {}).capabilities
    return can.extensions ~= nil and can.extensions[EXTENSION] ~= nil
  end

  it("is declared to clients if an upstream declares it, or a tool of one names a page", function()
    for _, row in ipairs { { DECLARES, "", true }, { PLAIN, tool("chart", "ui://chart/page"), true }, { PLAIN, tool "chart", false } } do
      local u <close> = upstream.start { revision = "2025-11-25", capabilities = row[1] }
      if row[2] ~= "" then u:offer("tools", { row[2] }) end
      local g <close> = upstream.gateway({ one = u }, { workers = 1 })
      wait.for_fact("the lists", 20, function()
        local c <close> = g:client "2025-11-25"
        return #c:result("tools/list", {}).tools > 0
      end)
      for _, asks in ipairs { "2025-06-18", "2025-11-25", "2026-07-28" } do assert.equal(row[3], declared(g, asks), row[1] .. row[2] .. asks) end
      assert.is_false(declared(g, "2025-03-26"))
    end
  end)

  it("gives a client that shows pages no session of a program of its own", function()
    local u <close> = start { revision = "2025-06-18", transport = "stdio" }
    local g <close> = upstream.gateway({ one = u }, { workers = 1, entries = { one = { prefix = "" } } })
    local one <close> = g:client("2025-11-25", { capabilities = SHOWS })
    local two <close> = g:client("2025-11-25", { capabilities = SHOWS })
    for _, c in ipairs { one, two, one } do assert.equal("chart", upstream.text(c:call("tools/call", { name = "chart", arguments = {} }))) end
    -- one program for lists that all clients share, and one for lists of clients that show pages
    assert.equal(2, #u:alive())
  end)

  it("lets such a client's calls take the quick way where the upstream has sessions", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { workers = 1, entries = { one = { prefix = "" } }, env = { MOONPOOL_PLANS = "on" } })
    local c <close> = g:client("2025-11-25", { capabilities = SHOWS })
    for _ = 1, 3 do upstream.text(c:call("tools/call", { name = "echo", arguments = {} })) end
    assert.is_true((g:status().counters.calls_forwarded or 0) > 0)
  end)
end)

describe("the page that a tool names and no list has", function()
  it("is that of the first of two upstreams, and each one's own where URIs are wrapped", function()
    local one <close> = start { revision = "2025-11-25", mark = "one" }
    local two <close> = start { revision = "2025-11-25", mark = "two" }
    for _, form in ipairs { "as_is", "wrap" } do
      local g <close> = upstream.gateway({ one = one, two = two }, { workers = 1, entries = { one = { prefix = "", uris = form }, two = { uris = form } } })
      local c <close> = g:client("2025-11-25", { capabilities = SHOWS })
      local tools = c:result("tools/list", {}).tools
      local owners, texts = {}, {} -- both in the order in which the configuration names the upstreams
      for i, it in ipairs(tools) do
        owners[i] = it.name == "chart" and "page of one" or "page of two"
        texts[i] = c:result("resources/read", { uri = it._meta.ui.resourceUri }).contents[1].text
      end
      assert.equal(2, #texts)
      assert.same(form == "wrap" and owners or { owners[1], owners[1] }, texts)
    end
  end)

  it("is closed to principals that do not see the tool, and by `hide`; it cannot be subscribed to", function()
    local u <close> = start { revision = "2025-11-25" }
    local scripts = {
      ["auth/main.lua"] = credentials.script,
      ["upstreams/one.lua"] = 'return upstream { visible = function(p) return p.id == "user:ann" end }',
    }
    for _, hide in ipairs { false, true } do
      local g <close> = upstream.gateway({ one = u }, { workers = 1, scripts = scripts,
        entries = { one = { prefix = "", hide = hide and { "ui://chart/*" } or nil } } })
      local ann <close> = g:client("2025-11-25", { capabilities = SHOWS, token = "ann-1" })
      local bob <close> = g:client("2025-11-25", { capabilities = SHOWS, token = "bob-1" })
      assert.equal("chart", names_of(ann:result("tools/list", {}).tools))
      assert.equal("", names_of(bob:result("tools/list", {}).tools))
      assert.equal(not hide, ann:call("resources/read", { uri = "ui://chart/page" }).result ~= nil)
      assert.is_table(bob:call("resources/read", { uri = "ui://chart/page" }).error)
      assert.is_table(ann:call("resources/subscribe", { uri = "ui://chart/page" }).error)
    end
  end)
end)
