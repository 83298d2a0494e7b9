-- Three nodes, a server of Redis, and a balancer that sends each request to any node, under load while nodes and the server
-- are killed and stand still, and while connections between them are cut: `./dev soak cluster [MINUTES]`, and a short round
-- in the suite.
--   local report = trial.run { faults = 20, seed = 1, say = print }       -- report.violations is empty if all is well
-- What clients may see of each fault is in MAY, as docs/how-to/several-nodes.md promises it; all else is a violation. No call
-- runs twice, and none that was answered with an error runs afterwards, by the lines that the calls leave in the nodes' logs.
-- A node reaches another, and the server, by a proxy of its own for each. At the end all gauges are 0, and no node has more
-- descriptors or memory than before.
local at_rest = require "spec.helpers.at_rest"
local callers = require "spec.soak.callers"
local cluster = require "spec.helpers.cluster"
local balancer = require "spec.helpers.balancer"
local client = require "spec.helpers.client"
local nodes = require "spec.helpers.nodes"
local proxy = require "spec.helpers.proxy"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local trial = {}

local NODES <const>, SHOWN <const> = 3, 40
local STEADY <const> = at_rest { outgoing_descriptors = true }
-- of sessions whose client does not know that they were opened
local STEADY_FOR_LONG <const> = at_rest { outgoing_descriptors = true, sessions = true, subscriptions = true, replay_bytes = true }
local MEMORY_MORE <const> = 24 << 20 -- bytes

local LOST <const> = { again = true, lost = true, cut = true, ["unknown session"] = true }
local UNREACHED <const> = { again = true, lost = true, cut = true }
local NO_STORE <const> = { ["no store"] = true }
local NOTHING <const> = {}

-- By the name of a fault: what a call may come to while it lasts, and for so many seconds after it.
local MAY <const> = {
  ["kill"] = { LOST, 3 }, ["kill for a while"] = { LOST, 3 }, ["stand still"] = { LOST, 15 }, ["stand still for long"] = { LOST, 15 },
  ["cut two nodes"] = { UNREACHED, 14 }, ["cut two nodes one way"] = { UNREACHED, 14 },
  ["cut from Redis"] = { NO_STORE, 5 }, ["cut from Redis one way"] = { NO_STORE, 5 },
  ["kill Redis"] = { NO_STORE, 5 }, ["Redis stands still"] = { NO_STORE, 5 },
}

local function now_s() return uv.hrtime() / 1e9 end

