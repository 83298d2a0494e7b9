-- No secret, argument, header or whole session id is in anything that the gateway shows about itself. A run full of
-- marked secrets; then every output is searched for the marks: log, audit, metrics, status, all of /api, the tap,
-- spans, answers to other clients, commands, and the dashboard.
local cjson = require "cjson.safe"
local client = require "spec.helpers.client"
local collector = require "spec.helpers.collector"
local gateway = require "spec.helpers.gateway"
local stub = require "spec.helpers.stub"
local upstream = require "spec.helpers.upstream"
local uv = require "luv"
local wait = require "spec.helpers.wait"

-- Each secret has a mark of its own, so that a failure says which one was shown.
local marks = {}
local function marked(what)
  marks[what] = "mark-" .. what .. "-5f0c7a91e3d24b68"
  return marks[what]
end

local admin = { operate = marked "admin-operate", view = marked "admin-view", metrics = marked "admin-metrics" }

local scripts = {
  ["auth/a.lua"] = ([[return auth { function(request)
    if request.headers.authorization ~= "Bearer TOKEN" then return nil, "unknown token" end
    return { id = "user:ann", scopes = { "all" }, claims = { private = "CLAIM" } }
  end }]]):gsub("TOKEN", marked "client-token"):gsub("CLAIM", marked "client-claim"),
  ["tools/everything.lua"] = [[return tool { "Uses everything.", input = { text = t.string, more = t.object { inner = t.string }, port = t.integer },
    function(args, call)
      local key = try(secret "KEY")
      local url = "http://127.0.0.1:" .. args.port
      try(http.post(url .. "/path?key=" .. env "QUERY", { headers = { ["x-key"] = env "HEADER", authorization = "Bearer " .. key }, body = env "BODY" }))
      http.get("http://user:" .. env "USER_PART" .. "@127.0.0.1:" .. args.port .. "/")
      http.get("http://127.0.0.1:1/?key=" .. env "QUERY")
      local db = try(sqlite.open "data.db")
      try(db:exec "create table if not exists t (a text)")
      try(db:exec("insert into t values (?)", { (env "SQL") }))
      db:exec("insert into missing values (?)", { (env "SQL") })
      try(exec({ "/bin/sh", "-c", "cat; printf '%s' \"$1\"", "sh", env "EXEC" }, { stdin = env "INPUT", env = { VARIABLE = env "EXEC_VARIABLE" } }))
      exec({ "/bin/sh", "-c", "printf '%s' \"$1\" >&2; exit 3", "sh", env "EXEC" })
      store.set("key", env "STORE")
      trace.span("step", function() sleep(0.001) end)
      return args.text .. args.more.inner
    end }]],
  ["tools/fails.lua"] = 'return tool { "Fails.", input = { text = t.string }, function(args) return nil, "no luck with it" end }',
  ["tools/breaks.lua"] = 'return tool { "Breaks.", input = { text = t.string }, function(args) local x = nil; return x.y end }',
  ["tools/typed.lua"] = 'return tool { "Typed.", input = { n = t.integer, word = t.one_of { "a", "b" } }, function(args) return args.n end }',
  ["tools/holds.lua"] = 'return tool { "Holds.", input = { text = t.string }, function() sleep(60) end }',
  ["prompts/greet.lua"] = [[return prompt { "Greets.", args = { name = t.string { "Who", complete = function(part) return { part .. "x" } end } },
    function(args) return "Hello " .. args.name end }]],
}

local function read(path)
  local file <close> = io.open(path, "rb")
  return file and file:read "a" or ""
end

