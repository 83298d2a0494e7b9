-- examples/cluster: three gateways, a real server with the users of secrets.sh, and HAProxy with its configuration, as
-- compose.yaml starts them; what its objects for Kubernetes add to examples/kubernetes.
local lyaml = require "lyaml"
local example = require "spec.helpers.example"
local free_port = require "spec.helpers.free_port"
local front = require "spec.helpers.front"
local gateway = require "spec.helpers.gateway"
local redis = require "spec.helpers.redis"
local shell = require "spec.helpers.shell"
local wait = require "spec.helpers.wait"

local FOLDER <const> = "examples/cluster/"
local NAMES <const> = { "one", "two", "three" }

local function load(name) return lyaml.load(example.read(FOLDER .. name)) end

local function run(dir, command)
  local code, out, err = gateway.run_program("/bin/sh", { "-c", command }, { cwd = dir })
  assert.equal(0, code, command .. "\n" .. out .. err)
  return out
end

-- A copy of the folder with the secrets that its README makes. Returns its folder, and the key of ann.
local function copy()
  local dir = gateway.new_folder()
  run(".", "mkdir " .. dir .. "/examples && cp -r " .. FOLDER .. " " .. dir .. "/examples/cluster")
  run(dir, "mkdir -p " .. FOLDER .. "secrets")
  local _, out = gateway.exec({ "key", "new", "ann", "--file", FOLDER .. "secrets/keys" }, { cwd = dir })
  run(dir, "sh " .. FOLDER .. "secrets.sh")
  return dir, assert(out:match "mp_%S+", out)
end

-- The configuration of one of the gateways with the ports and paths of this machine, and its ports.
local function configuration(dir, server)
  local ports = { ["7300"] = free_port(), ["7301"] = free_port(), ["7310"] = free_port() }
  local text = example.read(FOLDER .. "moonpool.yaml"):gsub("0%.0%.0%.0:(73%d%d)", function(port) return "127.0.0.1:" .. ports[port] end)
  text = text:gsub("advertise: [^\n]+:7310", "advertise: localhost:" .. ports["7310"] .. "\n  leave: 0s")   -- it ends with its spec
  text = text:gsub("valkey:6379", server.at):gsub("/run/secrets/", dir .. "/" .. FOLDER .. "secrets/")
  text = text:gsub("linger: 5s", "linger: 0s"):gsub("\n  path: scripts\n", "\n  path: " .. dir .. "/" .. FOLDER .. "scripts\n")
  return text, ports
end

