-- The store does what its model does, whatever is behind it: memory, memory with a file over restarts, the store of
-- another process, or a server that several gateways share. STORE_MODEL=N runs N operations with each.
local code = require "spec.helpers.code"
local gateway = require "spec.helpers.gateway"
local nodes = require "spec.helpers.nodes"
local redis = require "spec.helpers.redis"
local store_model = require "spec.helpers.store_model"
local upgrading = require "spec.helpers.upgrading"

local OPERATIONS <const> = tonumber(os.getenv "STORE_MODEL" or 20000)
local BATCH <const> = 2000

local function options(more)
  local made = { workers = 2, scripts = { ["lib/model.lua"] = store_model.script }, config = { limits = { call = { time = "2m", cpu = "2m" } } } }
  for name, value in pairs(more or {}) do made.config[name] = value end
  return made
end

-- Runs the operations in batches; `between(n)` runs after the n-th one and returns the client of the next.
local function run(me, between)
  local model = store_model.new(os.time() % 1000000 * 1000)
  for n = 1, math.ceil(OPERATIONS / BATCH) do
    model:run(me, BATCH)
    me = between and between(n) or me
  end
  for _, name in ipairs { "set", "add", "get", "cas", "delete", "list", "incr", "lock" } do assert(model.counts[name], name) end
  return me
end

describe("the store", function()
  it("in memory does what its model does", function()
    local g <close> = code.start(options())
    run(g:client "2026-07-28"):close()
    g:stop()
  end)

  it("with a file does what its model does over restarts, and fences rise", function()
    local g = code.start(options { store = { file = "store.db" } })
    local me = run(g:client "2026-07-28", function(n)
      if n % 3 ~= 0 then return nil end
      g:stop()
      g = gateway.start { dir = g.dir }
      return g:client "2026-07-28"
    end)
    me:close()
    g:__close()
  end)

  it("of another process does what its model does", function()
    local made = options()
    made.scripts["tools/code.lua"] = code.script
    local g <close> = upgrading.start_quick(made)
    local old = g:client "2025-11-25"
    assert.equal(0, (g:upgrade()))
    run(old)
    old:close()
    g:stop()
  end)

  redis.it(it, pending)("in a server that three gateways share does what its model does, on each in turn", function()
    local server <close> = redis.start { args = nodes.acl_args }
    local gateways, clients = {}, {}
    for i = 1, 3 do
      gateways[i] = nodes.start("redis://moonpool@" .. server.at, { redis = { password = "pass", timeout = "5s" }, scripts = options().scripts,
        config = options().config })
      clients[i] = gateways[i]:client "2026-07-28"
    end
    run(clients[3], function(n) return clients[n % 3 + 1] end)
    for i = 1, 3 do
      clients[i]:close()
      gateways[i]:__close()
    end
  end)
end)
