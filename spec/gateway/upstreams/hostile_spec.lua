-- Upstreams that make the gateway work for them: what they say without being asked takes no room of others, and no loop
-- without a pause.
local client = require "spec.helpers.client"
local cjson = require "cjson.safe"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local META <const> = "io.modelcontextprotocol/"

local function gate(u, more)
  local entry = { prefix = "", list_wait = "20s" }
  for name, value in pairs(more or {}) do entry[name] = value end
  return upstream.gateway({ one = u }, { entries = { one = entry } })
end

local function settled(g)
  local c <close> = g:client "2026-07-28"
  assert.is_true(#c:result("tools/list").tools > 0)
end

describe("an upstream that acknowledges what nobody asked for", function()
  for _, transport in ipairs { "http", "stdio" } do
    it("takes no room in the store, over " .. transport, function()
      local u <close> = upstream.start { revision = "2026-07-28", transport = transport }
      local g <close> = gate(u)
      settled(g)
      local x = wait.for_fact("the request that listens", 20, function() return u:listening()[1] end)
      local before = g:status().gauges
      local text = ("x"):rep(20000)
      for i = 1, 200 do
        x:emit(cjson.encode { jsonrpc = "2.0", method = "notifications/subscriptions/acknowledged",
          params = { notifications = { text }, _meta = { [META .. "subscriptionId"] = "made up " .. i } } })
      end
      u:offer("tools", { "last" })
      u:announce "notifications/tools/list_changed"
      local c <close> = g:client "2026-07-28"
      wait.for_fact("the next list", 20, function() return c:result("tools/list").tools[1].name == "last" end)
      local after = g:status().gauges
      assert.is_true(after.store_bytes < before.store_bytes + 100000, after.store_bytes .. " bytes")
      assert.is_true(after.store_entries < before.store_entries + 50, after.store_entries .. " entries")
    end)
  end
end)

describe("an upstream whose streams end as soon as they are open", function()
  it("is not asked to tell again and again without a pause", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    local listens = 0
    u:when("subscriptions/listen", function(x)
      listens = listens + 1
      local params = { notifications = x.params.notifications, _meta = { [META .. "subscriptionId"] = cjson.decode(x.id) } }
      x:emit(cjson.encode { jsonrpc = "2.0", method = "notifications/subscriptions/acknowledged", params = params })
      x:end_events()
    end)
    local g <close> = gate(u)
    settled(g)
    wait.for_fact("a second request", 30, function() return listens > 1 end)
    listens = 0
    wait.quietly(4)
    assert.is_true(listens <= 8, listens .. " requests")
  end)

  it("is not sent a GET again and again without a pause, whatever it says by `retry`", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local gets = 0
    u:answer_all(function(request, reply)
      if request.method ~= "GET" then return false end
      gets = gets + 1
      reply:head(200, { { "content-type", "text/event-stream" }, { "transfer-encoding", "chunked" } })
      reply:chunk "retry: 0\n\n"
      reply:raw "0\r\n\r\n"
      return true
    end)
    local g <close> = gate(u)
    settled(g)
    wait.for_fact("some", 30, function() return gets > 4 end)
    gets = 0
    wait.quietly(4)
    assert.is_true(gets <= 8, gets .. " requests")
  end)
end)

describe("an upstream that offers URIs of a script's template", function()
  it("serves none of them, however well they fit", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:offer("resources", { '{"uri":"own://5","name":"five"}', '{"uri":"other://5","name":"other"}' })
    u:offer("templates", { '{"uriTemplate":"own://secret-{+rest}","name":"secret"}', '{"uriTemplate":"other://{+rest}","name":"rest"}' })
    u:when("resources/read", function(x) x:result(('{"contents":[{"uri":"%s","text":"not of the script"}]}'):format(x.params.uri)) end)
    local g <close> = upstream.gateway({ one = u }, { scripts = {
      ["resources/own.lua"] = 'return resource { "Own.", uri = "own://{id}", function(v) return "own " .. v.id end }',
    } })
    local c <close> = g:client "2025-11-25"
    local function read(uri) return c:result("resources/read", { uri = uri }).contents[1].text end
    local listed = {}
    for _, one in ipairs(c:result("resources/list").resources) do listed[#listed + 1] = one.uri end
    assert.same({ "other://5" }, listed)
    assert.equal("own 5", read "own://5")
    assert.equal("own secret-1", read "own://secret-1")
    assert.equal("not of the script", read "other://5")
    assert.equal("not of the script", read "other://6")
    local withheld = g:status().upstreams.one.withheld
    assert.equal("own://5", withheld[1].name)
    assert.equal("a script has this name", withheld[1].why)
  end)
end)

describe("a client that says by what gateways it comes", function()
  it("sends nothing to an upstream by that but names of gateways", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    local g <close> = gate(u)
    local c <close> = g:client "2026-07-28"
    settled(g)
    local given = ("a"):rep(32)
    for text, passes in pairs { [given] = true, [("f"):rep(2000)] = false, [given .. "\tx: y"] = false, ["some text"] = false } do
      local message = c:message("tools/call", { name = "echo", arguments = {} })
      local headers = c:headers(message)
      headers["moonpool-hops"] = text
      local answer = client.request(g, { method = "POST", path = "/mcp", headers = headers, body = message })
      assert.equal(200, answer.status)
      local calls = u:all { method = "tools/call" }
      local head = calls[#calls].head
      assert.equal(passes, head:find(text, 1, true) ~= nil, head)
      assert.truthy(head:find "moonpool%-hops: [%x, ]+\r\n", head)
    end
  end)
end)
