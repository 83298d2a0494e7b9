-- /api of the admin listener, what the dashboard shows besides numbers: scripts, reloads, certificates, the
-- configuration.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local operator, viewer, scraper = ("o"):rep(32), ("v"):rep(32), ("m"):rep(32)
local tokens = { operate = { joe = operator }, view = { ann = viewer }, metrics = { pro = scraper } }
local scripts = {
  ["tools/add.lua"] = 'return tool { "Adds.", input = { a = t.integer, b = t.integer }, function(args) return args.a + args.b end }',
  ["tools/hold.lua"] = 'return tool { "Holds.", function() sleep(60) end }',
}

local function start(config, more)
  config = config or {}
  config.admin = config.admin or { listen = "127.0.0.1:0", tokens = tokens }
  local options = { scripts = scripts, config = config, workers = 2 }
  for name, value in pairs(more or {}) do options[name] = value end
  return gateway.start(options)
end

local function get(g, path, token, more)
  local headers = { Authorization = token ~= false and "Bearer " .. (token or viewer) or nil }
  for name, value in pairs(more or {}) do headers[name] = value end
  return client.request(g, { path = path, headers = headers }, { admin = true })
end

local function save(g, path, text)
  local file <close> = assert(io.open(g.dir .. "/" .. path, "w"))
  file:write(text)
end

