-- Which of several upstreams serves a name or URI that each of them lists: the first one in the configuration, unless a
-- later one served it before the first one listed it. Then it stays with the one that has it, whatever the others list.
-- The store has the decisions for all workers, each for KEPT_S after it was needed last.

local host = require "moonpool.host"

local owners = {}

local KEPT_S <const> = 86400
local REFRESH_S <const> = KEPT_S / 24 -- seconds after which the time of decisions that are in use is lengthened again

-- A URI can be longer than a key of the store.
local function key_of(kind, id) return "callers:route:" .. kind .. ":" .. host.base64.encode(host.digest.sum("sha256", id)) end

--- Decides which of two upstreams, `first` and `other` in the order of the configuration, serves `id`, a name or URI of
--- the list `kind`. `had`: the one that serves it now, or nil. `may_keep`: this Lua state decides for all workers.
--- Returns the upstream's name, the key of the decision in the store, and true if the decision is new.
function owners.of(kind, id, first, other, had, may_keep)
  local key = key_of(kind, id)
  local kept = host.store.get(key)
  if kept == first or kept == other then return kept, key, false end
  local owner = had == other and other or first
  if kept or not may_keep then return owner, key, false end
  if host.store.add(key, owner, KEPT_S) then return owner, key, true end
  kept = host.store.get(key)                    -- another worker was faster
  if kept == first or kept == other then owner = kept end
  return owner, key, false
end

--- Ends the decision with this key: no upstream lists the name or URI any more.
function owners.forget(key) host.store.delete(key) end

local refreshed_at = -math.huge

--- Lengthens the time of the decisions whose keys are those of the table `routes`, once in REFRESH_S; earlier calls do
--- nothing.
function owners.refresh(routes)
  local now = host.time.now()
  if now - refreshed_at < REFRESH_S then return end
  refreshed_at = now
  for key in pairs(routes) do
    local owner = host.store.get(key)
    if owner then host.store.set(key, owner, KEPT_S) end
  end
end

return owners