-- The GET endpoints of the admin listener, as its table has them.
local function endpoints()
  local list = {}
  for path in read("core/admin/admin.c"):gmatch '\n    {"(/[%w/_.-]*)", "GET"' do list[#list + 1] = path end
  assert(#list > 8, "no table of endpoints in admin.c")
  return list
end

local function dashboard_files()
  local list, files = {}, assert(uv.fs_scandir "core/admin/ui")
  for name in uv.fs_scandir_next, files do list[#list + 1] = "/ui/" .. name end
  return list
end

describe("what the gateway shows about itself", function()
  it("has no secret, argument, header, answer or whole session id, after a run full of them", function()
    local web <close> = stub.start(function(_, reply) reply:send(200, { ["x-answer"] = marked "http-answer" }, marked "http-answer") end)
    local spans <close> = collector.start()
    local behind <close> = upstream.start { revision = "2025-11-25" }
    local child <close> = upstream.start { transport = "stdio", revision = "2025-11-25" }
    local env = {
      KEY = marked "script-secret", HEADER = marked "script-header", BODY = marked "http-body", QUERY = marked "url-query", USER_PART = marked "url-user",
      SQL = marked "sql-value", EXEC = marked "exec-argument", INPUT = marked "exec-input", EXEC_VARIABLE = marked "exec-variable",
      STORE = marked "store-value", UPSTREAM_HEADER = marked "upstream-header", UPSTREAM_TOKEN = marked "upstream-token",
      UPSTREAM_VARIABLE = marked "upstream-variable", TRACES = marked "traces-header", SEAL = marked "seal-key",
      MOONPOOL_ADMIN_TOKEN = admin.operate, OPERATE = admin.operate, VIEW = admin.view, METRICS = admin.metrics,
    }
    local granted = { "VARIABLE" }
    for name in pairs(env) do granted[#granted + 1] = name end
    local g <close> = upstream.gateway({ behind = behind, child = child }, {
      scripts = scripts, env = env, workers = 2,
      entries = {
        behind = { headers = { ["x-upstream-key"] = "${UPSTREAM_HEADER}" }, auth = { bearer = "${UPSTREAM_TOKEN}" } },
        child = { process = { env = { VARIABLE = "${UPSTREAM_VARIABLE}" } } },
      },
      config = {
        admin = { tokens = { operate = { joe = "${OPERATE}" }, view = { ann = "${VIEW}" }, metrics = { grafana = "${METRICS}" } } },
        log = { level = "debug", audit = "audit.log" },
        seal_keys = { "${SEAL}" },
        traces = spans:config { headers = { authorization = "Bearer ${TRACES}" } },
        scripts = { path = "scripts", allow = {
          net = { "127.0.0.1:" .. web.port, "127.0.0.1:1" }, env = granted, run = { "/bin/sh" }, read = { "data.db" }, write = { "data.db" },
        } },
      },
    })
    local sessions, shown = {}, {}

    local function keep(where, text) shown[#shown + 1] = { where, tostring(text) } end
    local function ask(path, token, accept)
      local answer = client.request(g, { path = path, headers = { Authorization = token and "Bearer " .. token, Accept = accept } }, { admin = true })
      keep("GET " .. path .. " as " .. tostring(token), answer.head or "")
      keep("GET " .. path .. " as " .. tostring(token), answer.body)
      return answer
    end

    -- Event streams are open for the whole run.
    local streams = {}
    for _, path in ipairs(endpoints()) do
      local c = client.connect(g, { admin = true })
      c:send { path = path, headers = { Authorization = "Bearer " .. admin.operate } }
      local head = c:read_head()
      if head.sse then streams[path] = c else c:close() end
    end
    assert.truthy(streams["/api/tap"])

    local arguments = { text = marked "argument", more = { inner = marked "nested-argument" }, port = web.port }
    local function run(revision)
      local c <close> = g:client(revision, { token = marked "client-token", capabilities = { elicitation = {} } })
      sessions[#sessions + 1] = c.session
      local function call(name, args, meta) return c:call("tools/call", { name = name, arguments = args, _meta = meta }) end
      local answer = call("everything", arguments)
      assert.equal(marked "argument" .. marked "nested-argument", answer.result and answer.result.content[1].text, cjson.encode(answer))
      call("everything", { text = { marked "argument-of-a-wrong-type" } })
      call("typed", { n = marked "argument-of-a-wrong-type", word = marked "argument-of-a-wrong-type" })
      call("fails", { text = marked "argument-of-a-failure" }, { ["example/key"] = marked "meta" })
      call("breaks", { text = marked "argument-of-an-error" })
      call("behind_echo", { text = marked "upstream-argument" })
      call("child_echo", { text = marked "upstream-argument" })
      c:call("prompts/get", { name = "greet", arguments = { name = marked "prompt-argument" } })
      c:call("completion/complete", { ref = { type = "ref/prompt", name = "greet" }, argument = { name = "name", value = marked "completion" } })
      local held = c:open("tools/call", { name = "holds", arguments = { text = marked "argument" } })
      g:wait_status(function(status) return (status.gauges.requests_in_flight or 0) > 0 end)
      for _, path in ipairs(endpoints()) do
        if not streams[path] then ask(path, admin.operate) end
      end
      held:hang_up()
    end
    for _, revision in ipairs { "2025-03-26", "2025-11-25", "2026-07-28" } do run(revision) end

    -- requests that are refused, and what they are answered
    local function refused(request)
      local answer = client.request(g, request)
      assert.truthy(answer.status >= 400, answer.status)
      keep("the answer to a refused request", answer.head or "")
      keep("the answer to a refused request", answer.body)
    end
    local json = { ["Content-Type"] = "application/json", Accept = "application/json, text/event-stream" }
    local function headers(more)
      local all = {}
      for name, value in pairs(json) do all[name] = value end
      for name, value in pairs(more) do all[name] = value end
      return all
    end
    local good = "Bearer " .. marked "client-token"
    local ping = cjson.encode { jsonrpc = "2.0", id = 1, method = "ping" }
    refused { method = "POST", path = "/mcp", headers = headers { Authorization = "Bearer " .. marked "wrong-token" }, body = ping }
    refused { method = "POST", path = "/mcp", headers = headers { Authorization = marked "wrong-token" }, body = ping }
    refused { method = "POST", path = "/mcp", headers = headers { Authorization = good }, body = '{"jsonrpc":"2.0", ' .. marked "broken-json" }
    refused { method = "POST", path = "/mcp", headers = headers { Authorization = good, ["Mcp-Session-Id"] = marked "unknown-session" }, body = ping }
    for _, more in ipairs { { Origin = "http://evil.example" }, { ["MCP-Protocol-Version"] = "1900-01-01" } } do
      more.Authorization, more.Cookie, more["X-Api-Key"] = good, marked "cookie", marked "client-header"
      refused { method = "POST", path = "/mcp", headers = headers(more), body = ping }
    end
    for _, path in ipairs { "/status", "/api/sessions", "/api/calls" } do ask(path, marked "wrong-admin") end

    for _, role in ipairs { "operate", "view", "metrics" } do
      for _, path in ipairs(endpoints()) do
        if not streams[path] then ask(path, admin[role]) end
      end
    end
    keep("OpenMetrics", ask("/metrics", admin.metrics, "application/openmetrics-text").body)
    for _, path in ipairs(dashboard_files()) do assert.equal(200, ask(path).status, path) end

    local near = { "--admin", "127.0.0.1:" .. g.admin_port }
    local function command(...)
      local words = { ... }
      local code, out, err = gateway.exec(words, { cwd = g.dir, env = env })
      keep("moonpool " .. table.concat(words, " "), code .. out .. err)
    end
    command("status", table.unpack(near))
    command("upstreams", table.unpack(near))
    command("tap", "--for", "1s", "--json", table.unpack(near))
    for _, words in ipairs { { "check" }, { "check", "--json" }, { "list" }, { "explain" }, { "config" }, { "doctor" }, { "upstreams" } } do
      command(table.unpack(words))
    end

    spans:wait("tools/call everything", 3)
    g:wait_status(function(status) return status.gauges.spans_queued == 0 end)
    wait.for_fact("the tap's events of the calls", 20, function() return #streams["/api/tap"]:messages() > 30 end)
    for path, c in pairs(streams) do
      local text = {}
      c:messages()
      for _, event in ipairs(c.events) do text[#text + 1] = (event.data or "") .. (event.event or "") .. (event.comment or "") end
      keep("GET " .. path, table.concat(text, "\n"))
      c:close()
    end
    g:stop()
    local log, audit = g:log(), read(g.dir .. "/audit.log")
    assert.truthy(#log > 1000 and #audit > 1000)
    keep("the log", log)
    keep("the audit", audit)
    for _, body in ipairs(spans.bodies) do keep("a span", body) end
    assert.truthy(#spans.spans > 30)

    local found = {}
    local function search(what, mark)
      for _, one in ipairs(shown) do
        local at = one[2]:find(mark, 1, true)
        if at then found[#found + 1] = ("%s shows %s: …%s…"):format(one[1], what, one[2]:sub(math.max(1, at - 120), at + 40)) end
      end
    end
    for what, mark in pairs(marks) do search(what, mark) end
    table.sort(found)
    assert.truthy(#sessions > 1)
    for _, id in ipairs(sessions) do search("a session id", id) end
    assert.equal("", table.concat(found, "\n"))
  end)
end)
