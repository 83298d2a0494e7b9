-- URIs of upstreams: with `uris: wrap` clients see each URI with the upstream's name, everywhere, and the upstream sees
-- its own. Links in results open what no list names.
-- pairs: wrapped URIs; clients 2024-11-05..; upstreams 2025-11-25.. http
-- pairs: wrapped URIs; clients 2024-11-05..; upstreams 2024-11-05 sse
-- pairs: wrapped URIs; clients 2024-11-05..; upstreams 2025-06-18 stdio
-- pairs: wrapped URIs; clients 2024-11-05..; upstreams 2026-07-28 stdio
local credentials = require "spec.helpers.credentials"
local raw = require "spec.helpers.upstream.raw"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local wrapped = { one = { uris = "wrap", prefix = "" }, two = { uris = "wrap" } }

local function set_of(list, member)
  local set = {}
  for _, item in ipairs(list) do set[item[member]] = item end
  return set
end

-- A result whose only block is a link.
local function links_to(uri)
  return function(x)
    x:result(x:complete(('{"content":[{"type":"resource_link","uri":%s,"name":"linked"}]}'):format(raw.quote(uri))))
  end
end

-- Answers reads of any URI with a text that repeats it.
local function reads_all(x)
  local uri = raw.quote(x.params.uri)
  x:result(x:complete(('{"contents":[{"uri":%s,"text":%s}]}'):format(uri, raw.quote("text of " .. x.params.uri)), true))
end

