-- The resident memory of a stream that carries nothing. The release build is weighed, which `./dev test` makes.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local streams = require "bench.streams"

local RELEASE <const> = "build/release/moonpool"
local COUNT <const> = 3000
local PATIENCE_S <const> = 60 -- seconds until the garbage that opening the streams has left is returned

-- KB for each stream: 6 to 9 % above the measured values
local most = { sse = 6.4, get = 6.7, listen = 6.8 }

describe("a quiet stream", function()
  local before = gateway.binary
  setup(function() gateway.binary = RELEASE end)
  teardown(function() gateway.binary = before end)

  for _, kind in ipairs(streams.kinds) do
    if most[kind.short] then
      it("of " .. kind.name .. " takes at most " .. most[kind.short] .. " KB", function()
        if not uv.fs_stat(RELEASE) then pending("there is no " .. RELEASE) return end
        local kb = streams.weigh(kind, COUNT, most[kind.short], PATIENCE_S)
        assert(kb <= most[kind.short], ("each takes %.2f KB"):format(kb))
      end)
    end
  end
end)
