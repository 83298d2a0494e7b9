-- Gateways that share a server of Redis, as `cluster` says: each has the tool of spec.helpers.code.
--   local one <close>, two <close> = nodes.start(server.at), nodes.start(server.at)
local code = require "spec.helpers.code"
local gateway = require "spec.helpers.gateway"

local nodes = {}

nodes.SEAL = "a secret of sixteen or more characters"

--- Arguments of a server that also knows the user `moonpool`, who may do what docs/how-to/several-nodes.md says.
nodes.acl_args = { "--user", "moonpool", "on", ">pass", "~mp:spec:*", "resetchannels", "&mp:spec:*", "+@read", "+@write", "-@dangerous", "+publish",
  "+subscribe", "+unsubscribe", "+eval", "+evalsha", "+script|load", "+time", "+role", "+ping", "+wait", "+client|setname" }

--- A gateway of the cluster `spec` at the server `at`, an address or a URL. `more`: redis (further keys of
--- cluster.redis), and options of code.start.
function nodes.start(at, more)
  more = more or {}
  local redis = { url = at:find "://" and at or "redis://" .. at }
  for name, value in pairs(more.redis or {}) do redis[name] = value end
  local config = { cluster = { name = "spec", redis = redis }, seal_keys = { nodes.SEAL } }
  for name, value in pairs(more.config or {}) do config[name] = value end
  return code.start { workers = more.workers or 1, scripts = more.scripts, constants = more.constants or { redis_idle_ms = 200 }, config = config }
end

--- A folder with moonpool.yaml of a cluster whose server is not there, and these scripts. Removed at the end.
function nodes.folder(scripts)
  local config = { cluster = { name = "spec", redis = "redis://127.0.0.1:1" }, seal_keys = { nodes.SEAL } }
  local path = gateway.prepare { config = config, scripts = scripts }
  return setmetatable({ path = path }, { __close = function() os.execute("rm -r " .. path) end })
end

return nodes