for _, row in ipairs(upstream.kinds()) do
  describe(("two upstreams of %s over %s with the same URIs"):format(row[1], row[2]), function()
    it("are kept apart by wrapped URIs in lists, reads, completions and errors, for clients of all revisions", function()
      local one <close> = upstream.start { revision = row[1], transport = row[2] }
      local two <close> = upstream.start { revision = "2025-11-25" }
      local g <close> = upstream.gateway({ one = one, two = two }, { entries = wrapped, workers = 2 })
      for _, asks in ipairs(upstream.revisions) do
        local c <close> = g:client(asks)
        local listed = set_of(c:result("resources/list", {}).resources, "uri")
        local templates = set_of(c:result("resources/templates/list", {}).resourceTemplates, "uriTemplate")
        for _, name in ipairs { "one", "two" } do
          local u = name == "one" and one or two
          assert.equal("text", (listed[name .. "+stub://text"] or {}).name, asks)
          assert.equal("item", (templates[name .. "+stub://item/{id}"] or {}).name, asks)
          for _, own in ipairs { "stub://text", "stub://item/7" } do
            local before = #u:all { method = "resources/read" }
            local read = c:result("resources/read", { uri = name .. "+" .. own })
            assert.equal(name .. "+" .. own, read.contents[1].uri)
            assert.equal(own, u:wait({ method = "resources/read" }, before + 1).json.params.uri)
          end
          local before = #u:all { method = "completion/complete" }
          c:result("completion/complete", { ref = { type = "ref/resource", uri = name .. "+stub://item/{id}" }, argument = { name = "id", value = "a" } })
          assert.equal("stub://item/{id}", u:wait({ method = "completion/complete" }, before + 1).json.params.ref.uri)
          assert.is_table(c:call("resources/read", { uri = "stub://text" }).error)
          assert.is_nil(listed["stub://text"])
        end
        one:when("resources/read", function(x) x:error(x.modern and -32602 or -32002, "Resource not found", '{"uri":"stub://item/9"}') end, 1)
        local err = c:call("resources/read", { uri = "one+stub://item/9" }).error
        assert.equal("one+stub://item/9", err.data.uri)
      end
    end)

    it("have their URIs wrapped in the blocks of results and messages", function()
      local one <close> = upstream.start { revision = row[1], transport = row[2] }
      local g <close> = upstream.gateway({ one = one }, { entries = wrapped, workers = 1 })
      one:when("prompts/get", function(x)
        x:result(x:complete('{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"stub://text","text":"hello"}}}]}'))
      end)
      for _, asks in ipairs(upstream.revisions) do
        local c <close> = g:client(asks)
        for _ = 1, 2 do                               -- the second call would be quick
          local found = 0
          for _, block in ipairs(c:result("tools/call", { name = "kinds", arguments = {} }).content) do
            local uri = block.uri or block.resource and block.resource.uri
            if uri and not uri:find "^moonpool:" then          -- audio, for clients that do not know it
              found = found + 1
              assert.equal("one+stub://text", uri, asks)
            else
              assert.is_nil((block.text or ""):find("[^+]stub:"), asks)
            end
          end
          assert.is_true(found > 0, asks)
        end
        local got = c:result("prompts/get", { name = "plain", arguments = {} })
        assert.equal("one+stub://text", got.messages[1].content.resource.uri)
      end
    end)

    it("are told of changes of the resource of that upstream alone, under the wrapped URI", function()
      local one <close> = upstream.start { revision = row[1], transport = row[2] }
      local two <close> = upstream.start { revision = "2025-11-25" }
      local g <close> = upstream.gateway({ one = one, two = two }, { entries = wrapped, workers = 2 })
      local old <close> = g:client "2025-11-25"
      local new <close> = g:client "2026-07-28"
      wait.for_fact("the lists", 20, function()
        local listed = set_of(old:result("resources/list", {}).resources, "uri")
        return listed["one+stub://text"] and listed["two+stub://text"]
      end)
      local function has_way(u)
        if u.is_modern then return #u:listening() > 0 end
        if u.kind ~= "http" then return u:count_sessions() > 0 end
        u:all {}
        for _, session in pairs(u.sessions) do
          if session.stream then return true end
        end
      end
      wait.for_fact("ways for changes", 20, function() return has_way(one) and has_way(two) end)
      local stream <close> = old:get_stream()
      old:result("resources/subscribe", { uri = "one+stub://text" })
      local listening
      wait.for_fact("the worker of the new client to know the lists", 20, function()
        if listening then listening:close() end
        listening = new:open("subscriptions/listen", { notifications = { resourceSubscriptions = { "two+stub://text", "stub://text" } } })
        local ack = listening:wait_event("notifications/subscriptions/acknowledged", 20)
        local accepted = ack.json.params.notifications.resourceSubscriptions
        if accepted then assert.same({ "two+stub://text" }, accepted) end
        return accepted
      end)
      local _ <close> = listening
      if not one.is_modern then wait.for_fact("the subscription", 20, function() return #one:all { method = "resources/subscribe" } > 0 end) end
      one:announce("notifications/resources/updated", { uri = "stub://text" })
      assert.equal("one+stub://text", stream:wait_event("notifications/resources/updated", 20).json.params.uri)
      two:announce("notifications/resources/updated", { uri = "stub://text" })
      assert.equal("two+stub://text", listening:wait_event("notifications/resources/updated", 20).json.params.uri)
      for _, messages in ipairs { stream:messages(), listening:messages() } do
        local n = 0
        for _, message in ipairs(messages) do n = n + (message.method == "notifications/resources/updated" and 1 or 0) end
        assert.equal(1, n)
      end
      old:result("resources/unsubscribe", { uri = "one+stub://text" })
      if not one.is_modern then assert.equal("stub://text", one:wait({ method = "resources/unsubscribe" }).json.params.uri) end
    end)
  end)
end

describe("a page of MCP Apps", function()
  it("keeps its scheme when it is wrapped, and the tool that shows it follows", function()
    for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
      local one <close> = upstream.start { revision = revision }
      local two <close> = upstream.start { revision = "2025-06-18" }
      for _, u in ipairs { one, two } do
        u:offer("resources", { '{"uri":"ui://chart/page","name":"page","mimeType":"text/html;profile=mcp-app","_meta":{"ui":{"prefersBorder":true}}}' })
        u:offer("tools", { '{"name":"chart","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://chart/page","visibility":["app"]},'
          .. '"ui/resourceUri":"ui://chart/page","x":1.0}}' })
        u:when("resources/read", function(x)
          x:result(x:complete('{"contents":[{"uri":"ui://chart/page","mimeType":"text/html;profile=mcp-app","text":"<!doctype html>",'
            .. '"_meta":{"ui":{"csp":{"connectDomains":["https://x.example"]}}}}]}', true))
        end)
        u:when("tools/call chart", function(x)
          x:result(x:complete '{"content":[{"type":"text","text":"42"}],"_meta":{"ui":{"resourceUri":"ui://chart/page"}}}')
        end)
      end
      local g <close> = upstream.gateway({ one = one, two = two }, { entries = wrapped, workers = 1 })
      for _, asks in ipairs { "2025-06-18", "2025-11-25", "2026-07-28" } do
        local c <close> = g:client(asks)
        local tools = set_of(c:result("tools/list", {}).tools, "name")
        for name, tool in pairs { one = "chart", two = "two_chart" } do
          local meta = tools[tool]._meta
          assert.same({ resourceUri = "ui://" .. name .. "+chart/page", visibility = { "app" } }, meta.ui)
          assert.equal("ui://" .. name .. "+chart/page", meta["ui/resourceUri"])
          assert.equal(1.0, meta.x)
          local listed = set_of(c:result("resources/list", {}).resources, "uri")[meta.ui.resourceUri]
          assert.is_true(listed._meta.ui.prefersBorder)
          local page = c:result("resources/read", { uri = meta.ui.resourceUri }).contents[1]
          assert.equal(meta.ui.resourceUri, page.uri)
          assert.equal("https://x.example", page._meta.ui.csp.connectDomains[1])
          for _ = 1, 2 do
            local result = c:result("tools/call", { name = tool, arguments = {} })
            assert.equal(meta.ui.resourceUri, result._meta.ui.resourceUri)
          end
        end
      end
      assert.equal("ui://chart/page", two:wait({ method = "resources/read" }).json.params.uri)
    end
  end)
end)

describe("a URI that a result links to", function()
  for _, form in ipairs { "as_is", "wrap" } do
    local before = form == "wrap" and "one+" or ""

    it("and no list names is read at that upstream, by the principal that got it alone, with uris: " .. form, function()
      local u <close> = upstream.start { revision = "2025-11-25" }
      local g <close> = upstream.gateway({ one = u }, { entries = { one = { prefix = "", uris = form, hide = { "file:///kept/*" } } }, workers = 2,
        scripts = { ["auth/main.lua"] = credentials.script } })
      u:when("resources/read", reads_all)
      for _, asks in ipairs { "2025-11-25", "2026-07-28" } do
        local ann <close> = g:client(asks, { token = "ann-1" })
        local bob <close> = g:client(asks, { token = "bob-1" })
        local own = "file:///made/" .. asks
        assert.is_table(ann:call("resources/read", { uri = before .. own }).error)
        u:when("tools/call echo", links_to(own), 1)
        local link = ann:result("tools/call", { name = "echo", arguments = {} }).content[1]
        assert.equal(before .. own, link.uri)
        for _ = 1, 4 do assert.equal("text of " .. own, ann:result("resources/read", { uri = link.uri }).contents[1].text) end
        assert.is_table(bob:call("resources/read", { uri = link.uri }).error)
        u:when("tools/call echo", links_to "file:///kept/x", 1)
        local kept = ann:result("tools/call", { name = "echo", arguments = {} }).content[1].uri
        assert.is_table(ann:call("resources/read", { uri = kept }).error, "what `hide` names")
        assert.is_table(ann:call("resources/subscribe", { uri = link.uri }).error)
      end
      for _, entry in ipairs(u:all { method = "resources/read" }) do assert.is_nil(entry.json.params.uri:find "kept") end
    end)
  end

  it("is seen by policies on the URI that clients use", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = wrapped, workers = 1, scripts = {
      ["policy/guard.lua"] = 'return policy { resources = { "one+file:///secret/*" }, function(call, next) fail "not this one" end }',
    } })
    u:when("resources/read", reads_all)
    local c <close> = g:client "2025-11-25"
    for _, own in ipairs { "file:///secret/a", "file:///open/a" } do
      u:when("tools/call echo", links_to(own), 1)
      local uri = c:result("tools/call", { name = "echo", arguments = {} }).content[1].uri
      local answer = c:call("resources/read", { uri = uri })
      assert.equal(own == "file:///open/a", answer.result ~= nil)
      if answer.error then assert.is_table(c:call("resources/read", { uri = (uri:gsub("secret", "%%73ecret")) }).error) end
    end
  end)

  it("of the web stays as it is, unless the upstream lists it", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:offer("resources", { '{"uri":"https://a.example/listed","name":"listed"}' })
    local g <close> = upstream.gateway({ one = u }, { entries = wrapped, workers = 1 })
    local c <close> = g:client "2025-11-25"
    for own, seen in pairs { ["https://a.example/listed"] = "one+https://a.example/listed", ["https://a.example/other"] = "https://a.example/other" } do
      u:when("tools/call echo", links_to(own), 1)
      assert.equal(seen, c:result("tools/call", { name = "echo", arguments = {} }).content[1].uri)
    end
  end)
