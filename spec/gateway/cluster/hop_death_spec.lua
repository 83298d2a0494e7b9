-- Nodes that die, come back or stand still: what clients of their sessions get from the others.
local uv = require "luv"
local cluster = require "spec.helpers.cluster"
local nodes = require "spec.helpers.nodes"
local processes = require "spec.helpers.processes"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"
require "spec.helpers.asserts"

local it = cluster.it(it, pending)
local move, text, stop = processes.move, processes.text, processes.stop
local STATEFUL <const> = "2025-11-25"
local BOUND <const> = 40 * wait.slower -- seconds

local PING <const> = '{"jsonrpc":"2.0","id":1,"method":"ping"}'

local function ping(g, session) return wire.post(g, PING, { ["Mcp-Session-Id"] = session }) end

-- Sends pings until one has another status than `status`, and returns it with the seconds that it took.
local function until_other(g, session, status)
  local took, answer = wait.timed(function()
    return wait.for_fact("another answer than " .. status, BOUND, function()
      local one = ping(g, session)
      if one.status == status then
        assert.matches("^[123]$", one.headers["retry-after"])
        return nil
      end
      return one
    end)
  end)
  return answer, took
end

describe("a node that is killed", function()
  it("leaves its sessions with \"try again\", and unknown when it is known to be gone", function()
    local c <close>, one, two, three = cluster.start { nodes = 3, tls = true }
    local me <close> = one:client(STATEFUL)
    assert.equal("n1", text(move(me, two), "place"))
    c:kill(one)
    assert.equal(503, ping(two, me.session).status)
    assert.equal(503, ping(three, me.session).status)
    for _, g in ipairs { two, three } do
      local answer, took = until_other(g, me.session, 503)
      assert.equal(404, answer.status)
      assert.is_true(took < 14 * wait.slower, took)
    end
    assert.equal(404, ping(two, me.session).status)
    local you <close> = two:client(STATEFUL)
    assert.equal("n2", text(move(you, three), "place"))
    c:is_quiet()
  end)

  it("leaves an error to the calls that it ran", function()
    local scripts = { ["tools/stay.lua"] = "return tool { 'Stays.', function() sleep(60) end }" }
    local c <close>, one, two = cluster.start { scripts = scripts }
    local me <close> = one:client(STATEFUL)
    local call = move(me, two):open("tools/call", { name = "stay" })
    one:wait_status(function(status) return status.gauges.requests_in_flight == 1 end)
    c:kill(one)
    assert.equal("the process of this session does not answer any more; the call may have run", call:answer().error.message)
    c:is_quiet()
  end)

  it("and started again at its address knows no session of the process before it", function()
    local c <close>, one, two = cluster.start { tls = true }
    local me <close> = one:client(STATEFUL)
    assert.equal("n1", text(move(me, two), "place"))
    c:kill(one)
    local again = c:again(one)
    local took = wait.timed(function()
      wait.for_fact("the session to be unknown", 3, function() return ping(two, me.session).status == 404 end)
    end)
    assert.is_true(took < 1 * wait.slower, took)
    assert.equal(404, ping(again, me.session).status)
    local you <close> = again:client(STATEFUL)
    assert.equal("n1", text(move(you, two), "place"))
  end)
end)

describe("a node that stands still", function()
  it("is not waited for, and runs nothing that was answered with an error when it goes on", function()
    local scripts = { ["tools/mark.lua"] = [[return tool { "Leaves a line.", input = { word = t.string }, function(args)
      log.info("marked", { word = args.word })
      return args.word
    end }]] }
    local c <close>, one, two = cluster.start { scripts = scripts, tls = true, workers = 1 }
    local me <close> = one:client(STATEFUL)
    local you <close> = one:client(STATEFUL)
    assert.equal("first", text(move(me, two), "mark", { word = "first" }))
    local stopped <close> = stop(one)
    local late = me:open("tools/call", { name = "mark", arguments = { word = "late" } }) -- by the kept connection
    two:wait_status(function(status) return status.gauges.hops == 1 end)
    assert.equal(503, ping(two, you.session).status) -- by a new one, which is not answered
    local answer = late.connection:read_response(BOUND)
    assert.equal(502, answer.status)
    local status = ping(two, you.session).status -- its record may be stale by now
    assert.is_true(status == 503 or status == 404, status)
    getmetatable(stopped).__close()
    wait.for_fact("the node to be asked again", BOUND, function() return ping(two, you.session).status == 200 end)
    assert.equal("last", text(move(me, one), "mark", { word = "last" }))
    one:wait_log("marked", { word = "last" })
    assert.is_nil(one:log():find("word=late", 1, true))
    c:is_quiet()
  end)
end)

describe("while Redis is away", function()
  it("sessions of other nodes are served, and numbers that nobody has seen wait for 10 s", function()
    local c <close>, one, two = cluster.start()
    local me <close> = one:client(STATEFUL)
    assert.equal("n1", text(move(me, two), "place"))
    c.server:stop()
    local id = cluster.keys():id()
    wait.for_fact("the server to be missed", BOUND, function() return ping(two, id).status == 503 end)
    assert.equal("n1", text(me, "place"))
    local answer = until_other(two, id, 503)
    assert.equal(404, answer.status)
    assert.equal("n1", text(me, "place"))
  end)

  it("and is emptied, no node forgets another one", function()
    local c <close>, one, two = cluster.start()
    local sessions = { [one] = two:client(STATEFUL), [two] = one:client(STATEFUL) }
    for _, g in ipairs(c.all) do nodes.wait(g, nodes.are { n1 = "serving", n2 = "serving" }) end
    c.server:cli "FLUSHALL"
    local over = uv.hrtime() + 3e9                                 -- each node has had a turn
    while uv.hrtime() < over do
      for g, me in pairs(sessions) do assert.equal(200, ping(g, me.session).status) end
    end
    for _, me in pairs(sessions) do me:close() end
  end)
end)
