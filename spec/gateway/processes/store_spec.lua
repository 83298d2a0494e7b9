-- A store that several processes use: one owns it, the others follow, and it goes from one to the next. The processes
-- are those of store_driver.c, which compares all results with a model. A slow machine makes
-- operations that are "unavailable" or "unknown", as core/data/store.h has them: no number of them is expected.
local gateway = require "spec.helpers.gateway"
local uv = require "luv"

local PATIENCE = 170 -- seconds

local function try(case)
  local folder = gateway.new_folder()
  local binary = (uv.fs_realpath(gateway.binary):gsub("[^/]*$", "store_driver"))
  local code, out, errors = gateway.run_program(binary, { case, folder }, { seconds = PATIENCE })
  assert(code == 0 and out:find "ok\n$", ("%s ended with %s:\n%s%s"):format(case, code, out, errors))
end

describe("a store of several processes", function()
  it("is handed over at 64 MiB under load, and no operation is lost or done twice", function()
    try "move"
  end)

  it("is followed from one owner to the next, also after they have ended", function() try "chain" end)

  it("shows each process the last value of the other, and costs a loop less than 60 ms while the owner is stopped for a second", function()
    try "frozen"
  end)

  it("stays whole where it is if the process that takes it over is killed", function() try "kill-receiver" end)

  it("is whole or not there at all if the process that hands it over is killed", function() try "kill-giver" end)

  it("serves on while the process that takes it over is stopped", function() try "stop-receiver" end)

  it("is not handed over to a process with a store of its own, nor to nobody", function() try "refused" end)

  it("is not harmed by broken frames and many connections, and takes large values", function() try "strangers" end)

  it("is told of what was sent and has no answer that it may have been done, and has nothing that was not done", function() try "lost" end)

  it("costs a loop nothing while its owner is stopped, for places and a turn to another owner", function() try "places-stopped" end)

  it("has all in its file afterwards, and nothing else", function() try "file" end)

  it("has all in its file once a full disk has room again", function() try "full-disk" end)

  it("takes records of sessions without a wait while its owner is stopped, and has all of them later, in their order", function() try "outgoing" end)

  it("has no events of a session that began and ended while its owner was stopped, nor of one whose record it never had", function() try "ended" end)

  it("tells who has posted the record of a session that its owner had no place for it", function() try "without-place" end)

  it("tells nobody that the owner's file has a session while its disk, or the owner, stands still", function() try "late" end)

  it("saves a session before what others have deleted", function() try "urgent" end)

  it("drops events with the record of their session, and gives each owner a share", function() try "records" end)

  it("has the places of semaphores, which all processes share, and those of a killed one are free some seconds later", function() try "places" end)
end)