end)

describe("the quick way", function()
  it("leaves results with resources, links and pages to Lua, and forwards the others", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = wrapped, workers = 1, env = { MOONPOOL_PLANS = "on" } })
    local c <close> = g:client "2025-11-25"
    local function took(bytes)
      local before = g:status().counters
      u:when("tools/call echo", function(x) x:result(x:complete(bytes)) end, 1)
      local text = c:post(c:message("tools/call", { name = "echo", arguments = {} })).body
      local now = g:status().counters
      return (now.calls_forwarded or 0) - (before.calls_forwarded or 0), (now.calls_taken_over or 0) - (before.calls_taken_over or 0), text
    end
    took '{"content":[]}'
    local quick, late = took '{"content":[{"type":"text","text":"stub://text"}]}'
    assert.same({ 1, 0 }, { quick, late })
    for _, bytes in ipairs {
      '{"content":[{"type":"text","text":"a"},{"type":"resource_link","uri":"stub://text","name":"n"}]}',
      '{"content":[{"uri":"stub://text","name":"n","type":"resource_link"}]}',
      '{"content":[{"type":"\\u0072esource_link","uri":"stub://text","name":"n"}]}',
      '{"content":[{"type":"resource","resource":{"uri":"stub://text","text":"t"}}]}',
      '{"content":[],"_meta":{"ui":{"resourceUri":"stub://text"}}}', '{"content":[],"_meta":{"ui/resourceUri":"stub://text"}}',
    } do
      local forwarded, taken, text = took(bytes)
      assert.same({ 0, 1 }, { forwarded, taken }, bytes)
      assert.is_truthy(text:find("one+stub://text", 1, true), text)
      assert.is_nil(text:find('"stub://text', 1, true), text)
    end
  end)
