-- The server of `cluster`: its connections, and what is sent to it. With sentinels, which server that is.
--
-- A request is sent once. Without an answer it is "unavailable", it was not sent and never will be; or "unknown", it was
-- sent, and may have run, or may run yet. Nothing waits for a server that does not answer: after some requests without an
-- answer the next ones are "unavailable" at once, and one PING at a time asks whether it answers again. Limits, which many
-- calls wait for, have less time, and requests of theirs without an answer stop only further ones of theirs: two paces.

local host = require "moonpool.host"
local copied = require "moonpool.runtime.copied"
local server_url = require "moonpool.lib.server_url"

local config <const> = host.config.cluster
local now <const> = host.time.now            -- taken while this file loads: later, a recorder of calls replaces host.time.now
local LATE <const> = 3                       -- after so many requests without an answer, nearly one after the other, no more are sent
local PROBE_S <const> = 0.5                  -- seconds until a PING asks whether it answers again
local WAIT_MS <const> = "100"                -- ms to wait for the answer of a replica
local WAIT_S <const> = 0.25                  -- seconds within which the server ends such a wait: it looks ten times a second
local MAX_SYNC <const> = 32                  -- requests that wait for replicas
local NEW_S <const> = 0.5                    -- seconds between two times that the primary is looked for
local MAX_LOOK_S <const> = 10
local BRIEF_S <const> = 0.1                  -- most seconds that a call waits for a limit

local cluster_server = {}

-- `late`: when the last requests without an answer ended; `probe_at`: when a PING is due, nil: requests are sent.
local function new_pace(seconds) return { seconds = seconds, late = {}, probe_at = nil } end

--- The pace of limits; that of all else is the default of the functions below.
cluster_server.brief = new_pace(math.min(config.timeout, BRIEF_S))
local usual <const> = new_pace(config.timeout)

--- The number of gateways that were there when the server last answered: cluster/fanout.lua counts them, in this key of the
--- store.
cluster_server.NODES = "fanout:nodes"
function cluster_server.nodes() return tonumber(host.store.get(cluster_server.NODES)) or 1 end

local server
do
  local secure, rest = config.url:match "^redis(s?)://(.*)$"
  local user, place, database = rest:match "^([^@/]*)@?([^/]*)/?(%d*)$"
  if place == "" then user, place = "", user end
  local why
  server, why = server_url.place("cluster.redis.url", place, 6379)
  if not server then error(why or "cluster.redis.url has no host", 0) end
  server.tls, server.user, server.database = secure == "s", user, tonumber(database) or 0
  server.password, server.reach, server.script, server.lists = config.password or "", "private", "", {}
end

-- `main`: the connection of commands. `sync`: that of changes which wait for a replica, since the server answers nothing
-- behind them meanwhile. Both are opened by their first command, which looks up the name of the server.
server.links = {}
local tried = server                         -- with sentinels: the server that one of them named last; it becomes `server` once it says that it is the primary
local place <const>, master <const> = server.place, server.host   -- as the configuration has them
cluster_server.place = place

local is_found = #config.sentinels == 0      -- with sentinels: the server has said that it is the primary, and answers since
local looked_at, looking = -math.huge, nil   -- when the server was last looked for; while sentinels are asked: an event

local sentinels = {}
for i, text in ipairs(config.sentinels) do
  local one = server_url.place("cluster.redis.sentinels", text, 26379) or error("cluster.redis.sentinels: '" .. text .. "' is no address", 0)
  one.tls, one.user, one.password, one.database = server.tls, "", "", 0
  one.reach, one.script, one.lists = server.reach, "", server.lists
  sentinels[i] = host.redis.connection(one)
end

local function request(link, ...)
  local _, reply = host.redis.send(link, { { ... } }, config.timeout, (...), "")
  return type(reply) == "table" and reply or {}
end

-- Sets `server` to the one that a sentinel names and that says it is the primary. A server that is tried again keeps its
-- connections.
local function find_primary()
  for i, sentinel in ipairs(sentinels) do
    local address, port = table.unpack(request(sentinel, "SENTINEL", "get-master-addr-by-name", master))
    if type(address) == "string" then
      local named = address .. ":" .. port
      if tried.place ~= named then
        tried = copied(server)
        tried.host, tried.port, tried.place, tried.links = address:lower(), tonumber(port), named, {}
      end
      local one = tried
      one.links.main = one.links.main or host.redis.connection(one)
      if request(one.links.main, "ROLE")[1] == "master" then
        table.insert(sentinels, 1, table.remove(sentinels, i))
        server, is_found = one, true
        return
      end
    end
  end
