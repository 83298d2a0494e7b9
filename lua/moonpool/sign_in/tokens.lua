-- Access tokens: what a call needs to know of its caller, encrypted. Every worker reads them without the store.

local address = require "moonpool.sign_in.address"
local auth = require "moonpool.access.auth"
local ended = require "moonpool.sign_in.ended"
local families = require "moonpool.sign_in.families"
local host = require "moonpool.host"
local people = require "moonpool.sign_in.people"
local recent = require "moonpool.runtime.lru"
local records = require "moonpool.sign_in.records"
local sealed = require "moonpool.sign_in.sealed"
local watch = require "moonpool.sign_in.watch"

local tokens = {}

local PREFIX <const> = "mpa_"
local VERSION <const>, MAX_BYTES <const>, MAX_KNOWN <const> = 2, 2048, 4096
local MAX_SCOPES <const> = 256        -- as of any principal
local RETRY_S <const> = 2
local KNOWN_S <const> = 0.5          -- seconds until the file of users is looked at again; that a sign-in has ended counts at once

--- An access token of the family, and the seconds for which it is valid. `scopes` are those of the family, or fewer.
function tokens.make(id, family, scopes)
  local seconds = math.min(host.config.sign_in.access, family.began + host.config.sign_in.refresh - os.time()) // 1 | 0
  local expires = os.time() + seconds
  local content = { VERSION, id, family.user, family.mark, family.client, family.resource, scopes, expires, family.generation }
  return PREFIX .. sealed.make("access token", content), seconds
end

local A_FAMILY <const> = ("x"):rep(22)

--- Why no token of a sign-in can have these scopes; nil: it can. `grant`: as families.code takes it.
function tokens.trouble(grant)
  if #grant.scopes > MAX_SCOPES then return "more than " .. MAX_SCOPES .. " scopes" end
  local family = { user = grant.user, mark = grant.mark, client = grant.client, resource = grant.resource, began = os.time(), generation = 99999 }
  if #tokens.make(A_FAMILY, family, grant.scopes) > MAX_BYTES then return "scopes for which an access token of " .. MAX_BYTES .. " bytes has no room" end
end

local known = recent.new(MAX_KNOWN)       -- hash of a token -> { content, principal }

-- The content of a token and its principal; nil: it is none of this gateway's.
local function read(token)
  local hash = records.hash(token)
  local found = known:get(hash)
  if found then return found end
  local content = sealed.open("access token", token:sub(#PREFIX + 1))
  if not content or content[1] ~= VERSION then return nil end
  found = { family = content[2], user = content[3], mark = content[4], resource = content[6], expires = content[8], generation = content[9] }
  local facts = people.facts(found.user)
  facts.client, facts.scopes, facts.expires = content[5], people.scopes(content[7]), found.expires
  found.principal = auth.keep(facts)
  auth.of_sign_in(found.principal, found.family)
  known:put(hash, found)
  return found
end

--- The family's id, the client's key and whether the token is one of this gateway's.
function tokens.family(token)
  local found = token:sub(1, #PREFIX) == PREFIX and #token <= MAX_BYTES and read(token)
  return found and found.family, found and found.principal.client
end

-- The principal of a request, and the seconds for which that holds; nil, why, and the seconds after which a retry may
-- succeed.
local function authenticate(request)
  local token = request.bearer
  if not token or token:sub(1, #PREFIX) ~= PREFIX or #token > MAX_BYTES then return nil, "there is no access token of this gateway" end
  local found = read(token)
  if not found or found.resource ~= address.resource() then return nil, "the access token is not of this gateway" end
  if found.expires <= os.time() then return nil, "the access token has expired" end
  local may, why, is_unknown = people.may(found.user, found.mark)
  if not may then return nil, why, is_unknown and RETRY_S or nil end
  local ok, has_ended = pcall(ended.has, found.family)
  if not ok then return nil, "it cannot be found out whether the sign-in has ended", RETRY_S end
  if has_ended then return nil, "the sign-in has ended" end
  if not found.is_seen then
    ok, found.is_seen = pcall(families.see, found.family, found.generation)
    if not ok then
      found.is_seen = nil
      return nil, "the first use of an access token cannot be noted", RETRY_S
    end
    if not found.is_seen then return nil, "the access token was replaced by another one before it was used" end
  end
  return found.principal, math.min(KNOWN_S, found.expires - os.time())
end

--- What the loader gives to auth.set: an auth script of the gateway's own, which is asked before all others.
function tokens.entry()
  ended.load()
  watch.start()
  local made = auth.build("sign_in", auth.new({ authenticate, issuer = address.issuer }, true, true), nil, error)
  made.path, made.has_pages = "sign_in", true
  return made
end

return tokens
