-- A reload that changes what clients see of an upstream notifies them, though neither scripts nor the upstream have
-- changed.
local cjson = require "cjson.safe"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local function reload(g, change)
  local file <close> = assert(io.open(g.dir .. "/moonpool.yaml"))
  local config = cjson.decode(file:read "a")
  change(config.upstreams)
  local out <close> = assert(io.open(g.dir .. "/moonpool.yaml", "w"))
  out:write(cjson.encode(config))
  out:close()
  assert.equal(200, g:admin("/reload", "POST").status)
end

local function count(stream)
  local n = 0
  for _, message in ipairs(stream:messages()) do n = n + (message.method == "notifications/tools/list_changed" and 1 or 0) end
  return n
end

describe("a reload", function()
  it("notifies clients if it changes what they see of an upstream, without asking the upstream again", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:offer("tools", { "one", "two" })
    -- on a busy machine a list that is not there after half of list_wait would be read again later
    local g <close> = upstream.gateway({ up = u }, {
      entries = { up = { list_wait = "30s" } }, scripts = { ["tools/own.lua"] = 'return tool { "O.", function() return "" end }' },
    })
    local c <close> = g:client "2026-07-28"
    wait.for_fact("the tools", 20, function() return #c:result("tools/list", {}).tools == 3 end)
    local stream = c:open("subscriptions/listen", { notifications = { toolsListChanged = true } })
    stream:wait_event "notifications/subscriptions/acknowledged"
    local changes, asked = 0, #u:all { method = "tools/list" }
    for _, change in ipairs {
      function(all) all.up.only = { "one" } end, function(all) all.up.rename = { one = "uno" } end,
      function(all) all.up.describe = { one = "Another." } end, function(all) all.up.prefix = "p_" end, function(all) all.up.only = nil end,
    } do
      local before = count(stream)
      reload(g, change)
      changes = changes + 1
      wait.for_fact("a notification of change " .. changes, 20, function() return count(stream) > before end)
    end
    -- Two reloads in quick succession may compare with the same earlier view, and then notify twice.
    assert.truthy(count(stream) <= 2 * changes)
    assert.equal(asked, #u:all { method = "tools/list" }) -- the upstream was not asked again
    stream:close()
  end)
end)
