-- What is wrong with a gateway: `moonpool status` says it first, /status has it as data, and the alerts agree with it.
local certificates = require "spec.helpers.certificates"
local client = require "spec.helpers.client"
local free_port = require "spec.helpers.free_port"
local gateway = require "spec.helpers.gateway"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local DEFINITIONS <const>, RULES <const> = "core/admin/conditions.def", "examples/monitoring/moonpool.rules.yml"
-- Alerts about shares of calls over time, which a single look at the gateway cannot know, and one about its absence.
local RATES <const> = {
  MoonpoolDown = true, MoonpoolErrors = true, MoonpoolToolFails = true, MoonpoolSlow = true, MoonpoolLoopBlocked = true, MoonpoolNearLimit = true,
  MoonpoolUpstreamErrors = true, MoonpoolUpstreamRestarts = true,
}

local function read(path)
  local file <close> = assert(io.open(path))
  return file:read "a"
end

local function save(g, path, text)
  local file <close> = assert(io.open(g.dir .. "/" .. path, "wb"))
  file:write(text)
end

local function find(g, name)
  return g:wait_status(function(status)
    for _, one in ipairs(status.conditions) do
      if one.condition == name then return true end
    end
  end).conditions
end

local function only(g, name)
  local list = find(g, name)
  assert.equal(1, #list)
  return list[1]
end

local function shown(g)
  local code, out, err = gateway.exec { "status", "--admin", "127.0.0.1:" .. g.admin_port }
  assert.same({ 0, "" }, { code, err })
  return out
end

local add = 'return tool { "Adds.", function() return 1 end }'

describe("the conditions of a gateway", function()
  it("have one alert each, of the same severity, and every alert about a state has one", function()
    local alerts, known = {}, {}
    for name, body in read(RULES):gmatch "%- alert: (%w+)\n(.-)\n          summary" do alerts[name] = body:match "severity: (%l+)" end
    for name, severity, alert, next in read(DEFINITIONS):gmatch 'CONDITION%([%u_]+, ([%l_]+), (%l+), (%w+), "([^\n]+)"%)' do
      assert.equal(alerts[alert], severity, alert)
      assert.is_nil(known[alert])
      assert.truthy(#next > 20, name)
      known[alert] = true
    end
    for name in pairs(alerts) do assert.truthy(known[name] or RATES[name], name .. " is no condition") end
    for name in pairs(RATES) do assert.truthy(alerts[name] and not known[name], name) end
  end)

  it("are none while nothing is wrong", function()
    local g <close> = gateway.start { scripts = { ["tools/add.lua"] = add } }
    assert.same({}, g:status().conditions)
    assert.equal("nothing is wrong", shown(g):match "^[^\n]+")
  end)

  it("are a worker and a main thread that do not go on, worst first", function()
    local blocking = require "spec.helpers.blocking"
    local g <close> = gateway.start { workers = 2, scripts = { ["tools/block.lua"] = blocking.tool }, constants = { stuck_ms = 500 },
      config = { scripts = { path = "scripts", trust = "full" }, limits = { drain = "500ms", call = { time = "1h", cpu = "1h" } } } }
    local me <close> = g:client "2026-07-28"
    local stream = blocking.open(g, me)
    local one = only(g, "worker_stuck")
    assert.same({ "critical", "MoonpoolWorkerStuck" }, { one.severity, one.alert })
    -- ThreadSanitizer delivers no signal to a thread that waits in C
    local place = os.getenv "TSAN_OPTIONS" and ".*" or ".* in tools/call block"
    assert.truthy(one.what:find("^worker %d is stuck: " .. place .. "$"), one.what)
    assert.truthy(one.since:find "^20%d%d%-" and #one.next > 20)
    assert.truthy(shown(g):find "^critical  worker %d is stuck: [^\n]*, since 20%S+Z\n          next: restart", shown(g))
    assert(os.execute("mkfifo '" .. g.dir .. "/main'"))
    save(g, "scripts/tools/wait.lua", ("local pipe = io.open(%q, 'r') pipe:close()"):format(g.dir .. "/main"))
    g:signal "sighup"
    local list = find(g, "main_stuck")
    assert.same({ "worker_stuck", "main_stuck" }, { list[1].condition, list[2].condition })
    blocking.release(g)
    stream:answer(10)
    assert(io.open(g.dir .. "/main", "w")):close()
    g:wait_status(function(status) return #status.conditions < 2 end)
  end)

  it("are files that are refused, until they are mended", function()
    local g <close> = gateway.start { scripts = { ["tools/add.lua"] = add } }
    save(g, "scripts/tools/add.lua", "return tool {")
    local one = only(g, "files_refused")
    assert.truthy(one.what:find("what was loaded before still serves", 1, true) and one.since)
    save(g, "scripts/tools/add.lua", add)
    g:wait_status(function(status) return #status.conditions == 0 end)
  end)

  it("are scripts that are left out, by name", function()
    local g <close> = gateway.start { scripts = { ["tools/add.lua"] = add, ["tools/bad.lua"] = "return tool {" },
      config = { scripts = { path = "scripts", broken = "leave_out" } } }
    assert.equal("served without scripts that have errors: tools/bad.lua", only(g, "scripts_left_out").what)
    assert.truthy(g:admin("/metrics").body:find("\nmoonpool_scripts_left_out 1\n", 1, true))
  end)

  it("are files of a certificate that are refused while the one before is served, until they are mended", function()
    local good = certificates.make { days = 90 }
    local g <close> = gateway.start { config = { listen = { { address = "127.0.0.1:0", tls = { certificate = "cert.pem", key = "key.pem" } } } },
      files = { ["cert.pem"] = good.certificate, ["key.pem"] = good.key } }
    assert.truthy(g:admin("/metrics").body:find "\nmoonpool_certificate_ok{address=[^\n]+} 1\n")
    save(g, "cert.pem", "no certificate")
    local one = only(g, "certificate_refused")
    assert.truthy(one.since and one.what:find("^the new files of the certificate of 127%.0%.0%.1:0 are refused: .+"), one.what)
    assert.truthy(g:admin("/metrics").body:find "\nmoonpool_certificate_ok{address=[^\n]+} 0\n")
    save(g, "cert.pem", good.certificate)
    g:wait_status(function(status) return #status.conditions == 0 end)
  end)

  it("are upstreams that are down", function()
    local g <close> = gateway.start { config = { upstreams = { gone = ("http://127.0.0.1:%d/mcp"):format(free_port()) } } }
    local one = only(g, "upstream_down")
    assert.equal("the upstream gone is down: connection refused", one.what)
    assert.truthy(one.since and one.next:find("moonpool doctor", 1, true))
  end)

  it("are definitions of upstreams that clients do not get, until they do", function()
    local one <close> = upstream.start { revision = "2025-11-25" }
    local two <close> = upstream.start { revision = "2025-11-25" }
    for _, u in ipairs { one, two } do
      for _, kind in ipairs { "prompts", "resources", "templates" } do u:offer(kind, {}) end
      u:offer("tools", { "add", "sub" })
    end
    local g <close> = upstream.gateway({ one = one, two = two }, { entries = upstream.plain { one = one, two = two } })
    local it = only(g, "upstream_withheld")
    assert.same({ "warning", 2, "MoonpoolUpstreamWithheld" }, { it.severity, it.count, it.alert })
    assert.truthy(it.what:find "^definitions of the upstream %l+ are withheld from clients$", it.what)
    assert.truthy(shown(g):find "^warning   2 definitions of the upstream %l+ are withheld from clients\n          next: `moonpool upstreams`", shown(g))
    two:offer("tools", { "other" })
    two:announce "notifications/tools/list_changed"
    g:wait_status(function(status) return #status.conditions == 0 end, 20)
  end)

  it("are lost lines of the audit, as many as are lost, and end some time after the last one", function()
    local g <close> = gateway.start { scripts = { ["tools/add.lua"] = add }, config = { log = { audit = "audit.jsonl" } },
      constants = { condition_quiet_ms = 3000 } }
    local me <close> = g:client "2026-07-28"
    me:result("tools/call", { name = "add" })
    wait.for_fact("the first line", 20, function() return g:file("audit.jsonl"):find("\n", 1, true) end)
    assert.equal(0, (gateway.run_program("/usr/bin/prlimit", { "--pid", tostring(g.pid), "--fsize=10:unlimited" })))
    for _ = 1, 3 do me:result("tools/call", { name = "add" }) end
    g:wait_status(function(status) return status.counters.dropped.audit == 3 end)
    local one = find(g, "audit_lost")[1]   -- the log is a file, too: a condition about lost lines of the log may follow
    assert.same({ "critical", 3, "lines of the audit were lost" }, { one.severity, one.count, one.what })
    assert.truthy(shown(g):find "^critical  3 lines of the audit were lost, since 20%S+Z\n", shown(g))
    g:wait_status(function(status) return #status.conditions == 0 end, 20)
    assert.equal(3, g:status().counters.dropped.audit)
  end)

  it("are events of the log that say that something does not work, whatever log.level is", function()
    local keys = "ci sha256:" .. ("0"):rep(64) .. " a\n"
    local g <close> = gateway.start { scripts = { ["tools/add.lua"] = add, ["auth/keys.lua"] = 'return auth.keys { file = "keys" }' },
      files = { keys = keys, ["logs/audit.jsonl"] = "" }, config = { log = { level = "error", audit = "logs/audit.jsonl" },
        scripts = { path = "scripts", allow = { read = { "keys" } } } },
      constants = { condition_quiet_ms = 3000 } }
    save(g, "keys", "ci nonsense\n")
    local function troubles()
      client.request(g, { path = "/mcp", method = "POST", headers = { ["x-api-key"] = "k" }, body = "{}" })
      return g:status().counters.troubles
    end
    wait.for_fact("the broken file of keys", 20, function() return troubles()["file not accepted"] == 1 end)
    local one = only(g, "troubles")
    assert.same({ "warning", 1, "MoonpoolTroubles" }, { one.severity, one.count, one.alert })
    assert.truthy(shown(g):find("\n  troubles  +file not accepted 1\n", 1), shown(g))
    assert(os.rename(g.dir .. "/logs", g.dir .. "/older"))
    g:signal "sighup"
    wait.for_fact("an audit file that cannot be opened", 20, function() return g:status().counters.troubles["audit file not reopened"] == 1 end)
    save(g, "keys", keys)
    g:wait_status(function(status) return #status.conditions == 0 end, 20)
  end)

  it("are no lines of a script with the words of such an event, which use up nothing of the gateway's lines either", function()
    local g <close> = gateway.start { files = { ["logs/audit.jsonl"] = "" }, config = { log = { audit = "logs/audit.jsonl" } }, workers = 1,
      constants = { log_repeat = 20 }, scripts = { ["tools/say.lua"] = [[
        return tool { "Logs.", function() for _ = 1, 40 do log.error "audit file not reopened" log.warn "audit file not reopened" end return "said" end }]] } }
    local me <close> = g:client "2026-07-28"
    me:result("tools/call", { name = "say" })
    assert.same({}, g:status().conditions)
    assert.is_true(g:status().counters.dropped.repeated > 0)
    assert(os.rename(g.dir .. "/logs", g.dir .. "/older"))
    g:signal "sighup"
    wait.for_fact("the gateway's own line", 20, function() return g:log():find("audit file not reopened why=", 1, true) end)
    assert.equal(1, g:status().counters.troubles["audit file not reopened"])
  end)

  it("are rooms of the store without a place, and no fault of a client", function()
    local g <close> = gateway.start { config = { store = { entries = 1000 } }, scripts = {
      ["tools/fill.lua"] = [[
        return tool { "Fills.", function() local n = 0 while store.set("k" .. n, 1) do n = n + 1 end return n end }]] } }
    local me <close> = g:client "2026-07-28"
    assert.equal(403, client.request(g, { path = "/mcp", headers = { Host = "evil.example" } }).status)
    g:wait_status(function(status) return status.counters.refused.origin == 1 end)
    me:result("tools/call", { name = "fill" })
    local one = only(g, "store_full")
    assert.same({ "warning", 1, "entries had no place in their room of the store" }, { one.severity, one.count, one.what })
  end)

  it("are jobs that fail, and requests that a limit refuses", function()
    local g <close> = gateway.start { scripts = {
      ["jobs/bad.lua"] = 'return job { "Fails.", every = 0.2, function() error "no" end }',
      ["tools/wait.lua"] = 'return tool { "Waits.", function() sleep(60) end }',
    }, workers = 1, config = { limits = { calls_in_flight = 1 } } }
    local one, two = g:client "2026-07-28", g:client "2026-07-28"
    one:open("tools/call", { name = "wait" })
    g:wait_status(function(status) return status.gauges.requests_in_flight == 1 end)
    two:call("tools/call", { name = "wait" })
    for name, what in pairs { refuses = "requests were refused because a limit was reached", jobs_fail = "runs of jobs failed" } do
      local found
      for _, each in ipairs(find(g, name)) do found = each.condition == name and each or found end
      assert.equal(what, found.what)
      assert.is_true(found.count >= 1)
    end
    one:close()
    two:close()
  end)
end)
