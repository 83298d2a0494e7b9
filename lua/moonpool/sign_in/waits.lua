-- Waiting times after wrong passwords, for a user and an address: no lock-out, which would be a way to lock others out.

local records = require "moonpool.sign_in.records"

local waits = {}

local FREE <const>, MOST_S <const>, KEEP_S <const> = 5, 900, 3600

local function key_of(name, from) return records.hash(#name .. ":" .. name .. from) end

-- An IPv6 address stands for its network of 64 bits.
local function network(from)
  local a, b, c, d = from:match "^(%x+):(%x*):?(%x*):?(%x*)"
  return a and from:find ":.*:" and table.concat({ a, b, c, d }, ":") or from
end

--- True if a password for this user from this address is not looked at yet.
function waits.is_early(name, from)
  local found = records.get("wait", key_of(name, network(from)))
  return found ~= nil and found[2] > os.time()
end

function waits.note_failure(name, from)
  local key = key_of(name, network(from))
  local count = ((records.get("wait", key) or {})[1] or 0) + 1
  local seconds = count > FREE and math.min(MOST_S, 2 ^ (count - FREE - 1)) or 0
  records.put("wait", key, { count, os.time() + seconds }, KEEP_S)
end

function waits.forget(name, from) records.drop("wait", key_of(name, network(from))) end

return waits
