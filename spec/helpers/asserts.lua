-- Assertions for all specs, registered with luassert: `assert.has_nothing_left(gateway, seconds)`.
local assert = require "luassert"
local say = require "say"
local cjson = require "cjson.safe"
local at_rest = require "spec.helpers.at_rest"
local client = require "spec.helpers.client"
local wait = require "spec.helpers.wait"

local steady <const>, of_nodes <const> = at_rest {}, at_rest { outgoing_descriptors = true }

-- Lists, as text, what clients have left in the gateway `g`; nil if nothing is left. Reads /status over `connection`,
-- the only connection that may be open.
local function left_behind(g, connection)
  if not g:is_alive() then
    return "the gateway has ended"
  end
  local status = connection:request({ path = "/status" }):json()
  local fds = g:fds() - 1
  if (status.cluster or {}).joined then                             -- a node renews its record
    local held = status.gauges.redis_connections
    fds, status.gauges.outgoing_descriptors = fds - held, status.gauges.outgoing_descriptors - held
  end
  if status.pid and status.pid ~= g.pid then
    return "another process answers"
  end
  local gauge = at_rest.left(status.gauges, steady)
  if gauge then return ("gauge %s in %s"):format(gauge, cjson.encode(status.gauges)) end
  if fds > g.baseline_fds then
    return ("%d descriptors, %d when it started"):format(fds, g.baseline_fds)
  end
  local close_waits = g:close_waits(1)
  if close_waits > 0 then
    return close_waits .. " sockets are in CLOSE-WAIT"
  end
end

-- The same of nodes behind a balancer, which keep connections to each other for a while.
local function left_in_nodes(nodes)
  for _, g in ipairs(nodes) do
    local gauge = at_rest.left(g:status().gauges, of_nodes)
    if gauge then return ("%s of %s"):format(gauge, g.node) end
  end
end

-- assert.has_nothing_left(g, seconds): within `seconds` (20 unless given) the process of `g` still runs, its gauges are
-- 0, it has as many descriptors as when it started, and no socket is in CLOSE-WAIT.
local function has_nothing_left(state, arguments)
  local g, seconds = arguments[1], arguments[2] or 20
  local left, connection
  local ok, why = pcall(wait.for_fact, "a gateway with nothing left of its clients", seconds, function()
    if g.nodes then
      left = left_in_nodes(g.nodes)
      return not left
    end
    if g:is_alive() and (not connection or connection:is_closed_by_peer()) then
      connection = client.connect(g, { admin = true })
    end
    left = left_behind(g, connection)
    return not left
  end)
  if connection then
    connection:close()
  end
  left = left or why
  state.failure_message = not ok and ("something of a client is left after %g s: %s"):format(seconds, tostring(left)) or nil
  return ok
end

say:set("assertion.nothing_left.positive", "Expected nothing to be left of any client")
say:set("assertion.nothing_left.negative", "Expected something to be left of a client")
assert:register("assertion", "nothing_left", has_nothing_left, "assertion.nothing_left.positive", "assertion.nothing_left.negative")

return assert
