-- Stub upstreams: MCP servers of any revision over any transport, in the process of the spec, which answer correctly until a rule says otherwise.
--   local u <close> = upstream.start { transport = "http", revision = "2025-06-18" }
--   local g <close> = upstream.gateway({ one = u }, { workers = 2 })     -- the real binary, with the stub behind it
--   u:when("tools/call echo", faults.html(), 1)     -- a misbehaviour, once (spec/helpers/upstream/faults.lua)
--   u:ran "echo"                                    -- how often it ran
--   u:wait({ method = "notifications/cancelled" })  -- an entry of what it received: kind, method, tool, id (bytes), text (bytes), json, head, headers, …
--   u:wait_held(2); u:release()                     -- calls of the tool `hold`
--   u:offer("tools", { "name", '{"name":…}' }); u:lose_sessions "404"; u:push(text); u:behave()
-- A stub records mistakes of its client, such as an id that is used twice or a header that differs from the body, and fails the spec at its end.
local gateway = require "spec.helpers.gateway"

local upstream = { faults = require "spec.helpers.upstream.faults", raw = require "spec.helpers.upstream.raw" }

upstream.revisions = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" }

local TRANSPORTS <const> = {
  http = require "spec.helpers.upstream.http", sse = require "spec.helpers.upstream.sse", stdio = require "spec.helpers.upstream.stdio",
}

--- `options`: transport ("http", "sse", "stdio") and revision, and those of the transport's file and of server.new.
function upstream.start(options)
  options = options or {}
  return TRANSPORTS[options.transport or "http"].start(options)
end

--- The transports over which a server of a revision is met.
function upstream.transports(revision)
  if revision == "2026-07-28" then return { "http", "stdio" } end
  return revision == "2024-11-05" and { "sse", "http", "stdio" } or { "http", "stdio" }
end

--- A configuration's `upstreams` for stubs by name. `more`: members to add, by name.
function upstream.entries(stubs, more)
  local entries = {}
  for name, one in pairs(stubs) do
    local entry = {}
    for key, value in pairs(one.entry or one) do entry[key] = value end
    for key, value in pairs((more or {})[name] or {}) do entry[key] = value end
    entries[name] = entry
  end
  return entries
end

--- Starts the gateway with stubs by name, or entries of the configuration. `options`: as of gateway.start, and entries (members to add, by name).
function upstream.gateway(stubs, options)
  options = options or {}
  options.config = options.config or {}
  options.config.upstreams = upstream.entries(stubs, options.entries)
  return gateway.start(options)
end

return upstream