describe("the facts of the admin listener", function()
  it("need their role, and have an ETag", function()
    local g <close> = start()
    for path, least in pairs {
      ["/api/overview"] = viewer, ["/api/scripts"] = viewer,
      ["/api/reloads"] = viewer, ["/api/jobs"] = viewer, ["/api/certificates"] = viewer, ["/api/config"] = operator,
    } do
      assert.equal(401, get(g, path, false).status, path)
      assert.equal(403, get(g, path, scraper).status, path)
      assert.equal(least == viewer and 200 or 403, get(g, path, viewer).status, path)
      local answer = get(g, path, operator)
      assert.equal(200, answer.status)
      assert.equal("application/json", answer.headers["content-type"])
      assert.is_table(answer:json())
      assert.equal(403, get(g, path, operator, { Origin = "http://evil.example" }).status)
      if path ~= "/api/overview" then
        assert.equal(304, get(g, path, operator, { ["If-None-Match"] = answer.headers.etag }).status)
      end
    end
    assert.has_nothing_left(g)
  end)

  it("have the scripts with their grants, and what has ${…} only as ***", function()
    local g <close> = start({ scripts = {
      path = "scripts", allow = { net = { "api.example.com:443", "${HIDDEN_HOST}" } },
      grants = { ["tools/add.lua"] = { env = { "APP_*" }, net = { "${HIDDEN_HOST}" } } },
    } }, { env = { HIDDEN_HOST = "hidden.example.com:443" } })
    local answer = get(g, "/api/scripts")
    assert.is_nil(answer.body:find "hidden")
    local all = answer:json()
    local paths = {}
    for i, file in ipairs(all.files) do paths[i] = file.path end
    assert.same({ "tools/add.lua", "tools/hold.lua" }, paths)
    assert.equal(#scripts["tools/add.lua"], all.files[1].bytes)
    assert.same({ net = { "api.example.com:443", "***" } }, all.allow)
    assert.same({ ["tools/add.lua"] = { env = { "APP_*" }, net = { "***" } } }, all.grants)
    assert.equal(1, all.status.generation)
    assert.same({}, all.draining)
    assert.equal(400, get(g, "/api/scripts?page=x").status)
    assert.same({}, get(g, "/api/scripts?page=7"):json().files)
  end)

  it("have two hundred scripts a page", function()
    local many = {}
    for i = 1, 201 do many[("lib/m%03d.lua"):format(i)] = "return {}" end
    local g <close> = gateway.start { scripts = many, config = { admin = { listen = "127.0.0.1:0", tokens = tokens } }, workers = 1 }
    local first = get(g, "/api/scripts"):json()
    assert.same({ 201, 200, 1 }, { first.count, #first.files, first.next })
    local second = get(g, "/api/scripts?page=1"):json()
    assert.same({ 1, "lib/m201.lua" }, { #second.files, second.files[1].path })
    assert.is_nil(second.next)
  end)

  it("have the reloads with their changes or errors, and the generations that calls hold", function()
    local g <close> = start()
    assert.same({ reloads = {} }, get(g, "/api/reloads"):json())
    local me = g:client "2026-07-28"
    me:open("tools/call", { name = "hold", arguments = {} })
    local listed
    wait.for_fact("the call", 30, function()
      listed = get(g, "/api/calls"):json()
      return #listed.calls == 1
    end)
    save(g, "scripts/tools/more.lua", 'return tool { "More.", function() return 1 end }')
    local calls = listed.calls
    local its_worker = math.tointeger(tonumber(calls[1].call:match "^%d+"))
    local draining
    -- for a moment the old generation of the other worker drains, too
    wait.for_fact("the generation that the call holds", 30, function()
      draining = get(g, "/api/scripts"):json().draining
      return #draining == 1 and draining[1].worker == its_worker
    end)
    assert.equal(1, draining[1].generation)
    assert.is_true(calls[1].began_us < draining[1].retired_us)
    local again = get(g, "/api/calls"):json()
    assert.same({ calls[1].call, 0 }, { again.calls[1] and again.calls[1].call, again.workers_without_answer })
    save(g, "scripts/tools/broken.lua", "return tool {\n  'Broken.',\n  function( end }\n")
    local reloads
    wait.for_fact("a refused reload", 30, function()
      reloads = get(g, "/api/reloads"):json().reloads
      return #reloads == 2
    end)
    assert.is_false(reloads[1].ok)
    assert.matches("tools/broken.lua:3: ", reloads[1].errors)
    assert.is_true(reloads[2].ok)
    assert.equal(2, reloads[2].generation)
    assert.equal("files", reloads[2].by)
    assert.matches("more", reloads[2].changes)
    assert.is_number(reloads[2].took_ms)
    local headers = { Authorization = "Bearer " .. operator, ["moonpool-admin"] = "1" }
    client.request(g, { method = "DELETE", path = "/api/call/" .. calls[1].call, headers = headers }, { admin = true })
    wait.for_fact("the end of the first generation", 30, function() return #get(g, "/api/scripts"):json().draining == 0 end)
    me:close()
  end)

  it("have the jobs with their last and their next run", function()
    local g <close> = gateway.start { workers = 2, config = { admin = { listen = "127.0.0.1:0", tokens = tokens } }, scripts = {
      ["jobs/often.lua"] = 'return job { "Often.", every = 0.2, function() return true end }',
      ["jobs/fails.lua"] = 'return job { "Fails.", every = 0.2, function() return nil, "no luck" end }',
      ["jobs/nightly.lua"] = 'return job { "Nightly.", every = "0 3 * * *", zone = "Europe/Berlin", function() return true end }',
      ["jobs/never.lua"] = 'return job { "Never.", every = 1, enabled = false, function() return true end }',
    } }
    local jobs
    wait.for_fact("jobs that ran", 30, function()
      jobs = {}
      for _, one in ipairs(get(g, "/api/jobs"):json().jobs) do jobs[one.name] = one end
      return jobs.often and jobs.often.outcome and jobs.fails.outcome
    end)
    assert.same({ "ok", "failed", nil }, { jobs.often.outcome, jobs.fails.outcome, jobs.nightly.outcome })
    assert.same({ "every 0.2 s", "0 3 * * * Europe/Berlin" }, { jobs.often.when, jobs.nightly.when })
    assert.matches("^%d%d%d%d%-%d%d%-%d%dT", jobs.often.last)
    assert.matches("T0[12]:00:00Z$", jobs.nightly.next)
    assert.is_nil(jobs.never)
    os.remove(g.dir .. "/scripts/jobs/fails.lua")
    wait.for_fact("its end", 30, function()
      for _, one in ipairs(get(g, "/api/jobs"):json().jobs) do
        if one.name == "fails" then return false end
      end
      return true
    end)
  end)

  it("have the names, the issuer and the files of certificates", function()
    local g <close> = start(nil, { tls = true })
    local all = get(g, "/api/certificates"):json().certificates
    assert.equal(1, #all)
    assert.is_true(all[1].ok)
    assert.matches("^%d%d%d%d%-%d%d%-%d%dT", all[1].expires)
    assert.matches("^%x+$", all[1].fingerprint)
    assert.equal(64, #all[1].fingerprint)
    assert.matches("DNS:localhost", table.concat(all[1].names, " "))
    assert.is_string(all[1].subject)
    assert.is_string(all[1].issuer)
    assert.matches("cert.pem$", all[1].certificate)
    local plain <close> = start()
    assert.same({ certificates = {} }, get(plain, "/api/certificates"):json())
  end)

  it("have each key of the configuration with its source, and no secret", function()
    local secret, short = "9f8a7b6c5d4e3f2a1b0c", "briefword"
    local text = ([[
listen: ["127.0.0.1:0"]
workers: 1
server: {name: "${SERVICE_NAME}"}
log: {level: warn, audit: audit.log}
sessions:
  idle: 20m
seal_keys: ["%s"]
traces:
  otlp: "http://127.0.0.1:1"
  headers: {authorization: "Bearer %s"}
admin:
  listen: 127.0.0.1:0
  tokens:
    operate: {joe: "%s"}
    view: {ann: "%s"}
    metrics: {pro: "${file:secret.txt}"}
upstreams:
  files: {command: [cat, --token, %s, "--password=%s", plain], process: {env: {KEY: %s}}}
  other: {url: "http://127.0.0.1:1/mcp?key=%s", headers: {x-key: %s}, auth: {bearer: "%s"}}
  third: {url: "http://127.0.0.1:1/mcp/%s/x"}
  fourth: {command: [cat, "%s", "-k", "%s"]}
]]):format(secret, secret, operator, viewer, secret, secret, secret, secret, secret, short, secret, secret, secret)
    local g <close> = gateway.start {
      config = text, scripts = scripts, files = { ["secret.txt"] = scraper }, env = { SERVICE_NAME = "hiddenname" }, args = { "--log-level", "info" },
    }
    local answer = get(g, "/api/config", operator)
    assert.equal(200, answer.status)
    for _, word in ipairs { secret, short, operator, viewer, scraper, "hiddenname" } do
      assert.is_nil(answer.body:find(word, 1, true), word)
    end
    local keys = {}
    for _, one in ipairs(answer:json().keys) do keys[one.key] = one end
    local idle = keys["sessions.idle"]
    assert.same({ "20m", "file", 6, "30m" }, { idle.value, idle.source, idle.line, idle.default })
    assert.same({ "info", "option", "--log-level" }, { keys["log.level"].value, keys["log.level"].source, keys["log.level"].option })
    assert.same({ "10000", "default" }, { keys["sessions.max"].value, keys["sessions.max"].source })
    assert.equal("***", keys["server.name"].value)
    assert.same({ "***" }, keys.seal_keys.value)
    assert.same({ joe = "***" }, keys["admin.tokens.operate"].value)
    assert.same({ authorization = "***" }, keys["traces.headers"].value)
    assert.same({ "cat", "--token", "***", "***", "plain" }, keys.upstreams.value.files.command)
    assert.same({ KEY = "***" }, keys.upstreams.value.files.process.env)
    assert.same({ "***", { ["x-key"] = "***" } }, { keys.upstreams.value.other.url, keys.upstreams.value.other.headers })
    assert.is_true(#keys["sessions.idle"].doc > 20)
    save(g, "moonpool.yaml", (text:gsub("workers: 1", "workers: 2"):gsub("idle: 20m", "idle: 25m")))
    wait.for_fact("the changed configuration", 30, function()
      for _, one in ipairs(get(g, "/api/config", operator):json().keys) do keys[one.key] = one end
      return keys["sessions.idle"].value == "25m"
    end)
    assert.equal("2", keys.workers.pending)
    assert.is_true(keys.workers.restarts)
  end)
end)
