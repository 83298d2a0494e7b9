-- Gateways of one cluster on this machine, with a server of Redis; each has the tool `place`, which says where it runs.
--   local c <close>, one, two = cluster.start { tls = true }
-- The addresses of their listeners for each other are g.node_address; g.number and g.uid are as the records say.
local balancer = require "spec.helpers.balancer"
local certificates = require "spec.helpers.certificates"
local cjson = require "cjson.safe"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local nodes = require "spec.helpers.nodes"
local redis = require "spec.helpers.redis"
local wait = require "spec.helpers.wait"

local cluster = {}
cluster.__index = cluster

cluster.SEAL = nodes.SEAL
cluster.NAME = "moonpool-spec" -- the DNS name in the certificates of nodes

local made = {}

--- The authority of the nodes, made once per run.
function cluster.authority()
  made.authority = made.authority or certificates.make { subject = "/CN=cluster", sans = false, is_authority = true }
  return made.authority
end

--- A certificate of that authority, or of `by`, with this DNS name.
function cluster.certificate(name, by)
  return certificates.make({ subject = "/CN=node", sans = "DNS:" .. name }, by or cluster.authority())
end

local function own_certificate()
  made.own = made.own or cluster.certificate(cluster.NAME)
  return made.own
end

--- The number and uid of a gateway that has just begun, once its record is there.
function cluster:learn(g)
  wait.for_fact("the record of " .. g.node, 20, function()
    for number, one in pairs(nodes.records(self.server)) do
      if one.node == g.node and one.address == g.node_address and not self.uids[one.uid] then
        g.number, g.uid = number, one.uid
        return true
      end
    end
  end)
  self.uids[g.uid] = true
  return g
end

