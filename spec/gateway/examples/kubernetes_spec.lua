-- examples/kubernetes: its objects are as the schemas of their kinds say and agree with each other, and the pod that
-- they describe serves, takes what kubelet replaces, and leaves without a refused request.
local cjson = require "cjson"
local lyaml = require "lyaml"
local uv = require "luv"
local client = require "spec.helpers.client"
local example = require "spec.helpers.example"
local gateway = require "spec.helpers.gateway"
local pod = require "spec.helpers.pod"
local shell = require "spec.helpers.shell"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"
local library = require "spec.helpers.library"()

local OPERATE <const>, METRICS <const> = ("o"):rep(64), ("m"):rep(64)

-- The Secret, and the key of the client ann.
local function secrets()
  local _, out = gateway.exec { "key", "new", "ann" }
  local key, line = out:match "\n  (mp_%S+)\n.*\n  (ann [^\n]+)\n"
  return { keys = line .. "\n", operate = OPERATE .. "\n", metrics = METRICS .. "\n" }, key
end

local function headers(key, more)
  local list = { ["X-Api-Key"] = key }
  for name, value in pairs(more or {}) do list[name] = value end
  return list
end

local function call(g, key, tool)
  local me <close> = g:client("2025-11-25", { token = key })
  return me:call("tools/call", { name = tool, arguments = {} })
end

