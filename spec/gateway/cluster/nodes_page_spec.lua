-- The page Nodes of the dashboard: which nodes there are, which differ or are stale, and that one is forgotten there.
local cjson = require "cjson.safe"
local nodes = require "spec.helpers.nodes"
local node = require "spec.helpers.node"
local gateway = require "spec.helpers.gateway"
local redis = require "spec.helpers.redis"
local uv = require "luv"

local it_real = redis.it(it, pending)
local TOKEN <const> = ("o"):rep(32)
local QUICK <const> = { node_turn_ms = 200, node_stale_ms = 2500, redis_idle_ms = 60000 }

describe("the page Nodes", function()
  it_real("shows the nodes, which of them differ, and forgets one that is stale", function()
    local chromium = uv.fs_stat "/usr/bin/chromium" and "/usr/bin/chromium"
    if not chromium then
      pending "there is no chromium: apt-get install chromium"
      return
    end
    local server <close> = redis.start()
    local config = { admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = TOKEN } } } }
    local a <close> = nodes.start(server.at, { node = "a", constants = QUICK, config = config })
    local b <close> = nodes.start(server.at, { node = "b", constants = QUICK })
    local other = { ["tools/other.lua"] = [[return tool { "Other.", function() return "" end }]] }
    local c <close> = nodes.start(server.at, { node = "c", constants = QUICK, scripts = other })
    nodes.put(server, 77, {
      uid = ("0"):rep(31) .. "1", node = "ghost", address = "127.0.0.1:1", renewals = 1, format = 1, version = "0.0.9", sessions = 3, state = "serving",
      scripts = nodes.records(server)[next(nodes.records(server))].scripts,
    })
    for _, g in ipairs { a, b, c } do
      nodes.wait(g, function(cluster) return #cluster.nodes == 4 end)
    end
    local code, out, err = gateway.run_program(node.path, { "spec/clients/nodes.mjs", chromium, "http://127.0.0.1:" .. a.admin_port, TOKEN,
      a.dir .. "/browser", "build/screens" }, { seconds = 200 })
    local found = assert(cjson.decode(out), out .. err)
    assert.is_nil(found.error, tostring(found.error) .. "\n" .. tostring(found.text))
    assert.equal(0, code)
    for _, what in ipairs { "console", "violations", "wide", "unnamed", "axe" } do assert.same({}, found[what]) end
    assert.is_true(found.link)
    for _, text in ipairs {
      "Cluster spec. This gateway has joined. Redis answers.", "Nodes differ in scripts or configuration", "a, this one", "stale", "0.0.9 differs",
    } do
      assert.truthy(found.text:find(text, 1, true), found.text)
    end
    assert.is_nil(nodes.records(server)[77])
  end)
end)