--- Starts a node. `options`: name, listen, tls (as of start, or a certificate of its own), seal_keys, scripts, config (a
--- table, or the YAML's text), workers, files, redis_at (another address of the server), has_no_place (it has no tool
--- `place`), start (gateway.start, or another function with its options), advertise, timeout (of the server), ca (of
--- the others' certificates), clock (the seconds by which its wall clock is ahead), leave ("0s": it ends without its
--- sessions).
function cluster:add(options)
  options = setmetatable(options or {}, { __index = self.options })
  local name = options.name or "n" .. #self.all + 1
  local scripts, files = {}, {}
  if not options.has_no_place then
    scripts["tools/place.lua"] = ("--- Says which node runs.\nreturn function() return %q end\n"):format(name)
  end
  for path, text in pairs(options.scripts or {}) do scripts[path] = text end
  for path, text in pairs(options.files or {}) do files[path] = text end
  local section = { name = "spec", node = name, listen = options.listen or "127.0.0.1:0", advertise = options.advertise,
    leave = options.leave or "0s",
    redis = { url = "redis://" .. (options.redis_at or self.server.at), timeout = options.timeout } }
  if options.tls then
    local own = options.tls == true and own_certificate() or options.tls
    files["node.pem"], files["node.key"], files["cluster-ca.pem"] = own.certificate, own.key, options.ca or cluster.authority().own
    section.tls = { certificate = "node.pem", key = "node.key", ca = "cluster-ca.pem" }
  end
  local config = { cluster = section, seal_keys = options.seal_keys or { cluster.SEAL } }
  if type(options.config) == "string" then
    config = ("%s\ncluster: %s\nseal_keys: %s\n"):format(options.config, cjson.encode(section), cjson.encode(config.seal_keys))
  else
    for key, value in pairs(options.config or {}) do config[key] = value end
  end
  local g = (options.start or gateway.start) { scripts = scripts, scripts_path = options.scripts_path, files = files, config = config,
    workers = options.workers, constants = options.constants, env = options.clock and nodes.stepped(options.clock) or options.env }
  g.node = name
  g.node_address = options.advertise or g:wait_log("listening", { ["for"] = "nodes" }).fields.address
  self.all[#self.all + 1] = g
  return self:learn(g)
end

--- `options`: nodes (2), server (options of redis.start), and those of add, for all of them.
function cluster.start(options)
  options = options or {}
  local self = setmetatable({ options = options, all = {}, uids = {}, server = redis.start(options.server) }, cluster)
  local fine, why = pcall(function()
    for _ = 1, self.options.nodes or 2 do self:add() end
  end)
  if fine then return self, table.unpack(self.all) end
  self:__close(why)
  error(why, 0)
end

--- Starts a node again at the address of one that was killed.
function cluster:again(g, options)
  options = options or {}
  options.name, options.listen = g.node, g.node_address
  return self:add(options)
end

--- Kills a node, which stays in the list no more.
function cluster:kill(g)
  for i, one in ipairs(self.all) do
    if one == g then table.remove(self.all, i) end
  end
  g:kill()
  os.execute("rm -rf '" .. g.dir .. "'")
end

--- What nodes know of each other's keys: ids and sealed headers, as of spec/modules/module_processes.c.
function cluster.keys(secret) return require "modules".processes.new(nil, secret or cluster.SEAL) end

--- The number of the node that cluster:play() writes.
cluster.PLAYED = 77

--- Writes the record of a node at this port, which a spec plays. Its uid has 31 digits 0 and a last one.
function cluster:play(port)
  nodes.put(self.server, cluster.PLAYED, { uid = ("0"):rep(31) .. "1", node = "played", address = "127.0.0.1:" .. port, renewals = 1, format = 1,
    version = "0.1.0", sessions = 0, state = "serving", scripts = ("0"):rep(16) })
end

--- An id of a session or task of the process with this number.
function cluster.id_of(number)
  local keys = cluster.keys()
  local random = keys:id():sub(1, 32)
  return random .. ("%04x"):format(keys:number_of(random .. "0000") ~ number)
end

--- How often a node has sent requests to another one, by their ends; all of them without `outcome`.
function cluster.forwards(g, to, outcome)
  local sum = 0
  for labels, value in g:admin "/metrics".body:gmatch "moonpool_forwards_total{([^}]*)} (%d+)" do
    if labels:find(('node="%s"'):format(to.node), 1, true) and (not outcome or labels:find(('outcome="%s"'):format(outcome), 1, true)) then
      sum = sum + tonumber(value)
    end
  end
  return sum
end

--- No request is under way between the nodes.
function cluster:is_quiet()
  for _, g in ipairs(self.all) do
    g:wait_status(function(status) return status.gauges.hops == 0 end, 20)
  end
end

--- Connects to the listener of `g` for nodes. `shown`: the certificate of this side, or nil for none.
function cluster.connect_to(g, shown)
  local files = { ca = cluster.authority().own, certificate = shown and shown.certificate, key = shown and shown.key }
  local tls = { name = cluster.NAME }
  for name, text in pairs(files) do
    tls[name] = g.dir .. "/spec-" .. name .. ".pem"
    certificates.write(tls[name], text)
  end
  return client.connect(tonumber(g.node_address:match ":(%d+)$"), { tls = tls })
end

local function remove(g) os.execute("rm -rf '" .. g.dir .. "'") end

function cluster:__close(failure)
  local ok, why = true, nil
  for i = #self.all, 1, -1 do
    local g = self.all[i]
    local ended, trouble = pcall(g.stop, g)
    if ok then ok, why = ended, trouble end
    if failure then print(("\n  the log of %s ended with:\n    %s"):format(g.node, (g:log():sub(-3000):gsub("\n", "\n    ")))) end
    remove(g)
  end
  self.server:__close()
  if not ok and not failure then error(why, 0) end
end

-- -- behind a balancer --------------------------------------------------------------------------------------------------

local balanced = { client = gateway.running.client, connect = gateway.running.connect }
balanced.__index = balanced

--- Nodes behind a balancer that sends each request to any of them, in the place of one gateway. `options`: those of
--- gateway.start; nodes (3). Fields: nodes, balancer, cluster. What it says of its process is of the first node.
function cluster.balanced(options)
  local given = { nodes = 3, workers = 1, has_no_place = true }
  for name, value in pairs(options) do given[name] = value end
  given.start = nil
  local behind = cluster.start(given)
  local ports = {}
  for i, g in ipairs(behind.all) do ports[i] = g.port end
  local before = balancer.start(ports)
  local url = ("http://127.0.0.1:%d"):format(before.port)
  return setmetatable({ cluster = behind, nodes = behind.all, balancer = before, port = before.port, url = url .. "/mcp", sse_url = url .. "/sse",
    dir = behind.all[1].dir }, balanced)
end

function balanced:status() return self.nodes[1]:status() end

function balanced:stop()
  self.balancer:stop()
  self.cluster:__close()
end

function balanced:__close(failure)
  self.balancer:stop()
  self.cluster:__close(failure)
end

--- What runners of conversations start: one gateway, or with MOONPOOL_NODES=N so many nodes behind a balancer.
function cluster.front(options)
  options.nodes = cluster.in_front()
  return (options.nodes and cluster.balanced or gateway.start)(options)
end

--- How many nodes cluster.front starts; nil: one gateway.
function cluster.in_front() return math.tointeger(os.getenv "MOONPOOL_NODES" or "") end

--- `it`, or `pending` where there is no server of Redis.
function cluster.it(it, pending) return redis.it(it, pending) end

return cluster
