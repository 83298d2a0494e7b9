-- Which sign-ins have ended, as each call asks: known to the whole process, so that no call asks the store. The store has
-- the endings (families.lua); they are read when a process begins, and again when messages of other processes may have
-- been lost.

local bus = require "moonpool.runtime.bus"
local host = require "moonpool.host"
local records = require "moonpool.sign_in.records"

local ended = {}

--- Seconds for which an ending is remembered: it outlives the access tokens of its sign-in, as 1d is the most of
--- sign_in.tokens.access.
ended.SECONDS = 86400 + 60

local AGAIN_S <const> = 10         -- seconds between two readings while there are several processes
local READ_S <const> = 20          -- seconds that one may take
local again = -math.huge

-- Gives the endings of the store to the process. Nothing happens if they are known, and not to be read `is_again`.
local function read(is_again)
  local doubt = host.auth.doubt_endings(is_again)
  if doubt == 0 then return end
  local ids = records.ids "ended"
  for _, id in ipairs(ids or {}) do host.auth.end_sign_in(id, ended.SECONDS) end
  if ids then host.auth.know_endings(doubt) end
end

--- Reads the endings, if this process has not. Called while scripts load.
function ended.load() read(false) end

--- The sign-in has ended: this process and the others refuse its tokens, and end its streams and calls.
function ended.note(id)
  host.auth.end_sign_in(id, ended.SECONDS)
  host.bus.relay("sign-in ended", id)
end

--- Whether the sign-in has ended. A record that cannot be read is an ending, too. Raises an error where the store is asked
--- and does not answer.
function ended.has(id)
  local known = host.auth.has_ended(id)
  if known ~= nil then return known end
  local now = host.time.now()
  if now >= again then
    again = now + AGAIN_S
    host.job.begin(function() read(false) end, READ_S)
  end
  return records.is_there("ended", id)
end

bus.on("sign-in ended", function(id) host.auth.end_sign_in(id, ended.SECONDS) end)
bus.on("missed", function() host.job.begin(function() read(true) end, READ_S) end)

return ended
