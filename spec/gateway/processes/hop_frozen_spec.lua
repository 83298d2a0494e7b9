-- A process that stands still while requests are sent on to it: its kernel still takes them. And one that is only slow
-- to answer.
local processes = require "spec.helpers.processes"
local wait = require "spec.helpers.wait"

local two, move, text, stop = processes.two, processes.move, processes.text, processes.stop
local STATEFUL <const> = "2025-11-25"
-- seconds: after 10 s without an answer the process is asked whether it lives, and it has 5 s to answer
local BOUND <const> = 40 * wait.slower

local scripts = {
  ["tools/stay.lua"] = [[return tool { "Stays.", input = { seconds = t.number }, timeout = 60, function(args, call)
    call:progress(1)
    sleep(args.seconds)
    return "stayed"
  end }]],
}

local function open_two(old) return { old:client(STATEFUL), old:client(STATEFUL) } end

describe("a process that stands still", function()
  it("is not waited for: what was sent to it fails, what comes is refused at once, and it serves again when it goes on", function()
    local _ <close>, old, new, kept = two { scripts = scripts, workers = 2, before = open_two }
    local c, d = move(kept[1], new), move(kept[2], new)
    local stream = d:open("tools/call", { name = "stay", arguments = { seconds = 60 }, _meta = { progressToken = "p" } })
    stream:wait "notifications/progress"
    local stopped <close> = stop(old)
    local silent = c:open("tools/call", { name = "place", arguments = {} })
    local answer = silent.connection:read_response(BOUND)
    assert.equal(502, answer.status)
    assert.equal("the process of this session does not answer any more; the call may have run", answer:json().error.message)
    stream.connection:wait_closed(BOUND)
    local took = wait.timed(function()
      for _ = 1, 16 do -- connections to both workers, of which so far only one knows that the process stands still
        local refused = move(c, new):post(c:message "ping")
        assert.equal(503, refused.status)
        assert.equal("1", refused.headers["retry-after"])
        c.kept:close()
      end
    end)
    assert.is_true(took < 8 * wait.slower, took)
    assert.equal(200, new:client(STATEFUL):post(c:message "ping").status) -- sessions of the other process are served
    getmetatable(stopped).__close()
    wait.for_fact("the process to be asked again", BOUND, function() return move(c, new):post(c:message "ping").status == 200 end)
    for _ = 1, 8 do
      assert.equal("old", text(move(c, new), "place"))
      c.kept:close()
    end
    new:wait_status(function(status) return status.gauges.hops == 0 end)
    c:close()
    d:close()
  end)
end)

describe("a call of another process that says nothing for long", function()
  it("is not cut", function()
    local _ <close>, _, new, kept = two { scripts = scripts, before = open_two }
    local silent = move(kept[1], new):open("tools/call", { name = "stay", arguments = { seconds = 21 } })
    local spoken = move(kept[2], new):open("tools/call", { name = "stay", arguments = { seconds = 21 }, _meta = { progressToken = "p" } })
    assert.equal("stayed", spoken:answer(BOUND).result.content[1].text)
    assert.equal("stayed", silent:answer(BOUND).result.content[1].text)
    kept[1]:close()
    kept[2]:close()
  end)
end)
