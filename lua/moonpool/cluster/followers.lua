-- What the nodes of a cluster tell each other's clients: that a script has updated a resource, and that a reload has
-- changed a list. Lists and resources of upstreams are not among it: each node is notified by the upstream itself.
-- After a loss each node tells its own clients that lists, and the resources that they subscribed to, may have changed.

local bus = require "moonpool.runtime.bus"
local fanout = require "moonpool.cluster.fanout"
local host = require "moonpool.host"
local json = require "moonpool.json"
local server = require "moonpool.lib.cluster_server"
local single_task = require "moonpool.runtime.single_task"
local subscriptions = require "moonpool.registry.subscriptions"

local BEAT_S <const> = host.config.cluster.beat_ms / 1000
-- Seconds from a loss until clients are told: further losses are told with it, and each node tells at a moment
-- that it chooses in SPREAD_S for each node, MAX_SPREAD_S at most.
local GATHER_S <const>, SPREAD_S <const>, MAX_SPREAD_S <const> = BEAT_S / 2, BEAT_S / 2, 5 * BEAT_S
-- Seconds that are added where a loss follows the last one; they double while that goes on.
local MORE_S <const>, MAX_MORE_S <const> = 5 * BEAT_S, 60 * BEAT_S
local now <const> = host.time.now            -- taken while this file loads: later, a recorder of calls replaces host.time.now
-- Keys of the store: when clients are told of a loss, with the seconds that were added; and these, for a while after that.
local DUE <const>, TOLD <const> = "fanout:due", "fanout:told"
local PAUSE_S <const> = 0.02                 -- seconds between two parts of the subscribed resources
local MAX_TELLING_S <const>, TELLING_CPU_S <const> = 600, 60
local MAX_LIST <const> = 4000                -- bytes of the changes of a list; more: it may have changed for all

-- -- a list that a reload has changed -------------------------------------------------------------------------------------

-- The changes of a list without the things themselves, which another node may not have.
local function packed(changes)
  local list = json.array {}
  for i, change in ipairs(changes) do
    local is = change.is
    list[i] = {
      was = change.was and { scopes = json.array(change.was.scopes), visible = change.was.visible }, is_other = change.is_other,
      is = is and { scopes = json.array { table.unpack(is.scopes or {}) }, is_private = is.is_private == true },
    }
  end
  return list
end

function subscriptions.list_changed_at_nodes(list, changes)
  local body = json.encode { list = list, changes = packed(changes) }
  fanout.publish("list", #body <= MAX_LIST and body or json.encode { list = list })
end

fanout.on("list", function(body)
  local told = json.decode(body)
  if type(told) ~= "table" or type(told.list) ~= "string" then return end
  if told.changes then subscriptions.list_changed(told.list, told.changes) else subscriptions.list_may_have_changed(told.list) end
end)

-- -- a resource that a script has updated ---------------------------------------------------------------------------------

function subscriptions.updated_at_nodes(uri) fanout.publish("resource", uri) end

fanout.on("resource", subscriptions.updated_elsewhere)

-- -- after a loss ---------------------------------------------------------------------------------------------------------

local is_due = false

local begin_task = single_task.new(function()
  is_due = false
  subscriptions.list_may_have_changed()
  local names, from
  repeat
    names, from = host.topic.names(subscriptions.resource_topic "", from)
    for _, uri in ipairs(names) do subscriptions.may_be_updated(uri) end
    if from then host.time.sleep(PAUSE_S) end
  until not from
end, function() return is_due end, MAX_TELLING_S, TELLING_CPU_S)

local function begin_telling()
  is_due = true
  begin_task()
end

fanout.at_gap(function()
  local before = tonumber(host.store.get(TOLD) or nil)
  local more = before and math.min(math.max(MORE_S, 2 * before), MAX_MORE_S) or 0
  local spread = math.min(SPREAD_S * server.nodes(), MAX_SPREAD_S)
  local due = now() + more + GATHER_S + spread * string.unpack("I4", host.random.bytes(4)) / 0x100000000
  if host.store.add(DUE, ("%.3f %g"):format(due, more)) == nil then begin_telling() end
end)

fanout.at_tick(function()
  local due, more = (host.store.get(DUE) or ""):match "^(%S+) (%S+)$"
  if not due or now() < tonumber(due) then return end
  host.store.delete(DUE)
  host.store.set(TOLD, more, MAX_MORE_S)
  begin_telling()
  host.bus.relay("tell followers", "")
end)

bus.on("tell followers", function() begin_telling() end)
