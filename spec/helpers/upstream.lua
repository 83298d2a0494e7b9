-- Stub upstreams: MCP servers of any revision over any transport, in the process of the spec, which answer correctly
-- until a rule says otherwise.
--   local u <close> = upstream.start { transport = "http", revision = "2025-06-18" }
--   local g <close> = upstream.gateway({ one = u }, { workers = 2 })     -- the real binary, with the stub behind it
--   u:when("tools/call echo", faults.html(), 1)     -- a misbehaviour, once (spec/helpers/upstream/faults.lua)
--   u:ran "echo"                                    -- how often it ran
--   u:wait({ method = "notifications/cancelled" })  -- an entry of what it received: kind, method, tool, id (bytes), text (bytes), json, head, headers, …
--   u:wait_held(2); u:release()                     -- calls of the tool `hold`
--   u.unfollowed["stub://text"] = true              -- the subscription to this resource is refused
--   u:offer("tools", { "name", '{"name":…}' }); u:lose_sessions "404"; u:push(text); u:behave()
-- A stub records mistakes of its client, such as an id that is used twice or a header that differs from the body, and
-- fails the spec at its end.
local cjson = require "cjson.safe"
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

-- The transports of upstreams that the gateway has so far.
local HAS <const> = { http = true, stdio = true, sse = true }

function upstream.has(transport) return HAS[transport] == true end

--- Of a list of transports, those over which the gateway reaches upstreams.
function upstream.served(transports)
  local list = {}
  for _, transport in ipairs(transports) do
    if HAS[transport] then list[#list + 1] = transport end
  end
  return list
end

local KINDS <const> = { { "2025-11-25", "http" }, { "2026-07-28", "http" }, { "2024-11-05", "sse" }, { "2025-06-18", "stdio" }, { "2026-07-28", "stdio" } }

--- Some pairs of a revision and a transport, for specs that need not try each combination.
function upstream.kinds()
  local list = {}
  for _, kind in ipairs(KINDS) do
    if HAS[kind[2]] then list[#list + 1] = kind end
  end
  return list
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

--- Starts the gateway with stubs by name, or entries of the configuration. `options`: as of gateway.start, and entries
--- (members to add, by name), start (gateway.start, or another function with its options).
function upstream.gateway(stubs, options)
  options = options or {}
  options.config = options.config or {}
  options.config.upstreams = upstream.entries(stubs, options.entries)
  return (options.start or gateway.start)(options)
end

--- The gateway's configuration with no prefix before the names of these upstreams.
function upstream.plain(stubs, more)
  local entries = {}
  for name in pairs(stubs) do
    entries[name] = { prefix = "" }
    for key, value in pairs((more or {})[name] or {}) do entries[name][key] = value end
  end
  return entries
end

--- The text of a call's result; fails the spec if there is none.
function upstream.text(answer)
  local block = answer and answer.result and answer.result.content and answer.result.content[1]
  if not (block and block.text) then error("the call gave " .. tostring(cjson.encode(answer)), 2) end
  return block.text
end

--- Fails the spec unless `answer` is the gateway's error about an upstream with this outcome; returns its data and
--- message.
function upstream.failure(answer, outcome, reason)
  local data = answer and answer.error and answer.error.code == -32603 and answer.error.data
  if type(data) ~= "table" or data.outcome ~= outcome or reason and data.reason ~= reason then
    error(("not an error with the outcome %s, reason %s: %s"):format(outcome, reason or "any", cjson.encode(answer)), 2)
  end
  return data, answer.error.message
end

return upstream
