-- A second SIGTERM, and a SIGTERM after the end of a client's input, cancel the calls at once and leave their `<close>`
-- handlers time to wait. A client of an official SDK that leaves closes its end of stdin, and sends SIGTERM two seconds later.
local gateway = require "spec.helpers.gateway"
local stdio = require "spec.helpers.stdio"

local scripts = {
  ["tools/hold.lua"] = [[
    return tool { "Waits, and cleans up in two steps.", function()
      local f <close> = closing(function()
        log.info "cleaning"
        sleep(0.02)
        log.info "cleaned"
      end)
      log.info "holding"
      sleep(60)
    end }]],
}

describe("<close> handlers of calls that still run", function()
  for name, row in pairs { ["the second SIGTERM"] = { nil, "draining" }, ["a second SIGTERM during limits.linger"] = { "60s", "lingering" } } do
    it("may wait after " .. name, function()
      local g <close> = gateway.start { scripts = scripts, workers = 2, config = { limits = { drain = "60s", linger = row[1] } } }
      local c = g:client "2026-07-28"
      c:open("tools/call", { name = "hold", arguments = {} })
      g:wait_log "holding"
      g:signal "sigterm"
      g:wait_log(row[2])
      g:signal "sigterm"
      assert.equal(0, (g:wait_exit(20)))
      g:wait_log "cleaned"
      c:close()
    end)
  end

  it("may wait after the end of input over stdio and a SIGTERM", function()
    local s <close> = stdio.start { scripts = scripts, config = { limits = { drain = "60s" } } }
    local c = s:client "2025-11-25"
    c:open("tools/call", { name = "hold", arguments = {} })
    s:wait_log "holding"
    s:finish()
    s:wait_log "draining"
    s:signal "sigterm"
    assert.equal(0, (s:wait_exit(20)))
    s:wait_log "cleaned"
  end)
end)
