-- The memory of a gateway that has answered a call and rests: two workers, two tools. The release build is weighed,
-- which `./dev test` makes.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local under = require "bench.load"

local RELEASE <const> = "build/release/moonpool"
local MOST_MB <const> = 12 -- MB of resident memory, which includes pages of libraries that the system has in its cache
local MOST_OWN_MB <const> = 4.6 -- MB of resident memory that is in no file; 10 % above the measured value

describe("an idle gateway", function()
  local before = gateway.binary
  setup(function() gateway.binary = RELEASE end)
  teardown(function() gateway.binary = before end)

  it("takes less than " .. MOST_MB .. " MB, of which at most " .. MOST_OWN_MB .. " are its own", function()
    if not uv.fs_stat(RELEASE) then pending("there is no " .. RELEASE) return end
    local g <close> = gateway.start { workers = 2, scripts = { ["tools/add.lua"] = under.add, ["tools/echo.lua"] = under.echo } }
    assert(g:client "2026-07-28":call("tools/call", { name = "add", arguments = { a = 1, b = 2 } }))
    local all, own = g:rss() / 1e6, g:rss "RssAnon" / 1e6
    print(("idle memory: %.2f MB, own %.2f MB"):format(all, own))
    assert(all < MOST_MB, ("%.2f MB are resident"):format(all))
    assert(own < MOST_OWN_MB, ("%.2f MB are its own"):format(own))
  end)
end)
