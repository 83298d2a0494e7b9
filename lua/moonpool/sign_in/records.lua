-- Records of the store: of codes, of sign-ins, of endings. Their keys are hashes or random, their values are encrypted,
-- and a value opens only under its own key.

local digest = require "moonpool.lib.digest"
local host = require "moonpool.host"
local sealed = require "moonpool.sign_in.sealed"

local records = {}

--- The key of something secret, from which it does not follow.
function records.hash(text) return digest.sha256(text) end

-- Raises an error that ends the request with 503: the store is full or does not answer.
local function need(done, why)
  if done == nil then error({ sign_in_unavailable = why or "the store" }, 0) end
  return done
end

local function key_of(kind, id) return "signin:" .. kind .. ":" .. id end

--- The value and the text of it that `replace` compares; nil: there is none.
function records.get(kind, id)
  local key = key_of(kind, id)
  local text, why = host.store.get(key)
  if why then need(nil, why) end
  if not text then return nil end
  return sealed.open("record", text, key), text
end

function records.put(kind, id, value, seconds)
  local key = key_of(kind, id)
  need(host.store.set(key, sealed.make("record", value, key), seconds))
end

--- False if there is a record already.
function records.add(kind, id, value, seconds)
  local key = key_of(kind, id)
  return need(host.store.add(key, sealed.make("record", value, key), seconds))
end

--- Replaces the record whose text is `text`; false if it is another one meanwhile.
function records.replace(kind, id, text, value, seconds)
  local key = key_of(kind, id)
  return need(host.store.cas(key, text, sealed.make("record", value, key), seconds))
end

function records.drop(kind, id) need(host.store.delete(key_of(kind, id))) end

--- Returns once all changes are on the disk.
function records.settle() host.store.saved() end

return records
