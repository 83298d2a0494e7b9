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

--- Replaces the record whose text is `text`: the text that it has now; false if it is another one meanwhile.
--- Without `seconds` it lasts as long as it did.
function records.replace(kind, id, text, value, seconds)
  local key = key_of(kind, id)
  local made = sealed.make("record", value, key)
  return need(host.store.cas(key, text, made, seconds)) and made
end

--- True if there is a record, whether it can be read or not.
function records.is_there(kind, id) return select(2, records.get(kind, id)) ~= nil end

--- The ids of all records of a kind; nil: the store does not answer.
function records.ids(kind)
  local begins = key_of(kind, "")
  local keys, why = host.store.keys(begins)
  if why then return nil end
  for i, key in ipairs(keys) do keys[i] = key:sub(#begins + 1) end
  return keys
end

--- Uses up the record whose text is `text`; false if another request did so.
function records.use(kind, id, text) return need(host.store.cas(key_of(kind, id), text, false)) end

function records.drop(kind, id) need(host.store.delete(key_of(kind, id))) end

--- Raises that error if changes cannot come to the disk now: nothing is to be used up then.
function records.ready() need(host.store.is_saved() ~= nil or nil, "the store's file") end

--- Returns once all changes are on the disk; raises that error if they do not come there.
function records.settle()
  local done, number = host.store.is_saved()
  if done == false then
    host.store.saved()
    done = host.store.is_saved(number)
  end
  need(done or nil, "the store's file")
end

return records
