-- Subscriptions of the gateway at upstreams: to changes of their lists, of the resources that clients have subscribed
-- to, and of MCP tasks of stateless upstreams.
-- The notifications come on the channel that reads lists: `resources/subscribe` of a stateful revision, and one request
-- of `subscriptions/listen` of a stateless one, which is replaced by a wider one before the old one ends. The store has
-- the subscribed URIs, for all workers.
--   state   { serial, id?, uris = { [uri] = when it was added, by host.time.now }, by = { [uri] = whose share it takes },
--           tasks = { [id of a task] = when it is forgotten, by host.time.now }, is_deaf }: of the channel with this serial; `id` of the request that
--           listens; `is_deaf`: the upstream does not notify of tasks;
--   state.revival   how far subscribing to what sessions of an earlier process wanted has come: { is_whole = all is done or given up,
--           after = when the next attempt may begin, by host.time.now, pause = seconds before it, if the last attempt left something,
--           refused = { [uri] = how often }, over = how many had no room and were counted as refused }
--   state.own   of channels that belong to single clients: { [key of the channel] = { way = how the channel is opened,
--           sealed, uris = { [uri] = { at = when it was added, by = whose share it takes } } } }

local errors = require "moonpool.runtime.rpc_error"
local exchange = require "moonpool.upstream.exchange"
local host = require "moonpool.host"
local json = require "moonpool.json"
local channel_key = require "moonpool.upstream.channel_key"
local message = require "moonpool.upstream.message"
local observer = require "moonpool.upstream.observer"
local principal = require "moonpool.access.principal"
local request = require "moonpool.upstream.request"
local sorted = require "moonpool.runtime.sorted_keys"

local subscribe = {}

local MOST_URIS = host.limits.upstreams.subscribed
local MOST_OF_PRINCIPAL = host.limits.upstreams.subscribed_per_principal
local MOST_TASKS = host.limits.upstreams.subscribed_tasks
local GATHER_S = 0.2        -- seconds in which tasks are gathered for one request to listen
local TASKS_S = 60          -- seconds that asking for notifications of tasks may take
local ACK_S = 5             -- seconds that an upstream has to acknowledge a request to listen
local MAX_ID_BYTES = 20     -- bytes of the id of a request of the gateway
local ACK_KEPT_S = 60       -- seconds for which the store remembers a request that was not acknowledged, if the task that waits for it fails
local AT_ONCE = 16          -- subscriptions to resources of a stateful upstream after which another task has its turn
local TURN_S = 30           -- seconds that a task waits for another task that changes the subscriptions
local KEPT_S = 86400        -- seconds for which the store remembers the subscriptions; each reading of the lists starts them again
-- seconds between attempts to subscribe to what sessions of an earlier process wanted: the first pause, which doubles, and the longest
local REVIVE_S, MOST_REVIVE_S = 1, 300
local MOST_REFUSALS = 3     -- refusals after which a resource that such a session wanted is given up: a template's may be gone for ever
local PAUSE_S = 0.02        -- seconds between two looks whether another task has finished

local ID = "io.modelcontextprotocol/subscriptionId"

local function key_of(record) return "upstream:follow:" .. host.upstream.instance .. ":" .. record.name end
local function ack_key(name, id) return "callers:ack:" .. host.upstream.instance .. ":" .. name .. ":" .. tostring(id) end

local function load(record)
  local state = json.decode(host.store.get(key_of(record)) or "null")
  if type(state) ~= "table" then state = { serial = 0, uris = {}, tasks = {} } end
  -- lacking in the state of an older version, in a store with a file
  state.by, state.own, state.revival = state.by or {}, state.own or {}, state.revival or { refused = {} }
  return state
end

local function save(record, state)
  local by = {}
  for uri in pairs(state.uris) do by[uri] = state.by[uri] end
  for _, one in pairs(state.own) do one.uris = json.object(one.uris) end
  state.revival.refused = json.object(state.revival.refused)
  host.store.set(key_of(record), json.encode {
    serial = state.serial, id = state.id, uris = json.object(state.uris), by = json.object(by), tasks = json.object(state.tasks), is_deaf = state.is_deaf,
    own = json.object(state.own), revival = state.revival,
  }, KEPT_S)
