-- pairs: names, prefixes and filters; clients 2025-11-25..; upstreams 2025-11-25 http
-- Names of an upstream's things: prefix, rename, filters and collisions; a name that a client sees leads to the one
-- thing that it stands for.
local upstream = require "spec.helpers.upstream"

-- The names in a list, sorted.
local function names(c, method, member)
  local found = {}
  for i, entry in ipairs(c:result(method or "tools/list", {})[member or "tools"]) do found[i] = entry.name end
  table.sort(found)
  return found
end

-- Starts a gateway before one stub with these tools.
local function start(tools, entry, revision, constants)
  local u = upstream.start { revision = revision or "2025-11-25" }
  u:offer("tools", tools)
  return u, upstream.gateway({ one = u }, { entries = { one = entry }, constants = constants })
end

-- Calls every tool in the list, and checks that its upstream got its own name.
local function call_all(c, u, own)
  for name, original in pairs(own) do
    upstream.text(c:call("tools/call", { name = name, arguments = { n = 1 } }))
    assert.equal(original, u.received[#u.received].tool)
  end
end

describe("a name", function()
  it("has the prefix, and with `names: as_is` whatever is in it", function()
    local long = ("n"):rep(124)
    local u, g = start({ "a", "one_a", "_", "a.b-c", "a__b", "é", "日本", "a b", long }, { names = "as_is" }, nil, { upstream_name = 128 })
    local c <close> = g:client "2025-11-25"
    local own = {
      one_a = "a", one_one_a = "one_a", one__ = "_", ["one_a.b-c"] = "a.b-c", one_a__b = "a__b", ["one_é"] = "é", ["one_日本"] = "日本", ["one_a b"] = "a b",
      ["one_" .. long] = long,
    }
    for _, name in ipairs(names(c)) do assert.is_truthy(own[name], name) end
    assert.equal(9, #names(c))
    call_all(c, u, own)
    c:close()
    g:stop()
    u:close()
  end)

  it("with characters that clients refuse is changed, with a warning, in lists, calls, prompts and completions", function()
    local own = { "plain-A_1", "a.b", "a:b", "a b", "a/b", "日本", "e\\u0301x", ("é"):rep(60), "renamed/1" }
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:offer("tools", own)
    u:offer("prompts", { '{"name":"ask me","arguments":[{"name":"who"}]}' })
    local g <close> = upstream.gateway({ one = u }, { entries = { one = { prefix = "p.", rename = { ["renamed/1"] = "as.written" } } }, workers = 2 })
    for _, revision in ipairs { "2024-11-05", "2026-07-28" } do
      local c <close> = g:client(revision)
      local seen = {}
      for _, name in ipairs(names(c)) do
        local before = u:ran()
        upstream.text(c:call("tools/call", { name = name, arguments = { n = 1 } }))
        assert.equal(before + 1, u:ran())
        seen[u.received[#u.received].tool] = name
      end
      assert.equal("p.plain-A_1", seen["plain-A_1"])
      assert.equal("p.as.written", seen["renamed/1"])
      for _, original in ipairs { "a.b", "a:b", "a b", "a/b" } do assert.matches("^p%.a_b_%x%x%x%x%x%x%x%x$", seen[original]) end
      assert.matches("^p%.___%x%x%x%x%x%x%x%x$", seen["日本"])
      local prompt = names(c, "prompts/list", "prompts")[1]
      assert.matches("^p%.ask_me_%x%x%x%x%x%x%x%x$", prompt)
      c:call("prompts/get", { name = prompt, arguments = { who = "you" } })   -- the stub knows the prompts of its own alone
      assert.equal("ask me", u.received[#u.received].json.params.name)
      c:call("completion/complete", { ref = { type = "ref/prompt", name = prompt }, argument = { name = "who", value = "x" } })
      assert.equal("ask me", u.received[#u.received].json.params.ref.name)
      local count = 0
      for original, name in pairs(seen) do
        count = count + 1
        assert.is_true(#name <= 64, original)
      end
      assert.equal(#own, count)
    end
    local doubts = g:status().upstreams.one.doubts
    assert.equal("its name has characters that clients refuse: clients see it as '" .. doubts[1].why:match "'(.*)'" .. "'", doubts[1].why)
    local _, lines = g:log():gsub("upstream names changed", "")
    assert.equal(1, lines)
    assert.matches("count=8", g:log(), 1, true)
  end)

  it("is shortened above 64 bytes, and two that begin alike stay two", function()
    local a, b = ("n"):rep(100) .. "a", ("n"):rep(100) .. "b"
    local u, g = start { a, b }
    local c <close> = g:client "2025-11-25"
    local found = names(c)
    assert.equal(2, #found)
    assert.are_not.equal(found[1], found[2])
    for _, name in ipairs(found) do
      assert.equal(64, #name)
      assert.matches("^one_n+_%x%x%x%x%x%x%x%x$", name)
    end
    call_all(c, u, { [found[1]] = a, [found[2]] = b })
    c:close()
    g:stop()
    u:close()
  end)

  it("may be changed, and the prefix stands before it", function()
    local u, g = start({ "create_issue", "search" }, { prefix = "gh_", rename = { create_issue = "new_issue" }, describe = { search = "Finds. Ask first." } })
    local c <close> = g:client "2025-11-25"
    assert.same({ "gh_new_issue", "gh_search" }, names(c))
    assert.equal("Finds. Ask first.", c:result("tools/list", {}).tools[2].description)
    call_all(c, u, { gh_new_issue = "create_issue" })
    for _, unknown in ipairs { "gh_create_issue", "create_issue", "new_issue", "one_search" } do
      assert.equal(-32602, c:call("tools/call", { name = unknown, arguments = { n = 1 } }).error.code)
    end
    assert.equal(1, u:ran())
    c:close()
    g:stop()
    u:close()
  end)

  it("that a filter hides is unknown", function()
    local u, g = start({ "search_a", "search_b", "create", "drop" }, { prefix = "", only = { "search_*", "create" }, hide = { "search_b" } })
    local c <close> = g:client "2025-11-25"
    assert.same({ "create", "search_a" }, names(c))
    local hidden, unknown = c:call("tools/call", { name = "drop" }).error, c:call("tools/call", { name = "drup" }).error
    assert.equal(unknown.code, hidden.code)
    assert.equal((unknown.message:gsub("drup", "drop")), hidden.message)
    assert.equal(0, u:ran())
    c:close()
    g:stop()
    u:close()
  end)

  it("that two upstreams have belongs to the first of the file, whichever starts first", function()
    local slow <close> = upstream.start { revision = "2025-11-25" }
    local quick <close> = upstream.start { revision = "2025-11-25" }
    slow:offer("tools", { "same", "mine" })
    quick:offer("tools", { "same", "yours" })
    slow:when("tools/list", upstream.faults.late(300), 1)
    local config = ([[
listen: 127.0.0.1:0
admin: {listen: "127.0.0.1:0"}
workers: 2
scripts: {path: scripts}
upstreams:
  slow: {url: "%s", prefix: ""}
  quick: {url: "%s", prefix: ""}
]]):format(slow.url, quick.url)
    local g <close> = require "spec.helpers.gateway".start { config = config }
    local c <close> = g:client "2025-11-25"
    require "spec.helpers.wait".for_fact("both lists", 20, function() return #names(c) == 3 end)
    c:result("tools/call", { name = "same", arguments = { n = 1 } })
    assert.same({ 1, 0 }, { slow:ran "same", quick:ran "same" })
  end)

  it("of a tool of our own comes first", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:offer("tools", { "mine", "other" })
    local g <close> = upstream.gateway({ one = u }, {
      entries = upstream.plain { one = u }, scripts = { ["tools/mine.lua"] = 'return tool { "M.", function() return "our own" end }' },
    })
    local c <close> = g:client "2025-11-25"
    assert.same({ "mine", "other" }, names(c))
    assert.equal("our own", upstream.text(c:call("tools/call", { name = "mine" })))
    assert.equal(0, u:ran())
  end)

  it("goes through two gateways", function()
    local u <close> = upstream.start { revision = "2024-11-05", transport = upstream.has "sse" and "sse" or "http" }
    local inner <close> = upstream.gateway({ a = u }, { entries = { a = { prefix = "a_" } } })
    for _, asks in ipairs { "2025-11-25", "2026-07-28" } do
      local g <close> = upstream.gateway({ b = { url = inner.url } }, { entries = { b = { prefix = "a_" } } })
      local c <close> = g:client(asks)
      assert.is_truthy(table.concat(names(c), " "):find("a_a_echo", 1, true))
      assert.equal('{"n":1}', upstream.text(c:call("tools/call", { name = "a_a_echo", arguments = { n = 1 } })))
      assert.equal("Hello, you", c:result("prompts/get", { name = "a_a_greet", arguments = { who = "you" } }).messages[1].content.text)
      assert.equal("a_greet-x", "a_" .. c:result("completion/complete",
        { ref = { type = "ref/prompt", name = "a_a_greet" }, argument = { name = "who", value = "x" } }).completion.values[1])
    end
  end)
end)
