-- Clients that say that their roots have changed: each upstream that has asked the client of the session for its roots,
-- on a channel of this session alone, gets the notification. Stateless upstreams have no such notification.

local config = require "moonpool.upstream.config"
local era = require "moonpool.protocol.era"
local host = require "moonpool.host"
local channel_key = require "moonpool.upstream.channel_key"
local message = require "moonpool.upstream.message"

local roots = {}

local GATHER_S <const> = 0.1       -- further notifications within this time are sent as one
local MOST_GATHER_S <const> = 5    -- seconds after which another task sends, if the one that waits was ended
local KEPT_S <const> = 86400       -- seconds for which the store remembers which upstreams have asked

local function mark_of(record, key) return ("callers:roots:%s:%s:%s"):format(host.upstream.instance, record.name, key) end

--- An upstream has asked the client of a call for its roots. `server_info` is that of the channel.
function roots.asked(record, server_info, call)
  if server_info.is_modern or not call.has_session then return end
  host.store.set(mark_of(record, channel_key.of_session(host.session.id(call))), tostring(server_info.serial), KEPT_S)
end

local function tell(record, key)
  local mark = mark_of(record, key)
  local serial = host.store.get(mark)
  local channel <close> = serial and host.upstream.open_channel(record.name, key)
  if not channel or tostring(channel:serial()) ~= serial then
    -- the roots that the lost channel was sent are unknown to the upstream now
    if serial then host.store.delete(mark) end
    return
  end
  local server_info = channel:server_info()
  local pending <close> = channel:send(message.notification "notifications/roots/list_changed", {
    revision = era.facts(server_info.revision).has_version_header and server_info.revision or nil, session = server_info.session,
  })
  if pending then pending:next() end
end

--- The client of the session with this id says that its roots have changed.
function roots.changed(session)
  local key = channel_key.of_session(session)
  local gathers = "callers:roots change:" .. key             -- a task of any worker waits for further notifications
  if host.store.add(gathers, "", MOST_GATHER_S) == false then return end
  host.time.sleep(GATHER_S)
  host.store.delete(gathers)
  for _, record in ipairs(config.list) do tell(record, key) end
end

return roots