describe("examples/kubernetes", function()
  it("has objects that are as the schemas of their kinds say", function()
    if not library then return pending "modules.so is not built" end
    local json = library.json
    local schemas = json.decode(example.read "spec/helpers/kubernetes.schema.json")
    local function fault_of(object)
      local schema = assert(schemas.kinds[object.kind], object.kind)
      schema["$defs"] = schemas["$defs"]
      local good, fault = assert(library.schema.compile(schema))(json.decode(cjson.encode(object)))
      return not good and fault.path .. ": " .. fault.message or nil
    end
    local seen = {}
    for name in assert(io.popen("ls " .. pod.folder .. "*.yaml")):lines() do
      if not name:find "/moonpool.yaml$" then
        local object = lyaml.load(example.read(name))
        seen[object.kind] = true
        assert.is_nil(fault_of(object), name)
      end
    end
    for _, kind in ipairs { "Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget", "PodMonitor", "Kustomization" } do
      assert.is_true(seen[kind], kind)
    end
    for _, object in pairs(pod.objects { keys = "a2V5", operate = "b3Bz", metrics = "bWV0" }) do
      if object.kind == "Secret" then object.type = "Opaque" end
      assert.is_nil(fault_of(object))
    end
    -- The schemas refuse what is misspelt, missing or of another kind.
    local deployment = pod.load "deployment.yaml"
    deployment.spec.template.spec.containers[1].readinesProbe = {}
    assert.matches("readinesProbe", fault_of(deployment))
    deployment = pod.load "deployment.yaml"
    deployment.spec.template.spec.containers[1].readinessProbe.httpGet.port = nil
    assert.matches("port", fault_of(deployment))
    local map = pod.objects({ keys = "", operate = "", metrics = "" })["ConfigMap/moonpool-tools"]
    map.data["orders/refund.lua"] = ""
    assert.truthy(fault_of(map))
  end)

  it("has one ConfigMap for each folder, with all files of it, and mounts it there", function()
    local kustomization, listed, folders = pod.load "kustomization.yaml", {}, {}
    for _, one in ipairs(kustomization.configMapGenerator) do
      for _, path in ipairs(one.files) do
        assert.is_nil(listed[path])
        listed[path] = true
        local folder = path:match "^(.*)/" or "config"
        assert.equal(folders[one.name] or folder, folder)
        folders[one.name] = folder
      end
    end
    for path in assert(io.popen("cd " .. pod.folder .. " && find moonpool.yaml scripts -type f")):lines() do
      assert.is_true(listed[path], path .. " is in no ConfigMap")
    end
    assert.is_true(kustomization.generatorOptions.disableNameSuffixHash)
    local spec = pod.load "deployment.yaml".spec.template.spec
    local mounted = {}
    for _, mount in ipairs(spec.containers[1].volumeMounts) do
      assert.is_nil(mount.subPath)
      mounted[mount.name] = mount.mountPath
    end
    for _, volume in ipairs(spec.volumes) do
      if volume.configMap then assert.equal("/gateway/" .. folders[volume.configMap.name], mounted[volume.name]) end
    end
    local ignored = example.read ".gitignore"
    for _, path in ipairs(kustomization.secretGenerator[1].files) do assert.truthy(path:find "^secrets/") end
    assert.truthy(ignored:find("\n/examples/kubernetes/secrets/\n", 1, true))
  end)

  it("is rendered by kubectl, where that is installed", function()
    if os.execute "kubectl version --client >/dev/null 2>&1" ~= true then return pending "there is no kubectl" end
    local dir = gateway.new_folder()
    gateway.run_program("/bin/cp", { "-r", pod.folder, dir .. "/kubernetes" })
    uv.fs_mkdir(dir .. "/kubernetes/secrets", 448)
    for _, name in ipairs { "keys", "operate", "metrics" } do shell.write(dir .. "/kubernetes/secrets/" .. name, name) end
    local code, out, err = gateway.run_program("/bin/sh", { "-c", "kubectl kustomize " .. dir .. "/kubernetes" }, { seconds = 60 })
    assert.equal(0, code, err)
    local rendered, count = {}, 0
    for _, object in ipairs(lyaml.load(out, { all = true })) do
      rendered[object.kind .. "/" .. object.metadata.name], count = object, count + 1
      assert.equal("mcp", object.metadata.namespace)
    end
    for name, object in pairs(pod.objects { keys = "keys", operate = "operate", metrics = "metrics" }) do
      assert.is_table(rendered[name], name)
      if object.kind == "ConfigMap" then assert.same(object.data, rendered[name].data) end
      count = count - 1
    end
    assert.equal(0, count)
    os.execute("rm -r '" .. dir .. "'")
  end)

  it("has selectors, ports, a user, times and memory that fit each other", function()
    local deployment, config = pod.load "deployment.yaml", lyaml.load(example.read(pod.folder .. "moonpool.yaml"))
    local labels = deployment.spec.template.metadata.labels
    assert.same(labels, deployment.spec.selector.matchLabels)
    assert.same(labels, pod.load "service.yaml".spec.selector)
    for _, name in ipairs { "networkpolicy.yaml", "poddisruptionbudget.yaml", "podmonitor.yaml" } do
      local spec = pod.load(name).spec
      assert.same(labels, (spec.podSelector or spec.selector).matchLabels, name)
    end
    local spec = deployment.spec.template.spec
    local container, ports = spec.containers[1], {}
    for _, one in ipairs(container.ports) do ports[one.name] = one.containerPort end
    assert.equal("0.0.0.0:" .. ports.mcp, config.listen)
    assert.equal("0.0.0.0:" .. ports.admin, config.admin.listen)
    for name, path in pairs { startupProbe = "/readyz", readinessProbe = "/readyz", livenessProbe = "/healthz" } do
      assert.same({ path = path, port = "admin" }, container[name].httpGet)
    end
    assert.equal("mcp", pod.load "service.yaml".spec.ports[1].targetPort)
    assert.equal("admin", pod.load "podmonitor.yaml".spec.podMetricsEndpoints[1].port)
    -- The Dockerfile sets the same user as the pod's description.
    local user = ("\nUSER %d:%d\n"):format(spec.securityContext.runAsUser, spec.securityContext.runAsGroup)
    assert.truthy(example.read "examples/deploy/Dockerfile":find(user, 1, true))
    assert.is_true(spec.securityContext.runAsNonRoot)
    assert.is_true(container.securityContext.readOnlyRootFilesystem)
    assert.is_false(container.securityContext.allowPrivilegeEscalation)
    assert.same({ "ALL" }, container.securityContext.capabilities.drop)
    local function seconds(text) return tonumber(text:match "^(%d+)s$") end
    local linger, drain = seconds(config.limits.linger), seconds(config.limits.drain)
    assert.equal(5, linger)
    assert.is_true(spec.terminationGracePeriodSeconds > linger + drain + 1)
    -- Readiness is noticed within limits.linger, and a drain is not taken for a worker that is stuck.
    assert.is_true(container.readinessProbe.periodSeconds * container.readinessProbe.failureThreshold < linger)
    assert.is_true(container.livenessProbe.periodSeconds * container.livenessProbe.failureThreshold > linger + drain + 1)
    local function mib(text) return tonumber(text:match "^(%d+)Mi") end
    local limits = config.limits
    local sum = config.workers * mib(limits.lua_memory) + mib(limits.bodies) + mib(limits.answers) + mib(config.store.bytes)
    assert.is_true(sum < mib(container.resources.limits.memory), sum .. " MiB")
  end)

  it("writes to its own volumes alone", function()
    local made <close> = pod.new((secrets()))
    local writable = table.concat(made.writable, "\n") .. "\n"
    local dockerfile = example.read "examples/deploy/Dockerfile"
    for _, path in ipairs { dockerfile:match "STATE_DIRECTORY=(%S+)", dockerfile:match "RUNTIME_DIRECTORY=(%S+)", "/tmp" } do
      assert.truthy(writable:find(path .. "\n", 1, true), path)
    end
    assert.truthy(lyaml.load(example.read(pod.folder .. "moonpool.yaml")).store.file:find(dockerfile:match "STATE_DIRECTORY=(%S+)", 1, true))
  end)
end)