end

-- The share of a client, as a short text. `name`: as in host.topic.revived, its hexadecimal digits decoded.
local function share_named(name) return host.base64.encode(host.digest.sum("sha256", name)):sub(1, 16) end

-- The principal or address that a subscription counts for: clients without a principal count by address, since one
-- client can open many sessions.
local function share_of(call)
  return share_named(principal.is_named(call.principal) and host.digest.sum("sha256", principal.key(call.principal)) or host.http.counted(call.address or ""))
end

--- The share that a subscription of an earlier process takes, by the digits of host.topic.revived; nil: none.
function subscribe.share(digits)
  return digits ~= "" and share_named((digits:gsub("%x%x", function(hex) return string.char(tonumber(hex, 16)) end))) or nil
end

-- The number of subscribed URIs, and of those that count for the share `who`. On a channel that clients share a URI
-- counts for the client that subscribed to it first, until no client wants it.
local function counts_of(state, who)
  local count, of_who = 0, 0
  for uri in pairs(state.uris) do count, of_who = count + 1, of_who + (state.by[uri] == who and 1 or 0) end
  for _, one in pairs(state.own) do
    for _, place in pairs(one.uris) do count, of_who = count + 1, of_who + (place.by == who and 1 or 0) end
  end
  return count, of_who
end

-- Saves the subscriptions. The channel of a program that only notifies of changed lists may end when it is idle; one
-- over HTTP, which costs only a stream, is held.
local function keep(record, channel, server_info, state)
  channel:hold(next(state.uris) ~= nil or next(state.tasks) ~= nil or server_info.transport == "http" and (state.id ~= nil or server_info.has_stream == true))
  save(record, state)
end

-- Runs f() while no other task of any worker does so for this upstream.
local function alone(record, f)
  local until_s = host.time.now() + TURN_S
  while true do
    local claim <close> = host.upstream.claim(record.name, "subscribe")
    if claim then return f() end
    if host.time.now() > until_s then return nil, "other subscriptions at the upstream '" .. record.name .. "' take too long: try again later" end
    host.time.sleep(PAUSE_S)
  end
end


-- -- upstreams of a stateful revision --------------------------------------------------------------------------------

-- True if the channel brings notifications that belong to no request.
local function has_way(server_info) return server_info.transport ~= "http" or server_info.has_stream == true end

-- True: it is done; false: it is refused; nil: there is no answer.
local function ask(channel, server_info, method, uri)
  local id = channel:next_id()
  local event = exchange.ask(channel, id, message.request(id, method, { uri = uri }), { transport = server_info.transport })
  if not event then return nil end
  return event.error == nil
end

local function may_subscribe(server_info)
  local can = server_info.capabilities and server_info.capabilities.resources
  return type(can) == "table" and can.subscribe == true
end

local function can_follow(server_info) return server_info.is_modern or may_subscribe(server_info) and has_way(server_info) end

-- -- upstreams of a stateless revision -------------------------------------------------------------------------------

local LISTS = { tools = "toolsListChanged", prompts = "promptsListChanged", resources = "resourcesListChanged" }

-- The filter of `subscriptions/listen`; nil if the upstream would notify of nothing.
local function filter_of(server_info, uris, ids)
  local filter = {}
  for kind, name in pairs(LISTS) do
    local can = server_info.capabilities and server_info.capabilities[kind]
    if type(can) == "table" and can.listChanged == true then filter[name] = true end
  end
  if uris[1] then filter.resourceSubscriptions = json.array(uris) end
  if ids[1] then filter.taskIds = json.array(ids) end                                 -- ids of tasks are sent only if there are some (B-1, TX-7)
  return next(filter) ~= nil and filter or nil
end

