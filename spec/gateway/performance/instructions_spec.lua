-- lane: first
-- The cost of a request in instructions, compared with bench/instructions.txt: a change that makes a kind of request
-- more than 3 % dearer fails here.
-- `./dev bench instructions --record` writes the file again. It measures the release build, which `./dev test` makes.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local RELEASE = "build/release/moonpool"
local VALGRIND = "/usr/bin/valgrind"

describe("the instructions of one request", function()
  it("stay within 3 % of the recorded ones", function()
    if not uv.fs_stat(RELEASE) then pending("there is no " .. RELEASE) return end
    if not uv.fs_stat(VALGRIND) then pending("there is no " .. VALGRIND) return end
    -- A copy: the specs of the packages build the file anew meanwhile. One that is just being linked does not run.
    local folder = gateway.new_folder()
    local copy = folder .. "/moonpool"
    wait.for_fact("a binary that runs", 120, function()
      return gateway.run_program("/bin/cp", { RELEASE, copy }) == 0 and gateway.run_program("/bin/sh", { "-c", copy .. " version" }) == 0
    end)
    local code, out, err = gateway.run_program("/usr/bin/lua5.4", { "bench/instructions.lua", "--check" }, { env = { MOONPOOL = copy }, seconds = 800 })
    gateway.run_program("/bin/rm", { "-r", folder })
    assert(code == 0, out .. err)
  end)
end)

describe("./dev bench", function()
  it("--help says what there is to measure, and a slip is refused, before anything is built", function()
    for _, row in ipairs { { "--help", 0, 2 }, { "help", 0, 2 }, { "--hlep", 2, 3 } } do
      local told = { gateway.run_program("./dev", { "bench", row[1] }, { seconds = 60 }) }
      assert.equal(row[2], told[1])
      assert.truthy(told[row[3]]:find("./dev bench WHAT measures one thing, and prints it:\n  auth, calls, cluster, growth,", 1, true), told[row[3]])
    end
  end)
end)
