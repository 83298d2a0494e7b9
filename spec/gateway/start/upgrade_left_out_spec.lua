-- Upgrades of a gateway that serves less than its files say, since these have errors: only what would be worse is
-- refused.
local gateway = require "spec.helpers.gateway"
local upgrading = require "spec.helpers.upgrading"

local BROKEN <const> = "return tool {"

local function says(text) return ("return tool { 'Says it.', function() return '%s' end }"):format(text) end

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

local function call(g, name)
  local me <close> = g:client "2026-07-28"
  local answer = me:call("tools/call", { name = name })
  return answer.result and answer.result.content[1].text
end

-- The upgrade is refused because of this file, and the gateway serves on.
local function assert_refused(g, path)
  local before = g.pid
  local code, _, err = g:upgrade()
  assert.equal(1, code)
  assert.matches("scripts/" .. path, err, 1, true)
  assert.equal(before, g:status().pid)
  assert.equal("one", call(g, "one"))
end

describe("an upgrade of a gateway that has left out a script", function()
  it("leaves out the same, keeps no generation without it, and serves it once it is mended", function()
    local options = upgrading.prepare { scripts = { ["tools/one.lua"] = says "one", ["tools/two.lua"] = BROKEN } }
    options.env = { XDG_STATE_HOME = options.dir .. "/state" }
    local g <close> = upgrading.of(gateway.start(options), options.binary)
    for _ = 1, 2 do
      g:must_upgrade()
      local scripts = g:status().scripts
      assert.same({ serves = "others", left_out = { "tools/two.lua" } }, scripts.start)
      assert.equal(0, scripts.last_good.kept)
      assert.equal("one", call(g, "one"))
    end
    g:wait_log("scripts left out", { why = "the process before this one serves without them, too" })
    write(g.dir .. "/scripts/tools/two.lua", says "two")
    g:wait_status(function(now) return now.scripts.ok and not now.scripts.start end)
    g:must_upgrade()
    assert.equal("two", call(g, "two"))
  end)

  it("is refused if it would leave out one more, or one that is served meanwhile", function()
    local g <close> = upgrading.start { scripts = { ["tools/one.lua"] = says "one", ["tools/two.lua"] = BROKEN } }
    write(g.dir .. "/scripts/tools/three.lua", BROKEN)
    assert_refused(g, "tools/three.lua")
    write(g.dir .. "/scripts/tools/three.lua", says "three")
    write(g.dir .. "/scripts/tools/two.lua", says "two")
    g:wait_status(function(now) return now.scripts.ok and not now.scripts.start end)
    write(g.dir .. "/scripts/tools/two.lua", BROKEN)
    assert_refused(g, "tools/two.lua")
  end)
end)

describe("an upgrade of a gateway that serves its last good generation", function()
  it("serves that, too, for scripts and for a configuration with errors", function()
    local options = upgrading.prepare { scripts = { ["tools/one.lua"] = says "one" } }
    local state = { XDG_STATE_HOME = options.dir .. "/state" }
    local path, configuration = options.dir .. "/scripts/tools/one.lua", options.dir .. "/moonpool.yaml"
    local first <close> = gateway.start { dir = options.dir, env = state }
    first:wait_status(function(now) return now.scripts.last_good.kept == 1 end)
    local good = first:file "moonpool.yaml"
    first:signal("sigterm"):wait_exit()
    for _, change in ipairs { function() write(path, BROKEN) end, function() write(path, says "one") write(configuration, "listen: [") end } do
      change()
      local g = upgrading.of(gateway.start { dir = options.dir, binary = options.binary, env = state }, options.binary)
      g:must_upgrade()
      assert.equal("last_good", g:status().scripts.start.serves)
      assert.equal("one", call(g, "one"))
      g:signal("sigterm"):wait_exit()
    end
    write(configuration, good)
  end)
end)
