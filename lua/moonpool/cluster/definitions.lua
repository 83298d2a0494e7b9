-- While the nodes of a cluster serve different definitions, as in a deploy, a client that was notified of a changed list
-- may read it at a node that does not have the change yet. So each beat says which definitions its node serves, and each
-- node notifies its clients once more when all nodes serve the same list again.

local canonical = require "moonpool.runtime.canonical"
local digest = require "moonpool.lib.digest"
local fanout = require "moonpool.cluster.fanout"
local host = require "moonpool.host"
local registry = require "moonpool.registry.registry"
local sorted = require "moonpool.runtime.sorted_keys"
local subscriptions = require "moonpool.registry.subscriptions"

local now <const> = host.time.now
local LIVES_S <const> = host.config.cluster.beat_ms / 200      -- five beats: for so long a node counts after its last one
local EVERY_S <const> = 5                    -- seconds between two notifications of one list
local SEVERAL <const> = "fanout:several:"    -- key of the store: nodes serve several versions of a list
local lists <const> = { { "tools", "tools" }, { "prompts", "prompts" }, { "resources", "resources", "templates" } }

-- What scripts offer in a list, as 16 hexadecimal digits.
local function hash_of(list)
  local sum = ""
  for i = 2, #list do
    local things = registry.own(list[i])
    for _, key in ipairs(sorted(things)) do sum = digest.sha256(sum .. key .. "\0" .. canonical(things[key].definition)) end
  end
  return sum == "" and ("0"):rep(16) or sum:sub(1, 16)
end

local own                                    -- of this Lua state, whose definitions do not change

function fanout.say()
  if not own then
    own = {}
    for i, list in ipairs(lists) do own[i] = hash_of(list) end
  end
  return table.concat(own, " ")
end

-- True if all nodes that live serve the same list, and there are others.
local function is_one(index, said)
  local is_same = false
  for _, text in ipairs(said) do
    local hashes = {}
    for hash in text:gmatch "%x+" do hashes[#hashes + 1] = hash end
    if hashes[index] and hashes[index] ~= own[index] then return false end
    is_same = is_same or hashes[index] ~= nil
  end
  return is_same
end

local notified_at = {}

fanout.at_tick(function(is_answering)
  local said = fanout.said(LIVES_S)
  if not (is_answering and said[1]) then return end
  fanout.say()
  for i, list in ipairs(lists) do
    local key = SEVERAL .. list[1]
    local was_several = host.store.get(key) ~= nil
    if not is_one(i, said) then
      if not was_several then host.store.set(key, "") end
    elseif was_several and now() - (notified_at[i] or -math.huge) >= EVERY_S then
      host.store.delete(key)
      notified_at[i] = now()
      subscriptions.list_may_have_changed(list[1])
      host.bus.relay("list of all nodes", list[1])
    end
  end
end)

require "moonpool.runtime.bus".on("list of all nodes", subscriptions.list_may_have_changed)