end)

describe("URIs of two upstreams without wrapping", function()
  it("are withheld for the second one, with the remedy", function()
    local one <close> = upstream.start { revision = "2025-11-25" }
    local two <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = one, two = two }, { workers = 1 })
    local c <close> = g:client "2025-11-25"
    local found = {}                        -- own URI -> the upstream whose resource or template is withheld
    wait.for_fact("what is withheld", 20, function()
      c:result("resources/list", {})
      for name, upstream_status in pairs(g:status().upstreams or {}) do
        for _, it in ipairs(upstream_status.withheld or {}) do
          if it.hint == "set `uris: wrap` for an upstream that has it" then found[it.name] = name end
        end
      end
      return found["stub://text"] and found["stub://item/{id}"]
    end)
    assert.equal(found["stub://text"], found["stub://item/{id}"])
    local second, first = one, two
    if found["stub://text"] == "two" then first, second = one, two end
    for _, uri in ipairs { "stub://text", "stub://item/7" } do c:result("resources/read", { uri = uri }) end
    c:result("completion/complete", { ref = { type = "ref/resource", uri = "stub://item/{id}" }, argument = { name = "id", value = "a" } })
    for method, n in pairs { ["resources/read"] = 2, ["completion/complete"] = 1 } do
      assert.equal(n, #first:all { method = method })
      assert.equal(0, #second:all { method = method })
    end
  end)
end)

describe("an upstream whose templates begin with no scheme", function()
  local TEMPLATES <const> = { "/summary/{title}/length/{n}", "{scheme}://item/{id}", "{+any}" }

  for uris, prefix in pairs { as_is = "", wrap = "one+" } do
    it("has them listed and read with `uris: " .. uris .. "`, for clients of all revisions", function()
      local one <close> = upstream.start { revision = "2025-06-18" }
      local offered = {}
      for i, template in ipairs(TEMPLATES) do offered[i] = ('{"uriTemplate":%s,"name":"t%d"}'):format(raw.quote(template), i) end
      one:offer("templates", offered)
      one:when("resources/read", reads_all)
      local g <close> = upstream.gateway({ one = one }, { entries = { one = { uris = uris } }, scripts = {
        ["resources/own.lua"] = 'return resource { "Own.", uri = "own://text", "own" }',
      } })
      for _, asks in ipairs(upstream.revisions) do
        local c <close> = g:client(asks)
        local templates = set_of(c:result("resources/templates/list", {}).resourceTemplates, "uriTemplate")
        for i, template in ipairs(TEMPLATES) do assert.equal("t" .. i, (templates[prefix .. template] or {}).name, asks .. " " .. template) end
        for _, uri in ipairs { "/summary/Lua/length/9", "stub2://item/7", "anything" } do
          local read = c:result("resources/read", { uri = prefix .. uri }).contents[1]
          assert.same({ prefix .. uri, "text of " .. uri }, { read.uri, read.text })
        end
        assert.equal("own", c:result("resources/read", { uri = "own://text" }).contents[1].text) -- no template of others takes it
      end
    end)
  end
end)
