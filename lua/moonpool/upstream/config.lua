-- The configured upstreams as the Lua library uses them: one record for each entry of `upstreams:`, in the order of the
-- file.
--   record   { name, kind = "url" | "command", prefix, only, hide = lists of matchers, rename, describe = maps by the upstream's own names, per,
--              asks = set of words, retry, longest, wraps_uris, keeps_names, has_instructions, pass,
--              revision, timeout, open, total, keep, list_wait, refresh = seconds, line }

local glob = require "moonpool.runtime.glob"
local host = require "moonpool.host"

local config = { list = {}, by_name = {} }

-- Matchers of a list of patterns; nil without a list.
local function matchers(patterns)
  if type(patterns) ~= "table" then return nil end
  local made = {}
  for i, pattern in ipairs(patterns) do made[i] = glob(pattern) end
  return made
end

-- The words of a list as a set; nil without a list.
local function set_of(words)
  if type(words) ~= "table" then return nil end
  local made = {}
  for _, word in ipairs(words) do made[word] = word ~= "none" or nil end
  return made
end

local function record_of(given, place)
  return {
    name = given.name, place = place, kind = given.kind, line = given.line, prefix = given.prefix, only = matchers(given.only),
    hide = matchers(given.hide), rename = given.rename or {}, describe = given.describe or {}, per = given.per ~= "auto" and given.per or nil,
    asks = set_of(given.asks or { "none" }), wraps_uris = given.wraps_uris == true, keeps_names = given.keeps_names == true,
    has_instructions = given.has_instructions == true,
    auth = given.auth, is_private = given.private == true,
    retry = given.retry, longest = host.limits.upstreams.name, pass = given.pass or {}, revision = given.revision, timeout = given.timeout_ms / 1000,
    open = given.open_ms / 1000,
    total = given.timeout_total_ms / 1000, keep = host.limits.upstreams.keep, list_wait = given.list_wait_ms / 1000, refresh = given.refresh_ms / 1000,
  }
end

for i, given in ipairs(host.config.upstreams) do
  local record = record_of(given, i)
  config.list[i], config.by_name[record.name] = record, record
end

--- True if the configuration names at least one upstream.
config.has_any = config.list[1] ~= nil

return config
