-- B-80: however clients disconnect, the gateway uses no processor time afterwards.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local wait = require "spec.helpers.wait"

local scripts = { ["tools/wait.lua"] = 'return tool { "Waits.", function(_, call) call:progress(1) sleep(60) end }' }

-- Nanoseconds of processor time of the process's threads.
local function run_time(pid)
  local sum, entries = 0, assert(uv.fs_scandir("/proc/" .. pid .. "/task"))
  for name in uv.fs_scandir_next, entries do
    local file <close> = io.open(("/proc/%d/task/%s/schedstat"):format(pid, name))
    sum = sum + (file and tonumber(file:read "a":match "^%d+") or 0)
  end
  return sum
end

local half = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"

-- Each function opens a connection and leaves it: by FIN, RST, half-close, in the middle of a request.
local ways = {
  function(g) client.connect(g):close() end,
  function(g) client.connect(g):fin() end,
  function(g) client.connect(g):send_raw(half):reset() end,
  function(g) client.connect(g):send_raw(half):fin() end,
  function(g) client.connect(g):send { path = "/sse" }:fin() end,
  function(g) client.connect(g):send({ path = "/sse" }):wait_event("endpoint").json = nil end, -- the connection stays open
  function(g) client.connect(g):send { path = "/sse" }:reset() end,
  function(g) client.connect(g):send_raw "\22\3\1\2\0\1\0\1\252\3\3":close() end, -- half of a TLS record
  function(g) client.connect(g):send_raw "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":fin() end,
  function(_, me) me:open("tools/call", { name = "wait", _meta = { progressToken = 1 } }):fin() end,
  function(_, me) me:open("tools/call", { name = "wait", _meta = { progressToken = 1 } }):reset() end,
  function(_, me) me:open("tools/call", { name = "wait" }):close() end,
}

describe("B-80 after 500 clients have disconnected in every way", function()
  it("the process uses no processor time", function()
    local g <close> = gateway.start { scripts = scripts, config = { heartbeat = "60s" } }
    local me = g:client "2026-07-28"
    for i = 1, 500 do ways[i % #ways + 1](g, me) end
    uv.run "nowait"
    g:wait_status(function(status) return status.gauges.tasks == 0 end)
    wait.quietly(0.2)
    local used = math.huge
    for _ = 1, 5 do
      local before = run_time(g.pid)
      wait.quietly(1)
      used = math.min(used, (run_time(g.pid) - before) / 1e9)
      if used < 0.01 then break end
    end
    assert.is_true(used < 0.01, ("it ran for %.1f %% of a second"):format(used * 100))
    me:close()
    g:stop()
  end)
end)