end

-- True if there is a primary. A task of its own looks for it, while calls wait, at most `seconds`.
local function has_primary(seconds)
  if is_found then return true end
  if not looking and now() - looked_at >= NEW_S then
    local found = host.task.event()
    local function land()
      looking, looked_at = nil, now()
      found:set()
    end
    looking = found
    if not host.job.begin_own(function()
      local _ <close> = setmetatable({}, { __close = land })
      find_primary()
    end, MAX_LOOK_S) then land() end
  end
  if looking then looking:wait(seconds) end
  return is_found
end

local function link_of(name)
  server.links[name] = server.links[name] or host.redis.connection(server)
  return server.links[name]
end

--- The server has gone, does not answer, or says that it is a replica: the next request looks it up again.
function cluster_server.renew()
  if now() - looked_at < NEW_S then return end
  if sentinels[1] then is_found = false else server.links, looked_at = {}, now() end
end

local function note_late(pace)
  local most = 1 + (LATE - 1) * pace.seconds   -- also where one call asks after the other
  local late = pace.late
  late[#late + 1] = now()
  if #late > LATE then table.remove(late, 1) end
  if #late == LATE and late[LATE] - late[1] <= most and not pace.probe_at then
    pace.probe_at, pace.late = now() + PROBE_S, {}
    host.log.write("warn", "redis unavailable", { server = place, why = ("%d requests had no answer within %g s"):format(LATE, pace.seconds) })
  end
end

-- Sends requests, and notes what became of them, unless there is another server meanwhile.
local function send(link, requests, seconds, pace)
  local done, reply, reason, how = host.redis.send(link, requests, seconds, requests[1][1], "")
  if link == server.links.main or link == server.links.sync then
    if how == "late" then note_late(pace) end
    if sentinels[1] and (how == "late" and pace == usual or how == "lost") then cluster_server.renew() end
  end
  return done, reply, reason
end

--- When an operation that begins now has to have its answer.
function cluster_server.deadline(pace) return now() + (pace or usual).seconds end

--- True if a request may be sent that needs its answer by `ends`.
function cluster_server.is_ready(ends, pace)
  pace = pace or usual
  if not pace.probe_at then return has_primary(ends - now()) end
  if now() < pace.probe_at then return false end
  pace.probe_at = now() + PROBE_S
  if sentinels[1] and pace == usual then is_found = false end
  if not has_primary(ends - now()) then return false end
  local seconds = ends - now()
  if seconds <= 0 or not host.redis.send(link_of "main", { { "PING" } }, seconds, "PING", "") then return false end
  pace.probe_at = nil
  host.log.write("info", "redis available", { server = place })
  return true
end

--- Sends a request: true, its reply, and, with `is_sync`, whether a replica has what it changed; or nil, why, and "error",
--- "unavailable" or "unknown". `ends`: when the answer has to be there, without the wait for a replica.
function cluster_server.send(words, ends, is_sync, pace)
  pace = pace or usual
  local seconds = ends - now()
  if seconds <= 0 then return nil, "its time is over", "unavailable" end
  if not is_sync then return send(link_of "main", { words }, seconds, pace) end
  local link = link_of "sync"
  local waiting = host.redis.load(link)
  if waiting >= MAX_SYNC then return nil, "too many changes wait for replicas", "unavailable" end
  local done, replies, reason = send(link, { words, { "WAIT", "1", WAIT_MS } }, seconds + (waiting // 2 + 1) * WAIT_S, pace)
  if not done then return nil, replies, reason end
  local first = replies[1]
  if type(first) == "table" and first.error then return nil, first.error, "error" end
  return true, first, math.type(replies[2]) == "integer" and replies[2] >= 1
end

--- Sends requests together, as cluster_server.send does one.
function cluster_server.send_all(requests, ends)
  local seconds = ends - now()
  if seconds <= 0 then return nil, "its time is over", "unavailable" end
  return send(link_of "main", requests, seconds, usual)
end

cluster_server.has_sentinels = sentinels[1] ~= nil

--- The server that is used now, for host.redis.connection: another table once another server is the primary; nil: none is
--- known.
function cluster_server.current() return is_found and server or nil end

return cluster_server
