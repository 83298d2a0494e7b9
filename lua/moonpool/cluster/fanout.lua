-- Messages between the nodes of a cluster, on one channel of the server of `cluster`: what one node publishes, all others
-- get once, in its order. A node that may have missed some learns that.
--
-- A message is "1 SENDER NUMBER KIND", a newline, and a body. 1 is the format, SENDER a process, and NUMBER counts what the
-- process publishes. Once a second each process sends a message "beat", which has the number of its last publication, on
-- the connection of commands, and waits for it on that of the subscription: so it finds a subscription that is silent.
-- Of a gateway with several processes, after an upgrade, the newest one sends and receives for all.
--   hole   a number of a sender that did not come
--   void   numbers that were taken for publications which the server did not get. These are sent with other numbers later;
--          a message "void" has the last of the numbers, and as its body how many they are

local bus = require "moonpool.runtime.bus"
local host = require "moonpool.host"
local server = require "moonpool.lib.cluster_server"
local single_task = require "moonpool.runtime.single_task"

local now <const> = host.time.now            -- taken while this file loads: later, a recorder of calls replaces host.time.now
local CHANNEL <const> = "mp:" .. host.config.cluster.name .. ":f"
local OWN <const> = host.upstream.instance
local MAX_BODY <const>, MAX_WAITING <const> = 4096, 4096      -- bytes of one publication; publications that wait in a Lua state
local BATCH <const>, MAX_RATE <const> = 100, 1000             -- publications that are sent together; those of a process in a second
local MAX_SENDING_S <const>, MAX_VOIDS <const> = 60, 64
local HELD_S <const>, HELD_PAUSE_S <const> = 10, 0.25         -- seconds for which publications wait while an upgrade takes place
local BEAT_S <const> = host.config.cluster.beat_ms / 1000
-- Seconds without the own beat after which the subscription is made again; they double until it comes.
local SILENT_S <const>, MAX_SILENT_S <const> = 2 * BEAT_S, 60
-- Seconds until a hole is a loss: connections of several workers overtake each other, and the next beat says which numbers
-- are void. And how many holes one sender may have.
local HOLE_S <const>, MAX_HOLES <const> = 1.5 * BEAT_S + host.config.cluster.timeout, 256
-- Seconds until a sender that is not heard again after a loss may have been missed. Who was silent for some beats before the
-- loss had ended by then.
local DOUBT_S <const>, ENDED_S <const> = 15 * BEAT_S, 5 * BEAT_S
local COUNT_S <const> = 5 * BEAT_S                  -- seconds in which all gateways that are there have sent beats
local SETTLED_S <const> = 3 * BEAT_S                -- seconds after the first subscription in which all other nodes were heard
local FORGET_S <const>, SAY_S <const> = 3600, 60
local NUMBER <const>, SEEN <const>, VOID <const> = "fanout:number:" .. OWN, "fanout:seen:", "fanout:void:" .. OWN .. ":"
local SINCE <const>, HEARD <const>, AWAY <const>, SECOND <const> = "fanout:since", "fanout:heard", "fanout:away", "fanout:second:"

local fanout = {}

fanout.job = "moonpool/fan-out"

-- -- publishing -----------------------------------------------------------------------------------------------------------

-- Any task may be preempted at any instruction: what two tasks change at once is changed by one call of C.
local queue, waiting = {}, {}                -- the keys of publications in their order; key -> { kind, body, at }
local unsent = {}                            -- those that are sent next; of the task that sends
local skipped = 0                            -- publications that were dropped before they had a number
local is_away, is_retired = false, false

local function text_of(number, kind, body) return ("1 %s %d %s\n%s"):format(OWN, number, kind, body) end

local said_at = -math.huge

local function note_refusal(why)
  if now() - said_at < SAY_S then return end
  said_at = now()
  host.log.write("warn", "redis command refused", { server = server.place, why = why:match "^%u+" or "an error" })
end

-- True, replies; or nil, why, reason.
local function send(requests, ends)
  local done, reply, reason = server.send_all(requests, ends)
  if not done and reason == "error" and reply:find "^LOADING" then reason = "unavailable" end
  local first = type(reply) == "table" and reply[1]
  if reason == "error" then note_refusal(reply) elseif type(first) == "table" and first.error then note_refusal(first.error) end
  return done, reply, reason
end

-- Takes numbers for publications that will not be sent: other nodes find holes.
local function skip(count)
  if count > 0 and host.job.is_allowed() then host.store.incr(NUMBER, count) end
end

