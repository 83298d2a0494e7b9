-- The tokens that the gateway sends to upstreams: its own (client_credentials), and those that it gets in exchange for a caller's (exchange). A token is
-- kept in the store, sealed, so that all workers have it; one task of all workers gets a new one while others wait, or go on with one that is still good.

local bus = require "moonpool.runtime.bus"
local host = require "moonpool.host"
local json = require "moonpool.json"
local lru = require "moonpool.runtime.lru"
local principal = require "moonpool.access.principal"
local server = require "moonpool.upstream.auth.server"

local auth = {}

local WAIT_S <const> = 25                -- longest wait for a token
local FETCH_S <const> = 22               -- longest time that getting one may take; the lock ends then
local BARRED_S <const> = 30              -- seconds until a refused credential is tried again
local MAX_PAUSE_S <const> = 60           -- longest pause after a server did not answer
local MAX_KNOWN <const> = 1024

local PREFIX <const> = "upstream:credential:"

local known = lru.new(MAX_KNOWN)         -- key -> { text, ends, renew_at }, as the store has it
local changed = host.task.event()

local function wake()
  changed:set()
  changed:clear()
end

-- A task of any worker has got a token, or has failed to. Where the store is full, the worker that got it is the only one that has it.
bus.on("credential", function(key)
  if host.store.get(PREFIX .. key) then known:put(key, false) end
  wake()
end)

bus.on("credential dropped", function(key)
  known:put(key, false)
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

-- The caller's own token, if this gateway has verified it; nil for callers without one.
local function verified_token(call)
  local facts = call and principal.facts(call.principal)
  if not (facts and facts.has_token) then return nil end
  local header = host.call.header(call, "authorization")
  return header and header:match "^[Bb][Ee][Aa][Rr][Ee][Rr] +([!-~]+)$"
end

--- A text that differs for callers whose tokens must not be mixed: one principal with other scopes is another caller.
function auth.owner(call)
  local facts = principal.facts(call.principal)
  return joined(facts.key, table.concat(facts.scopes, " "))
end

local function key_of(record, owner)
  local of = record.auth
  return joined(record.name, of.kind, of.issuer, of.token_url, of.client, host.secret.reveal(of.secret), of.scope, of.audience, of.method, owner)
end

-- -- the store ---------------------------------------------------------------------------------------------------------------

local function purpose(key) return "upstream credential " .. key end

local function load_token(key)
  local cached = known:get(key)
  if cached then return cached end
  local sealed = host.store.get(PREFIX .. key)
  local text = sealed and host.seal.open(sealed, purpose(key))
  local token = text and json.decode(text)
  if type(token) ~= "table" then return nil end
  known:put(key, token)
  return token
end

local function keep_token(key, got)
  local now = host.time.clock()
  local early = math.min(30, got.seconds / 4)
  local token = { text = got.text, ends = now + got.seconds, renew_at = now + got.seconds - early }
  host.store.set(PREFIX .. key, host.seal.make(json.encode(token), purpose(key)), math.ceil(got.seconds))
  known:put(key, token)
end

-- -- getting one -------------------------------------------------------------------------------------------------------------

local function pause_of(key)
  local text = host.store.get(PREFIX .. "pause:" .. key)
  local pause = text and json.decode(text)
  return type(pause) == "table" and pause or nil
end

local function note_failure(record, key, failure)
  local count = host.store.incr(PREFIX .. "failures:" .. key, 1, 300) or 1
  local seconds = failure.kind == "barred" and BARRED_S or failure.retry_after or math.min(MAX_PAUSE_S, 2 ^ (math.min(count, 7) - 1))
  seconds = math.max(seconds, 1)
  host.store.set(PREFIX .. "pause:" .. key, json.encode { kind = failure.kind, why = failure.why, ends = host.time.clock() + seconds }, seconds)
  if failure.kind == "barred" then host.store.delete(PREFIX .. key) end
  host.log.write(failure.kind == "barred" and "error" or "warn", "no token for upstream", { upstream = record.name, why = failure.why,
    again = ("%.0fs"):format(seconds), hint = failure.kind == "barred" and "see auth of the upstream in the configuration" or nil })
end

-- Gets a token in a task of its own, so that the cancel of one call takes it from no other.
local function fetch(record, key, subject)
  local lock = PREFIX .. "lock:" .. key
  local mine = hex(host.random.bytes(8))
  if not host.store.add(lock, mine, FETCH_S) then return end
  local begun = host.job.begin(function()
    local _ <close> = setmetatable({}, { __close = function()
      if host.store.get(lock) == mine then host.store.delete(lock) end
      host.bus.broadcast("credential", key)
    end })
    local got, failure = server.token(record, subject)
    if got then
      keep_token(key, got)
      host.store.delete(PREFIX .. "failures:" .. key)
      host.store.delete(PREFIX .. "pause:" .. key)
    else
      note_failure(record, key, failure)
    end
  end, FETCH_S)
  if not begun then host.store.delete(lock) end
end

local function failure_of(pause)
  return { outcome = "not_run", reason = pause.kind == "barred" and "barred" or "credential", why = pause.why,
    retry_after = math.max(1, pause.ends - host.time.clock()) }
end

-- The token of a key; or nil and a failure.
local function token_of(record, key, subject)
  local deadline = host.time.now() + WAIT_S
  while true do
    local token, now = load_token(key), host.time.clock()
    if token and now < token.renew_at then return token.text end
    local is_good = token and now < token.ends
    local pause = pause_of(key)
    if pause and not (is_good and pause.kind ~= "barred") then return nil, failure_of(pause) end
    if not pause then fetch(record, key, subject) end
    if is_good then return token.text end
    local left = deadline - host.time.now()
    if left <= 0 then return nil, { outcome = "not_run", reason = "credential", why = "the authorization server does not answer" } end
    changed:wait(math.min(left, 1))
  end
end

--- The bearer token for requests of a call (nil: of the gateway itself) to an upstream, and its key; nil, nil if the configuration names none; nil and a
--- failure.
function auth.token(record, call)
  if not record.auth then return nil, nil end
  if record.auth.kind == "client_credentials" then
    local key = record.auth.key or key_of(record, "")
    record.auth.key = key
    local token, failure = token_of(record, key)
    return token, token and key or failure
  end
  local subject = verified_token(call)
  if not subject then return nil, { outcome = "not_run", reason = "caller" } end
  local key = key_of(record, auth.owner(call))
  local token, failure = token_of(record, key, subject)
  return token, token and key or failure
end

--- The upstream has refused this token (401): the next one is got anew. Tokens that another task has got meanwhile stay.
function auth.drop(key, text)
  local token = load_token(key)
  if token and token.text == text then
    host.store.delete(PREFIX .. key)
    known:put(key, false)
    host.bus.broadcast("credential dropped", key)
  end
end

--- The upstream refuses new tokens, too: none is got for a while, so that neither server is asked again and again.
function auth.bar(record, key)
  note_failure(record, key, { kind = "barred", why = "the upstream refuses the token that the authorization server gave" })
  known:put(key, false)
  host.bus.broadcast("credential dropped", key)
end

return auth
