-- /api/switch of the admin listener: operators switch tools, prompts, resources and upstreams off and on while they are
-- served.
local client = require "spec.helpers.client"
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local blocking = require "spec.helpers.blocking"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local token, view = ("o"):rep(32), ("v"):rep(32)
local scripts = {
  ["tools/add.lua"] = 'return tool { "Adds.", input = { a = t.integer }, function(args) return args.a + 1 end }',
  ["tools/other.lua"] = 'return tool { "Other.", function() return "other" end }',
  ["tools/hidden.lua"] = 'return tool { "Off at first.", enabled = false, function() return "seen" end }',
  ["tools/flip.lua"] = [[return tool { "Switches.", input = { on = t.boolean }, function(args)
    if args.on then enable("tool", "add") else disable("tool", "add") end
    return enabled("tool", "add") end }]],
  ["resources/note.lua"] = 'return resource { "A note.", uri = "note://one", "text" }',
  ["resources/notes.lua"] = 'return resource { "Notes.", uri = "note://all/{name}", function(vars) return vars.name end }',
  ["prompts/hello.lua"] = 'return prompt { "Greets.", args = { who = t.string }, function(args) return "Hello " .. args.who end }',
}

local function config_of(more)
  local config = { admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token }, view = { ann = view } } }, log = { audit = "audit.log" } }
  for key, value in pairs(more or {}) do config[key] = value end
  return config
end

local function api(g, method, path, body, bearer)
  body = body and cjson.encode(body)
  return client.request(g, { method = method, path = path, body = body, headers = {
    Authorization = "Bearer " .. (bearer or token), ["moonpool-admin"] = "1", ["Content-Type"] = body and "application/json",
    ["Content-Length"] = method == "POST" and #(body or "") or nil,
  } }, { admin = true })
end

-- The JSON of an answer, without the member that says that it is complete.
local function json_of(response)
  assert.equal(200, response.status, response.body)
  local answer = response:json()
  answer.resultType = nil
  return answer
end

local function get(g) return json_of(api(g, "GET", "/api/switch", nil, view)) end

-- Switches something, which all workers follow; the answer.
local function switch(g, kind, name, on)
  local answer = json_of(api(g, "POST", "/api/switch", { [kind] = name, on = on }))
  assert.equal(0, answer.workers_without_answer)
  answer.workers_without_answer = nil
  return answer
end

local function write(g, path, text)
  local file <close> = assert(io.open(g.dir .. "/" .. path, "wb"))
  file:write(text)
end

-- Starts a gateway, and waits until its workers answer the admin listener.
local function start(options)
  options.workers = options.workers or 1
  options.scripts, options.config = options.scripts or scripts, config_of(options.config)
  local g = options.stubs and upstream.gateway(options.stubs, options) or gateway.start(options)
  wait.for_fact("the workers", 20, function() return api(g, "GET", "/api/switch").status == 200 end)
  return g
end

local function has(me, name)
  for _, tool in ipairs(me:result("tools/list").tools) do
    if tool.name == name then return true end
  end
  return false
end

-- Clients on connections of their own until each worker has served two or more.
local function clients(g, count)
  local all = {}
  for i = 1, count do all[i] = g:client "2026-07-28" end
  return all
end

local function wait_all(all, what, fact)
  for i, me in ipairs(all) do wait.for_fact(what .. " for client " .. i, 20, function() return fact(me) end) end
end

local function close(all)
  for _, me in ipairs(all) do me:close() end
end

local function count_of(g, text) return select(2, g:file("audit.log"):gsub(text, "")) end

