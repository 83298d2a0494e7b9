-- Gateways that share a server of Redis, as `cluster` says: each has the tool of spec.helpers.code.
--   local one <close>, two <close> = nodes.start(server.at), nodes.start(server.at)
local uv = require "luv"
local cjson = require "cjson.safe"
local code = require "spec.helpers.code"
local gateway = require "spec.helpers.gateway"

local nodes = {}

nodes.SEAL = "a secret of sixteen or more characters"

--- Arguments of a server that also knows the user `moonpool`, who may do what docs/how-to/several-nodes.md says.
nodes.acl_args = { "--user", "moonpool", "on", ">pass", "~mp:spec:*", "resetchannels", "&mp:spec:*", "+@read", "+@write", "-@dangerous", "+publish",
  "+subscribe", "+unsubscribe", "+eval", "+evalsha", "+script|load", "+time", "+role", "+ping", "+wait", "+client|setname" }

--- The environment of a program whose wall clock is `ahead` by seconds; with `path`, steps that of a program that runs.
function nodes.stepped(ahead, path)
  local is_new = not path
  path = path or gateway.new_folder() .. "/step"
  local file <close> = assert(io.open(path, is_new and "wb" or "r+b"))
  file:write(string.pack("<i8", ahead))
  return { CLOCK_STEP = path, LD_PRELOAD = uv.fs_realpath(gateway.binary:match "^(.*)/[^/]*$" .. "/stepped_clock.so") }
end

--- A gateway of the cluster `spec` at the server `at`, an address or a URL. `more`: redis (further keys of
--- cluster.redis), node (its name: it listens for other nodes, and has a record), address (that it tells them),
--- down (cluster.when_redis_is_down), clock (the seconds by which its wall clock is ahead), seal_keys, and options of
--- code.start. It sends and receives no messages of nodes, unless the constants say so.
function nodes.start(at, more)
  more = more or {}
  local constants = { redis_idle_ms = 200, fanout_ms = 0 }
  for name, value in pairs(more.constants or {}) do constants[name] = value end
  local redis = { url = at:find "://" and at or "redis://" .. at }
  for name, value in pairs(more.redis or {}) do redis[name] = value end
  local section = { name = "spec", leave = more.leave or "0s", node = more.node, redis = redis, when_redis_is_down = more.down }
  if more.node then section.listen, section.advertise = "127.0.0.1:0", more.address end
  local config = { cluster = section, seal_keys = more.seal_keys or { nodes.SEAL } }
  for name, value in pairs(more.config or {}) do config[name] = value end
  local options = { workers = more.workers or 1, scripts = more.scripts, constants = constants, config = config,
    env = more.clock and nodes.stepped(more.clock) or more.env, dir = more.dir }
  if more.start then
    options.scripts = options.scripts or {}
    options.scripts["tools/code.lua"] = code.script
    return more.start(options)
  end
  return code.start(options)
end

--- The records of processes at the server, a redis.start, by their numbers.
function nodes.records(server)
  local records, number = {}, nil
  for line in (server:cli("HGETALL", "mp:spec:n") .. "\n"):gmatch "([^\n]+)\n" do
    if number then records[number] = cjson.decode(line) or line end
    number = not number and tonumber(line) or nil
  end
  return records
end

--- Writes a record.
function nodes.put(server, number, record) server:cli("HSET", "mp:spec:n", tostring(number), cjson.encode(record)) end

--- What the gateway knows of its cluster.
function nodes.known(g) return g:status().cluster end

--- Waits until `fact(cluster)` is true of what the gateway knows; returns that.
function nodes.wait(g, fact, seconds)
  return g:wait_status(function(status) return fact(status.cluster) and status.cluster end, seconds).cluster
end

--- A fact for nodes.wait(): these nodes, and no others, are in this state: { a = "serving", b = "stale" }.
function nodes.are(states)
  return function(cluster)
    local left = {}
    for name, state in pairs(states) do left[name] = state end
    for _, one in ipairs(cluster.nodes) do
      if left[one.node] ~= one.state then return false end
      left[one.node] = nil
    end
    return next(left) == nil
  end
end

--- Waits until the gateway has joined.
function nodes.joined(g) return nodes.wait(g, function(cluster) return cluster.joined end) end

--- A folder with moonpool.yaml of a cluster whose server is not there, and these scripts. Removed at the end.
function nodes.folder(scripts)
  local config = { cluster = { name = "spec", redis = "redis://127.0.0.1:1" }, seal_keys = { nodes.SEAL } }
  local path = gateway.prepare { config = config, scripts = scripts }
  return setmetatable({ path = path }, { __close = function() os.execute("rm -r " .. path) end })
end

return nodes
