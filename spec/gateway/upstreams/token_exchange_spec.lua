-- lane: first
-- auth.exchange (RFC 8693): requests to the upstream have a token of the caller, got in exchange for the one that the
-- caller sent. Callers share neither tokens, sessions nor lists, on any worker. Neither the secret nor a token is ever
-- shown.
local cjson = require "cjson.safe"
local exchanging = require "spec.helpers.exchanging"
local gateway = require "spec.helpers.gateway"
local upstream = require "spec.helpers.upstream"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local start, asked, field, listed = exchanging.start, exchanging.asked, exchanging.field, exchanging.listed

-- Authenticates a program by a key, which is no token of an issuer.
local KEYS <const> = 'return auth { function(request) if request.bearer == "a-plain-key-of-a-program-1" then return { id = "robot" } end end }'

local function call(c, name, arguments) return c:call("tools/call", { name = name or "crm_counter", arguments = arguments }) end
local function count(c) return upstream.text(call(c)) end

describe("an upstream with a token of each caller", function()
  it("gets the caller's token exchanged, for this audience, resource and scope, once for many calls", function()
    start({}, function(it)
      local ann <close> = it.client "ann"
      for _ = 1, 20 do upstream.text(call(ann, "crm_echo", { n = 1 })) end
      local again <close> = it.client "ann"                 -- another token of the same person with the same scopes
      upstream.text(call(again, "crm_echo", { n = 1 }))
      assert.equal(1, asked(it.state))
      local form = it.state.forms[1]
      assert.same({ "urn:ietf:params:oauth:grant-type:token-exchange", it.sent[1], "urn:ietf:params:oauth:token-type:access_token", "https://crm.example.com",
        "https://crm.example.com/mcp", "crm:read" }, { field(form, "grant_type"), field(form, "subject_token"), field(form, "subject_token_type"),
        field(form, "audience"), field(form, "resource"), field(form, "scope") })
      assert.is_nil(field(form, "client_secret"))
      for _, entry in ipairs(it.u:all { kind = "request" }) do assert.equal("of-ann-1-hunter2", entry.token) end
      for _, entry in ipairs(it.u.received) do
        assert.is_nil((entry.head or ""):find(it.sent[1], 1, true) or (entry.text or ""):find(it.sent[1], 1, true))
      end
      assert.equal(1, it.g:status().counters.upstream_tokens.got)
    end, { exchange = { resource = "https://crm.example.com/mcp" } })
  end)

  for _, kind in ipairs { { "2025-11-25", "http" }, { "2024-11-05", "sse" }, { "2026-07-28", "http" } } do
    it(("keeps two callers apart on two workers: tokens, sessions and lists (%s over %s)"):format(kind[1], kind[2]), function()
      start({}, function(it)
        for _, revision in ipairs { "2026-07-28", "2025-06-18" } do
          local people = {}
          for i = 1, 8 do people[i] = { sub = i % 2 == 0 and "ann" or "bob" } end
          for _, one in ipairs(people) do one.c = it.client(one.sub, revision) end
          for _ = 1, 5 do
            local streams = {}
            for i, one in ipairs(people) do streams[i] = one.c:open("tools/call", { name = "crm_echo", arguments = { who = one.sub } }) end
            for i, one in ipairs(people) do
              assert.equal(one.sub, cjson.decode(upstream.text(streams[i]:answer())).who)
              streams[i]:close()
            end
          end
          for _, one in ipairs(people) do
            assert.equal("crm_counter crm_echo crm_only-" .. one.sub, listed(one.c))
            local other = one.sub == "ann" and "bob" or "ann"
            assert.equal(-32602, call(one.c, "crm_only-" .. other).error.code)
          end
          for _, one in ipairs(people) do one.c:close() end
        end
        assert.equal(1, asked(it.state, "ann"))
        assert.equal(1, asked(it.state, "bob"))
        local of_session = {}
        for _, entry in ipairs(it.u:all { kind = "request" }) do
          local session = entry.session and (entry.session.id or entry.session.number)
          if entry.tool == "echo" then assert.equal(entry.sub, entry.json.params.arguments.who) end
          if session then
            assert.equal(of_session[session] or entry.sub, entry.sub)
            of_session[session] = entry.sub
          end
        end
      end, { options = { revision = kind[1], transport = kind[2] } })
    end)
  end

  it("has a session for each caller: scopes make another caller of one person", function()
    start({}, function(it)
      local ann <close> = it.client "ann"
      local bob <close> = it.client "bob"
      local less <close> = it.client("ann", nil, { scope = "crm:less" })
      assert.same({ "1", "1", "1" }, { count(ann), count(bob), count(less) })
      assert.same({ "2", "2", "2" }, { count(ann), count(bob), count(less) })
      assert.equal(2, asked(it.state, "ann"))
    end)
  end)

  it("refuses callers without a token that the gateway has verified, and shows them nothing", function()
    start({}, function(it)
      local ann <close> = it.client "ann"
      upstream.text(call(ann, "crm_echo", {}))
      local key <close> = it.g:client("2026-07-28", { token = "a-plain-key-of-a-program-1" })
      assert.equal("", listed(key))
      local data, message = upstream.failure(call(key, "crm_echo", {}), "not_run", "caller")
      assert.equal("crm", data.upstream)
      assert.equal("upstream 'crm' needs a token of the caller: one that auth.jwt or auth.introspection of this gateway has verified; the call was not run",
        message)
      upstream.failure(call(key, "crm_nothing", {}), "not_run", "caller")
      assert.equal(-32602, call(key, "other", {}).error.code)
      assert.equal(1, asked(it.state))
    end, { scripts = { ["auth/keys.lua"] = KEYS } })
  end)

  it("has the token of each message of a client over HTTP+SSE, whose calls outlive the request that brought it", function()
    start({}, function(it)
      local people = {}
      for i = 1, 6 do people[i] = { sub = i % 2 == 0 and "ann" or "bob" } end
      for _, one in ipairs(people) do one.c = it.client(one.sub, "2024-11-05") end
      for round = 1, 5 do
        local ids = {}
        for i, one in ipairs(people) do ids[i] = one.c:open("tools/call", { name = "crm_echo", arguments = { who = one.sub, round = round } }) end
        for i, one in ipairs(people) do assert.equal(one.sub, cjson.decode(upstream.text(ids[i]:answer())).who) end
      end
      for _, one in ipairs(people) do
        assert.equal("crm_counter crm_echo crm_only-" .. one.sub, listed(one.c))
        assert.equal(-32602, call(one.c, "crm_only-" .. (one.sub == "ann" and "bob" or "ann")).error.code)
      end
      for _, entry in ipairs(it.u:all { kind = "request" }) do
        if entry.tool == "echo" then assert.equal(entry.sub, entry.json.params.arguments.who) end
      end
      assert.same({ 1, 1 }, { asked(it.state, "ann"), asked(it.state, "bob") })
      local key <close> = it.g:client("2024-11-05", { token = "a-plain-key-of-a-program-1" })
      assert.equal("", listed(key))
      upstream.failure(call(key, "crm_echo", {}), "not_run", "caller")
      for _, one in ipairs(people) do one.c:close() end
    end, { scripts = { ["auth/keys.lua"] = KEYS }, config = { endpoints = { sse = "/sse", messages = "/messages" } } })
  end)

  it("is called by tools that run as MCP tasks with the token of the request that began the task, as long as that is valid", function()
    local tool = [[return tool { "Runs on.", task = "required", input = { seconds = t.number { default = 0 } }, function(args)
      sleep(args.seconds)
      return try(upstream "crm":call("echo", { n = 1 })).text
    end }]]
    start({}, function(it)
      local can = { capabilities = { extensions = { ["io.modelcontextprotocol/tasks"] = { [" "] = 1 } } } }
      local function begin(sub, seconds, claims)
        local c = it.client(sub, nil, claims, can)
        return c, c:result("tools/call", { name = "runs", arguments = { seconds = seconds } }).taskId
      end
      local function ended(c, id)
        return wait.for_fact("the task to end", 60, function()
          local now = c:result("tasks/get", { taskId = id })
          return now.status ~= "working" and now
        end)
      end
      for _, sub in ipairs { "ann", "bob", "ann" } do
        local c, id = begin(sub)
        assert.equal("completed", ended(c, id).status)
        c:close()
      end
      local seen = {}
      for _, entry in ipairs(it.u:all { kind = "request" }) do
        if entry.tool == "echo" then seen[#seen + 1] = entry.sub end
      end
      assert.equal("ann bob ann", table.concat(seen, " "))
      local early, id = begin("cy", 9, { exp = os.time() + 8 })
      early:close()
      -- a client with another token of the same person, which only asks for the task
      local later <close> = it.client("cy", nil, nil, can)
      local text = ended(later, id).result.content[1].text
      assert.truthy(text:find("the one with which this call began is not valid any more", 1, true), text)
      assert.equal(0, asked(it.state, "cy"))
    end, { scripts = { ["tools/runs.lua"] = tool, ["auth/main.lua"] = exchanging.script:gsub("}$", ", leeway = 0 }") } })
  end)

  it("is not polled for a task with the token of a caller whose own token has ended, but learns that the task is cancelled", function()
    local TASK <const> = '{"resultType":"%s","taskId":"t1","status":"working","ttlMs":600000,"pollIntervalMs":200,'
      .. '"createdAt":"2026-11-23T00:00:00Z","lastUpdatedAt":"2026-11-23T00:00:00Z"}'
    local state, last = {}, nil
    function state.on_request(x)
      if x.method == "tasks/get" then last = os.time() end
      if x.method == "tools/call" or x.method == "tasks/get" then return x:result(TASK:format(x.method == "tools/call" and "task" or "complete")) end
    end
    start(state, function(it)
      local ends = os.time() + 8
      local c <close> = it.client("ann", "2025-11-25", { exp = ends })
      local answer = c:open("tools/call", { name = "crm_echo", arguments = {} }):answer(60)
      local _, message = upstream.failure(answer, "unknown", "expired")
      assert.truthy(message:find("the one with which this call began is not valid any more", 1, true), message)
      assert.is_true(last ~= nil and last <= ends + 5, "polled until " .. tostring(last) .. ", the token ended at " .. ends)
      it.u:wait { method = "tasks/cancel" }
    end, { options = { revision = "2026-07-28", tasks = true }, scripts = { ["auth/main.lua"] = exchanging.script:gsub("}$", ", leeway = 0 }") } })
  end)

  it("refuses a caller whose token is refused, remembers that for this token, and serves the others", function()
    local state = { refuse = { bob = { 400, "invalid_grant" } } }
    start(state, function(it)
      local bob <close> = it.client "bob"
      local ann <close> = it.client "ann"
      assert.equal("", listed(bob))
      for _ = 1, 5 do
        local _, message = upstream.failure(call(bob, "crm_echo", {}), "not_run", "denied")
        assert.equal("upstream 'crm' cannot be called for this caller, whose token was refused; the call was not run", message)
      end
      assert.equal(1, asked(state, "bob"))
      upstream.text(call(ann, "crm_echo", {}))
      assert.equal("up", it.g:status().upstreams.crm.state)
      it.g:wait_log("no token for upstream", { principal = "bob", why = "the token endpoint answers 400 invalid_grant" })
      assert.equal(1, it.g:status().counters.upstream_tokens.refused)
    end)
  end)

  it("is barred for all where the authorization server refuses the gateway itself, which asks once", function()
    local state = { answer = function(reply) reply:send(401, { ["content-type"] = "application/json" }, '{"error":"invalid_client"}') end }
    start(state, function(it)
      for _, sub in ipairs { "ann", "bob", "cy" } do
        local c <close> = it.client(sub)
        upstream.failure(call(c, "crm_echo", {}), "not_run", "barred")
      end
      assert.equal(1, asked(state))
      wait.for_fact("the state", 20, function() return it.g:status().upstreams.crm.state == "barred" end)
    end)
  end)

  it("renews a token before its end, and goes on while the authorization server is down until it ends", function()
    start({ life = 12 }, function(it)
      local ann <close> = it.client "ann"
      upstream.text(call(ann, "crm_echo", {}))
      it.state.answer = function(reply) reply:send(503) end
      local went_on, longest, last = 0, 0, uv.hrtime()
      wait.for_fact("the end of the token", 60, function()
        local answer = call(ann, "crm_echo", {})
        longest, last = math.max(longest, (uv.hrtime() - last) / 1e9), uv.hrtime()
        if answer.result and asked(it.state) > 1 then went_on = went_on + 1 end
        return answer.error
      end)
      assert.is_true(asked(it.state) > 1)
      assert.is_true(went_on > 0 or longest > 1, "the token was not used on") -- unless the machine was too busy for a call in its last 3 s
      upstream.failure(call(ann, "crm_echo", {}), "not_run", "credential")
      it.state.answer = nil
      wait.for_fact("another token", 90, function() return call(ann, "crm_echo", {}).result end)
    end)
  end)

  it("renews a token that the upstream refuses, once for all calls of that caller, and runs none twice", function()
    start({}, function(it)
      local ann <close> = it.client "ann"
      local bob <close> = it.client "bob"
      upstream.text(call(ann, "crm_echo", {}))
      upstream.text(call(bob, "crm_echo", {}))
      for token, sub in pairs(it.state.good) do
        if sub == "ann" then it.state.good[token] = nil end
      end
      local before, streams = it.u:ran "echo", {}
      for n = 1, 20 do streams[n] = ann:open("tools/call", { name = "crm_echo", arguments = { n = n } }) end
      for _, stream in ipairs(streams) do
        upstream.text(stream:answer())
        stream:close()
      end
      assert.equal(before + 20, it.u:ran "echo")
      assert.same({ 2, 1 }, { asked(it.state, "ann"), asked(it.state, "bob") })
    end)
  end)

  it("refuses one caller whose new tokens the upstream refuses, too, and asks neither server again and again", function()
    start({}, function(it)
      local ann <close> = it.client "ann"
      local bob <close> = it.client "bob"
      upstream.text(call(ann, "crm_echo", {}))
      upstream.text(call(bob, "crm_echo", {}))
      it.state.on_request = function(x, sub)
        if sub == "ann" then
          upstream.faults.status(401)(x)
          return true
        end
      end
      upstream.failure(call(ann, "crm_echo", {}), "not_run", "denied")
      local count_asked, came = asked(it.state, "ann"), #it.u:all { kind = "request", sub = "ann" }
      for _ = 1, 10 do upstream.failure(call(ann, "crm_echo", {}), "not_run", "denied") end
      assert.same({ count_asked, came }, { asked(it.state, "ann"), #it.u:all { kind = "request", sub = "ann" } })
      upstream.text(call(bob, "crm_echo", {}))
      assert.equal("up", it.g:status().upstreams.crm.state)
    end)
  end)

  it("is not sent tokens for another audience, nor what is no access token", function()
    local base64 = require "spec.helpers.base64"
    local function part(value) return (base64.encode(cjson.encode(value)):gsub("+", "-"):gsub("/", "_"):gsub("=", "")) end
    local other = table.concat({ part { alg = "none" }, part { aud = { "https://other.example.com" } }, "hunter2" }, ".")
    for _, case in ipairs {
      { { access_token = other, token_type = "Bearer" }, "the token endpoint gave a token for another audience" },
      { { access_token = "hunter2", token_type = "Bearer", issued_token_type = "urn:ietf:params:oauth:token-type:refresh_token" },
        "the token endpoint gave no access token" },
      { { access_token = "hunter2", token_type = "N_A" }, "the token endpoint gave no bearer token" },
    } do
      start({ answer = function(reply) reply:json(case[1]) end }, function(it)
        local ann <close> = it.client "ann"
        upstream.failure(call(ann, "crm_echo", {}), "not_run", "denied")
        it.g:wait_log("no token for upstream", { principal = "ann", why = case[2] })
        assert.equal(0, #it.u.received)
      end)
    end
  end)

  it("is called by scripts as the caller, and not without one", function()
    local tool = [[return tool { "Asks.", function()
      local crm = upstream "crm"
      local names, tools = {}, crm:tools()
      for i, one in ipairs(tools or {}) do names[i] = one.name end
      local got, why = crm:call("echo", { n = 1 })
      return { names = table.concat(names, " "), listed = tools ~= nil, got = got ~= nil, why = why }
    end }]]
    start({}, function(it)
      for _, sub in ipairs { "ann", "bob" } do
        local c <close> = it.client(sub)
        local answer = c:result("tools/call", { name = "asks", arguments = {} }).structuredContent
        assert.same({ names = "counter echo only-" .. sub, listed = true, got = true }, answer)
      end
      local key <close> = it.g:client("2026-07-28", { token = "a-plain-key-of-a-program-1" })
      local answer = key:result("tools/call", { name = "asks", arguments = {} }).structuredContent
      assert.same({ false, false }, { answer.got, answer.listed })
      assert.matches("needs a token of the caller", answer.why)
      assert.equal("", answer.names)
    end, { scripts = { ["tools/asks.lua"] = tool,
      ["auth/keys.lua"] = KEYS } })
  end)

  it("delays no call of anything else while the authorization server is silent", function()
    start({ answer = function() end }, function(it)
      local ann <close> = it.client "ann"
      local slow = ann:open("tools/call", { name = "crm_echo", arguments = {} })
      wait.for_fact("the exchange", 20, function() return asked(it.state) == 1 end)
      assert.equal("mine", upstream.text(call(ann, "own", {})))
      assert.equal("text of mine", ann:result("resources/read", { uri = "own://mine" }).contents[1].text)
      assert.equal(-32602, call(ann, "unknown", {}).error.code)
      assert.same({}, slow:messages())
      slow:close()
    end, { entry = { list_wait = "2m" }, scripts = { ["tools/own.lua"] = 'return tool { "Own.", function() return "mine" end }',
      ["resources/own.lua"] = 'return resource { "Own.", uri = "own://mine", function() return "text of mine" end }' } })
  end)

  it("lists definitions of each caller, and reads them again after `refresh`", function()
    local state, word = {}, "first"
    state.on_request = function(x, sub)
      if x.method ~= "tools/list" then return false end
      x:result(x:complete(('{"tools":[{"name":"echo","description":"%s %s","inputSchema":{"type":"object"}}]}'):format(word, sub), true))
      return true
    end
    local function described(c) return c:result("tools/list", {}).tools[1].description end
    start(state, function(it)
      local people = { ann = it.client "ann", bob = it.client "bob", less = it.client("ann", nil, { scope = "crm:less" }) }
      assert.equal("first ann", described(people.ann))
      assert.equal("first bob", described(people.bob))
      assert.equal("first ann", described(people.less))
      word = "second"
      for _, name in ipairs { "bob", "ann" } do
        wait.for_fact("the second list of " .. name, 30, function() return described(people[name]) == "second " .. name end)
      end
      for _, c in pairs(people) do c:close() end
    end, { entry = { refresh = "1s" } })
  end)

  it("divides further by `per`", function()
    for per, counts in pairs { call = { "1", "1", "1" }, session = { "1", "2", "1" } } do
      start({}, function(it)
        local one <close> = it.client("ann", "2025-06-18")
        local two <close> = it.client("ann", "2025-06-18")
        assert.same(counts, { count(one), count(one), count(two) }, per)
        assert.equal(1, asked(it.state))
      end, { entry = { per = per } })
    end
  end)

  it("never takes the quick way, which has no token of a caller", function()
    start({}, function(it)
      local ann <close> = it.client "ann"
      local bob <close> = it.client "bob"
      for _ = 1, 10 do
        upstream.text(call(ann, "crm_echo", {}))
        upstream.text(call(bob, "crm_echo", {}))
      end
      assert.equal(0, it.g:status().counters.calls_forwarded)
    end, { options = { revision = "2026-07-28" }, workers = 1 })
  end)

  it("keeps a bounded number of tokens and lists, and gets again what gave way", function()
    start({}, function(it)
      for _ = 1, 2 do
        for i = 1, 6 do
          local c <close> = it.client("p" .. i)
          upstream.text(call(c, "crm_echo", {}))
          assert.equal("crm_counter crm_echo crm_only-p" .. i, listed(c))
        end
      end
      local counters = it.g:status().counters
      assert.is_true(counters.upstream_tokens.evicted >= 4)
      assert.is_true(counters.evicted.caller_lists >= 4)
      assert.is_true(asked(it.state) > 6)
    end, { constants = { upstream_caller_tokens = 2, upstream_caller_lists = 2 } })
  end)

  it("gets new tokens, in new sessions, after a reload with another secret", function()
    start({}, function(it)
      local ann <close> = it.client "ann"
      assert.equal("1", count(ann))
      it.entry.auth.exchange.scope = "crm:write"
      it.reload()
      wait.for_fact("the new scope", 20, function()
        count(ann)
        return field(it.state.forms[#it.state.forms], "scope") == "crm:write"
      end)
      assert.equal(2, asked(it.state))
    end)
  end)
end)

describe("the configuration of auth.exchange", function()
  local function check(exchange, more)
    local entry = { url = "https://crm.example.com/mcp", auth = { exchange = exchange } }
    for key, value in pairs(more or {}) do entry[key] = value end
    local dir = gateway.prepare { config = { upstreams = { crm = entry } } }
    local code, out, err = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })
    os.execute("rm -rf '" .. dir .. "'")
    return code, out .. err
  end

  local function full(more)
    local made = { issuer = "https://id.example.com", client = "c", secret = "hunter2", audience = "https://crm.example.com" }
    for key, value in pairs(more or {}) do
      made[key] = value
      if value == false then made[key] = nil end
    end
    return made
  end

  it("is checked: what is missing, and what would let callers share", function()
    for text, case in pairs {
      ["'exchange' needs 'audience' or 'resource'"] = { full { audience = false } },
      ["'exchange' needs 'secret'"] = { full { secret = false } },
      ["'exchange' needs 'issuer' or 'token_url'"] = { full { issuer = false } },
      ["'per: gateway' lets callers share a session, and 'auth.exchange' sends a token of each caller"] = { full(), { per = "gateway" } },
      ["'auth' has 'bearer' and 'exchange'"] = { full(), { auth = { bearer = "hunter2", exchange = full() } } },
      ["as in https://crm.example.com/mcp"] = { full { audience = false, resource = "crm" } },
    } do
      local code, said = check(case[1], case[2])
      assert.equal(78, code, text)
      assert.truthy(said:find(text, 1, true), said)
    end
    assert.equal(0, (check(full())))
    assert.equal(0, (check(full { audience = false, resource = "https://crm.example.com/mcp" }, { per = "principal" })))
  end)
end)
