-- The size of the binary that is installed: the release build, stripped, which `./dev test` makes.
local uv = require "luv"

local RELEASE <const> = "build/release/moonpool"
local MOST_BYTES <const> = 2500000

describe("the installed binary", function()
  it("is smaller than 2.5 MB", function()
    local stat = uv.fs_stat(RELEASE)
    if not stat then pending("there is no " .. RELEASE) return end
    assert(stat.size < MOST_BYTES, ("%s has %d bytes, more than %d"):format(RELEASE, stat.size, MOST_BYTES))
  end)
end)