local EXPECTED <const> = ""         -- value in the store for a request that was not acknowledged yet

-- Keeps an acknowledgement in the store if a task waits for it.
observer.on("notifications/subscriptions/acknowledged", function(event, params)
  local meta = type(params._meta) == "table" and params._meta or {}
  local id = tostring(meta[ID])
  local key = #id <= MAX_ID_BYTES and ack_key(event.upstream, id)
  if not key or host.store.get(key) ~= EXPECTED then return end
  host.store.set(key, json.encode(type(params.notifications) == "table" and params.notifications or {}), ACK_KEPT_S)
end)

local awaited = { __close = function(it) host.store.delete(it.key) end }

-- Lets the store keep the acknowledgement of the request that is about to be sent, until the returned value is closed.
local function await(record, id)
  local one = setmetatable({ key = ack_key(record.name, id) }, awaited)
  host.store.set(one.key, EXPECTED, ACK_KEPT_S)
  return one
end

-- The URIs that the upstream has acknowledged for the request; nil if it has acknowledged none.
local function acknowledged(record, id)
  local until_s = host.time.now() + ACK_S
  repeat
    local text = host.store.get(ack_key(record.name, id))
    if text and text ~= EXPECTED then return json.decode(text) end
    host.time.sleep(PAUSE_S)
  until host.time.now() > until_s
end

local function end_listen(channel, server_info, id)
  if not id then return end
  if server_info.transport == "http" then
    channel:unlisten(id)
  else
    exchange.tell(channel, message.cancelled(id), {})
  end
end

-- A request to listen. Closing the value ends the request unless the request was kept. It is not kept if it was not
-- acknowledged, or if the client that it was opened for has disconnected.
local opening = { __close = function(it)
  if it.is_kept then return end
  if it.server_info.transport == "http" then return end_listen(it.channel, it.server_info, it.id) end
  host.job.begin(function()                           -- a task that was ended cannot wait
    local channel = host.upstream.open_channel(it.record.name, channel_key.shared)
    if channel and channel:serial() == it.server_info.serial then end_listen(channel, it.server_info, it.id) end
  end, ACK_S)
end }

-- Opens a request that listens to these URIs and to the tasks of `state`, then ends the one before it. Returns the set
-- of the URIs that were acknowledged; nil if the upstream does not listen.
local function listen(record, channel, server_info, state, set)
  local filter = filter_of(server_info, sorted(set), sorted(state.tasks))
  local before = state.id
  if not filter then
    end_listen(channel, server_info, before)
    state.id = nil
    return {}
  end
  local id = channel:next_id()
  local params = { notifications = filter, _meta = message.meta(server_info) }
  local bytes = message.request(id, "subscriptions/listen", params)
  local _ <close> = await(record, id)
  local asked <close> = setmetatable({ record = record, channel = channel, server_info = server_info, id = id }, opening)
  if server_info.transport == "http" then
    if channel:listen { id = id, message = bytes, headers = message.headers("subscriptions/listen", params) } == "none" then return nil end
  elseif not exchange.tell(channel, bytes, {}) then
    return nil
  end
  local accepted = acknowledged(record, id)
  if not accepted then return nil end
  local honoured = {}
  for _, uri in ipairs(type(accepted.resourceSubscriptions) == "table" and accepted.resourceSubscriptions or {}) do honoured[uri] = set[uri] end
  state.id, asked.is_kept = id, true
  if filter.taskIds and type(accepted.taskIds) ~= "table" then state.is_deaf, state.tasks = true, {} end
  end_listen(channel, server_info, before)
  return honoured
end

-- -- the whole -------------------------------------------------------------------------------------------------------

-- Opens the shared channel and loads its subscriptions; a new channel has none. Returns the channel, its server's info,
-- its state, and the wanted URIs.
local function current(record)
  local channel, server_info = request.channel(record, channel_key.shared, {})
  if not channel then return nil, server_info end
  local state = load(record)
  local wanted = state.uris
  if state.serial ~= server_info.serial then
    state = { serial = server_info.serial, uris = {}, by = state.by, tasks = state.tasks, own = state.own, revival = state.revival }
  end
  return channel, server_info, state, wanted
