-- Notifications of upstreams about their lists and resources, for the clients of this gateway. A list that may have
-- changed is read again, once for all upstream channels that notify of it, and clients are notified of what differs.
-- When a resource has changed, the clients that subscribed to it are notified.

local auth = require "moonpool.upstream.auth"
local bus = require "moonpool.runtime.bus"
local caller_lists = require "moonpool.federation.caller_lists"
local class_lists = require "moonpool.federation.class_lists"
local own_lists = require "moonpool.federation.own_lists"
local catalogue = require "moonpool.upstream.catalogue"
local config = require "moonpool.upstream.config"
local federated = require "moonpool.federation.federated"
local forward = require "moonpool.upstream.forward"
local subscribe = require "moonpool.upstream.subscribe"
local host = require "moonpool.host"
local channel_key = require "moonpool.upstream.channel_key"
local observer = require "moonpool.upstream.observer"
local open = require "moonpool.upstream.open"
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
local NOTIFYING_S, MOST_NOTIFYING_S = 0.05, 30   -- seconds between two looks whether clients were notified; after which the task that looks goes on
local PAUSE_S, MOST_PAUSE_S = 1, 60         -- seconds between attempts to subscribe again: the first pause, which doubles, and the longest
local QUICK_S = 2                           -- seconds; after a stream that ended sooner there is a pause before the next attempt

-- -- lists -----------------------------------------------------------------------------------------------------------

-- name of an upstream -> { first, last, only, is_all, own }: times (s) of the notifications whose changes were not read
-- yet, the lists that they are about as a set, true if all lists may have changed, and a set of the classes of single
-- channels on which they came
local gathering = {}

local is_retired = false  -- a reload has put another Lua state in the place of this one
local retired = host.task.event()

bus.on("retired", function()
  is_retired = true
  retired:set()
end)

local function read_gathered(record, state)
  -- further notifications may be gathered meanwhile
  local _ <close> = setmetatable({}, { __close = function()
    if gathering[record.name] == state then gathering[record.name] = nil end
  end })
  while true do
    local left = math.min(state.last + GATHER_S, state.first + MOST_GATHER_S) - host.time.now()
    if left <= 0 then break end
    host.time.sleep(left)
  end
  local since, only = state.last, not state.is_all and state.only or nil
  gathering[record.name] = nil
  if auth.is_personal(record) then
    caller_lists.forget(record)
    return subscriptions.list_may_have_changed()
  end
  class_lists.forget(record, since, only)
  while not federated.has_begun(record, since, only) do
    if is_retired then return federated.forget(record) end -- the next Lua state reads them, if it has the upstream
    if federated.read(record, only) then break end
    retired:wait(GATHER_S)
  end
  if next(state.own) == nil then return end
  -- after the lists of all, with which they are compared
  local ends_at = host.time.now() + MOST_NOTIFYING_S
  while federated.is_notifying(record) and not is_retired and host.time.now() < ends_at do retired:wait(NOTIFYING_S) end
  for class in pairs(state.own) do federated.begin(function() federated.read_own(record, class, since, only) end) end
end

--- Lists of an upstream may have changed: they are read soon. `kind`: the list, "tools", "prompts" or "resources"; nil:
--- all. `event`: the observation that says so, if it came on a channel whose lists may differ from those of others.
function notifications.changed(record, kind, event)
  local now = host.time.now()
  local state = gathering[record.name] or { first = now, own = {}, only = {} }
  local is_gathering = gathering[record.name] ~= nil
  local class = event and not auth.is_personal(record) and own_lists.of_event(record, event)
  gathering[record.name], state.last = state, now
  if class then state.own[class] = true end
  if kind then state.only[kind] = true else state.is_all = true end
  if is_gathering then return end
  if not federated.begin(function() read_gathered(record, state) end) then
    gathering[record.name] = nil
    federated.forget(record)
  end
end