describe("the pod of examples/kubernetes", function()
  it("has a configuration without errors or warnings", function()
    local made <close> = pod.new((secrets()))
    local code, out, err = made:run { "moonpool", "check", "--strict", made.container.args[2] }
    assert.same({ 0, "" }, { code, err })
    assert.matches("tool  hello", out)
    assert.same({ "run", "/gateway/config/moonpool.yaml" }, made.container.args)
  end)

  it("serves clients by the names of its service and of its host, probes by its address, and Prometheus by its token", function()
    local contents, key = secrets()
    local made <close> = pod.new(contents)
    local g <close> = made:start()
    for _, host in ipairs { "mcp.example.com", "moonpool", "moonpool.mcp.svc", "moonpool.mcp.svc.cluster.local:80" } do
      assert.equal(200, wire.post(g, wire.initialize_message "2025-11-25", headers(key, { Host = host })).status, host)
    end
    assert.equal(403, wire.post(g, wire.initialize_message "2025-11-25", headers(key, { Host = "evil.example" })).status)
    assert.equal(401, wire.post(g, wire.initialize_message "2025-11-25").status)
    local function admin(path, token)
      return client.request(g, { path = path, headers = { Host = "10.1.2.3:7301", Authorization = token and "Bearer " .. token } }, { admin = true }).status
    end
    for _, name in ipairs { "startupProbe", "readinessProbe", "livenessProbe" } do assert.equal(200, admin(made.container[name].httpGet.path), name) end
    assert.same({ 200, 403 }, { admin("/metrics", METRICS), admin "/metrics" })
    local code, out = made:run { "moonpool", "status", "/gateway/config/moonpool.yaml" } -- as by kubectl exec
    assert.equal(0, code)
    assert.matches("generation 1", out)
    assert.is_nil(out:find(OPERATE, 1, true))
    assert.equal(0, (made:run { "moonpool", "status", "--healthy", "/gateway/config/moonpool.yaml" }))
    g:stop "sigint" -- SIGINT ends the gateway without the time of limits.linger
  end)

  it("runs the commands of the page by kubectl exec", function()
    local made <close> = pod.new((secrets()))
    local g <close> = made:start()
    local count = 0
    for line in example.read "docs/how-to/kubernetes.md":gmatch "\nkubectl %-n mcp exec deployment/moonpool %-%- ([^\n]+)" do
      local words = {}
      for word in line:gmatch "%S+" do words[#words + 1] = word end
      local code, _, err = made:run(words)
      assert.equal(0, code, line .. ": " .. err)
      count = count + 1
    end
    assert.equal(3, count)
    g:stop "sigint"
  end)

  it("takes scripts, configuration, keys and tokens when kubelet replaces them, and stays up where they are wrong", function()
    local contents, key = secrets()
    local made <close> = pod.new(contents)
    local g <close> = made:start()
    assert.equal("Hello, key:ann!", call(g, key, "hello").result.content[1].text)
    -- One script is changed and one is added; then one is removed.
    made:update("tools", function(files)
      files["hello.lua"] = files["hello.lua"]:gsub("Hello", "Good day")
      files["bye.lua"] = "--- Leave.\nreturn function() return 'bye' end\n"
    end)
    wait.for_fact("the new scripts", 20, function() return call(g, key, "bye").result ~= nil and call(g, key, "bye").result.content[1].text == "bye" end)
    assert.equal("Good day, key:ann!", call(g, key, "hello").result.content[1].text)
    made:update("tools", function(files) files["bye.lua"] = nil end)
    wait.for_fact("the script to go", 20, function() return call(g, key, "bye").error ~= nil end)
    -- Ten further updates, one after the other: the gateway serves the last one.
    for n = 1, 10 do
      made:update("tools", function(files) files["hello.lua"] = "--- Greet.\nreturn function() return 'version " .. n .. "' end\n" end)
    end
    wait.for_fact("the last of many", 20, function() return call(g, key, "hello").result.content[1].text == "version 10" end)
    -- A script with an error in its syntax changes nothing.
    made:update("tools", function(files) files["hello.lua"] = "return function( return" end)
    g:wait_log("not reloaded")
    assert.equal("version 10", call(g, key, "hello").result.content[1].text)
    made:update("tools", function(files) files["hello.lua"] = "--- Greet.\nreturn function() return 'mended' end\n" end)
    wait.for_fact("the mended script", 20, function() return call(g, key, "hello").result.content[1].text == "mended" end)
    -- An update of the configuration.
    made:update("config", function(files) files["moonpool.yaml"] = files["moonpool.yaml"] .. "\nserver: {name: renamed}\n" end)
    wait.for_fact("the new configuration", 20, function() return g:log():find("server.name", 1, true) end)
    -- An update of the secrets: a further client, and other tokens for operators.
    local others, bob = secrets()
    made:update("secrets", function(files)
      files.keys = files.keys .. others.keys:gsub("^ann", "bob")
      files.operate = ("p"):rep(64) .. "\n"
    end)
    local function has_taken_bob() return wire.post(g, wire.initialize_message "2025-11-25", headers(bob)).status == 200 end
    wait.for_fact(function() return "the new key; the log:\n" .. g:log() end, 20, has_taken_bob)
    assert.equal("mended", call(g, key, "hello").result.content[1].text)
    local function status(token)
      return client.request(g, { path = "/api/config", headers = { Authorization = "Bearer " .. token } }, { admin = true }).status
    end
    assert.same({ 401, 200 }, { status(("p"):rep(64)), status(OPERATE) })
    local _, before = g:log():gsub("reloaded ", "")
    g:signal "sighup" -- as by kubectl exec … sh -c 'kill -HUP 1'
    wait.for_fact("the reload", 20, function() return select(2, g:log():gsub("reloaded ", "")) > before end)
    assert.same({ 200, 401 }, { status(("p"):rep(64)), status(OPERATE) })
    g:stop "sigint"
  end)

  it("leaves by its hook and SIGTERM: not ready at once, all served for limits.linger, running calls ended", function()
    local contents, key = secrets()
    local made <close> = pod.new(contents)
    made:update("tools", function(files) files["slow.lua"] = "--- Slow.\nreturn function() log.info 'waits' sleep(7) return 'done' end\n" end)
    local g <close> = made:start()
    local me = g:client("2025-11-25", { token = key })
    local stream = me:open("tools/call", { name = "slow", arguments = {} })
    g:wait_log "waits"
    local began = uv.hrtime()
    assert.equal(0, (made:run(made.container.lifecycle.preStop.exec.command)))
    g:signal "sigterm"
    g:wait_log("draining", { signal = "15" })
    assert.equal(503, g:admin("/readyz").status)
    -- The number of calls on new connections: a balancer sends them until it notices that the pod is not ready, which
    -- takes up to four of the five seconds of limits.linger.
    local served = 0
    repeat
      local other <close> = g:client("2026-07-28", { token = key })
      assert.equal("Hello, key:ann!", other:result("tools/call", { name = "hello", arguments = {} }).content[1].text)
      served = served + 1
    until (uv.hrtime() - began) / 1e9 >= 4
    assert.is_true(served > 10)
    assert.equal("done", stream:answer(20).result.content[1].text)
    me:close()
    assert.equal(0, (g:wait_exit(20)))
    assert.is_true((uv.hrtime() - began) / 1e9 >= wait.least(5))
    assert.is_nil(g:log():find("stopping now", 1, true))
  end)
end)