end

-- False if the upstream has not acknowledged the request to listen.
local function bring(record, channel, server_info, state, wanted)
  if server_info.is_modern then
    local is_same = state.id ~= nil
    for uri in pairs(wanted) do is_same = is_same and state.uris[uri] ~= nil end
    if is_same then return true end
    local honoured = listen(record, channel, server_info, state, wanted)
    state.uris = honoured or state.uris
    return honoured ~= nil
  elseif can_follow(server_info) then
    for _, uri in ipairs(sorted(wanted)) do
      if not state.uris[uri] and ask(channel, server_info, "resources/subscribe", uri) then state.uris[uri] = wanted[uri] end
    end
  end
  return true
end

-- -- what sessions of an earlier process wanted ------------------------------------------------------------------------

-- Notes a refusal of a URI, which is given up, and counted, after MOST_REFUSALS. True if it will be asked for again.
local function note_refusal(revival, uri)
  local times = (revival.refused[uri] or 0) + 1
  revival.refused[uri] = times
  if times == MOST_REFUSALS then host.upstream.count_refused "subscriptions" end
  return times < MOST_REFUSALS
end

-- Notes when the next attempt may be; `is_left`: this one leaves something that the upstream has not taken.
local function note_attempt(revival, is_left)
  revival.pause = is_left and math.min((revival.pause or REVIVE_S / 2) * 2, MOST_REVIVE_S) or nil
  revival.after = host.time.now() + (revival.pause or 0)
end

-- Subscribes to these URIs of a stateful upstream, and calls take(uri) for each that it takes. Ends at one without an
-- answer, so that a slow upstream costs one wait. Returns true if some are left.
local function ask_again(channel, server_info, revival, uris, take)
  local is_left = false
  for _, uri in ipairs(uris) do
    local is_taken = ask(channel, server_info, "resources/subscribe", uri)
    if is_taken then
      take(uri)
    else
      is_left = note_refusal(revival, uri) or is_left
    end
    if is_taken == nil then return true end
  end
  return is_left
end

