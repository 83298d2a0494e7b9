-- A family: what one sign-in of a person with a client gave, from its code to its end.
--   generation   its number grows with each refresh: one refresh token is the current one, one was used before it
--   seen         the generation of which an access token was used last
-- A used refresh token gives the same successor for GRACE_S after its first use, to whoever asks: two requests of one
-- client, or a lost answer. The successor is kept sealed by a key that follows from the used token alone. Later it gets
-- a second chance, once, if nothing of the new generation was ever seen: that generation is dead then, and there is
-- another one (SD-06). All else ends the family: one of two that have the token is a thief.

local ended = require "moonpool.sign_in.ended"
local host = require "moonpool.host"
local keys = require "moonpool.keys"
local records = require "moonpool.sign_in.records"
local sealed = require "moonpool.sign_in.sealed"

local families = {}

local CODE_S <const>, GRACE_S <const> = 60, host.config.sign_in.grace
local MOST_OF_CLIENT <const>, MOST_OF_PERSON <const> = 16, 64      -- families of one person, with one client and in all
local TRIES <const> = 8
local MOST_DEAD <const> = 64
local config = host.config.sign_in

local function random(bytes) return keys.base64url(keys.random(bytes)) end

-- -- codes --------------------------------------------------------------------------------------------------------------

--- A code for what the person has agreed to: `grant` has client, redirect, resource, scopes, challenge, user, mark.
function families.code(grant)
  local code = "mpc_" .. random(32)
  records.put("code", records.hash(code), grant, CODE_S)
  return code
end

--- The grant of a code, and the text that `take` compares; nil: it is not known any more. `grant.family`: it was used.
function families.find_code(code) return records.get("code", records.hash(code)) end

function families.drop_code(code) records.drop("code", records.hash(code)) end

-- By the store: another worker or process may be ending the family at this moment.
local function has_ended(id) return records.is_there("ended", id) end

-- -- tokens of a family -------------------------------------------------------------------------------------------------

-- As many digits for each generation: that one was seen always has a place in a full store, as its record does not grow.
local function seen_as(generation) return ("%08d"):format(generation) end

-- A refresh token has the id of its family: an old one is recognized without a record of its own.
local function refresh_token(id) return "mpr_" .. id .. "." .. random(32) end

local function split(token) return type(token) == "string" and token:match "^mpr_([%w_-]+)%.[%w_-]+$" or nil end

-- Seconds for which the family may be used from now on; 0: it has ended.
local function life_of(family) return math.max(0, math.min(config.idle, family.began + config.refresh - os.time())) // 1 | 0 end

local function successor_kind(token) return "successor " .. records.hash(token) end

--- Ends a family for good: its tokens are refused from now on, also if the store does not take the ending, which raises
--- an error then. What it had in a full store is free before its ending needs a place. With `is_one_of_many` the caller
--- calls records.settle().
function families.finish(id, is_one_of_many)
  ended.note(id)
  records.drop("family", id)
  records.put("ended", id, true, ended.SECONDS)
  if not is_one_of_many then records.settle() end
end

--- What was made of the family may be given to its client: it is on the disk, and the family has not ended meanwhile.
--- Raises an error if it does not come to the disk.
function families.is_settled(id)
  records.settle()
  return not has_ended(id)
end

--- Ends all families of a person.
function families.finish_all(user)
  for _, id in ipairs(records.get("person", records.hash(user)) or {}) do families.finish(id, true) end
  records.settle()
end

-- -- families of a person -----------------------------------------------------------------------------------------------

-- Takes the one of these families that was unused longest out of the list `all`, and returns its id.
local function take_oldest(all, some)
  local oldest = some[1]
  for _, one in ipairs(some) do
    if one.used < oldest.used then oldest = one end
  end
  for i, one in ipairs(all) do
    if one == oldest then table.remove(all, i) end
  end
  return oldest.id
end