describe("the example cluster", function()
  it("has three gateways that differ in their host's name alone, with all files that they read", function()
    local compose = load "compose.yaml"
    local dir = copy()
    for _, name in ipairs(NAMES) do
      local service = compose.services[name]
      assert.equal(name, service.hostname)
      for _, secret in ipairs(service.secrets) do
        run(dir, "test -s " .. FOLDER .. compose.secrets[secret].file)
      end
      service.hostname = nil
      assert.same(compose.services.one, service)
    end
    for path in example.read(FOLDER .. "moonpool.yaml"):gmatch "/run/secrets/([%w.]+)" do assert.is_table(compose.secrets[path], path) end
    for _, folder in ipairs { "secrets", "kubernetes/secrets" } do
      assert.truthy(example.read ".gitignore":find("\n/" .. FOLDER .. folder .. "/\n", 1, true))
    end
    run(dir, "rm -r " .. dir)
  end)

  redis.it(it, pending)("counts for all gateways, whichever one HAProxy chooses, and serves any session by any of them", function()
    if not front.find "haproxy" then return pending "haproxy is not installed" end
    local dir, key = copy()
    local server <close> = redis.start { args = { "--include", dir .. "/" .. FOLDER .. "secrets/valkey.conf", "--appendonly", "no" } }
    local text, started = example.read(FOLDER .. "haproxy.cfg"):gsub("bind :7300", "bind 127.0.0.1:PORT"), {}
    for _, name in ipairs(NAMES) do
      local config, ports = configuration(dir, server)
      shell.write(dir .. "/" .. name .. ".yaml", config)
      started[name] = example.run_beside(("env HOSTNAME=%s MOONPOOL_KEYS=%s moonpool run %s.yaml"):format(name, dir .. "/" .. FOLDER .. "secrets/keys", name)
        :gsub("moonpool run", example.program() .. " run"), dir)
      text = text:gsub(("server %s %s:7300"):format(name, name), ("server %s 127.0.0.1:%d port %d"):format(name, ports["7300"], ports["7301"]))
    end
    text = text:gsub("check port 7301", "check")
    do
      local balancer <close> = front.start("haproxy", text, {}, function(_, file) return { "-db", "-f", file } end)
      local curl = example.read(FOLDER .. "README.md"):match "\n    (curl [^\n]+)\n":gsub("7300", tostring(balancer.port)):gsub("%$%(cat ann%.key%)", key)
      local said
      wait.for_fact(function() return "a visit; the answer is " .. tostring(said) end, 30, function()
        said = run(dir, curl)
        return said:find("visit 1 of home", 1, true)
      end)
      for i = 2, 12 do assert.truthy(run(dir, curl):find(("visit %d of home"):format(i), 1, true)) end
      local c <close> = gateway.running.client({ port = balancer.port }, "2025-11-25", { token = key })
      for i = 13, 30 do
        if c.kept then c.kept:close() end
        c.kept = nil
        local answer = c:call("tools/call", { name = "visit", arguments = { page = "home" } })
        assert.equal(("visit %d of home"):format(i), answer.result.content[1].text)
      end
    end
    for _, name in ipairs(NAMES) do
      assert.is_nil(started[name].code)
      getmetatable(started[name]).__close(started[name])
    end
    run(dir, "rm -r " .. dir)
  end)
end)

describe("examples/cluster/kubernetes", function()
  local base <const>, own <const> = "examples/kubernetes/", FOLDER .. "kubernetes/"
  local function both(name) return lyaml.load(example.read(base .. name)), lyaml.load(example.read(own .. name)) end

  it("configures its pods as examples/kubernetes does, with a cluster", function()
    local theirs, ours = both "moonpool.yaml"
    local deployment, port = lyaml.load(example.read(own .. "deployment.yaml")), nil
    local container = deployment.spec.template.spec.containers[1]
    for _, one in ipairs(container.ports) do port = one.name == "cluster" and one.containerPort or port end
    assert.equal("0.0.0.0:" .. port, ours.cluster.listen)
    local mounted = container.volumeMounts[1].mountPath
    local made = {}
    for _, generator in ipairs(lyaml.load(example.read(own .. "kustomization.yaml")).secretGenerator) do
      for _, path in ipairs(generator.files) do made[path:match "[^/]+$"] = true end
    end
    for path in example.read(own .. "moonpool.yaml"):gmatch(mounted .. "/([%w.]+)") do assert.is_true(made[path], path) end
    assert.equal("example", ours.cluster.name)
    for _, name in ipairs { "POD_NAME", "POD_IP" } do assert.truthy(example.read(own .. "deployment.yaml"):find("name: " .. name, 1, true)) end
    ours.cluster, ours.seal_keys = nil, nil
    assert.same(theirs, ours)
  end)

  it("allows what examples/kubernetes allows, the other pods and Valkey", function()
    local theirs, ours = both "networkpolicy.yaml"
    for _, way in ipairs { "ingress", "egress" } do
      local count = #theirs.spec[way]
      for i = 1, count do assert.same(theirs.spec[way][i], ours.spec[way][i]) end
      for i = count + 1, #ours.spec[way] do
        local to = (ours.spec[way][i].from or ours.spec[way][i].to)[1].podSelector.matchLabels["app.kubernetes.io/name"]
        assert.truthy(to == "moonpool" or to == "valkey")
      end
      assert.is_true(#ours.spec[way] > count)
    end
  end)
end)