-- Of these URIs, those that `run` is to ask for and that there is room for. Those without room are counted once.
local function chosen(state, wanted, uris, run)
  local revival, list, seen, over = state.revival, {}, {}, 0
  local count = counts_of { uris = wanted, by = {}, own = state.own }
  for _, uri in ipairs(uris) do
    local is_wanted = not (wanted[uri] or seen[uri] or run.asked[uri]) and (revival.refused[uri] or 0) < MOST_REFUSALS
    seen[uri] = true
    if is_wanted and count < MOST_URIS then
      list[#list + 1], count = uri, count + 1
    elseif is_wanted then
      over = over + 1
    end
  end
  for _ = (revival.over or 0) + 1, over do host.upstream.count_refused "subscriptions" end
  revival.over = math.max(revival.over or 0, over)
  return list
end

-- Subscribes to the URIs `more` besides those wanted; returns true if some of `more` are left.
local function bring_more(record, channel, server_info, state, wanted, more)
  local at = host.time.now()
  if not server_info.is_modern then
    bring(record, channel, server_info, state, wanted)
    return ask_again(channel, server_info, state.revival, more, function(uri) state.uris[uri] = at end)
  end
  local all, is_left = {}, false
  for uri, since in pairs(wanted) do all[uri] = since end
  for _, uri in ipairs(more) do all[uri] = at end
  if not bring(record, channel, server_info, state, all) then return true end
  for _, uri in ipairs(more) do is_left = not state.uris[uri] and note_refusal(state.revival, uri) or is_left end
  return is_left
end

-- Subscribes to what clients want, and to some of what sessions of an earlier process wanted, if it is not all subscribed
-- to. `run`: { revived, asked, told, new, is_left, has_more } of subscribe.ensure.
local function bring_revived(record, channel, server_info, state, wanted, run)
  local revival, has_more = state.revival, run.has_more
  local is_due = run.revived and not revival.is_whole and (has_more or host.time.now() >= (revival.after or 0))
  run.has_more = false
  -- an upstream that cannot notify may be replaced by one that can
  if not is_due or not can_follow(server_info) then return bring(record, channel, server_info, state, wanted) end
  if not has_more then
    run.uris, run.by, run.is_whole = run.revived()
    run.is_first = revival.after == nil
  end
  local list = chosen(state, wanted, run.uris, run)
  run.has_more = not server_info.is_modern and #list > AT_ONCE
  local more = run.has_more and table.move(list, 1, AT_ONCE, 1, {}) or list
  for _, uri in ipairs(more) do run.asked[uri] = true end
  run.is_left = bring_more(record, channel, server_info, state, wanted, more) or run.is_left
  for _, uri in ipairs(run.uris) do
    if state.uris[uri] then
      state.by[uri] = state.by[uri] or run.by[uri]
      if not run.told[uri] and (run.is_first or not wanted[uri]) then run.new[#run.new + 1], run.told[uri] = uri, true end
    end
  end
  if run.has_more then return end
  note_attempt(revival, run.is_left)
  revival.is_whole = run.is_whole and not run.is_left
end

--- Subscribes at the upstream to all that clients want of it; called also after its channel was lost. True, or nil;
--- and the URIs of `revived()` that are subscribed to since this call. `revived()` returns the URIs that sessions of an
--- earlier process have subscribed to, by URI whose share each takes, and true if these are all: it is called until all
--- of them are subscribed to or given up, with pauses between attempts.
function subscribe.ensure(record, revived)
  local run = { revived = revived, asked = {}, told = {}, new = {} }
  local done
  repeat
    done = alone(record, function()
      local channel, server_info, state, wanted = current(record)
      if not channel then return nil end
      bring_revived(record, channel, server_info, state, wanted, run)
      keep(record, channel, server_info, state)
      return true
    end)
  until not done or not run.has_more
  return done, run.new
end

--- True if it is time to ask again for what sessions of an earlier process wanted and the upstream has not taken.
function subscribe.is_due(record)
  local revival = load(record).revival
  return revival.pause ~= nil and host.time.now() >= revival.after and host.upstream.open_channel(record.name, channel_key.shared) ~= nil
end

--- The request that listens has ended: another one is opened by the next subscribe.ensure.
function subscribe.ended(record, serial, id)
  return alone(record, function()
    local state = load(record)
    if state.serial ~= serial or state.id ~= id then return false end
    state.id, state.serial = nil, 0
    save(record, state)
    return true
  end)
end

-- Why a client cannot subscribe to one more URI; nil: it can.
local function no_room(count, own)
  if count >= MOST_URIS then return ("%d resources of this upstream are subscribed to, and there is room for no more"):format(count) end
  if own < MOST_OF_PRINCIPAL then return nil end
  return ("you subscribe to %d resources of this upstream, which is your share: unsubscribe from one first")
    :format(MOST_OF_PRINCIPAL)
end

-- Subscribes to some of the URIs from number `first` on; adds the accepted ones to `accepted`. Returns the number of
-- the next URI, and the reason that one was not accepted.
local function add_some(record, uris, first, accepted, of_call)
  local channel, server_info, state, wanted = current(record)
  if not channel then return #uris + 1, "the upstream '" .. record.name .. "' is not there" end
  -- closed also if the client disconnects meanwhile
  local _ <close> = setmetatable({}, { __close = function() keep(record, channel, server_info, state) end })
  bring(record, channel, server_info, state, wanted)
  local who, at, set, new, why = share_of(of_call), host.time.now(), {}, {}, nil
  local count, own = counts_of(state, who)
  for known, since in pairs(state.uris) do set[known] = since end
  local last = server_info.is_modern and #uris or math.min(#uris, first + AT_ONCE - 1)
  for i = first, last do
    local uri = uris[i]
    local refusal = not set[uri] and no_room(count, own)
    if refusal then
      host.upstream.count_refused "subscriptions"
      why = refusal
    elseif not set[uri] then
      new[#new + 1], count, own = uri, count + 1, own + 1
    end
    if not refusal then set[uri] = at end
  end
  if server_info.is_modern and new[1] then
    state.uris = listen(record, channel, server_info, state, set) or state.uris
  elseif not server_info.is_modern and can_follow(server_info) then
    for _, uri in ipairs(new) do
      -- noted before the answer: if the client disconnects meanwhile, the next sweep unsubscribes
      state.uris[uri], state.by[uri] = at, state.by[uri] or who
      if not ask(channel, server_info, "resources/subscribe", uri) then state.uris[uri] = nil end
    end
  end
  for i = first, last do
    local uri = uris[i]
    if state.uris[uri] then
      accepted[uri], state.uris[uri], state.by[uri] = true, at, state.by[uri] or who
    else
      why = why or "the upstream '" .. record.name .. "' does not notify of changes of this resource"
    end
  end
  return last + 1, why
end

--- Subscribes at the upstream to changes of resources, for the client of a call. Returns the set of the accepted URIs,
--- and if there are others a sentence for the client: why.
function subscribe.add(record, uris, of_call)
  local accepted, first, why = {}, 1, nil
  while first <= #uris do
    local next_one, reason = alone(record, function() return add_some(record, uris, first, accepted, of_call) end)
    if not next_one then return accepted, reason end
    first, why = next_one, why or reason
  end
  return accepted, why
end

local changing = {}         -- name of an upstream -> { [id of a task] = when it is forgotten, by host.time.now, or false: it has ended }

-- Applies the gathered changes of subscriptions to tasks of one upstream.
local function change_tasks(record)
  host.time.sleep(GATHER_S)
  local changes = changing[record.name]
  changing[record.name] = nil
  alone(record, function()
    local channel, server_info, state, wanted = current(record)
    if not channel or not server_info.is_modern or state.is_deaf then return end
    local now, count, has_more = host.time.now(), 0, false
    for id, ends in pairs(state.tasks) do
      if ends < now or changes[id] == false then state.tasks[id] = nil else count = count + 1 end
    end
    for id, ends in pairs(changes) do
      if ends and not state.tasks[id] and count < MOST_TASKS then
        state.tasks[id], count, has_more = ends, count + 1, true
      elseif ends and not state.tasks[id] then
        host.upstream.count_refused "subscriptions"
      end
    end
    -- a task that has ended sends no more notifications, so the request that listens to it may stay
    if has_more or count == 0 and state.id then state.uris = listen(record, channel, server_info, state, wanted) or state.uris end
    keep(record, channel, server_info, state)
  end)
end

local function change_task(record, id, ends)
  local changes = changing[record.name]
  if not changes then
    changing[record.name] = {}
    if not host.job.begin_own(function() change_tasks(record) end, TASKS_S) then
      changing[record.name] = nil
      return
    end
    changes = changing[record.name]
  end
  changes[id] = ends
end

--- Asks a stateless upstream to notify of changes of a task, soon and without waiting.
function subscribe.task(record, id) change_task(record, id, host.time.now() + KEPT_S) end

--- Ends the subscription to a task, which has ended or is not polled any more.
function subscribe.task_ended(record, id) change_task(record, id, false) end

--- Ends subscriptions that no client wants any more, by `is_wanted(uri, at)`.
function subscribe.sweep(record, is_wanted)
  if next(load(record).uris) == nil then return end
  return alone(record, function()
    local state = load(record)
    local set, gone = {}, {}
    for uri, at in pairs(state.uris) do
      if is_wanted(uri, at) then
        set[uri] = at
      else
        gone[#gone + 1] = uri
      end
    end
    if not gone[1] then return end
    local channel, server_info, now_state, wanted = current(record)
    if not channel then return nil, server_info.reason end
    if now_state.serial ~= state.serial then bring(record, channel, server_info, now_state, set) end
    if server_info.is_modern and wanted then
      now_state.uris = listen(record, channel, server_info, now_state, set) or set
    else
      for _, uri in ipairs(gone) do
        if now_state.uris[uri] then ask(channel, server_info, "resources/unsubscribe", uri) end
        now_state.uris[uri] = nil
      end
    end
    keep(record, channel, server_info, now_state)
  end)
end

-- -- channels of single clients ---------------------------------------------------------------------------------------

local PURPOSE <const> = "own subscriptions"

--- The options for open.channel of a channel of single clients that have subscribed to resources on it; else nil.
function subscribe.own_way(record, key)
  local own = load(record).own[key]
  local text = own and host.seal.open(own.way, PURPOSE)
  return text and json.decode(text) or nil
end

-- Takes places for subscriptions on a channel of single clients, before they are asked for: if a client disconnects
-- meanwhile, the next sweep unsubscribes. `shares`: URI -> whose share it takes. Returns the set of the URIs that have a
-- place, each with true if it had none, and why others get none; or nil and why.
local function take_own(record, way, shares)
  return alone(record, function()
    local state = load(record)
    local own, taken, why = state.own[way.key] or { uris = {} }, {}, nil
    state.own[way.key] = own
    for _, uri in ipairs(sorted(shares)) do
      local before = own.uris[uri]
      local refusal = not before and no_room(counts_of(state, shares[uri]))
      if refusal then
        host.upstream.count_refused "subscriptions"
        why = refusal
      else
        own.uris[uri], taken[uri] = { at = host.time.now(), by = before and before.by or shares[uri] }, not before
      end
    end
    if next(taken) == nil then return taken, why end
    own.way = host.seal.make(json.encode(way), PURPOSE)                                   -- ids of sessions are secrets
    save(record, state)
    return taken, why
  end)
end

-- Gives the places of subscriptions back for which is_gone(key, uri, at) is true. Returns a list of { key, uri }.
local function give_own(record, is_gone)
  local list = {}
  if next(load(record).own) == nil then return list end
  alone(record, function()
    local state = load(record)
    for key, own in pairs(state.own) do
      for uri, place in pairs(own.uris) do
        if is_gone(key, uri, place.at) then list[#list + 1], own.uris[uri] = { key, uri }, nil end
      end
      if next(own.uris) == nil then state.own[key] = nil end
    end
    if list[1] then save(record, state) end
    return true
  end)
  return list
end

--- Subscribes to changes of a resource on a client's own channel, `way` (as of forward.way_of), by `send()`, for the
--- client of a call. True; or nil and a sentence for the client.
function subscribe.add_own(record, way, uri, call, send)
  local taken, refusal = take_own(record, way, { [uri] = share_of(call) })
  local is_new = taken and taken[uri]
  if is_new == nil then return nil, refusal end
  local answer = send()
  local channel = answer and host.upstream.open_channel(record.name, way.key)
  if channel and has_way(channel:server_info()) then return true end
  if is_new then give_own(record, function(key, one) return key == way.key and one == uri end) end
  return nil, "the upstream '" .. record.name .. "' does not notify of changes of this resource"
end

--- Ends the subscriptions on channels of single clients for which is_gone(key, uri, at) is true; `at`: when it was
--- added.
function subscribe.remove_own(record, is_gone)
  for _, one in ipairs(give_own(record, is_gone)) do
    local channel = host.upstream.open_channel(record.name, one[1])
    if channel then ask(channel, channel:server_info(), "resources/unsubscribe", one[2]) end
  end
end

-- What sessions of an earlier process wanted on a channel of single clients, until it is done: as state.revival, with
-- `way`, `lines` (of host.topic.revived, those that are left) and `who`, whose share they take if they say nothing else.
local function revival_key(record, key) return ("callers:revival:%s:%s:%s"):format(host.upstream.instance, record.name, key) end

local function keep_revival(record, it)
  local key = revival_key(record, it.way.key)
  if not it.lines[1] then return host.store.delete(key) end
  it.refused = json.object(it.refused)
  host.store.set(key, host.seal.make(json.encode(it), PURPOSE), KEPT_S)
end

local function revival_of(record, key)
  local text = host.store.get(revival_key(record, key))
  local opened = text and host.seal.open(text, PURPOSE)
  return opened and json.decode(opened) or nil
end

--- What sessions of an earlier process wanted on a channel of single clients, `way` (as of forward.way_of), which `call` has
--- opened: lines of host.topic.revived. subscribe.revive_own subscribes to it.
function subscribe.note_own(record, way, lines, call)
  if lines[1] then keep_revival(record, { way = way, lines = lines, who = share_of(call), refused = {} }) end
end

--- The keys of the channels of single clients, open or not, for which subscribe.note_own has noted what is not done yet.
function subscribe.noted(record)
  local start = revival_key(record, "")
  local keys = host.store.keys(start)
  for i, key in ipairs(keys) do keys[i] = key:sub(#start + 1) end
  return keys
end

--- True if there is something to subscribe to on a channel of single clients that was opened; `is_first`: for the first
--- time in this process.
function subscribe.has_own(record, key, is_first)
  return host.store.get(revival_key(record, key)) ~= nil or not is_first and load(record).own[key] ~= nil
end

-- The lines that are left: those of these URIs that were not taken and are not given up, and those of no URI yet.
local function lines_left(it, uris, line_of, missing, shares, taken, done)
  for _, uri in ipairs(uris) do
    local is_left = not done[uri] and taken[uri] ~= nil and (it.refused[uri] or 0) < MOST_REFUSALS
    if is_left and shares[uri] then missing[#missing + 1], shares[uri] = line_of[uri], nil end
  end
  return missing
end

--- Subscribes to what subscribe.note_own has noted, if the channel is open and it is time. `own_uris(lines)` returns the
--- URIs, for each the share that it takes, the line of each, and the lines whose resources may still be listed. Returns
--- the URIs that are new, and the seconds until the next attempt if the upstream has not taken all.
function subscribe.revive_own(record, key, own_uris)
  local claim <close> = host.upstream.claim(record.name, "revival " .. key)
  local channel = claim and host.upstream.open_channel(record.name, key)
  local it = channel and revival_of(record, key)
  if not it or host.time.now() < (it.after or 0) or not can_follow(channel:server_info()) then return {} end
  local uris, by, line_of, missing = own_uris(it.lines)
  local shares, new, done, gone = {}, {}, {}, {}
  for _, uri in ipairs(uris) do shares[uri] = by[uri] or it.who end
  local taken = take_own(record, it.way, shares)
  if not taken then return {} end
  local is_left = ask_again(channel, channel:server_info(), it, sorted(taken), function(uri) new[#new + 1], done[uri] = uri, true end)
  for uri, is_new in pairs(taken) do gone[uri] = is_new and not done[uri] or nil end
  if next(gone) ~= nil then give_own(record, function(one, uri) return one == key and gone[uri] == true end) end
  it.lines = lines_left(it, uris, line_of, missing, shares, taken, done)
  note_attempt(it, is_left)
  keep_revival(record, it)
  return new, it.pause
end

--- A channel of single clients was opened again: its subscriptions are made again. Returns their URIs, sorted.
function subscribe.again(record, key)
  local own = load(record).own[key]
  local channel = own and host.upstream.open_channel(record.name, key)
  local list = sorted(own and own.uris or {})
  for _, uri in ipairs(channel and list or {}) do ask(channel, channel:server_info(), "resources/subscribe", uri) end
  return list
end

--- The URIs that the gateway has subscribed to at an upstream, sorted.
function subscribe.uris(record) return sorted(load(record).uris) end

--- The error for a client whose subscription an upstream does not take.
function subscribe.refusal(why) return errors.new("invalid_params", why) end

return subscribe
