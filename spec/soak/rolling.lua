-- Rolling restarts of three nodes under load: `./dev soak rolling` with ten rounds, and two in the suite.
--   local report = rolling.run { rounds = 2 };   print(rolling.describe(report))
-- Clients of 2026-07-28, sessions of 2025-11-25 that are shorter than cluster.leave, one that is longer, and clients of
-- HTTP+SSE that stay: each initializes again when its stream has ended, which only the restart of a node that it is at may do.
local uv = require "luv"
local cluster = require "spec.helpers.cluster"
local nodes = require "spec.helpers.nodes"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local rolling = {}

local STATEFUL <const>, LEGACY <const> = "2025-11-25", "2024-11-05"
local BOUND <const> = 20 * wait.slower -- seconds
local NODES <const>, SESSIONS <const>, LONGEST_NS <const> = 3, 4, 3e8

--- The constants of nodes that wait for less.
rolling.QUICK = { node_turn_ms = 200, node_stale_ms = 3000, leave_ms = 1000 }

-- What f gives for a node that takes a connection, as of a balancer.
local function any(all, f)
  local first = math.random(#all)
  for i = 0, #all - 1 do
    local done, result = pcall(f, all[(first + i - 1) % #all + 1])
    if done then return result end
    if not tostring(result):find "cannot connect" then error(result, 0) end
  end
  error("no node takes connections", 0)
end

local function expect(status, answer, what)
  if answer.status ~= status then error(("%s: %d in place of %d: %s"):format(what, answer.status, status, answer.body), 0) end
end

local message = wire.message(1, "tools/call", { name = "place", _meta = wire.meta() })
local function modern(it)
  expect(200, any(it.all, function(g) return wire.post(g, message, wire.mirrored(message)) end), "a call of 2026-07-28")
  it.counts.modern = it.counts.modern + 1
end

-- The session no. 1 is never ended by its client.
local function stateful(it, i)
  local one = it.sessions[i]
  if not one then
    local answer = any(it.all, function(g) return wire.post(g, wire.initialize_message(STATEFUL)) end)
    expect(200, answer, "initialize")
    one = { born = uv.hrtime(), headers = { ["Mcp-Session-Id"] = answer.headers["mcp-session-id"] } }
    it.sessions[i], it.counts.opened = one, it.counts.opened + 1
  end
  local answer = any(it.all, function(g) return wire.post(g, '{"jsonrpc":"2.0","id":1,"method":"ping"}', one.headers) end)
  it.counts.session = it.counts.session + 1
  if i == 1 and answer.status == 404 then
    it.sessions[1], it.counts.lost = nil, it.counts.lost + 1
    return
  end
  expect(200, answer, "a request of a session")
  if i > 1 and uv.hrtime() - one.born > LONGEST_NS then
    expect(204, any(it.all, function(g) return wire.request(g, "DELETE", "/mcp", one.headers) end), "DELETE")
    it.sessions[i] = nil
  end
end

-- A stream has ended: the node that is restarted has it, or has passed it on.
local function note_end(it, one)
  if it.restarting ~= one.place and it.restarting ~= one.edge then
    error(("a stream of %s by way of %s ended while %s was restarted"):format(one.place, one.edge, it.restarting), 0)
  end
  one.client:close()
  it.streams[one.index] = nil
end

local function place_of(c) return c:result("tools/call", { name = "place", arguments = {} }, BOUND).content[1].text end

local function legacy(it, i)
  local one = it.streams[i]
  if not one then
    local edge
    local opened, c = pcall(any, it.all, function(g)
      edge = g.node
      return g:client(LEGACY)
    end)
    -- a stream that began at a leaving node may end before its client has initialized
    if not opened then
      if edge ~= it.restarting then error(c, 0) end
      it.counts.cut = it.counts.cut + 1
      return
    end
    it.counts.initialized[i] = (it.counts.initialized[i] or 0) + 1
    it.streams[i] = { client = c, index = i, edge = edge, place = place_of(c) }
    return
  end
  local c = one.client
  if c.stream:is_closed_by_peer() then return note_end(it, one) end
  it.counts.streams = it.counts.streams + 1
  any(it.all, function(g)
    c.gateway, c.kept = g, nil
    local answered, why = pcall(place_of, c)
    if answered or tostring(why):find "cannot connect" then return answered or error(why, 0) end
    wait.for_fact(function() return "the end of a stream, after " .. tostring(why) end, BOUND, function() return c.stream:is_closed_by_peer() end)
    note_end(it, one)
    return true
  end)
end

local function load(it)
  modern(it)
  for i = 1, SESSIONS do stateful(it, i) end
  for i = 1, it.clients do legacy(it, i) end
end

--- `options`: rounds, streams (clients of HTTP+SSE, 3), say. Errors name the first request that failed.
function rolling.run(options)
  local c <close> = cluster.start { nodes = NODES, leave = "1500ms", config = { limits = { linger = "200ms" } }, constants = rolling.QUICK }
  local it = { all = c.all, sessions = {}, streams = {}, clients = options.streams or 3,
    counts = { modern = 0, session = 0, opened = 0, lost = 0, streams = 0, cut = 0, restarts = 0, initialized = {} } }
  for round = 1, options.rounds do
    for _ = 1, NODES do
      local g = c.all[1]
      for _ = 1, 5 do load(it) end
      it.restarting = g.node
      g:signal "sigterm"
      wait.for_fact(g.node .. " to end", BOUND, function()
        load(it)
        return g.process.code ~= nil
      end)
      load(it)
      c:again(g)                                                   -- at the end of the list
      c:kill(g)
      nodes.joined(c.all[#c.all])
      it.counts.restarts = it.counts.restarts + 1
    end
    if options.say then options.say(("round %d: %s"):format(round, rolling.describe(it))) end
  end
  for _, one in pairs(it.streams) do one.client:close() end
  return it
end

function rolling.describe(it)
  local n = it.counts
  return ("%d restarts; %d calls of 2026-07-28, %d requests of %d sessions, of which %d were longer and unknown; "
    .. "%d calls by HTTP+SSE, whose clients initialized %s times"):format(
    n.restarts, n.modern, n.session, n.opened, n.lost, n.streams, table.concat(n.initialized, ", "))
end

return rolling
