-- A start without a last good generation: tools, resources, prompts and jobs that have errors are left out. What guards
-- is never left out.
local gateway = require "spec.helpers.gateway"
local credentials = require "spec.helpers.credentials"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local OTHER <const> = "counter"      -- the second tool of the upstream, besides "echo"

local function says(text) return ("return tool { 'Says it.', function() return '%s' end }"):format(text) end

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

local function with(scripts)
  local all = { ["tools/one.lua"] = says "one" }
  for path, text in pairs(scripts) do all[path] = text end
  return all
end

local function call(g, name)
  local me <close> = g:client "2026-07-28"
  local answer = me:call("tools/call", { name = name })
  return answer.result and answer.result.content[1].text, answer.error and answer.error.message
end

-- What `moonpool run` prints; it must end with 78.
local function refused(scripts, config)
  local dir = gateway.prepare { scripts = with(scripts), config = config }
  local code, _, err = gateway.exec({ "run", "moonpool.yaml" }, { cwd = dir })
  assert.equal(78, code, err)
  return err
end

local GUARD <const> = "return policy { tools = { '*' }, function(call, next) return next(call) end }"

describe("a start without a last good generation", function()
  for path, text in pairs {
    ["tools/two.lua"] = "return tool {", ["resources/two.lua"] = "return 1", ["prompts/two.lua"] = "error 'x'", ["jobs/two.lua"] = "",
    ["tools/late.lua"] = "while true do end", ["tools/page.lua"] = "return tool { 'P.', ui = 'ui://none', function() return 1 end }",
    ["tools/many/init.lua"] = "return { a = tool { 'A.', function() end }, b = 1 }", ["lib/two.lua"] = "return {", ["tools/one/init.lua"] = "return {",
  } do
    it("leaves out " .. path .. " and serves the others, until it is mended", function()
      local g <close> = gateway.start { scripts = with { [path] = text }, constants = { load_ms = 1000 } }
      assert.equal("one", (call(g, "one")))
      local status = g:status().scripts
      assert.same({ serves = "others", left_out = { path } }, status.start)
      assert.is_false(status.ok)
      assert.truthy(status.errors:find("scripts/" .. path, 1, true), status.errors)
      assert.equal(path, g:wait_log("scripts left out").fields.files)
      assert.equal("error", g:wait_log("script refused").level)
      local code, out = gateway.exec { "status", "--admin", "127.0.0.1:" .. g.admin_port }
      assert.equal(0, code)
      assert.truthy(out:find("^warning   served without scripts that have errors: " .. path:gsub("%p", "%%%0")), out)
      assert(os.remove(g.dir .. "/scripts/" .. path))
      write(g.dir .. "/scripts/tools/three.lua", says "three")
      g:wait_status(function(now) return now.scripts.ok and not now.scripts.start end)
      assert.equal("three", (call(g, "three")))
      assert.has_nothing_left(g)
    end)
  end

  it("leaves out several, and what needs them", function()
    local g <close> = gateway.start { scripts = with {
      ["lib/words.lua"] = "return {", ["tools/hello.lua"] = "local w = require 'words' return tool { 'H.', function() return w.hello end }",
      ["tools/bad.lua"] = "x", ["resources/page.lua"] = "return resource {",
      ["tools/shown.lua"] = "return tool { 'S.', ui = 'ui://page', function() return 1 end }",
    } }
    assert.same({ "lib/words.lua", "resources/page.lua", "tools/bad.lua", "tools/hello.lua", "tools/shown.lua" }, (function()
      local found = g:status().scripts.start.left_out
      table.sort(found)
      return found
    end)())
    assert.equal("one", (call(g, "one")))
  end)

  it("still has the errors after the same file was saved again, and serves it once it is good", function()
    local g <close> = gateway.start { scripts = with { ["tools/two.lua"] = "return tool {" } }
    for _, text in ipairs { "return tool (", "return tool {" } do
      write(g.dir .. "/scripts/tools/two.lua", text)
      assert.equal(422, g:admin("/reload", "POST").status)
      assert.is_false(g:status().scripts.ok)
    end
    write(g.dir .. "/scripts/tools/two.lua", says "two")
    g:wait_status(function(status) return status.scripts.ok end)
    assert.equal("two", (call(g, "two")))
  end)

  for what, scripts in pairs {
    ["auth script"] = { ["auth/main.lua"] = "return auth {" }, ["one of two auth scripts"] = { ["auth/main.lua"] = credentials.script, ["auth/two.lua"] = "x" },
    ["policy"] = { ["policy/guard.lua"] = "return policy {" }, ["upstream script"] = { ["upstreams/none.lua"] = "return upstream {" },
    ["script in an unknown folder"] = { ["polices/guard.lua"] = GUARD }, ["script in no folder"] = { ["guard.lua"] = GUARD },
    ["library where a policy may need it"] = { ["lib/rules.lua"] = "return {", ["policy/guard.lua"] = "local fine, rules = pcall(require, 'rules') " .. GUARD },
    ["library where an auth script may need it"] = { ["lib/rules.lua"] = "return {", ["auth/main.lua"] = credentials.script },
  } do
    it("ends with 78 for a broken " .. what .. ", also beside a broken tool", function()
      for _, more in ipairs { {}, { ["tools/two.lua"] = "return tool {" } } do
        for path, text in pairs(scripts) do more[path] = text end
        assert.truthy(refused(more):find("scripts/", 1, true))
      end
    end)
  end

  it("ends with 78 for any broken script with `scripts.broken: refuse`", function()
    assert.truthy(refused({ ["tools/two.lua"] = "return tool {" }, { scripts = { broken = "refuse" } }):find("scripts/tools/two.lua:", 1, true))
  end)

  it("keeps no generation that lacks a script", function()
    local dir = gateway.prepare { scripts = with { ["tools/two.lua"] = "return tool {" } }
    local g <close> = gateway.start { dir = dir, env = { XDG_STATE_HOME = dir .. "/state" } }
    assert.equal(0, g:status().scripts.last_good.kept)
    write(dir .. "/scripts/tools/two.lua", says "two")
    g:wait_status(function(status) return status.scripts.last_good.kept == 2 end)
  end)

  it("shows no tool of an upstream in the place of a script that is left out, and leaves out no resource that may stand in for one", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local scripts, config = { ["tools/up_echo.lua"] = "return tool {" }, { upstreams = { up = { url = u.url, prefix = "up_" } } }
    local g <close> = gateway.start { scripts = with(scripts), config = config }
    local function names()
      local me <close> = g:client "2026-07-28"
      local found = {}
      for _, tool in ipairs(me:result("tools/list").tools) do found[tool.name] = true end
      return found
    end
    wait.for_fact("the tools of the upstream", 20, function() return names()["up_" .. OTHER] end)
    assert.is_nil(names().up_echo)
    assert.is_nil((call(g, "up_echo")))
    os.remove(g.dir .. "/scripts/tools/up_echo.lua")
    wait.for_fact("the tool of the upstream", 20, function() return names().up_echo end)
    assert.truthy(refused({ ["resources/two.lua"] = "return resource {" }, config):find("scripts/resources/two.lua", 1, true))
  end)
end)
