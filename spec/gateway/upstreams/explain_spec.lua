-- moonpool explain about the things of upstreams: which upstream and name, and the rules of the configuration that decide.
local gateway = require "spec.helpers.gateway"

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
        "prefix    'o_'", "filter    `only` lets it through", "shared    one for all clients: the server keeps nothing between calls",
        "revisions requests as of 2026-07-28, results as they are; then to that of the client",
        "circuit   opens after 5 failures in a row, for 1 s to 60 s; moonpool upstreams other shows its state", "credential none",
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
