-- Which channel of an upstream a call uses. The key of a channel is a text: calls with equal keys share the channel.
-- What an upstream keeps for one client is shared between principals only if the upstream keeps nothing for clients, or
-- the configuration says `per: gateway`. Callers whose own tokens are sent share nothing: the owner of the token, which
-- is the principal with its scopes, ends each of their keys, after "@".

local class = require "moonpool.upstream.class"
local host = require "moonpool.host"
local principal = require "moonpool.access.principal"

local channel_key = {}

--- The key of the channel that reads lists, and of calls that share one channel for all clients.
channel_key.shared = "gateway"

-- Keys are in logs and status pages, so principals and session ids are in them only as hashes.
local function hashed(text)
  return (host.digest.sum("sha256", text):sub(1, 12):gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

local READING <const> = channel_key.shared .. ":reading:"

--- True for the key of a channel for one reading of lists.
function channel_key.is_of_reading(key) return key:sub(1, #READING) == READING end

--- True for the key of a channel that reads lists: those that are read for all clients, or for all of a class.
function channel_key.is_shared(key) return key == channel_key.shared or channel_key.is_of_reading(key) end

local function session_of(call) return call.has_session and host.session.id(call) or nil end

-- True for a client that nothing authenticated, if it is on another machine or its listener can be reached from one,
-- perhaps through a proxy on this machine: such clients are strangers to each other.
local function is_stranger(call)
  local address = call.address
  if call.principal.id ~= "anonymous" then return false end
  return host.config.is_exposed or address ~= nil and address ~= "unix" and not address:find "^127%." and address ~= "::1"
end

--- True for the key of a channel for one call.
function channel_key.is_of_call(key) return key:sub(1, 5) == "call:" end

local function of_call() return "call:" .. hashed(host.random.bytes(16)), true end

--- The key of a channel for one reading of lists, which no client uses.
function channel_key.of_reading() return READING .. hashed(host.random.bytes(16)) end

--- The key of the channels that belong to a session of a client.
function channel_key.of_session(id) return "session:" .. hashed(id) end

--- True for such a key.
function channel_key.is_of_session(key) return key:sub(1, 8) == "session:" end

local function of_session(call)
  local id = session_of(call)
  if id then return channel_key.of_session(id), true end
end

-- A client without a principal has no name that could be a key: its session has a channel of its own or, without a
-- session, each call has one.
local function of_stranger(call)
  local key, is_own = of_session(call)
  if key then return key, is_own end
  return of_call()
end

local function with_class(key, class_text) return class_text == class.none and key or key .. ":" .. class_text end

local function of_named(call) return "principal:" .. hashed(principal.key(call.principal)) end

--- The keys of the channels that the calls of a session may use, whatever the upstreams are, if its client can be asked
--- nothing or has a channel of its own.
function channel_key.all_of_session(call)
  local keys = { (of_session(call)) }
  if principal.is_named(call.principal) then keys[2] = of_named(call) end
  return keys
end

-- Principals that nothing authenticated use the channel that reads lists: it holds no state of other principals.
local function of_principal(call, class_text)
  if is_stranger(call) then return of_stranger(call) end
  if not principal.is_named(call.principal) then return with_class(channel_key.shared, class_text), false end
  return with_class(of_named(call), class_text), false
end

local function of_session_or_principal(call, class_text)
  local key, is_own = of_session(call)
  if key then return key, is_own end
  return of_principal(call, class_text)
end

local configured = { call = of_call, principal = of_principal, session = of_session_or_principal }

local function key_of(record, facts, call, class_text)
  if record.per then return configured[record.per](call, class_text) end
  if is_stranger(call) then return of_stranger(call) end
  if call.has_session and (facts.transport == "http" or class.can_ask(class_text)) then return of_session_or_principal(call, class_text) end
  return of_principal(call, class_text)
end

-- True if an upstream keeps nothing for its clients.
local function is_stateless(facts) return facts.is_modern or facts.transport == "http" and not facts.has_session end

-- The key for a caller whose own token is sent. It always contains the token's owner.
local function of_caller(record, facts, call, class_text, owner)
  local key, is_own
  if not record.per and is_stateless(facts) then
    class_text = class.none
  elseif record.per == "call" then
    key, is_own = of_call()
  elseif record.per == "session" or not record.per and call.has_session and (facts.transport == "http" or class.can_ask(class_text)) then
    key, is_own = of_session(call)
  end
  return (key or with_class("caller", class_text)) .. "@" .. owner, is_own or false, class_text
end

--- The key for reading the lists of a caller whose own token is sent.
function channel_key.of_lists(owner) return "caller@" .. owner end

--- The key for a call; true if the channel belongs to the call's session or to the call alone; and the channel's class.
--- `facts` are those of the upstream's catalogue: { is_modern, transport, has_session }. `class_text`: the class of the
--- call's client. Over a channel that clients share an upstream can ask no client.
--- `owner`: that of auth.identity for the call, if the caller's own token is sent.
function channel_key.of(record, facts, call, class_text, owner)
  if owner then return of_caller(record, facts, call, class_text, owner) end
  if record.per == "gateway" then return channel_key.shared, false, class.none end
  if not record.per and is_stateless(facts) then return channel_key.shared, false, class.none end
  local key, is_own = key_of(record, facts, call, class_text)
  return key, is_own, class_text
end

return channel_key