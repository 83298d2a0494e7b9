-- lane: first
-- The cost of a request in instructions, compared with bench/instructions.txt: a change that makes a kind of request more than 3 % dearer fails here.
-- `./dev bench instructions --record` writes the file again. It measures the release build, which `./dev test` makes.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"

local RELEASE = "build/release/moonpool"
local VALGRIND = "/usr/bin/valgrind"

describe("the instructions of one request", function()
  it("stay within 3 % of the recorded ones", function()
    if not uv.fs_stat(RELEASE) then pending("there is no " .. RELEASE) return end
    if not uv.fs_stat(VALGRIND) then pending("there is no " .. VALGRIND) return end
    local code, out, err = gateway.run_program("/usr/bin/lua5.4", { "bench/instructions.lua", "--check" }, {
      env = { MOONPOOL = RELEASE }, seconds = 800,
    })
    assert(code == 0, out .. err)
  end)
end)
