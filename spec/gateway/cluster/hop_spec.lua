-- Sessions of a cluster: each stays in the node that opened it, and its requests may reach any.
local cluster = require "spec.helpers.cluster"
local processes = require "spec.helpers.processes"
local resume = require "spec.helpers.resume"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"
require "spec.helpers.asserts"

local it = cluster.it(it, pending)
local move, text = processes.move, processes.text
local STATEFUL <const> = "2025-11-25"
local BOUND <const> = 10 * wait.slower -- seconds

local PING <const> = '{"jsonrpc":"2.0","id":1,"method":"ping"}'

local scripts = {
  ["tools/ask.lua"] = [[return tool { "Asks.", function(_, call)
    local yes, why = call:elicit("sure", "Sure?", { name = t.string })
    return yes and yes.name or why
  end }]],
  ["tools/stay.lua"] = [[return tool { "Stays.", function(_, call)
    call:progress(1)
    sleep(60)
  end }]],
  ["tools/large.lua"] = [[return tool { "Large.", input = { size = t.integer }, function(args) return ("x"):rep(args.size) end }]],
  ["tools/steps.lua"] = resume.scripts["tools/steps.lua"],
}

for _, tls in ipairs { false, true } do
  describe(tls and "over TLS" or "on one machine", function()
    it("a session is served by the node that opened it, whichever a request reaches", function()
      local c <close>, one, two, three = cluster.start { nodes = 3, tls = tls }
      for _, revision in ipairs { "2024-11-05", "2025-03-26", "2025-06-18", STATEFUL } do
        local me <close> = one:client(revision)
        for _, at in ipairs { two, three, one, two } do assert.equal("n1", text(move(me, at), "place"), revision) end
        if revision ~= "2024-11-05" then
          assert.equal(204, move(me, three):delete().status)
          for _, at in ipairs { one, two } do
            local answer = wire.post(at, PING, { ["Mcp-Session-Id"] = me.session })
            assert.equal(404, answer.status)
            assert.equal("no such session: send \"initialize\" without Mcp-Session-Id", answer:json().error.message)
          end
        end
      end
      assert.equal(4, one:status().counters.sessions_opened)
      assert.equal(0, two:status().counters.sessions_opened)
      c:is_quiet()
      assert.is_true(cluster.forwards(two, one, "answered") >= 10)
    end)

    it("a question, its answer, a cancel and a resumed stream may go by different nodes", function()
      local c <close>, one, two, three = cluster.start { nodes = 3, tls = tls, scripts = scripts }
      local me = one:client(STATEFUL, { capabilities = { elicitation = {} } })
      local stream = move(me, two):open("tools/call", { name = "ask" })
      local question = stream:wait_event("elicitation/create").json
      assert.equal(202, move(me, three):post({ jsonrpc = "2.0", id = question.id, result = { action = "accept", content = { name = "Ann" } } }).status)
      assert.equal("Ann", stream:answer().result.content[1].text)
      local stays = move(me, two):open("tools/call", { name = "stay", _meta = { progressToken = "p" } })
      stays:wait "notifications/progress"
      assert.equal(202, move(me, three):notify("notifications/cancelled", { requestId = stays.id }).status)
      one:wait_status(function(status) return status.gauges.requests_in_flight == 0 end, BOUND)
      local steps = resume.steps(move(me, two), 12, 5)
      local last = steps:wait_event(resume.step(4)).id
      steps:hang_up()
      local rest = resume.after(move(me, three), last)
      assert.same({ 5, 6, 7, 8, 9, 10, 11, 12, "counted to 12" }, resume.words(resume.all(rest)))
      rest:close()
      me:close()
      c:is_quiet()
    end)

    it("answers and requests of any size arrive whole", function()
      local c <close>, one, two = cluster.start { tls = tls, scripts = scripts }
      local me <close> = one:client "2025-06-18"
      move(me, two)
      for _, size in ipairs { 1, 65000, 66000, 6 << 20 } do assert.equal(size, #text(me, "large", { size = size })) end
      local answer = me:post(me:message("tools/call", { name = "place", arguments = {}, _meta = { x = ("y"):rep(3 << 20) } }))
      assert.equal(200, answer.status)
      c:is_quiet()
    end)

    it("a client that leaves is seen by the owner, before the first byte and within a stream", function()
      local c <close>, one, two = cluster.start { tls = tls, scripts = scripts }
      local function in_flight(count) one:wait_status(function(status) return status.gauges.requests_in_flight == count end, BOUND) end
      for _, token in ipairs { "p", false } do
        local soonest = math.huge
        for _ = 1, 10 do
          local me = one:client(STATEFUL)
          local stream = move(me, two):open("tools/call", { name = "stay", _meta = { progressToken = token or nil } })
          if token then stream:wait "notifications/progress" end
          in_flight(1)
          stream:hang_up()
          -- a stateful call goes on without its client: the stream's end is what the owner sees
          soonest = math.min(soonest, (wait.timed(function() two:wait_status(function(status) return status.gauges.hops == 0 end, BOUND) end)))
          assert.equal(202, move(me, one):notify("notifications/cancelled", { requestId = stream.id }).status)
          in_flight(0)
          me:close()
          if soonest < 0.2 then break end
        end
        assert.is_true(soonest < 0.2 * wait.slower, soonest)
      end
      c:is_quiet()
    end)
  end)
end

describe("an id that nobody made", function()
  it("is unknown on every node, by the same answer, and soon so", function()
    local _ <close>, one, two = cluster.start()
    local keys = cluster.keys()
    local bodies = {}
    local function try(g, id)
      local took, answer = wait.timed(wire.post, g, PING, { ["Mcp-Session-Id"] = id })
      assert.equal(404, answer.status)
      bodies[answer.body] = true
      return took
    end
    for _, number in ipairs { one.number, two.number, 7 } do
      local id
      repeat id = keys:id():sub(1, 32) .. ("%04x"):format(math.random(0, 65535)) until keys:number_of(id) == number
      for _, g in ipairs { one, two } do
        assert.is_true(try(g, id) < 2 * wait.slower)
        try(g, id)
      end
    end
    assert.is_nil(next(bodies, (next(bodies))), "the answers differ")
  end)

  it("does not lead to a load of reads: most of many numbers are refused for a while", function()
    local _ <close>, one = cluster.start()
    local keys, seen = cluster.keys(), {}
    for _ = 1, 60 do
      local status = wire.post(one, PING, { ["Mcp-Session-Id"] = keys:id():sub(1, 32) .. ("%04x"):format(math.random(0, 65535)) }).status
      seen[status] = (seen[status] or 0) + 1
    end
    assert.is_true((seen[404] or 0) > 0)
    assert.equal(60, (seen[404] or 0) + (seen[503] or 0))
  end)
end)

describe("seal keys", function()
  it("rotate in two steps, and no session is lost", function()
    local other <const> = "another secret, which is new to all of them"
    local c <close>, one, two = cluster.start { seal_keys = { cluster.SEAL, other } }
    local me <close> = one:client(STATEFUL)
    local new = c:add { seal_keys = { other, cluster.SEAL } }
    local you <close> = new:client(STATEFUL)
    for _, at in ipairs { one, two, new } do
      assert.equal("n1", text(move(me, at), "place"))
      assert.equal("n3", text(move(you, at), "place"))
    end
  end)
end)