-- Of a person's families, a list of ids, those that have a record; and those of them that the client has.
local function living(ids, client)
  local all, own = {}, {}
  for _, id in ipairs(ids) do
    local family = records.get("family", id)
    if family then
      local one = { id = id, used = family.used or family.began }
      all[#all + 1] = one
      if family.client == client then own[#own + 1] = one end
    end
  end
  return all, own
end

-- Notes the family among those of its person. Returns the id of one that has to give way to it, or nil.
local function note(id, family)
  local key = records.hash(family.user)
  for _ = 1, TRIES do
    local ids, text = records.get("person", key)
    local gone
    ids = ids or {}
    if #ids >= MOST_OF_CLIENT then
      local all, own = living(ids, family.client)
      if #own >= MOST_OF_CLIENT then gone = take_oldest(all, own) elseif #all >= MOST_OF_PERSON then gone = take_oldest(all, all) end
      ids = {}
      for i, one in ipairs(all) do ids[i] = one.id end
    end
    ids[#ids + 1] = id
    local is_noted
    if text then is_noted = records.replace("person", key, text, ids, config.refresh) else is_noted = records.add("person", key, ids, config.refresh) end
    if is_noted then return gone end
  end
  error({ sign_in_unavailable = "too many sign-ins of a person at once" }, 0)
end

--- Uses the code, whose text is `text`, and begins a family. `name`: what the client calls itself, for people. Returns its
--- id, the family, its refresh token (nil: the client asked for none), and whether the person's family that was unused
--- longest has ended for it; or nil if the code was used meanwhile.
function families.begin(code, grant, text, name)
  local id, now = random(16), os.time()
  local family = { client = grant.client, user = grant.user, mark = grant.mark, resource = grant.resource, scopes = grant.scopes,
    name = name, began = now, generation = 1, seen = seen_as(0) }
  local token = grant.refreshes and refresh_token(id) or nil
  family.current = token and records.hash(token)
  grant.family = id
  if not records.replace("code", records.hash(code), text, grant, CODE_S) then return nil end
  records.put("family", id, family, token and math.max(1, life_of(family)) or config.access)
  if has_ended(id) then records.drop("family", id) end        -- a second use of the code came between
  local gone = note(id, family)
  if gone then families.finish(gone) end
  return id, family, token, gone ~= nil
end

--- The family of a refresh token, which may be an old one; its id, and the text that `rotate` compares. nil: there is none.
function families.of(token)
  local id = split(token)
  if not id then return nil end
  local family, text = records.get("family", id)
  if not family or life_of(family) == 0 then return nil end
  return family, id, text
end

-- Another generation of the family, for the refresh token with this hash: the next refresh token.
local function advance(token, family, id, hash)
  local next_token = refresh_token(id)
  family.before, family.used, family.current = hash, os.time(), records.hash(next_token)
  family.successor = sealed.make(successor_kind(token), next_token)
  family.generation = family.generation + 1
  return next_token
end

-- Marks the family's generation, of which no token was ever used, as dead. The list keeps MOST_DEAD of them: a second chance
-- comes a minute after the first use of its refresh token at the earliest, so they are those of more than an hour. A token
-- of an older one, if it is valid for so long, is taken again.
local function bury(family)
  local dead = family.dead or {}
  table.insert(dead, 1, family.generation)
  dead[MOST_DEAD + 1] = nil
  family.dead, family.second = dead, family.before
end

--- Uses a refresh token of the family: the family as it is now and the next refresh token; or nil and "reused", or
--- "again": another request changed the family meanwhile.
function families.rotate(token, family, id, text)
  local hash = records.hash(token)
  if hash == family.before then
    local next_token = os.time() <= family.used + GRACE_S and sealed.open(successor_kind(token), family.successor)
    if next_token then return family, next_token end
    if family.second == hash or family.seen == seen_as(family.generation) then return nil, "reused" end
    bury(family)
  elseif hash ~= family.current then
    return nil, "reused"
  end
  local next_token = advance(token, family, id, hash)
  if not records.replace("family", id, text, family, math.max(1, life_of(family))) then return nil, "again" end
  return family, next_token
end

--- An access token of this generation is used for the first time here: that is noted before a call of it is answered.
--- False: the generation is dead.
function families.see(id, generation)
  for _ = 1, TRIES do
    local family, text = records.get("family", id)
    if not family then return true end           -- it is idle for longer than sign_in.tokens.idle; its tokens stay valid
    for _, dead in ipairs(family.dead or {}) do
      if dead == generation then return false end
    end
    if generation ~= family.generation or family.seen == seen_as(generation) then return true end
    family.seen = seen_as(generation)
    if records.replace("family", id, text, family) then return true end
  end
  error({ sign_in_unavailable = "too many changes of a sign-in at once" }, 0)
end

return families
