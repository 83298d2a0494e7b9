-- The tokens that the gateway sends to upstreams: its own (client_credentials), and those that it gets in exchange for
-- a caller's (exchange). A token is kept in the store, sealed, so that all workers have it; one task of all workers
-- gets a new one while others wait, or go on with one that is still good.

local bus = require "moonpool.runtime.bus"
local host = require "moonpool.host"
local json = require "moonpool.json"
local lru = require "moonpool.runtime.lru"
local principal = require "moonpool.access.principal"
local server = require "moonpool.upstream.auth.server"

local auth = {}

local WAIT_S <const> = 25                -- longest wait for a token
local FETCH_S <const> = 22               -- longest time that a request for a token may take; the store's lock ends then
local BARRED_S <const> = 30              -- seconds until a refused credential is tried again
local MAX_PAUSE_S <const> = 60           -- longest pause after a server did not answer
-- seconds until a caller's token that the authorization server has refused is exchanged again
local DENIED_S <const> = 30
local MAX_KNOWN <const> = 1024
local MAX_CALLERS <const> = host.limits.upstreams.caller_tokens

local OF_CALLER <const> = "caller:"      -- prefix of the store keys of callers' tokens, and of failures to get one

local function is_of_caller(key) return key:sub(1, #OF_CALLER) == OF_CALLER end

-- The prefix of the store's keys for a token: those of callers are in the room that callers fill.
local function prefix_of(key) return is_of_caller(key) and "callers:credential:" or "upstream:credential:" end

local known = lru.new(MAX_KNOWN)         -- key -> { text, ends, renew_at }, as the store has it
local changed = host.task.event()

local function wake()
  changed:set()
  changed:clear()
end

-- A task of any worker has got a token, or has failed to. Where the store is full, the worker that got it is the only
-- one that has it.
bus.on("credential", function(key)
  if host.store.get(prefix_of(key) .. key) then known:put(key, false) end
  wake()
end)

bus.on("credential dropped", function(key)
  known:put(key, false)
  wake()
end)

bus.on("missed", function()
  known = lru.new(MAX_KNOWN)
  wake()
end)

local function hex(bytes) return (bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end

local function joined(...)
  local parts = table.pack(...)
  for i = 1, parts.n do
    local text = tostring(parts[i] or "")
    parts[i] = #text .. ":" .. text
  end
  return hex(host.digest.sum("sha256", table.concat(parts, ",", 1, parts.n)))
end

-- -- whose token -------------------------------------------------------------------------------------------------------------

--- True if requests to an upstream have a token of the caller, so that callers share nothing of it.
function auth.is_personal(record) return record.auth ~= nil and record.auth.kind == "exchange" end

-- The caller's own token, if this gateway has verified it; nil and a reason for callers without one, and for a call
-- that has outlived its token.
local function verified_token(call)
  local facts = principal.facts(call.principal)
  if not (facts and facts.has_token) then return nil, "caller" end
  if facts.expires and facts.expires <= os.time() then return nil, "expired" end
  local header, count = host.call.header(call, "authorization")
  return count == 1 and header:match "^[Bb][Ee][Aa][Rr][Ee][Rr] +([!-~]+)$" or nil, "caller"
end

-- A text that differs for callers whose tokens must not be mixed: one principal with other scopes is another caller.
local function owner_of(call)
  local facts = principal.facts(call.principal)
  return joined(facts.key, facts.id, table.concat(facts.scopes, " ")):sub(1, 32)
end

local identities = setmetatable({}, { __mode = "k" })      -- call -> what auth.identity gives for it

--- Whose token the requests of a call carry: { owner, subject, id, expires? }, where `owner` is a text that no other
--- caller has, `subject` the caller's token, and `expires` its end in seconds since 1970. nil for an upstream where all
--- callers have the gateway's credential; nil and a failure for a caller without a valid token, and without a call. The
--- call of an MCP task has the token of the call that began it.
function auth.identity(record, call)
  if not auth.is_personal(record) then return nil end
  local subject, why
  if call then subject, why = verified_token(call) end
  local before = call and identities[call]
  if before and why ~= "expired" then return before end
  if not subject then return nil, { outcome = "not_run", reason = why or "caller" } end
  local made = { owner = owner_of(call), subject = subject, id = call.principal.id, expires = principal.facts(call.principal).expires }
  identities[call] = made
  return made
end

local function key_of(record, owner)
  local of = record.auth
  return joined(record.name, of.kind, of.issuer, of.token_url, of.client, host.secret.reveal(of.secret), of.scope, of.audience, of.resource, of.method, owner)
end

-- -- the store ---------------------------------------------------------------------------------------------------------------

local function purpose(key) return "upstream credential " .. key end

local function refused_key(key) return prefix_of(key) .. "refused:" .. key end

-- The token that the store has, unless the upstream has refused it.
local function stored_token(key)
  local sealed = host.store.get(prefix_of(key) .. key)
  local text = sealed and host.seal.open(sealed, purpose(key))
  local token = text and json.decode(text)
  if type(token) ~= "table" or host.store.get(refused_key(key)) == joined(token.text) then return nil end
  return token
end

local function load_token(key)
  local cached = known:get(key)
  if cached then return cached end
  local token = stored_token(key)
  if token then known:put(key, token) end
  return token
end

-- Drops tokens of callers, any of them, until there is room for one more.
local function make_room()
  local prefix = prefix_of(OF_CALLER)
  local keys = host.store.keys(prefix .. OF_CALLER, MAX_CALLERS + 1)
  for count = #keys, MAX_CALLERS, -1 do
    local key = table.remove(keys, string.unpack("I4", host.random.bytes(4)) % count + 1)
    host.store.delete(key)
    host.upstream.count_token "evicted"
    bus.everywhere("credential dropped", key:sub(#prefix + 1))
  end
end

local function keep_token(key, got)
  local now = host.time.clock()
  local early = math.min(30, got.seconds / 4)
  local token = { text = got.text, ends = now + got.seconds, renew_at = now + got.seconds - early }
  if is_of_caller(key) and not host.store.get(prefix_of(key) .. key) then make_room() end
  host.store.set(prefix_of(key) .. key, host.seal.make(json.encode(token), purpose(key)), math.ceil(got.seconds))
  known:put(key, token)
end

-- -- getting one -------------------------------------------------------------------------------------------------------------

local function pause_at(key)
  local text = host.store.get(prefix_of(key) .. "pause:" .. key)
  local pause = text and json.decode(text)
  return type(pause) == "table" and pause or nil
end

-- Why no token is asked for at the moment: because of this caller's token, of this caller, or of the gateway.
local function pause_of(record, key, identity)
  local pause = pause_at(key)
  if pause or not identity then return pause end
  return pause_at(OF_CALLER .. joined(key, identity.subject)) or pause_at(record.auth.key)
end

-- The key under which a failure to get a token is remembered: `key` for an outage; the caller's token if the server
-- refuses it, since it may accept the caller's next one; the gateway's key if the server refuses the gateway.
local function pause_key(record, key, identity, kind)
  if not identity or kind == "outage" then return key end
  return kind == "denied" and OF_CALLER .. joined(key, identity.subject) or record.auth.key
end

local function seconds_of(failure, key)
  if failure.kind == "barred" then return BARRED_S end
  if failure.kind == "denied" then return DENIED_S end
  if failure.retry_after then return math.max(failure.retry_after, 1) end
  local count = host.store.incr(prefix_of(key) .. "failures:" .. key, 1, 300) or 1
  return math.min(MAX_PAUSE_S, 2 ^ (math.min(count, 7) - 1))
end

-- Notes that no token was got. `at`: the key under which the failure is kept.
local function note_failure(record, key, at, failure, identity)
  local seconds, is_ours = seconds_of(failure, key), failure.kind == "barred"
  local pause = { kind = failure.kind, why = failure.why, seconds = seconds, ends = host.time.clock() + seconds }
  host.store.set(prefix_of(at) .. "pause:" .. at, json.encode(pause), seconds)
  if failure.kind ~= "outage" then host.store.delete(prefix_of(key) .. key) end
  host.upstream.count_token(failure.kind == "outage" and "failed" or "refused")
  host.log.write(is_ours and "error" or "warn", "no token for upstream", { upstream = record.name, principal = identity and identity.id, why = failure.why,
    again = ("%.0fs"):format(seconds), hint = is_ours and "see auth of the upstream in the configuration" or nil })
end

-- Requests a token in a task of its own, so that the cancellation of one call does not take it from others. True if the
-- token is cached already; false and a text if the store takes no lock: nobody may request a token then.
local function fetch(record, key, identity)
  local lock = prefix_of(key) .. "lock:" .. key
  local mine = hex(host.random.bytes(8))
  local is_locked, why = host.store.add(lock, mine, FETCH_S)
  if is_locked == nil then return false, "the store takes no lock for getting a token: " .. why end
  if not is_locked then return end
  local token = stored_token(key)
  if token and host.time.clock() < token.renew_at then          -- another task has got the token just now
    known:put(key, token)
    host.store.delete(lock)
    return true
  end
  local begun = host.job.begin(function()
    local _ <close> = setmetatable({}, { __close = function()
      if host.store.get(lock) == mine then host.store.delete(lock) end
      bus.everywhere("credential", key)
    end })
    local got, failure = server.token(record, identity and identity.subject)
    if got then
      host.upstream.count_token "got"
      keep_token(key, got)
      host.store.delete(prefix_of(key) .. "failures:" .. key)
      host.store.delete(prefix_of(key) .. "pause:" .. key)
    else
      note_failure(record, key, pause_key(record, key, identity, failure.kind), failure, identity)
    end
  end, FETCH_S)
  if not begun then host.store.delete(lock) end
end

local reasons = { barred = "barred", denied = "denied", outage = "credential" }

local function failure_of(pause)
  local left = math.min(pause.seconds or math.huge, pause.ends - host.time.clock())      -- the clock may have been set back
  return { outcome = "not_run", reason = reasons[pause.kind] or "credential", why = pause.why, retry_after = math.max(1, left) }
end

-- The token of a key, cached or requested; or nil and a failure.
local function token_of(record, key, identity)
  local deadline = host.time.now() + WAIT_S
  while true do
    local token, now = load_token(key), host.time.clock()
    if token and now < token.renew_at then return token.text end
    local is_good = token and now < token.ends
    local pause = pause_of(record, key, identity)
    if pause and not (is_good and pause.kind == "outage") then return nil, failure_of(pause) end
    local has_come, why
    if not pause then has_come, why = fetch(record, key, identity) end
    if is_good then return token.text end
    if why then return nil, { outcome = "not_run", reason = "credential", why = why } end
    local left = deadline - host.time.now()
    if left <= 0 then return nil, { outcome = "not_run", reason = "credential", why = "the authorization server does not answer" } end
    if not has_come then changed:wait(math.min(left, 1)) end
  end
end

--- The bearer token for requests to an upstream, and its key; nil, nil if the configuration names none; nil and a
--- failure. `identity`: what auth.identity gave for the call; nil for requests of the gateway itself, which an upstream
--- with a token of each caller refuses. A token that was got for a caller is not sent once the caller's own has ended,
--- as in a call that waits for an upstream's task.
function auth.token(record, identity)
  if not record.auth then return nil, nil end
  record.auth.key = record.auth.key or key_of(record, "")
  local is_personal = auth.is_personal(record)
  if is_personal and not identity then return nil, { outcome = "not_run", reason = "caller" } end
  if is_personal and identity.expires and identity.expires <= os.time() then return nil, { outcome = "not_run", reason = "expired" } end
  local key = is_personal and OF_CALLER .. key_of(record, identity.owner) or record.auth.key
  local token, failure = token_of(record, key, is_personal and identity or nil)
  return token, token and key or failure
end

--- The upstream has refused this token (401): the next request for a token gets a new one. A token that another task
--- has got meanwhile stays: only this one is marked.
function auth.drop(key, text)
  local token = stored_token(key)
  local is_kept = token ~= nil and token.text == text
  local seconds = is_kept and math.max(60, math.ceil(token.ends - host.time.clock())) or 60
  if not host.store.set(refused_key(key), joined(text), seconds) and is_kept then host.store.delete(prefix_of(key) .. key) end
  local cached = known:get(key)
  if cached and cached.text == text then known:put(key, false) end
  bus.everywhere("credential dropped", key)
end

--- The upstream refuses new tokens, too: none is got for a while, so that neither server is asked again and again. It
--- refuses one caller's, if `identity` is given.
function auth.bar(record, key, identity)
  note_failure(record, key, key, { kind = identity and "denied" or "barred", why = "the upstream refuses the token that the authorization server gave" },
    identity)
  known:put(key, false)
  bus.everywhere("credential dropped", key)
end

return auth
