-- moonpool explain about the things of upstreams: which upstream and name, and the rules of the configuration that
-- decide.
local faults = require "spec.helpers.upstream.faults"
local gateway = require "spec.helpers.gateway"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local tools = {
  ["tools/one.lua"] = [[return tool { "The first.", function() return "1" end }]],
  ["tools/two.lua"] = [[return tool { "The second.", function() return "2" end }]],
  ["tools/three.lua"] = [[return tool { "The third.", function() return "3" end }]],
}

local function in_folder(g, keys, use, scripts)
  local url = ("http://127.0.0.1:%d/mcp"):format(g.port)
  local dir = gateway.prepare { config = ("admin: off\nupstreams:\n  other: {url: \"%s\"%s}\n"):format(url, keys), scripts = scripts }
  use(function(...) return gateway.exec({ "explain", ... }, { cwd = dir }) end)
  os.execute("rm -rf '" .. dir .. "'")
end

describe("moonpool explain", function()
  it("says which upstream and name, prefix, rename, filter, sharing and repetition decide", function()
    local g <close> = gateway.start { scripts = tools }
    in_folder(g, ", prefix: o_, rename: {one: uno}, only: [one, two], retry: never", function(run)
      local code, out, err = run("local", "o_uno")
      assert.equal("", err)
      assert.equal(0, code)
      for _, line in ipairs { "tool      o_uno  (upstream other)", "upstream  other, line 3: 2026-07-28 over http", "its name  one",
        "renamed   'uno' by `rename`",
        "prefix    'o_'", "filter    `only` lets it through",
        "shared    one for all clients: the server keeps nothing between calls; if it speaks an older revision, too, "
          .. "one for each client of such a revision that can be asked",
        "revisions requests as of 2026-07-28, results as they are; then to that of the client",
        "circuit   opens after 5 failures in a row, for 1 s to 60 s",
        "now       unknown: this configuration has no admin listener. `moonpool upstreams other` shows it where a gateway can be asked", "credential none",
        "repeated  never (retry: never)", "policies  none", "sees      listed, and it runs" } do
        assert.truthy(out:find("\n" .. line .. "\n", 1, true), line .. " is not in:\n" .. out)
      end
    end)
  end)

  it("applies policies of this gateway to their names here", function()
    local g <close> = gateway.start { scripts = tools }
    in_folder(g, "", function(run)
      local code, out = run("local", "other_two")
      assert.equal(0, code)
      assert.truthy(out:find "\npolicies  [^\n]*guard", out)
      assert.truthy(select(2, run("local", "other_one")):find "\npolicies  none\n")
    end, { ["policy/guard.lua"] = [[return policy { tools = { "other_two" }, function(call, next) return next(call) end }]] })
  end)

  it("says that a filter hides a name, and under which name clients see another", function()
    local g <close> = gateway.start { scripts = tools }
    in_folder(g, ", prefix: o_, hide: [three], rename: {one: uno}", function(run)
      local code, _, err = run("local", "o_three")
      assert.equal(1, code)
      assert.equal("moonpool: upstream 'other' has 'three', but `only` or `hide` leaves it out\n  hint: see line 3 of the configuration\n", err)
      _, _, err = run("local", "one")
      assert.equal("moonpool: clients see 'one' of upstream 'other' under another name\n  hint: moonpool explain … o_uno\n", err)
    end)
  end)

  it("lists their things beside those of scripts", function()
    local g <close> = gateway.start { scripts = tools }
    in_folder(g, ", only: [one]", function(run)
      local _, out = run "local"
      assert.truthy(out:find("runs      tool other_one\n", 1, true), out)
      assert.truthy(out:find("runs      tool mine\n", 1, true), out)
      assert.falsy(out:find "other_two")
    end, { ["tools/mine.lua"] = [[return tool { "Mine.", function() return "m" end }]] })
  end)

  it("asks no upstream about a tool of a script, and names one that does not answer", function()
    local dir = gateway.prepare { config = "admin: off\nupstreams: {gone: \"http://127.0.0.1:9/mcp\"}\n", scripts = tools }
    local _, out = gateway.exec({ "explain", "local", "one" }, { cwd = dir })
    assert.falsy(out:find "gone")
    local code, _, err = gateway.exec({ "explain", "local", "gone_x" }, { cwd = dir })
    assert.equal(1, code)
    assert.truthy(err:find("there is no tool, prompt or resource 'gone_x'", 1, true), err)
    _, out = gateway.exec({ "explain", "local" }, { cwd = dir })
    assert.truthy(out:find("upstream  gone does not answer", 1, true), out)
    os.execute("rm -rf '" .. dir .. "'")
  end)
end)

describe("the circuit that moonpool explain shows", function()
  it("is that of the running gateway, with its cause and since when", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { workers = 1,
      entries = { one = { prefix = "", retry = "never", circuit = { failures = 2, open = "1s..1s" }, timeout = "20s" } } })
    local c <close> = g:client "2025-11-25"
    local function explained(name)
      local code, out, err = gateway.exec({ "explain", "local", name or "echo", "--admin", "127.0.0.1:" .. g.admin_port }, { cwd = g.dir })
      return (out or ""):match "\nnow       ([^\n]*)\n", code, err
    end
    c:call("tools/call", { name = "echo", arguments = {} })
    assert.equal("closed", explained())
    u:when("tools/call echo", faults.dies())
    for _ = 1, 2 do c:call("tools/call", { name = "echo", arguments = {} }) end
    assert.equal("open", g:status().upstreams.one.circuit)
    local state = explained()
    assert.matches("^open, since %d+%-%d%d%-%d%dT%d%d:%d%d:%d%dZ, after 2 failures in a row %(.+, at %d+%-.+%); the next request .*tries it$", state)
    u:behave()
    wait.for_fact("the circuit to close", 20, function()
      c:call("tools/call", { name = "echo", arguments = {} })
      return g:status().upstreams.one.circuit == "closed"
    end)
    assert.matches("^closed, since %d+%-%d%d%-%d%dT%d%d:%d%d:%d%dZ$", (explained()))
  end)

  it("is named with a tool that nothing is known of, because its upstream does not answer", function()
    local g <close> = gateway.start { config = { upstreams = { gone = { url = "http://127.0.0.1:9/mcp", circuit = { failures = 1, open = "10m..10m" } } } } }
    local c <close> = g:client "2025-11-25"
    c:result("tools/list", {})
    wait.for_fact("the circuit to open", 20, function() return g:status().upstreams.gone.circuit == "open" end)
    local code, _, err = gateway.exec({ "explain", "local", "gone_x", "--admin", "127.0.0.1:" .. g.admin_port }, { cwd = g.dir })
    assert.equal(1, code)
    assert.matches("there is no tool, prompt or resource 'gone_x'", err, 1, true)
    assert.matches("upstream 'gone', which may have it, does not answer: `moonpool check %-%-connect` says why%. Its circuit is open, since ", err)
  end)
end)
