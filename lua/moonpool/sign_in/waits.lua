-- Waiting times after wrong passwords, for a user and an address: no lock-out, which would be a way to lock others out.

local host = require "moonpool.host"
local records = require "moonpool.sign_in.records"

local waits = {}

local FREE <const>, MOST_S <const>, KEEP_S <const> = 5, 900, 3600

-- Addresses of one IPv6 network of 64 bits are one.
local function key_of(name, from) return records.hash(#name .. ":" .. name .. host.http.counted(from or "")) end

--- True if a password for this user from this address is not judged yet. Ask it again after a wait: other passwords may
--- have been wrong meanwhile.
function waits.is_early(name, from)
  local found = records.get("wait", key_of(name, from))
  return found ~= nil and found[2] >= os.time()
end

function waits.note_failure(name, from)
  local key = key_of(name, from)
  local is_noted = false
  while not is_noted do
    local found, text = records.get("wait", key)
    local count = (found or { 0 })[1] + 1
    local value = { count, count < FREE and 0 or os.time() + math.min(MOST_S, 1 << math.min(count - FREE, 10)) }
    if text then is_noted = records.replace("wait", key, text, value, KEEP_S) else is_noted = records.add("wait", key, value, KEEP_S) end
  end
end

function waits.forget(name, from) records.drop("wait", key_of(name, from)) end

return waits
