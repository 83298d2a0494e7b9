-- What clients see of an upstream while a reload changes how it is reached: the list that it gave before, until it is
-- read anew.
local cjson = require "cjson.safe"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local function reload(g, change)
  local file <close> = assert(io.open(g.dir .. "/moonpool.yaml"))
  local config = cjson.decode(file:read "a")
  change(config.upstreams.one)
  local out <close> = assert(io.open(g.dir .. "/moonpool.yaml", "w"))
  out:write(cjson.encode(config))
  out:close()
  assert.equal(200, g:admin("/reload", "POST").status)
end

local function names(client)
  local list = {}
  for _, tool in ipairs(client:result("tools/list", {}).tools) do list[tool.name] = true end
  return list
end

describe("the list of an upstream whose connection a reload changes", function()
  it("stays as it is until it is read anew, and is read anew at once", function()
    local u <close> = upstream.start { transport = "http", revision = "2025-11-25" }
    local other <close> = upstream.start { transport = "http", revision = "2025-11-25" }
    other:offer("tools", { "fresh" })
    local g <close> = upstream.gateway { one = u }
    local me <close> = g:client "2026-07-28"
    wait.for_fact("the list", 10, function() return names(me).one_echo end)
    reload(g, function(one) one.headers = { ["x-new"] = "1" } end)
    for _ = 1, 20 do assert.is_true(names(me).one_echo) end
    u:wait({ method = "tools/list" }, 2)
    assert.is_true(names(me).one_echo)
    reload(g, function(one) one.url = (other.entry or other).url end)
    wait.for_fact("the tool of the other server", 10, function() return names(me).one_fresh end)
  end)
end)
