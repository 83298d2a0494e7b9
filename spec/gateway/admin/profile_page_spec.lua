-- The page Profile of the dashboard in Debian's chromium: takes a profile, and shows it as a flame graph and as a
-- table. Without chromium nothing is tested, and the spec says so.
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local node = require "spec.helpers.node"
local uv = require "luv"

local token = ("o"):rep(32)
local chromium = uv.fs_stat "/usr/bin/chromium" and "/usr/bin/chromium"

describe("the dashboard's page Profile", function()
  it("takes a profile, and shows it by keyboard, in each width and colour", function()
    if not chromium then
      pending "there is no chromium: apt-get install chromium"
      return
    end
    local g <close> = gateway.start {
      -- otherwise moonpool's own Lua would have frames above those of the tool
      workers = 1, env = { MOONPOOL_PLANS = "on" },
      config = { admin = { listen = "127.0.0.1:0", tokens = { operate = { me = token } } } }, scripts = {
        ["tools/hot.lua"] = [[return tool { "Is hot.", input = { n = t.integer },
function(args) local x = 0
for i = 1, args.n do x = x + i end
return x end }]],
      },
    }
    local code, out, err = gateway.run_program(node.path, {
      "spec/clients/profile.mjs", chromium, "http://127.0.0.1:" .. g.admin_port, token, g.url, g.dir .. "/browser", "build/screens",
    }, { seconds = 400 })
    local found = assert(cjson.decode(out), out .. err)
    assert.is_nil(found.error, tostring(found.error) .. "\n" .. tostring(found.text))
    assert.equal(0, code)
    for _, what in ipairs { "console", "violations", "wide", "unnamed", "axe" } do assert.same({}, found[what], what) end
    assert.matches("/hot%.lua:3\t%d+%.%d %%\t%d+%.%d %%\t%d+", found.table)
    assert.is_true(found.zoomed >= 4)
    assert.is_true(found.hits >= 1)
  end)
end)