local function violate(self, text, ...)
  text = ("at %.1f s, %s: "):format(now_s() - self.began, self.fault or "nothing is wrong") .. (select("#", ...) > 0 and text:format(...) or text)
  self.violation_count = self.violation_count + 1
  if #self.violations < SHOWN then
    self.violations[#self.violations + 1] = text
    self.say("  ! " .. text)
  end
end

-- -- nodes and proxies ------------------------------------------------------------------------------------------------------

-- Node `i` reads of the server that node `j` is where its own proxy to `j` is.
local function address_for(self, i)
  return function(bytes)
    for j = 1, NODES do
      local way = self.ways[i][j]
      if way then bytes = bytes:gsub(("127.0.0.1:" .. way.to):gsub("%.", "%%."), "127.0.0.1:" .. way.port) end
    end
    return bytes
  end
end

local function start_node(self, i, before)
  local options = { name = "n" .. i, redis_at = "127.0.0.1:" .. self.redis_ways[i].port, has_no_place = true, workers = 1,
    scripts = callers.scripts, constants = { log_repeat = callers.constants.log_repeat, node_turn_ms = self.is_short and 300 or nil },
    config = { scripts = { path = "scripts", watch = "false" }, sessions = { idle = "1m" } } }
  local g = before and self.cluster:again(before, options) or self.cluster:add(options)
  self.nodes[i], self.balancer.ports[i], self.balancer.out[i] = g, g.port, nil
  if before then return g end
  for j = 1, NODES do
    if j ~= i then
      local port = tonumber(g.node_address:match "%d+$")
      local way = proxy.start(port)
      way.to, self.ways[j][i] = port, way
    end
  end
  return g
end

local function heal(way)
  way.swallows, way.swallows_answers, way.swallows_requests = nil, nil, nil
  way:cut()
end

local function keep_log(self, g) self.logs[#self.logs + 1] = g:log() end

local function kill_node(self, i)
  local g = self.nodes[i]
  g:kill()
  keep_log(self, g)
  self.cluster:kill(g)
  return g
end

-- All nodes serve, and each knows that.
local function are_well(self)
  local states = {}
  for i = 1, NODES do states["n" .. i] = "serving" end
  local last
  local ok = pcall(wait.for_fact, "the nodes to be well", 90, function()
    for _, g in ipairs(self.nodes) do
      last = g.node
      if not nodes.are(states)(nodes.known(g)) or client.request(g, { path = "/readyz" }, { admin = true }).status ~= 200 then return false end
    end
    return true
  end)
  if not ok then violate(self, "node %s does not know that all nodes serve", last) end
end

-- -- faults -----------------------------------------------------------------------------------------------------------------

local function last(self, seconds) wait.quietly(self.is_short and math.min(seconds, 1) or seconds) end

local function other_than(i) return (i + math.random(NODES - 1) - 1) % NODES + 1 end

local function stand_still(self, i, seconds)
  local g = self.nodes[i]
  g:signal "sigstop"
  last(self, 1)
  self.balancer.out[i] = true
  last(self, seconds - 1)
  g:signal "sigcont"
  wait.for_fact("the node to go on", 60, function() return client.request(g, { path = "/healthz" }, { admin = true }).status == 200 end)
  self.balancer.out[i] = nil
end

local function cut_way(self, way, how, seconds)
  way[how] = true
  last(self, seconds)
  heal(way)
end

local faults = {}

faults["kill"] = function(self, i) start_node(self, i, kill_node(self, i)) end

faults["kill for a while"] = function(self, i)
  local g = kill_node(self, i)
  last(self, math.random(5, 20))
  start_node(self, i, g)
end

faults["stand still"] = function(self, i) stand_still(self, i, 10) end

faults["stand still for long"] = function(self, i) stand_still(self, i, 30) end

faults["cut two nodes"] = function(self, i)
  local j = other_than(i)
  self.ways[j][i].swallows = true
  cut_way(self, self.ways[i][j], "swallows", math.random(3, 20))
  heal(self.ways[j][i])
end

faults["cut two nodes one way"] = function(self, i)
  cut_way(self, self.ways[i][other_than(i)], math.random() < 0.5 and "swallows_answers" or "swallows_requests", math.random(3, 20))
end

faults["cut from Redis"] = function(self, i) cut_way(self, self.redis_ways[i], "swallows", math.random(3, 20)) end

faults["cut from Redis one way"] = function(self, i)
  cut_way(self, self.redis_ways[i], math.random() < 0.5 and "swallows_answers" or "swallows_requests", math.random(3, 20))
end

faults["kill Redis"] = function(self)
  self.cluster.server:stop()
  last(self, math.random(0, 15))
  self.cluster.server:begin()
end

faults["Redis stands still"] = function(self)
  self.cluster.server:kill "sigstop"
  last(self, math.random(2, 15))
  self.cluster.server:kill "sigcont"
end

trial.faults = {}
for name in pairs(faults) do trial.faults[#trial.faults + 1] = name end
table.sort(trial.faults)

local function make(self, name)
  local i = math.random(NODES)
  self.fault, self.over_at = ("%s (n%d)"):format(name, i), nil
  self.may = MAY[name][1]
  self.say(("%.0f s: %s; %d calls so far"):format(now_s() - self.began, self.fault, self.load.calls))
  faults[name](self, i)
  self.over_at = now_s() + (self.is_short and math.min(MAY[name][2], 2) or MAY[name][2])
  self.counts[name] = (self.counts[name] or 0) + 1
  are_well(self)
  -- a cut between nodes may be found seconds later
  wait.for_fact("what the fault may still do", 30, function() return now_s() >= self.over_at end)
  self.fault, self.may = nil, NOTHING
  last(self, self.is_short and 0.5 or 3)
end

-- -- rest -------------------------------------------------------------------------------------------------------------------

-- Waits until clients have left nothing in the nodes, and kept connections between them are closed. Returns descriptors and
-- memory, the most of the nodes.
local function rest(self, most)
  local left, descriptors, memory
  local function look()
    descriptors, memory = 0, 0
    for _, g in ipairs(self.nodes) do
      local gauge = at_rest.left(g:status().gauges, self.is_short and STEADY_FOR_LONG or STEADY)
      if gauge then
        left = gauge .. " of " .. g.node
        return false
      end
      descriptors, memory = math.max(descriptors, g:fds()), math.max(memory, g:rss())
    end
    left = "descriptors: " .. descriptors
    return not most or descriptors <= most
  end
  if not most and not self.is_short then wait.quietly(12) end -- kept connections of hops are closed after 10 s
  if not pcall(wait.for_fact, "the nodes to be at rest", 100, look) then violate(self, "the nodes at rest: %s", left) end
  return descriptors, memory
end

local function start_load(self, name)
  local size = self.is_short and 1 or 2
  return callers.start { name = name, port = self.balancer.port, modern = 6 * size, sessions = 8 * size, sse = 4 * size, rate = self.rate,
    report = function(text) violate(self, "%s", text) end,
    may = function(outcome, caller)
      if self.fault == nil or not self.may[outcome] then return false end
      return caller.kind ~= "modern" or outcome == "no store" or outcome == "cut" and self.may["unknown session"]
    end }
end

-- Ends the load, and holds its outcomes against what ran.
local function end_load(self)
  self.load:stop()
  local logs = { table.unpack(self.logs) }
  for _, g in ipairs(self.nodes) do logs[#logs + 1] = g:log() end
  self.load.ran = self.load:reckon(logs)
end

local function run(self, options)
  for i = 1, NODES do
    self.ways[i] = {}
    self.redis_ways[i] = proxy.start(self.cluster.server.port, { change = address_for(self, i) })
  end
  self.balancer = balancer.start {}
  for i = 1, NODES do start_node(self, i) end
  are_well(self)
  self.load = start_load(self, "before")
  last(self, options.warm_up or 10)
  end_load(self)
  local descriptors, memory = rest(self)
  self.say(("at rest: %d descriptors, %.1f MB"):format(descriptors, memory / 1e6))
  self.load = start_load(self, "during")
  local list = {}
  while #list < options.faults do
    local some = { table.unpack(options.kinds or trial.faults) }
    while #some > 0 and #list < options.faults do list[#list + 1] = table.remove(some, math.random(#some)) end
  end
  for _, name in ipairs(list) do
    if options.seconds and now_s() - self.began > options.seconds then break end
    make(self, name)
  end
  end_load(self)
  local descriptors_after, memory_after = rest(self, not self.is_short and descriptors or nil)
  self.say(("at rest again: %d descriptors, %.1f MB"):format(descriptors_after, memory_after / 1e6))
  self.figures = { descriptors = { descriptors, descriptors_after }, memory = { memory, memory_after } }
  if memory_after > memory + MEMORY_MORE and not os.getenv "ASAN_OPTIONS" then violate(self, "memory at rest is %d bytes, and was %d", memory_after, memory) end
end

--- Runs a trial. `options`: faults (how many), kinds (a list of names; all of trial.faults), seconds (no fault begins after
--- these), rate (calls a second), warm_up (seconds), is_short (no fault lasts longer than a
--- second, nodes look at each other more often, and kept connections are not waited for), seed, say.
function trial.run(options)
  local self = { say = options.say or function() end, rate = options.rate or 200, is_short = options.is_short, violations = {}, violation_count = 0,
    logs = {}, nodes = {}, ways = {}, redis_ways = {}, counts = {}, may = NOTHING, began = now_s() }
  local seed = options.seed or os.time()
  math.randomseed(seed)
  self.say("seed " .. seed)
  self.cluster = cluster.start { nodes = 0 }
  local is_over, why = xpcall(run, debug.traceback, self, options)
  if not is_over then violate(self, "the trial itself failed: %s", why) end
  if self.balancer then self.balancer:stop() end
  for i = 1, NODES do
    if self.redis_ways[i] then self.redis_ways[i]:stop() end
    for _, way in pairs(self.ways[i] or {}) do way:stop() end
  end
  self.cluster.server:kill "sigcont"
  for _, g in ipairs(self.cluster.all) do g:signal "sigcont" end
  local is_closed, trouble = pcall(self.cluster.__close, self.cluster, not is_over and why or nil)
  if not is_closed then violate(self, "a node has not ended well: %s", trouble) end
  return self
end

local function listed(counts)
  local list = {}
  for name, count in pairs(counts) do list[#list + 1] = ("%s %d"):format(name, count) end
  table.sort(list)
  return table.concat(list, ", ")
end

--- The report as text.
function trial.describe(self)
  local load, figures = self.load or { calls = 0, counts = {} }, self.figures or { descriptors = { 0, 0 }, memory = { 0, 0 } }
  return table.concat({
    ("%d calls, of which %d ran, in %.0f s; %d sessions opened; outcomes: %s"):format(load.calls, load.ran or 0, now_s() - self.began, load.opened or 0,
      listed(load.counts)),
    "faults: " .. listed(self.counts),
    ("at rest: %d descriptors and %.1f MB, afterwards %d and %.1f MB"):format(figures.descriptors[1], figures.memory[1] / 1e6, figures.descriptors[2],
      figures.memory[2] / 1e6),
    self.violation_count == 0 and "no violation" or self.violation_count .. " violations:\n  " .. table.concat(self.violations, "\n  "),
  }, "\n")
end

return trial
