-- Notifications of upstreams about their lists and resources, for the clients of this gateway. A list that may have
-- changed is read again, once for all upstream channels that notify of it, and clients are notified of what differs.
-- When a resource has changed, the clients that subscribed to it are notified.

local auth = require "moonpool.upstream.auth"
local bus = require "moonpool.runtime.bus"
local caller_lists = require "moonpool.federation.caller_lists"
local class_lists = require "moonpool.federation.class_lists"
local config = require "moonpool.upstream.config"
local federated = require "moonpool.federation.federated"
local subscribe = require "moonpool.upstream.subscribe"
local host = require "moonpool.host"
local channel_key = require "moonpool.upstream.channel_key"
local observer = require "moonpool.upstream.observer"
local registry = require "moonpool.registry.registry"
local sorted = require "moonpool.runtime.sorted_keys"
local subscriptions = require "moonpool.registry.subscriptions"
local uris = require "moonpool.runtime.uris"
local wrapping = require "moonpool.upstream.wrapping"

local notifications = {}

-- the lists are read after GATHER_S seconds without another notification, and at the latest MOST_GATHER_S after the
-- first one
local GATHER_S, MOST_GATHER_S = 0.2, 2
local NEW_S = 10                            -- seconds for which a URI stays subscribed though its client is not registered yet
local PAUSE_S, MOST_PAUSE_S = 1, 60         -- seconds between attempts to subscribe again: the first pause, which doubles, and the longest
local QUICK_S = 2                           -- seconds; after a stream that ended sooner there is a pause before the next attempt

-- -- lists -----------------------------------------------------------------------------------------------------------

local gathering = {}      -- name of an upstream -> { first, last }: times (s) of the notifications whose changes were not read yet

local is_retired = false  -- a reload has put another Lua state in the place of this one
local retired = host.task.event()

bus.on("retired", function()
  is_retired = true
  retired:set()
end)

local function read_gathered(record)
  local state = gathering[record.name]
  local _ <close> = setmetatable({}, { __close = function() gathering[record.name] = nil end })
  while true do
    local left = math.min(state.last + GATHER_S, state.first + MOST_GATHER_S) - host.time.now()
    if left <= 0 then break end
    host.time.sleep(left)
  end
  local since = state.last
  gathering[record.name] = nil
  if auth.is_personal(record) then
    caller_lists.forget(record)
    return subscriptions.list_may_have_changed()
  end
  class_lists.forget(record, since)
  while not federated.has_begun(record, since) do
    if is_retired then return federated.forget(record) end -- the next Lua state reads them, if it has the upstream
    if federated.read(record) then return end
    retired:wait(GATHER_S)
  end
end

--- The lists of an upstream may have changed: they are read soon.
function notifications.changed(record)
  local now = host.time.now()
  local state = gathering[record.name]
  if state then
    state.last = now
    return
  end
  gathering[record.name] = { first = now, last = now }
  if not federated.begin(function() read_gathered(record) end) then
    gathering[record.name] = nil
    federated.forget(record)
  end
end

for _, kind in ipairs { "tools", "prompts", "resources" } do
  observer.on("notifications/" .. kind .. "/list_changed", function(event)
    local record = config.by_name[event.upstream]
    if record then notifications.changed(record) end
  end)
end

-- -- resources -------------------------------------------------------------------------------------------------------

-- Notifies the subscribers of a resource of this upstream that it has changed.
local function tell_updated(record, own)
  -- another worker may have read the list that has the resource, and a client of that worker has subscribed to it
  federated.keep_up()
  local uri = wrapping.outward(record, own)
  local normal = uris.normal(uri)
  local resource = registry.resource(normal)
  if resource and resource.upstream == record.name then subscriptions.notify_updated(normal, resource, uri) end
end

observer.on("notifications/resources/updated", function(event, params)
  local record = config.by_name[event.upstream]
  if record and type(params.uri) == "string" then tell_updated(record, params.uri) end
end)