-- Moves waiting publications to `unsent`. False if there is nothing to do.
local function take_waiting()
  while #unsent < BATCH do
    local key = table.remove(queue, 1)
    if not key then break end
    unsent[#unsent + 1], waiting[key] = waiting[key], nil
  end
  return unsent[1] ~= nil or skipped > 0
end

-- While another process of the gateway publishes: drops what has waited so long that it has done so.
local function drop_held()
  local key = queue[1]
  while key and now() - waiting[key].at > HELD_S do
    table.remove(queue, 1)
    waiting[key] = nil
    host.topic.count("waits", -1)
    key = queue[1]
  end
end

-- This Lua state ends while the server is away: gives up what waits, so that other nodes find holes.
local function abandon()
  host.topic.count("waits", -#queue - #unsent)
  skip(#queue + #unsent + skipped)
  queue, waiting, unsent, skipped = {}, {}, {}, 0
end

local function go_away()
  is_away = true
  host.store.set(AWAY, "")
  if is_retired then abandon() end
  return false
end

-- Sends `unsent`. The numbers are taken when it is sent, not before: they would be holes for as long as the server is away.
-- False if the server does not get them.
local function send_unsent()
  local ends = server.deadline()
  if not server.is_ready(ends) then return go_away() end
  local count, skips = #unsent, skipped
  skipped = 0
  local last = host.store.incr(NUMBER, skips + count)
  if not last then
    skipped = skipped + skips + count
    host.topic.count("dropped", count)
  elseif count > 0 then
    local requests = {}
    for i, one in ipairs(unsent) do requests[i] = { "PUBLISH", CHANNEL, text_of(last - count + i, one.kind, one.body) } end
    local done, _, reason = send(requests, ends)
    if not done and reason == "unavailable" then
      host.store.set(VOID .. last, ("%d"):format(count), FORGET_S)
      return go_away()
    end
    local sent = host.store.incr(SECOND .. (now() // 1 | 0), count, 2)
    if sent and sent >= MAX_RATE then host.time.sleep(1 - now() % 1) end
  end
  unsent = {}
  host.topic.count("waits", -count)
  return last ~= nil or queue[1] ~= nil
end

local function send_waiting()
  repeat
    while not unsent[1] and not host.job.is_allowed() do
      drop_held()
      if not queue[1] then return end
      host.time.sleep(HELD_PAUSE_S)
    end
  until not take_waiting() or not send_unsent()
end

local begin_task = single_task.new(send_waiting, function() return not is_away and (unsent[1] or queue[1]) ~= nil end, MAX_SENDING_S)

local function begin_sending()
  if not is_away then begin_task() end
end

local function put(kind, topic, body)
  local key = kind .. "\n" .. topic
  local before = waiting[key]
  if before then
    before.body = body
  elseif is_retired and is_away then
    skip(1)
  elseif #body > MAX_BODY or #queue >= MAX_WAITING then
    host.topic.count("dropped", 1)
    skipped = skipped + 1
  else
    waiting[key] = { kind = kind, body = body, at = now() }
    table.insert(queue, key)
    host.topic.count("waits", 1)
  end
  begin_sending()
end

--- Publishes to all other nodes. Of what waits to be sent with one `kind` and `topic` only the last is.
function fanout.publish(kind, body, topic)
  topic = topic or body
  if not host.job.is_allowed() then host.bus.relay("fan-out publish", string.pack("s4s4s4", kind, topic, body)) end
  put(kind, topic, body)
end

-- An older process of this gateway publishes.
bus.on("fan-out publish", function(text)
  local kind, topic, body = string.unpack("s4s4s4", text)
  put(kind, topic, body)
end)

-- The server answers again.
bus.on("fan-out back", function()
  is_away = false
  if unsent[1] or queue[1] or skipped > 0 then begin_sending() end
end)

bus.on("retired", function()
  is_retired = true
  if is_away then abandon() end
end)

-- -- receiving ------------------------------------------------------------------------------------------------------------

-- uid -> { last = its last number, holes = number -> true, hole_count, due = when the holes are a loss, doubt = when it was
-- missed if it is not heard until then, heard = when it was, said = the body of its last beat, said_at }. One run of the job after another changes this.
local senders = {}
local handlers, at_ticks = {}, {}
local source, followed                       -- the subscription, and the server that it is at
local unanswered                             -- since when own beats do not come back; nil: they do
local silent_s, is_silence_told = SILENT_S, false
local heard_since                            -- since when each own beat has come back; nil: it does not
local has_logged_format = false
local attached_at

--- Runs f(body) for the messages of a kind, in one process of this node after the other.
function fanout.on(kind, f) handlers[kind] = f end

--- Runs f(is_answering) once a second, in the Lua state that receives; `is_answering`: the server takes commands.
function fanout.at_tick(f) at_ticks[#at_ticks + 1] = f end

--- What a beat of this process says of it. Replaced by definitions.lua.
function fanout.say() return "" end

--- What the last beats of the other processes have said, of those that came in the last `seconds`: a list.
function fanout.said(seconds)
  local list = {}
  for _, one in pairs(senders) do
    if one.said and now() - one.said_at <= seconds then list[#list + 1] = one.said end
  end
  return list
end

--- Runs f in each process of this node when messages of other nodes were lost.
function fanout.at_gap(f) bus.on("fan-out gap", f) end

local function deliver(kind, body)
  if handlers[kind] then handlers[kind](body) end
end

-- Another process of this node has received this.
bus.on("fan-out deliver", function(text) deliver(string.unpack("s4s4", text)) end)

local function note_gap(why)
  host.topic.count("gap", 1)
  host.log.write("info", "messages of other nodes lost", { why = why })
  host.bus.relay("fan-out gap", "")
  bus.deliver("fan-out gap", "")
end

-- Keeps up to which number all messages of a sender have come, and when it was heard, for the next Lua state, or process,
-- that receives.
local function keep(uid, one)
  local whole = one.last
  for number in pairs(one.holes) do whole = math.min(whole, number - 1) end
  host.store.set(SEEN .. uid, ("%d %.3f"):format(whole, one.heard), FORGET_S)
end

local function new_sender(last, heard) return { last = last, holes = {}, hole_count = 0, heard = heard } end

local function has_settled()
  local since = tonumber(host.store.get(SINCE) or nil)
  return since ~= nil and now() - since > SETTLED_S
end

-- The numbers up to `last`, of which the sender has told, and those behind them are there.
local function note_numbers(one, last)
  if last - one.last > MAX_HOLES then
    one.last, one.holes, one.hole_count, one.due = last, {}, 0, nil
    return note_gap "too many messages of one node"
  end
  for number = one.last + 1, last do one.holes[number], one.hole_count = true, one.hole_count + 1 end
  one.last = math.max(one.last, last)
  if one.hole_count > 0 and not one.due then one.due = now() + HOLE_S end
end

-- True if the message with this number has not come before.
local function is_new(one, number)
  if number > one.last then
    note_numbers(one, number - 1)
    one.last = number
    return true
  end
  if not one.holes[number] then return false end
  one.holes[number], one.hole_count = nil, one.hole_count - 1
  if one.hole_count == 0 then one.due = nil end
  return true
end

-- Looks for holes that have lasted too long, and for senders that were not heard.
local function look_for_holes(at)
  local why
  for uid, one in pairs(senders) do
    if one.due and at >= one.due then
      one.holes, one.hole_count, one.due = {}, 0, nil
      keep(uid, one)
      why = "a hole in the messages of a node"
    end
    if one.doubt and at >= one.doubt then why = "a node is not heard any more" end
    if one.doubt and at >= one.doubt or at - one.heard > FORGET_S then
      senders[uid] = nil
      host.store.delete(SEEN .. uid)
    end
  end
  if why then note_gap(why) end
end

-- Counts the gateways that are there, for what each of them counts alone while the server is away.
local function count_gateways(at)
  local count = 1
  for _, one in pairs(senders) do
    if at - one.heard <= COUNT_S then count = count + 1 end
  end
  if count == server.nodes() then return end
  host.store.set(server.NODES, ("%d"):format(count))
  host.log.write("info", "gateways of the cluster counted", { count = count })
end

-- The own beat has come: what others have sent before would have come, too.
local function take_own_beat()
  local at = now()
  unanswered, silent_s, is_silence_told = nil, SILENT_S, false
  heard_since = heard_since or at
  if at - heard_since >= COUNT_S then count_gateways(at) end
  look_for_holes(at)
  host.store.set(HEARD, ("%.3f"):format(at), FORGET_S)
end

local function take(text)
  local format, uid, number, kind, body = text:match "^(%d+) (%x+) (%d+) (%l+)\n(.*)$"
  if format ~= "1" then
    if not has_logged_format then host.log.write("info", "messages of a newer node are not understood", { format = text:match "^%w*" }) end
    has_logged_format = true
    return
  end
  if uid == OWN then
    if kind == "beat" then take_own_beat() end
    return
  end
  number = math.tointeger(tonumber(number)) or 0
  local is_beat, is_void = kind == "beat", kind == "void"
  local one = senders[uid]
  if not one then
    one = new_sender((is_beat or is_void) and number or number - 1, now())
    senders[uid] = one
    if one.last > 0 and has_settled() then note_gap "a node began while nothing was received" end
  end
  one.heard, one.doubt = now(), nil
  if is_beat then
    note_numbers(one, number)
    one.said, one.said_at = body, now()
  elseif is_void then
    for i = number - math.min(math.tointeger(tonumber(body)) or 0, BATCH) + 1, number do is_new(one, i) end
  end
  local is_wanted = not (is_beat or is_void) and is_new(one, number)
  keep(uid, one)
  if not is_wanted then return end
  deliver(kind, body)
  host.bus.relay("fan-out deliver", string.pack("s4s4", kind, body))
end

-- The subscription has begun, or messages had no room here: some may be missing before the next one.
local function on_subscribed()
  local at = now()
  local ended = (tonumber(host.store.get(HEARD) or nil) or at) - ENDED_S
  senders = {}
  for _, key in ipairs(host.store.keys(SEEN)) do
    local last, heard = (host.store.get(key) or ""):match "^(%d+) (%S+)$"
    if last then
      local one = new_sender(math.tointeger(tonumber(last)) or 0, tonumber(heard) or at)
      if one.heard >= ended then one.doubt = at + DOUBT_S end
      senders[key:sub(#SEEN + 1)] = one
    end
  end
  unanswered, heard_since = nil, nil
  local is_first = host.store.add(SINCE, ("%.3f"):format(at)) == true
  if is_first and attached_at and at - attached_at > SETTLED_S then note_gap "the server was away at the start" end
end

-- True if there is another subscription now: one that the server refuses is tried again as it is.
local function follow(one)
  followed, unanswered = one, nil
  return host.redis.renew(source, host.redis.connection(one))
end

-- What was published does not come: makes the subscription again, with pauses that grow.
local function follow_again()
  if follow(followed) and not is_silence_told then
    host.log.write("info", "subscription made again", { server = server.place, why = "what was published did not come" })
    is_silence_told = true
  end
  silent_s = math.min(2 * silent_s, MAX_SILENT_S)
end

-- The messages of a second: which numbers are void, and the beat. Returns them, and the keys of the former.
local function make_beat()
  local number, voids, requests = math.tointeger(tonumber(host.store.get(NUMBER) or 0)) or 0, {}, {}
  for i, key in ipairs(host.store.keys(VOID, MAX_VOIDS)) do
    voids[i], requests[i] = key, { "PUBLISH", CHANNEL, text_of(math.tointeger(tonumber(key:sub(#VOID + 1))) or 0, "void", host.store.get(key) or "0") }
  end
  requests[#requests + 1] = { "PUBLISH", CHANNEL, text_of(number, "beat", fanout.say()) }
  return requests, voids
end

-- Sends the beat. True if the server has taken it.
local function send_beat(at)
  local ends = server.deadline()
  if not server.is_ready(ends) then return false end
  local requests, voids = make_beat()
  local count = #requests
  if server.has_sentinels then requests[count + 1] = { "ROLE" } end
  local done, reply = send(requests, ends)
  local first = done and #requests > 1 and reply[1]
  if not done or type(first) == "table" and first.error then return false end
  local role = server.has_sentinels and reply[count + 1]
  if role and role[1] ~= "master" then server.renew() end
  for _, key in ipairs(voids) do host.store.delete(key) end
  unanswered = unanswered or at
  if host.store.get(AWAY) then
    host.store.delete(AWAY)
    host.bus.broadcast("fan-out back", "")
  end
  return true
end

local function tick()
  local at = now()
  local is_answering = send_beat(at)
  if not is_answering then heard_since = nil end
  local current = server.current()
  if unanswered and at - unanswered >= silent_s then
    follow_again()
  elseif current and current ~= followed then
    follow(current)
  end
  for _, f in ipairs(at_ticks) do f(is_answering) end
end

--- Runs the job: with a message, nil where some may be missing, or false once a second.
function fanout.run(text)
  if text == false then return tick() end
  if text then return take(text) end
  on_subscribed()
end

local RUN_S <const> = 30

--- Begins, once this Lua state serves. Call it only while scripts load.
function fanout.start()
  source = host.redis.channel(nil, CHANNEL, false)      -- the first tick says at which server
  host.job.listen(fanout.job, source, nil, RUN_S, BEAT_S)
end

bus.on("attached", function() attached_at = now() end)

return fanout
