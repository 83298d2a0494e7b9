-- The least severe level of log messages that an upstream of a stateful revision sends on a channel. It is set before
-- the call of a client that wants messages; a channel that clients share gets the least severe level that one of them
-- has wanted. Each client then gets what its own level lets through.

local call_library = require "moonpool.protocol.call"
local exchange = require "moonpool.upstream.exchange"
local host = require "moonpool.host"
local message = require "moonpool.upstream.message"

local log_level = {}

local ANSWER_S = 10       -- seconds for the answer to logging/setLevel; without it the call continues
local KEPT_S = 86400      -- seconds for which the store remembers the level that was set; then it is set again

local function key_of(record, server_info) return ("callers:level:%s:%s:%d"):format(host.upstream.instance, record.name, server_info.serial) end

--- Makes the upstream send messages of the level `name`. `is_own`: the channel has only one client.
function log_level.ensure(record, channel, server_info, name, is_own)
  if server_info.is_modern or type(server_info.capabilities) ~= "table" or server_info.capabilities.logging == nil then return end
  local wanted, key = call_library.level(name), key_of(record, server_info)
  local set = tonumber(host.store.get(key) or "")
  if set and (set == wanted or not is_own and set < wanted) then return end
  host.store.set(key, tostring(wanted), KEPT_S)
  local id = channel:next_id()
  local options = { transport = server_info.transport, timeout = ANSWER_S, total = ANSWER_S }
  exchange.ask(channel, id, message.request(id, "logging/setLevel", { level = name }), options)
end

return log_level