for _, kind in ipairs { "tools", "prompts", "resources" } do
  observer.on("notifications/" .. kind .. "/list_changed", function(event)
    local record = config.by_name[event.upstream]
    -- Some servers notify in each session of what they have added when it began. In a session for one reading that is
    -- no reason to read again, by one more session.
    if record and not channel_key.is_of_reading(event.key) then notifications.changed(record, kind, event) end
  end)
end

--- The keys of the channels that calls of a call's client use, without the one that all clients share.
function notifications.own_keys(call)
  local keys, seen = {}, {}
  for _, record in ipairs(config.list) do
    local key = not auth.is_personal(record) and forward.way_of(record, call).key
    if key and not channel_key.is_shared(key) and not seen[key] then
      keys[#keys + 1], seen[key] = key, true
    end
  end
  return keys
end

-- -- resources -------------------------------------------------------------------------------------------------------

-- Notifies the subscribers of a resource of this upstream that it has changed; `key`: those alone whose own channel has
-- this key.
local function tell_updated(record, own, key)
  -- another worker may have read the list that has the resource, and a client of that worker has subscribed to it
  federated.keep_up()
  local uri = wrapping.outward(record, own)
  local normal = uris.normal(uri)
  local resource = registry.resource(normal)
  if resource and resource.upstream == record.name then subscriptions.notify_updated(normal, resource, uri, key) end
end

-- True if a client wants to be notified of changes of an upstream's resource; `key`: as in tell_updated.
local function has_subscribers(record, own, key)
  return host.topic.audiences(subscriptions.resource_topic(uris.normal(wrapping.outward(record, own)), key))[1] ~= nil
end

-- The channel of a call's client that brings its notifications, as of forward.way_of; nil: they come on the channel
-- that reads lists.
local function own_way(record, call)
  local way = not auth.is_personal(record) and forward.way_of(record, call)
  return way and not way.is_modern and not channel_key.is_shared(way.key) and not channel_key.is_of_call(way.key) and way or nil
end

--- The topic, without the audience, of the changes of a resource of an upstream for the client of a call.
function notifications.topic(call, normal, resource)
  local record = config.by_name[resource.upstream]
  local way = record and own_way(record, call)
  return subscriptions.resource_topic(normal, way and way.key)
end

observer.on("notifications/resources/updated", function(event, params)
  local record = config.by_name[event.upstream]
  if not record or type(params.uri) ~= "string" then return end
  local key = not channel_key.is_shared(event.key) and event.key or nil
  tell_updated(record, params.uri, key)
  if key and not has_subscribers(record, params.uri, key) then
    subscribe.remove_own(record, function(of, uri, at) return of == key and uri == params.uri and host.time.now() - at >= NEW_S end)
  end
end)

-- Subscribes to resources on the own channel of a call's client. As notifications.subscribe.
local function subscribe_own(record, way, call, inward, accepted)
  local refusal
  for uri, there in pairs(inward) do
    local told, why = subscribe.add_own(record, way, there, call, function()
      return forward.send(record, call, { method = "resources/subscribe", may_repeat = true, make = function() return { uri = there } end })
    end)
    accepted[uri], refusal = told, refusal or why
  end
  return refusal
end

-- Subscribes to resources on the channel that reads lists. As notifications.subscribe.
local function subscribe_shared(record, _, call, inward, accepted)
  local uris_there = sorted(inward)
  for i, uri in ipairs(uris_there) do uris_there[i] = inward[uri] end
  local told, why = subscribe.add(record, uris_there, call)
  for uri, there in pairs(inward) do accepted[uri] = told[there] end
  return why
end

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
    local way = own_way(record, call)
    local why = (way and subscribe_own or subscribe_shared)(record, way, call, inward, accepted)
    refusal = refusal or why
  end
  return accepted, refusal and subscribe.refusal(refusal)
end

--- Unsubscribes at the upstream from URIs that no client wants any more. `at_once`: also from those that were added
--- less than NEW_S ago.
function notifications.sweep(record, at_once)
  subscribe.sweep(record, function(uri, at) return has_subscribers(record, uri) or not at_once and host.time.now() - at < NEW_S end)
  if at_once then return end
  -- those of clients that have left; a session is registered before it subscribes
  subscribe.remove_own(record, function(key, uri, at)
    return (channel_key.is_of_session(key) or host.time.now() - at >= NEW_S) and not has_subscribers(record, uri, key)
  end)
end

--- The client of a call has unsubscribed from a resource.
function notifications.unsubscribed(call, uri, resource)
  local record = resource.upstream and config.by_name[resource.upstream]
  local way = record and own_way(record, call)
  local there = way and wrapping.inward(record, uri) or uri
  if way and not has_subscribers(record, there, way.key) then
    subscribe.remove_own(record, function(key, one) return key == way.key and one == there end)
  end
  if record then notifications.sweep(record, true) end
end

-- True if no list of an upstream is missing, so that a resource that is not listed is not there.
local function has_all_lists(record)
  local facts = catalogue.of(record.name, catalogue.class).facts
  return facts.revision ~= nil and facts.missing == nil
end

-- From lines of host.topic.revived, the resources of this upstream: their URIs as the upstream has them; by URI, whose
-- share each takes, and its line; and the lines of resources that no list has.
local function own_uris(record, list)
  local own, by, line_of, unknown = {}, {}, {}, {}
  for _, line in ipairs(list) do
    local digits, normal = line:match "^(%x*) (.*)$"
    local resource = registry.resource(normal)
    if resource and resource.upstream == record.name then
      -- as the upstream lists it; for a template only the normalized URI is known
      local uri = not resource.template and resource.original or wrapping.inward(record, normal) or normal
      own[#own + 1], by[uri], line_of[uri] = uri, subscribe.share(digits), line
    elseif not resource then
      unknown[#unknown + 1] = line
    end
  end
  return own, by, line_of, unknown
end

-- Subscribes, on the open channel with this key, to what sessions of an earlier process wanted there and the upstream has
-- not taken yet. Returns the seconds until the next attempt if it has not taken all, or its lists were read meanwhile.
local function revive_own(record, key)
  local has_all
  local new, pause = subscribe.revive_own(record, key, function(lines)
    local wanted = {}
    has_all = has_all_lists(record)
    federated.keep_up()
    for _, line in ipairs(lines) do
      -- its client may have left, or have unsubscribed
      if host.topic.audiences(subscriptions.resource_topic(line:match " (.*)$", key))[1] then wanted[#wanted + 1] = line end
    end
    local own, by, line_of, unknown = own_uris(record, wanted)
    return own, by, line_of, has_all and {} or unknown
  end)
  for _, uri in ipairs(new) do tell_updated(record, uri, key) end
  return pause or has_all == false and has_all_lists(record) and GATHER_S or nil
end

-- The running call has opened the first channel with this key in this process: notes what sessions had subscribed to on
-- the channel with this key in an earlier process. The call may be of any of these sessions, or of a new one of their
-- principal. False if nothing could be noted: the call does not use this channel.
local function note_own(record, key)
  local call = host.call.current()
  local way = call and own_way(record, call)
  if not way or way.key ~= key then return false end
  local topics = subscriptions.resource_topic("", key)
  -- host.session.revived is cheaper: host.topic.revived reads the names of all topics, once for each principal or class
  subscribe.note_own(record, way, channel_key.is_of_session(key) and host.session.revived(call, topics) or host.topic.revived(topics), call)
  return true
end

local OPENED_S <const> = 86400     -- seconds for which the store remembers that a client's own channel was opened
local ATTEMPTS <const> = 4         -- attempts to subscribe one after another; further ones follow when the lists are read

-- As revive_own, with further attempts; `pause`: the seconds before the first one, or nil.
local function revive_own_soon(record, key, pause)
  for _ = 1, ATTEMPTS do
    if pause then retired:wait(pause + GATHER_S) end              -- the event's clock may differ a little from host.time.now
    pause = not is_retired and revive_own(record, key)
    if not pause then return end
  end
end

local function follow_again(record, key, is_first)
  for _, uri in ipairs(is_first and {} or subscribe.again(record, key)) do tell_updated(record, uri, key) end
  revive_own_soon(record, key)
end

-- What has changed since the channel was lost is not known: its lists are read, and each subscribed resource may have
-- changed. The call that has opened the channel ends if its client leaves: so another task subscribes.
function open.on_opened(record, key)
  if channel_key.is_shared(key) or channel_key.is_of_call(key) or auth.is_personal(record) then return end
  local opened = ("callers:opened:%s:%s:%s"):format(host.upstream.instance, record.name, key)
  local is_first = host.store.add(opened, "", OPENED_S) ~= false
  if is_first and not note_own(record, key) then host.store.delete(opened) end
  local function follow() follow_again(record, key, is_first) end
  if subscribe.has_own(record, key, is_first) and not federated.begin(follow) then follow() end
  if is_first then return end
  local class = own_lists.of_event(record, { key = key })
  if class then federated.begin(function() federated.read_own(record, class) end) end
end

local LOGGED_S <const> = 60     -- seconds between two lines at level info about messages of one upstream

-- Clients do not get a log message whose call is not known: none is under way, or several are on one channel.
observer.on("notifications/message", function(event, params)
  local level = type(params.level) == "string" and params.level or nil
  host.log.write("debug", "upstream log", { upstream = event.upstream, level = level })
  if not host.log.wants "info" or not host.store.take("upstream:log:" .. event.upstream, LOGGED_S, 1) then return end
  host.log.write("info", "upstream log not passed on", { upstream = event.upstream, level = level, why = "its call is not known",
    hint = "`per: session` gives each client a channel of its own; other messages of this upstream in this minute have no line" })
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
  local began = host.job.begin(function()           -- a configuration may have any number of upstreams
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

-- Opens a client's own channel again if its client has subscribed to resources on it, with pauses, until it succeeds or
-- the client has left.
local function heal_own(record, key)
  if not subscribe.own_way(record, key) then return end
  host.job.begin(function()
    local pause = PAUSE_S
    while pause < MOST_PAUSE_S and not is_retired do
      local way = subscribe.own_way(record, key)
      if not way then return end
      local channel, failure = open.channel(record, key, way)
      if channel or failure.reason == "closed" then return end
      retired:wait(pause)
      pause = pause * 2
    end
  end, record.refresh)
end

observer.on("gap", function(event)
  local record = config.by_name[event.upstream]
  if record and event.key == channel_key.shared then
    after_gap(record)
  elseif record and not auth.is_personal(record) then
    local class = own_lists.of_event(record, event)          -- what it has notified of meanwhile is lost
    if class then federated.begin(function() federated.read_own(record, class) end) end
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
  if record and not channel_key.is_shared(event.key) then
    own_lists.ended(record, event.key, event.serial)
    heal_own(record, event.key)
  elseif record and event.key == channel_key.shared then
    heal(record)                        -- a program may be another version of itself in its next life
  end
end)

-- -- at an interval --------------------------------------------------------------------------------------------------

-- What sessions of an earlier process have subscribed to at an upstream, on the channel that clients share: URIs, and by
-- URI whose share each takes; true if these are all, because no list is missing.
local function revived_of(record)
  federated.keep_up()
  local has_all = has_all_lists(record)
  local own, by = own_uris(record, host.topic.revived(subscriptions.resource_topic ""))
  return own, by, has_all
end

-- Subscribes again on channels of single clients, one after another.
local function revive_noted(record)
  for _, key in ipairs(subscribe.noted(record)) do
    local pause = revive_own(record, key)
    if pause then federated.begin(function() revive_own_soon(record, key, pause) end) end
  end
end

function federated.on_read(record)
  -- in a task of its own: to open the channel that clients share may take long
  if not federated.begin(function() revive_noted(record) end) then revive_noted(record) end
  local _, again = subscribe.ensure(record, function() return revived_of(record) end)
  -- what has changed since the process before this one ended is not known
  for _, uri in ipairs(again) do tell_updated(record, uri) end
end

function federated.on_tick(record)
  notifications.sweep(record)
  if subscribe.is_due(record) then federated.begin(function() federated.on_read(record) end) end
end

return notifications