describe("a tool that an operator switches off", function()
  it("is as unknown to clients of all workers, through a reload, until it is switched on", function()
    local g <close> = start { workers = 2 }
    local all = clients(g, 8)
    assert.same({ kind = "tool", name = "add", on = false, lasts = "process" }, switch(g, "tool", "add", false))
    for _, me in ipairs(all) do
      assert.is_true(not has(me, "add") and has(me, "other"))
      local answer = me:call("tools/call", { name = "add", arguments = { a = 1 } })
      assert.same({ -32602, "unknown tool 'add'" }, { answer.error.code, answer.error.message })
    end
    write(g, "scripts/tools/new.lua", 'return tool { "New.", function() return "new" end }')
    wait_all(all, "the new tool", function(me) return has(me, "new") end)
    for _, me in ipairs(all) do
      assert.is_false(has(me, "add"))
      assert.equal(-32602, me:call("tools/call", { name = "add", arguments = { a = 1 } }).error.code)
    end
    local off = get(g)
    assert.equal("process", off.lasts)
    assert.equal(1, #off.switches)
    assert.same({ "tool", "add", "token joe" }, { off.switches[1].kind, off.switches[1].name, off.switches[1].by })
    assert.is_true(math.abs(os.time() - off.switches[1].since) < 600)
    switch(g, "tool", "add", true)
    for _, me in ipairs(all) do assert.equal("2", me:result("tools/call", { name = "add", arguments = { a = 1 } }).content[1].text) end
    assert.same({}, get(g).switches)
    wait.for_fact("the audit", 20, function()
      return count_of(g, '"event":"switched by operator"[^\n]*"caller":"token joe"[^\n]*"why":"tool add off"') == 1
        and count_of(g, '"event":"switched by operator"[^\n]*"caller":"token joe"[^\n]*"why":"tool add on"') == 1
    end)
    close(all)
    assert.has_nothing_left(g)
  end)

  it("stays off whatever scripts do; one that scripts have off can be switched on", function()
    local g <close> = start {}
    local me <close> = g:client "2025-11-25"
    local function flip(on) return me:result("tools/call", { name = "flip", arguments = { on = on } }).content[1].text end
    switch(g, "tool", "add", false)
    assert.equal("false", flip(true))
    assert.equal("false", flip(false))
    assert.is_false(has(me, "add"))
    switch(g, "tool", "add", true)
    assert.is_true(has(me, "add"))
    assert.equal("false", flip(false))
    assert.same({ { kind = "tool", name = "add", by = "a script" } }, get(g).switches)
    switch(g, "tool", "add", true)
    assert.is_true(has(me, "add"))
    assert.is_false(has(me, "hidden"))
    switch(g, "tool", "hidden", true)
    assert.is_true(has(me, "hidden"))
  end)

  it("tells the clients whose list changes, once for each change", function()
    local g <close> = start {}
    local me <close> = g:client "2025-11-25"
    local stream = me:get_stream()
    stream:head()
    local function heard(method)
      local count = 0
      for _, message in ipairs(stream:messages()) do
        if message.method == "notifications/" .. method .. "/list_changed" then count = count + 1 end
      end
      return count
    end
    switch(g, "tool", "add", false)
    wait.for_fact("a notification", 20, function() return heard "tools" == 1 end)
    switch(g, "tool", "add", false)
    switch(g, "prompt", "hello", false)
    wait.for_fact("a notification of prompts", 20, function() return heard "prompts" == 1 end)
    me:result("tools/call", { name = "flip", arguments = { on = false } })
    switch(g, "resource", "note://one", false)
    wait.for_fact("a notification of resources", 20, function() return heard "resources" == 1 end)
    assert.equal(1, heard "tools")
    switch(g, "tool", "add", true)
    wait.for_fact("a notification", 20, function() return heard "tools" == 2 end)
  end)

  it("stays off where its script is gone, and comes back off with it; it can be switched on meanwhile", function()
    local g <close> = start {}
    local me <close> = g:client "2026-07-28"
    switch(g, "tool", "other", false)
    os.remove(g.dir .. "/scripts/tools/other.lua")
    wait.for_fact("the script to be gone", 20, function() return (get(g).switches[1] or {}).gone end)
    write(g, "scripts/tools/other.lua", scripts["tools/other.lua"])
    wait.for_fact("the script to be back", 20, function() return (get(g).switches[1] or { gone = true }).gone == nil end)
    assert.is_false(has(me, "other"))
    os.remove(g.dir .. "/scripts/tools/other.lua")
    wait.for_fact("the script to be gone", 20, function() return (get(g).switches[1] or {}).gone end)
    switch(g, "tool", "other", true)
    assert.same({}, get(g).switches)
    assert.equal(404, api(g, "POST", "/api/switch", { tool = "other", on = false }).status)
  end)
end)

describe("the answer of a switch", function()
  -- Two workers, one of which is blocked; and the call that waits there.
  local function start_with_blocked()
    local g = start { workers = 2, constants = { stuck_ms = 500 }, config = { scripts = { path = "scripts", trust = "full" } }, scripts = {
      ["tools/add.lua"] = scripts["tools/add.lua"],
      ["tools/block.lua"] = blocking.tool,
    } }
    local blocked = g:client "2026-07-28"
    local pending = blocking.open(g, blocked)
    g:wait_status(function(now) return now.gauges.workers_stuck == 1 end, 20)
    return g, blocked, pending
  end

  it("says how many workers have not switched in time; they do when they can", function()
    local gateway_of, client_of, pending = start_with_blocked()
    local g <close> = gateway_of
    local blocked <close> = client_of
    local answer = api(g, "POST", "/api/switch", { tool = "add", on = false }):json()
    assert.equal(1, answer.workers_without_answer)
    assert.is_false(answer.on)
    -- The gateway asks its workers in turns: this time it asks the other worker first.
    local code, out, err = gateway.exec({ "switch", "--admin", "127.0.0.1:" .. g.admin_port, "off", "tool", "add" },
      { env = { MOONPOOL_ADMIN_TOKEN = token } })
    assert.equal(1, code)
    assert.matches("^tool add is off", out)
    assert.matches("1 worker has not switched yet: calls may still run there\n.*stuck", err)
    blocking.release(g)
    pending:answer(20)
    g:wait_status(function(now) return now.gauges.workers_stuck == 0 end, 20)
    assert.equal(-32602, blocked:call("tools/call", { name = "add", arguments = { a = 1 } }).error.code)
    assert.equal("add", switch(g, "tool", "add", true).name)
    assert.equal("2", blocked:result("tools/call", { name = "add", arguments = { a = 1 } }).content[1].text)
  end)

  -- Switches a tool off while a worker is blocked, which then goes on; the answer, and whether it came before that.
  local function switch_while_blocked()
    local gateway_of, client_of, pending = start_with_blocked()
    local g <close> = gateway_of
    local blocked <close> = client_of
    local operator <close> = client.connect(g, { admin = true })
    operator:send { method = "POST", path = "/api/switch", body = cjson.encode { tool = "add", on = false }, headers = {
      Authorization = "Bearer " .. token, ["moonpool-admin"] = "1", ["Content-Type"] = "application/json" } }
    g:wait_log("switched by operator", { what = "tool add" }) -- one of the two workers has switched the tool
    for _ = 1, 3 do g:status() end -- an answer that does not wait for the blocked worker would have arrived by now
    local is_early = operator.inbox[1] ~= nil
    blocking.release(g)
    local answer = operator:read_response(20):json()
    assert.equal(-32602, blocked:call("tools/call", { name = "add", arguments = { a = 1 } }).error.code)
    pending:answer(20)
    return answer, is_early
  end

  it("comes when the last worker has switched, not before", function()
    local answer, is_early
    for _ = 1, 5 do -- a busy machine may take the two seconds that the answer waits
      answer, is_early = switch_while_blocked()
      if answer.workers_without_answer == 0 then break end
    end
    assert.equal(0, answer.workers_without_answer)
    assert.is_false(is_early)
  end)

  it("comes after each change by several operators at once, on four workers", function()
    local g <close> = start { workers = 4 }
    local all = clients(g, 12)
    for round = 1, 10 do
      local operators = {}
      for i = 1, 5 do
        operators[i] = client.connect(g, { admin = true })
        operators[i]:send { method = "POST", path = "/api/switch", body = cjson.encode { tool = i < 5 and "other" or "add", on = (i + round) % 2 == 0 },
          headers = { Authorization = "Bearer " .. token, ["moonpool-admin"] = "1", ["Content-Type"] = "application/json" } }
      end
      for i = 1, 5 do
        assert.equal(0, operators[i]:read_response(20):json().workers_without_answer)
        operators[i]:close()
      end
      for _, me in ipairs(all) do assert.equal(round % 2 == 1, has(me, "add")) end
    end
    close(all)
    assert.has_nothing_left(g)
  end)
end)

describe("prompts and resources that an operator switches off", function()
  it("are named by name or URI, and a URI of a template is no name of it", function()
    local g <close> = start {}
    local me <close> = g:client "2026-07-28"
    switch(g, "prompt", "hello", false)
    assert.equal("unknown prompt 'hello'", me:call("prompts/get", { name = "hello", arguments = { who = "x" } }).error.message)
    assert.equal("note", switch(g, "resource", "note://one", false).name)
    assert.is_table(me:call("resources/read", { uri = "note://one" }).error)
    assert.equal(404, api(g, "POST", "/api/switch", { resource = "note://all/x", on = false }).status)
    assert.equal("x", me:result("resources/read", { uri = "note://all/x" }).contents[1].text)
    switch(g, "resource", "note://all/{name}", false)
    assert.is_table(me:call("resources/read", { uri = "note://all/x" }).error)
    assert.equal(3, #get(g).switches)
    for _, one in ipairs(get(g).switches) do switch(g, one.kind, one.name, true) end
    assert.equal("x", me:result("resources/read", { uri = "note://all/x" }).contents[1].text)
    assert.equal("text", me:result("resources/read", { uri = "note://one" }).contents[1].text)
  end)
end)

describe("an upstream that an operator switches off", function()
  it("has nothing in any list, and none of its things can be used", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = start { stubs = { one = u }, workers = 2 }
    local all = clients(g, 6)
    local listener <close> = g:client "2025-11-25"
    local stream = listener:get_stream()
    stream:head()
    wait_all(all, "the upstream's tools", function(me) return has(me, "one_echo") end)
    local ran = u:ran "echo"
    assert.equal("upstream", switch(g, "upstream", "one", false).kind)
    for _, me in ipairs(all) do
      assert.is_true(not has(me, "one_echo") and has(me, "add"))
      assert.equal(-32602, me:call("tools/call", { name = "one_echo", arguments = { a = "b" } }).error.code)
      assert.is_table(me:call("resources/read", { uri = "stub://text" }).error)
      assert.is_table(me:call("prompts/get", { name = "one_greet", arguments = { who = "Ann" } }).error)
    end
    assert.equal(ran, u:ran "echo")
    local seen = {}
    wait.for_fact("notifications of all lists", 20, function()
      for _, message in ipairs(stream:messages()) do seen[message.method or ""] = true end
      return seen["notifications/tools/list_changed"] and seen["notifications/prompts/list_changed"] and seen["notifications/resources/list_changed"]
    end)
    assert.equal(404, api(g, "POST", "/api/switch", { upstream = "two", on = false }).status)
    switch(g, "tool", "one_sum", false)
    switch(g, "upstream", "one", true)
    for _, me in ipairs(all) do assert.is_true(has(me, "one_echo") and not has(me, "one_sum")) end
    assert.equal('{"a":"b"}', upstream.text(all[1]:call("tools/call", { name = "one_echo", arguments = { a = "b" } })))
    close(all)
  end)
end)

describe("what operators have switched off", function()
  it("is off after a restart where the store has a file", function()
    local options = { config = { store = { file = "store.db" } } }
    local g = start(options)
    assert.equal("store", switch(g, "tool", "add", false).lasts)
    switch(g, "tool", "other", false)
    switch(g, "tool", "other", true)
    local since = get(g).switches[1].since
    g:stop()
    local again <close> = gateway.start { dir = g.dir }
    wait.for_fact("the workers", 20, function() return api(again, "GET", "/api/switch").status == 200 end)
    assert.same({ lasts = "store", switches = { { kind = "tool", name = "add", by = "token joe", since = since } } }, get(again))
    local me <close> = again:client "2026-07-28"
    assert.is_false(has(me, "add"))
    assert.is_true(has(me, "other"))
  end)

  it("is bounded, and wrong requests change nothing", function()
    local g <close> = start {}
    for _, body in ipairs {
      {}, { on = false }, { tool = "add" }, { tool = "add", on = "no" }, { tool = "add", prompt = "hello", on = false }, { tool = 7, on = false },
      { tool = "add", on = false, why = "x" }, { job = "add", on = false },
    } do
      assert.equal(400, api(g, "POST", "/api/switch", body).status, cjson.encode(body))
    end
    local response = api(g, "POST", "/api/switch", { tool = "ad", on = false })
    assert.equal(404, response.status)
    assert.matches("there is no tool 'ad': did you mean 'add'", response:json().error)
    assert.equal(403, api(g, "POST", "/api/switch", { tool = "add", on = false }, view).status)
    assert.same({}, get(g).switches)
  end)
end)

describe("moonpool switch", function()
  it("lists, switches off and on, and says how long that lasts", function()
    local g <close> = start {}
    local function run(...)
      return gateway.exec({ "switch", "--admin", "127.0.0.1:" .. g.admin_port, ... }, { env = { MOONPOOL_ADMIN_TOKEN = token } })
    end
    assert.same({ 0, "nothing is switched off\n", "" }, { run() })
    local code, out, err = run("off", "tool", "add")
    assert.same({ 0, "tool add is off, until the gateway ends: store.file in the configuration would keep it\n", "" }, { code, out, err })
    code, out = run()
    assert.equal(0, code)
    assert.matches("^tool +add +off since %d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%dZ by token joe\n$", out)
    assert.same({ 0, "tool add is on\n", "" }, { run("on", "tool", "add") })
    assert.same({ 0, "nothing is switched off\n", "" }, { run() })
    for _, words in ipairs { { "off" }, { "off", "tool" }, { "away", "tool", "add" }, { "off", "job", "add" }, { "off", "tool", "add", "other" } } do
      code, out = run(table.unpack(words))
      assert.same({ 2, "" }, { code, out })
    end
    code, out, err = run("off", "tool", "ad")
    assert.same({ 1, "" }, { code, out })
    assert.matches("^moonpool: there is no tool 'ad': did you mean 'add'", err)
  end)

  it("says with a wrong token that the gateway does not know it, as other commands do", function()
    local g <close> = start {}
    for _, command in ipairs { { "switch" }, { "tap" }, { "profile" }, { "record" } } do
      local code, out, err = gateway.exec({ command[1], "--admin", "127.0.0.1:" .. g.admin_port }, { env = { MOONPOOL_ADMIN_TOKEN = ("x"):rep(32) } })
      assert.same({ 1, "" }, { code, out })
      assert.equal("moonpool: the gateway at 127.0.0.1:" .. g.admin_port .. " does not know this token", err:match "^[^\n]+")
    end
  end)
end)
