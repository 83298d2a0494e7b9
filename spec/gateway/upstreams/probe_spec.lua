-- lane: first
-- Revision and transport of an upstream are found out without configuration, and without a call of a tool.
-- pairs: revision and transport found out; clients 2026-07-28; upstreams 2024-11-05..
local free_port = require "spec.helpers.free_port"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

-- Reads the list, calls one tool, and checks that the upstream ran nothing else.
local function use(g, u)
  local c <close> = g:client "2026-07-28"
  local names = {}
  for _, tool in ipairs(c:result("tools/list", {}).tools) do names[tool.name] = true end
  assert.is_true(names.one_echo and names.one_sum, "the list has no tools of the upstream")
  assert.equal(0, #u:all { method = "tools/call" })
  assert.equal('{"n":1}', upstream.text(c:call("tools/call", { name = "one_echo", arguments = { n = 1 } })))
  assert.equal(1, u:ran())
end

-- Like use(); and asserts that no failure was counted for an older upstream that does not know the newest revision.
local function use_well(g, u)
  use(g, u)
  local one = g:status().upstreams.one
  assert.equal(0, one.errors, one.error)
  assert.equal(0, one.failures_in_row)
end

local function start(u, entry) return upstream.gateway({ one = u }, { entries = { one = entry } }) end

describe("an upstream is found to be", function()
  for _, revision in ipairs(upstream.revisions) do
    for _, transport in ipairs(upstream.served(upstream.transports(revision))) do
      it(("of %s over %s"):format(revision, transport), function()
        local u <close> = upstream.start { revision = revision, transport = transport }
        local g <close> = start(u)
        use_well(g, u)
        assert.equal(revision == "2026-07-28" and 0 or 1, math.min(1, #u:all { method = "initialize" }))
        assert.equal(revision, u:all({ tool = "echo" })[1].revision)
      end)
    end
  end

  it("of any older revision over HTTP+SSE", function()
    if not upstream.has "sse" then return pending "HTTP+SSE" end
    for _, revision in ipairs { "2025-03-26", "2025-06-18", "2025-11-25" } do
      local u <close> = upstream.start { revision = revision, transport = "sse" }
      local g <close> = start(u)
      use_well(g, u)
      assert.equal(revision, u:all({ tool = "echo" })[1].revision)
    end
  end)

  it("of HTTP+SSE, for each status that the POST to its stream gets", function()
    if not upstream.has "sse" then return pending "HTTP+SSE" end
    for _, status in ipairs { 400, 404, 405 } do
      local u <close> = upstream.start { transport = "sse", post = status }
      local g <close> = start(u)
      use_well(g, u)
    end
  end)

  for _, early in ipairs { "-32601", "-32602", "-32600", "-32000", "400", "html" } do
    it("an older one that refuses server/discover by " .. early, function()
      for _, transport in ipairs(upstream.served { "http", "stdio" }) do
        local u <close> = upstream.start { revision = "2025-06-18", transport = transport, early = early }
        local g <close> = start(u)
        use_well(g, u)
      end
    end)
  end

  it("an older one that gives no answer to server/discover", function()
    if not upstream.has "stdio" then return pending "programs" end
    local u <close> = upstream.start { revision = "2025-11-25", transport = "stdio", early = "silent" }
    local g <close> = start(u)
    local c <close> = g:client "2026-07-28"
    wait.for_fact("the tools of the upstream", 40, function()
      for _, tool in ipairs(c:result("tools/list", {}).tools) do
        if tool.name == "one_echo" then return true end
      end
    end)
    use_well(g, u)
    -- other workers and Lua states do not wait for it again
    for _ = 1, 2 do
      assert.equal(200, g:admin("/reload", "POST").status)
      for _ = 1, 3 do -- three clients, each of which has a program of its own
        local one <close> = g:client("2025-11-25", { capabilities = { roots = { [" "] = 1 } } })
        assert.equal('{"n":1}', upstream.text(one:call("tools/call", { name = "one_echo", arguments = { n = 1 } })))
      end
    end
    assert.is_true(#u:all { method = "initialize" } > 3)
    assert.equal(1, #u:all { method = "server/discover" })
  end)

  it("one of 2026-07-28 that is slow to answer server/discover, and refuses `initialize`", function()
    if not upstream.has "stdio" then return pending "programs" end
    local u <close> = upstream.start { revision = "2026-07-28", transport = "stdio" }
    u:when("server/discover", function() end, 1)
    local g <close> = start(u)
    local c <close> = g:client "2026-07-28"
    wait.for_fact("the tools of the upstream", 40, function()
      for _, tool in ipairs(c:result("tools/list", {}).tools) do
        if tool.name == "one_echo" then return true end
      end
    end)
    use(g, u)
    assert.equal("2026-07-28", u:all({ tool = "echo" })[1].revision)
  end)

  it("one of 2026-07-28 that also speaks older revisions", function()
    for _, transport in ipairs(upstream.served { "http", "stdio" }) do
      local u <close> = upstream.start { revision = "dual", transport = transport }
      local g <close> = start(u)
      use(g, u)
      assert.equal(0, #u:all { method = "initialize" })
      assert.equal("2026-07-28", u:all({ tool = "echo" })[1].revision)
    end
  end)
end)

describe("the probe", function()
  it("is left out where the configuration names the kind", function()
    local rows = {
      { revision = "legacy", options = { revision = "2025-06-18" } }, { revision = "sse", options = { transport = "sse" } },
      { revision = "modern", options = { revision = "2026-07-28" } }, { revision = "legacy", options = { revision = "2025-06-18", transport = "stdio" } },
    }
    for _, row in ipairs(rows) do
      if upstream.has(row.options.transport or "http") then
        local u <close> = upstream.start(row.options)
        local g <close> = start(u, { revision = row.revision })
        use(g, u)
        if row.revision ~= "modern" then assert.equal(0, #u:all { method = "server/discover" }) end
        if row.revision == "sse" then assert.equal("start", u.received[1].kind) end
      end
    end
  end)

  for _, status in ipairs { 401, 403, 429, 500, 503, 302 } do
    it("concludes nothing from the status " .. status, function()
      local u <close> = upstream.start { revision = "2026-07-28" }
      local refused = 0
      u:answer_all(function(_, reply)
        refused = refused + 1
        reply:send(status, { location = "http://127.0.0.1:9/" }, "")
        return true
      end)
      local g <close> = start(u, { circuit = { failures = 100, open = "1s..1s" } })
      local c <close> = g:client "2026-07-28"
      c:call("tools/list", {})
      wait.for_fact("a refused request", 20, function() return refused > 0 end)
      u:behave()
      if status == 401 or status == 403 then return end -- the credential is refused until it changes
      wait.for_fact("the tools of the upstream", 30, function() return #c:result("tools/list", {}).tools > 0 end)
      use(g, u)
      assert.equal(0, #u:all { method = "initialize" })
    end)
  end

  it("concludes nothing from a server that is not there yet", function()
    local port = free_port()
    local g <close> = upstream.gateway({ one = { url = ("http://127.0.0.1:%d/mcp"):format(port) } })
    local c <close> = g:client "2026-07-28"
    assert.equal(0, #c:result("tools/list", {}).tools)
    local u <close> = upstream.start { revision = "2026-07-28", port = port }
    wait.for_fact("the tools of the upstream", 30, function() return #c:result("tools/list", {}).tools > 0 end)
    use(g, u)
    assert.equal(0, #u:all { method = "initialize" })
  end)
end)

describe("what a program writes to stderr about the probe", function()
  local function noisy(refuse)
    local u = upstream.start { revision = "2025-06-18", transport = "stdio" }
    u:when("server/discover", function(x)
      for i = 1, 98 do x.child:order("err", ("WARNING: Failed to validate request: line %d\n"):format(i)) end
      refuse(x)
    end, 1)
    return u
  end

  local function said(g, level)
    local count = 0
    for _, line in ipairs(g:log_lines()) do
      if line.event == "upstream printed to stderr" and line.level == level then count = count + 1 end
    end
    return count
  end

  it("is logged at debug, and what it writes later at info", function()
    local u <close> = noisy(function(x) x:error(-32602, "Invalid request parameters") end)
    u:when("initialize", function(x)
      x.child:order("err", "ready\n")
      x:serve()
    end, 1)
    local g <close> = upstream.gateway({ one = u }, { config = { log = { level = "debug" } } })
    use(g, u)
    g:wait_log("upstream printed to stderr", { text = "ready" })
    assert.same({ 98, 1 }, { said(g, "debug"), said(g, "info") })
  end)

  it("is logged at debug also where the program reads the probe after the gateway has given it up", function()
    local u <close> = upstream.start { revision = "2025-06-18", transport = "stdio" }
    u:when("server/discover", function() end, 1)
    u:when("initialize", function(x)
      for i = 1, 98 do x.child:order("err", ("WARNING: Failed to validate request: line %d\n"):format(i)) end
      x:serve()
    end, 1)
    u:when("tools/list", function(x)
      x.child:order("err", "ready\n")
      x:serve()
    end, 1)
    local g <close> = upstream.gateway({ one = u }, { config = { log = { level = "debug" } } })
    g:wait_log("upstream printed to stderr", { text = "ready" })
    assert.same({ 98, 1 }, { said(g, "debug"), said(g, "info") })
  end)

  it("is kept for the case that the program ends", function()
    local u <close> = noisy(function(x) x.child:order("exit", "3") end)
    local g <close> = start(u)
    g:wait_log("upstream process ended", { why = "the program ended: exit 3: WARNING: Failed to validate request: line 98" })
    assert.equal(0, said(g, "info"))
  end)
end)