--- Subscribes at upstreams to changes of resources, for the client of a call. `wanted`: URI, as clients have it ->
--- resource. Returns the set of the URIs that upstreams accepted, and for one that is not in it an error for the
--- client.
function notifications.subscribe(call, wanted)
  local of_upstream, accepted, refusal = {}, {}, nil
  for uri, resource in pairs(wanted) do
    local record = config.by_name[resource.upstream]
    if not record then
      accepted[uri] = true
    elseif auth.is_personal(record) then
      refusal = "the upstream '" .. record.name .. "' gets a token of each caller: its resources cannot be subscribed to"
    else
      of_upstream[record] = of_upstream[record] or {}
      of_upstream[record][uri] = wrapping.inward(record, uri) or uri
    end
  end
  for record, inward in pairs(of_upstream) do
    local uris_there = sorted(inward)
    for i, uri in ipairs(uris_there) do uris_there[i] = inward[uri] end
    local told, why = subscribe.add(record, uris_there, call)
    for uri, there in pairs(inward) do accepted[uri] = told[there] end
    refusal = refusal or why
  end
  return accepted, refusal and subscribe.refusal(refusal)
end

local function has_subscribers(record, own)
  return host.topic.audiences("resource:" .. uris.normal(wrapping.outward(record, own)))[1] ~= nil
end

--- Unsubscribes at the upstream from URIs that no client wants any more. `at_once`: also from those that were added
--- less than NEW_S ago.
function notifications.sweep(record, at_once)
  subscribe.sweep(record, function(uri, at) return has_subscribers(record, uri) or not at_once and host.time.now() - at < NEW_S end)
end

--- A client has unsubscribed from a resource.
function notifications.unsubscribed(resource)
  local record = resource.upstream and config.by_name[resource.upstream]
  if record then notifications.sweep(record, true) end
end

-- Clients do not get a log message whose call is not known.
observer.on("notifications/message", function(event, params)
  host.log.write("debug", "upstream log", { upstream = event.upstream, level = type(params.level) == "string" and params.level or nil })
end)

-- -- streams that end ------------------------------------------------------------------------------------------------

-- Messages that were sent during a gap are lost: the lists are read again, and each subscribed resource may have
-- changed.
local function after_gap(record)
  notifications.changed(record)
  for _, uri in ipairs(subscribe.uris(record)) do tell_updated(record, uri) end
end

local healing = {}        -- name -> true while a task of this Lua state subscribes again
local healed = {}         -- name -> { at, pause }: when the last attempt was, in seconds, and the pause before it
-- Seconds before the gateway subscribes again: none, unless the subscriptions ended as soon as they had begun.
local function rest_of(record)
  local before = healed[record.name]
  if not before or host.time.now() > before.at + QUICK_S then return 0 end
  return math.min(math.max(before.pause * 2, PAUSE_S), MOST_PAUSE_S)
end

-- Subscribes at the upstream again, with pauses, until it succeeds.
local function heal(record)
  if healing[record.name] then return end
  healing[record.name] = true
  local began = host.job.begin(function()
    local _ <close> = setmetatable({}, { __close = function() healing[record.name] = nil end })
    local rest, pause = rest_of(record), PAUSE_S
    if rest > 0 then retired:wait(rest) end
    while not is_retired and not subscribe.ensure(record) do
      retired:wait(pause)
      pause = math.min(pause * 2, MOST_PAUSE_S)
    end
    healed[record.name] = { at = host.time.now(), pause = rest }
    if is_retired then return federated.forget(record) end -- the next Lua state reads the lists, and subscribes after that
    after_gap(record)
  end, record.refresh)
  if not began then healing[record.name] = nil end
end

-- The channel that reads the lists of a class had a gap, or was lost: a notification that they have changed may be
-- missing.
local function after_gap_of_class(record, key)
  if class_lists.has_way(record, key) then notifications.changed(record) end
end

observer.on("gap", function(event)
  local record = config.by_name[event.upstream]
  if record and event.key == channel_key.shared then
    after_gap(record)
  elseif record then
    after_gap_of_class(record, event.key)
  end
end)

observer.on("ended", function(event)
  local record = config.by_name[event.upstream]
  if not record then return end
  if event.stream_id == 0 then
    -- Where the credential or the session is refused, the next call opens another channel. A call's session goes on
    -- without a stream otherwise.
    if event.key == channel_key.shared or event.status == 401 or event.status == 404 then event.channel:lost() end
  elseif event.key == channel_key.shared and subscribe.ended(record, event.serial, event.stream_id) then
    heal(record)
  end
end)

observer.on("lost", function(event)
  local record = config.by_name[event.upstream]
  if record and event.key ~= channel_key.shared then
    if record.kind == "url" then after_gap_of_class(record, event.key) end
  elseif record and (record.kind == "url" or subscribe.uris(record)[1]) then
    heal(record)
  end
end)

-- -- at an interval --------------------------------------------------------------------------------------------------

function federated.on_read(record) subscribe.ensure(record) end

function federated.on_tick(record) notifications.sweep(record) end

return notifications
