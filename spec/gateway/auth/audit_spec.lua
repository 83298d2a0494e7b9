-- log.audit: one line of JSON for each call, refusal and reload. A line has only the fields that the operator asked
-- for, and writing it never blocks a worker.
local cjson = require "cjson.safe"
local uv = require "luv"
local client = require "spec.helpers.client"
local credentials = require "spec.helpers.credentials"
local gateway = require "spec.helpers.gateway"
local stdio = require "spec.helpers.stdio"
local wait = require "spec.helpers.wait"

local scripts = {
  ["tools/pay.lua"] = [[return tool { "Pays.", input = {
    amount = t.integer, card = t.string { optional = true, format = "password" }, api_key = t.string { optional = true },
    note = t.string { optional = true }, who = t.object({ password = t.string { optional = true }, name = t.string { optional = true } }, { optional = true }),
  }, function(args)
    if args.amount == 1 then fail "too little" end
    if args.amount == 2 then error "broken" end
    if args.amount == 3 then sleep(60) end
    args.amount = 0
    return "paid"
  end }]],
  ["resources/bill.lua"] = [[return resource { "A bill.", uri = "bills://{id}", function() return "bill" end }]],
  ["policy/cap.lua"] = [[return policy { tools = { "pay" }, function(call, next)
    if call.args.amount > 100 then fail "above the cap" end
    return next(call)
  end }]],
}

local function lines_of(path)
  local file = io.open(path)
  if not file then return {} end
  local lines = {}
  for line in file:lines "L" do
    if line:sub(-1) == "\n" then lines[#lines + 1] = assert(cjson.decode(line), line) end -- the last line may not be complete yet
  end
  file:close()
  return lines
end

local function read(path)
  local file <close> = assert(io.open(path))
  return file:read "a"
end

local function find(path, fields)
  return wait.for_fact("an audit line " .. cjson.encode(fields), 20, function()
    for _, line in ipairs(lines_of(path)) do
      local same = true
      for name, value in pairs(fields) do same = same and line[name] == value end
      if same then return line end
    end
  end)
end

describe("the audit", function()
  local function start(arguments, log)
    local g = gateway.start { scripts = scripts, workers = 2, config = { log = log or { audit = "audit.jsonl", audit_arguments = arguments } } }
    return g, g.dir .. "/audit.jsonl"
  end

  it("has no character that a terminal interprets, wherever it stands in a text", function()
    local g <close>, path = start()
    local c <close> = g:client "2026-07-28"
    local names, most = {}, 9
    for _, code in ipairs { 0x0a, 0x1b, 0x22, 0x5c, 0x7f, 0x80, 0x9b, 0x200b, 0x202e, 0x2066, 0xfeff } do
      for left = 0, most do
        local name = ("n"):rep(left) .. utf8.char(code) .. (code < 0x80 and "" or "é") .. ("n"):rep(most - left)
        names[#names + 1] = name
        c.client_info = { name = name, version = "1" }
        c:call("tools/call", { name = "pay", arguments = { amount = 10, [name] = 1 } })
      end
    end
    local lines = wait.for_fact("a line for each call", 20, function()
      local lines = lines_of(path)
      return #lines >= #names and lines
    end)
    local found = {}
    for _, line in ipairs(lines) do
      if line.client then found[line.client] = true end
      for _, name in ipairs(line.arguments or {}) do found[name] = true end
    end
    for _, name in ipairs(names) do assert.is_true(found[name] and found[name .. " 1"], name) end
    local text = read(path):gsub("\n", "")
    assert.falsy(text:find "[%c\127]")
    for _, code in ipairs { 0x80, 0x9b, 0x200b, 0x202e, 0x2066, 0xfeff } do assert.falsy(text:find(utf8.char(code), 1, true)) end
    assert.truthy(text:find("é", 1, true))
  end)

  it("has a line for each call, however it ends", function()
    local g <close>, path = start()
    local c <close> = g:client "2026-07-28"
    local function pay(amount) return c:call("tools/call", { name = "pay", arguments = { amount = amount } }) end
    for _, case in ipairs {
      { 10, "ok" }, { 1, "failed", "too little" }, { 101, "denied", "above the cap", "cap" },
    } do
      pay(case[1])
      local line = find(path, { method = "tools/call", name = "pay", outcome = case[2] })
      assert.equal(case[3], line.why)
      assert.equal(case[4], line.policy)
      assert.same({ "amount" }, line.arguments)
      assert.equal("anonymous", line.principal)
      assert.equal("2026-07-28", line.revision)
      assert.equal("127.0.0.1", line.address)
      assert.match("^%x+$", line.id)
      assert.match("^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d%.%d%d%dZ$", line.time)
      assert.is_true(line.ms >= 0 and line.ms < 5000)
    end
    pay(2)
    assert.match("^internal error %x+$", find(path, { name = "pay", outcome = "fault" }).why)
    c:call("resources/read", { uri = "bills://7" })
    assert.equal("ok", find(path, { method = "resources/read", name = "bills://7" }).outcome)
    c:call("tools/call", { name = "nothing" })
    assert.equal(-32602, find(path, { name = "nothing", outcome = "error" }).code)
    c:open("tools/call", { name = "pay", arguments = { amount = 3 } }):hang_up()
    find(path, { name = "pay", outcome = "cancelled" })
  end)

  for how, way in pairs { names = "plans", redacted = "the library in Lua" } do
    it("has a share of the calls that are ok, where log.audit_sample says so, and all others; written by " .. way, function()
      local g <close>, path = start(nil, { audit = "audit.jsonl", audit_arguments = how, audit_sample = { ok = 0.5 } })
      local c <close> = g:client "2026-07-28"
      for i = 1, 200 do c:call("tools/call", { name = "pay", arguments = { amount = 9 + i % 2 } }) end
      for _ = 1, 20 do c:call("tools/call", { name = "pay", arguments = { amount = 1 } }) end
      c:call("tools/call", { name = "pay", arguments = { amount = 101 } })
      find(path, { name = "pay", outcome = "denied" })
      local counts = {}
      for _, line in ipairs(lines_of(path)) do
        if line.method == "tools/call" then
          counts[line.outcome] = (counts[line.outcome] or 0) + 1
          assert.equal(line.outcome == "ok" and 0.5 or nil, line.sample)
        end
      end
      assert.same({ 20, 1 }, { counts.failed, counts.denied })
      assert.truthy(counts.ok > 50 and counts.ok < 150, counts.ok)
      assert.equal(200 - counts.ok, g:status().counters.audit_unsampled)
    end)
  end

  it("logs arguments when the configuration asks for them, and as the client sent them", function()
    local sent = { amount = 10, card = "4111", api_key = "k-1", note = ("x"):rep(400), who = { password = "p", name = "Anna" } }
    local told = {
      none = false,
      names = { "amount", "api_key", "card", "note", "who" },
      redacted = { amount = 10, card = "***", api_key = "***", note = ("x"):rep(256) .. "…", who = { password = "***", name = "Anna" } },
      full = sent,
    }
    for how, wanted in pairs(told) do
      local g <close>, path = start(how)
      local c <close> = g:client "2025-11-25"
      c:call("tools/call", { name = "pay", arguments = sent })
      assert.same(wanted or nil, find(path, { name = "pay" }).arguments)
    end
  end)

  it("names the client and its session, without the session's id", function()
    local g <close>, path = start()
    local c <close> = g:client "2025-11-25"
    c:call("tools/call", { name = "pay", arguments = { amount = 10 } })
    local line = find(path, { name = "pay" })
    assert.equal("2025-11-25", line.revision)
    assert.equal(8, #line.session)
    assert.is_nil(c.session:find(line.session, 1, true))
    assert.is_string(line.client)
  end)

  it("names the client of initialize, which has no session yet", function()
    local g <close>, path = start()
    local c <close> = g:client "2025-11-25"
    assert.match("^%S+ %S+$", find(path, { method = "initialize" }).client)
    assert.is_string(c.session)
  end)

  it("is written only by moonpool run: commands need no permission to open it", function()
    local options = { scripts = { ["tools/pay_spec.lua"] = 'it("pays", function() assert.equal("paid", call("pay", { amount = 9 }).text) end)' },
      config = { log = { audit = "nowhere/audit.jsonl" } } }
    for path, text in pairs(scripts) do options.scripts[path] = text end
    local dir = gateway.prepare(options)
    for _, words in ipairs {
      { "call", "pay", "amount=10" }, { "list" }, { "list", "--as", "anonymous" }, { "explain", "anonymous", "pay" }, { "check" }, { "test" },
    } do
      local code, _, err = gateway.exec(words, { cwd = dir })
      assert.equal(0, code, table.concat(words, " ") .. ": " .. err)
    end
    assert.equal(1, (gateway.exec({ "run" }, { cwd = dir })))
    local s <close> = stdio.start(options)
    assert.same({}, s:client "2025-06-18":result "ping")
  end)

  it("is one line for any bytes that clients send", function()
    local g <close>, path = start("full")
    local c <close> = g:client "2025-11-25"
    c:call("tools/call", { name = "a\nb\r\27[31m\0", arguments = { ["x\ny"] = "\n{\"event\":\"call\"}" } })
    c:call("tools/call", { name = ("n"):rep(5000), arguments = {} })
    wait.for_fact("two lines", 20, function() return #lines_of(path) >= 2 end)
    for _, line in ipairs(lines_of(path)) do assert.equal("call", line.event) end -- every line is JSON
  end)

  it("has a line for a call of any size", function()
    local sent = { amount = 10, note = ("\127"):rep(3000) }
    sent[("\127"):rep(720000)] = true
    local many = { amount = 10 }
    for i = 1, 60 do many[("%02d"):format(i)] = { ("\127"):rep(250), ("\127"):rep(250), ("\127"):rep(250), ("\127"):rep(250), ("\127"):rep(250) } end
    for _, how in ipairs { "redacted", "full" } do
      local g <close> = gateway.start { scripts = scripts, workers = 1, config = {
        log = { audit = "audit.jsonl", audit_arguments = how }, limits = { body = "16MiB" },
      } }
      local path = g.dir .. "/audit.jsonl"
      local c <close> = g:client "2025-11-25"
      for _, arguments in ipairs { sent, many } do c:call("tools/call", { name = "pay", arguments = arguments }) end
      wait.for_fact("both lines", 20, function()
        local count = 0
        for _, line in ipairs(lines_of(path)) do count = count + (line.name == "pay" and 1 or 0) end
        return count == 2
      end)
      assert.is_true(#read(path) < 1 << 20)
      assert.equal(0, g:status().counters.dropped.audit)
      if how == "full" then assert.match("^… %d+ bytes$", find(path, { name = "pay" }).arguments) end
    end
  end)

  it("continues in a new file when the old one was moved away", function()
    local g <close>, path = start()
    local c <close> = g:client "2026-07-28"
    c:call("tools/call", { name = "pay", arguments = { amount = 10 } })
    find(path, { name = "pay" })
    assert(uv.fs_rename(path, path .. ".1"))
    uv.kill(g.pid, "sighup")
    wait.for_fact("a line in the new file", 20, function()     -- lines that are written before the new file is open go to the old file
      c:call("resources/read", { uri = "bills://8" })
      return uv.fs_stat(path) and read(path):find("bills://8", 1, true)
    end)
    find(path, { name = "bills://8" })
    assert.equal(384, uv.fs_stat(path).mode & 511) -- 0600
  end)

  it("that cannot be written is logged and counted, and delays no call", function()
    local g <close> = gateway.start { scripts = scripts, config = { log = { audit = "/dev/full" } } }
    local c <close> = g:client "2026-07-28"
    for _ = 1, 3 do assert.equal("paid", c:result("tools/call", { name = "pay", arguments = { amount = 10 } }).content[1].text) end
    g:wait_log "audit not written"
    g:wait_status(function(status) return status.counters.dropped.audit == 3 end)
  end)

  it("in a folder that is not there stops the start", function()
    local ok, why = pcall(gateway.start, { scripts = scripts, config = { log = { audit = "nowhere/audit.jsonl" } } })
    assert.is_false(ok)
    assert.match("log.audit: .*nowhere/audit.jsonl cannot be opened: No such file or directory", tostring(why))
  end)
end)

describe("the audit of requests that never became a call", function()
  local unknown = ("0123456789abcdef"):rep(2) .. "0123"

  local function start(more, constants)
    local config = { log = { audit = "audit.jsonl" }, scripts = { watch = false } }
    for name, value in pairs(more or {}) do config[name] = value end
    local g = gateway.start { workers = 2, config = config, constants = constants, scripts = {
      ["auth/a.lua"] = credentials.script, ["auth/b.lua"] = [[return auth { function(request)
        if request.headers["x-crash"] then error("secret detail") end
        if request.headers["x-later"] then return nil, "the directory is down", 7 end
        if request.headers["x-slow"] then sleep(60) end
        fail "not in the list"
      end }]],
      ["tools/who.lua"] = credentials.who,
      ["tools/write.lua"] = [[return tool { "Writes.", scopes = { "notes:write" }, function() return "x" end }]],
    } }
    return g, g.dir .. "/audit.jsonl"
  end

  it("has the client that was not authenticated: its address, its request and the reason", function()
    local g <close>, path = start(nil, { auth_ms = 1000 })
    local function ask(headers, method, target)
      return client.request(g, { method = method or "GET", path = target or "/mcp?token=in-the-query", headers = headers }).status
    end
    assert.equal(401, ask { Authorization = "Bearer eve-secret-token" })
    local line = find(path, { event = "refused", status = 401 })
    assert.same({ "127.0.0.1", "GET", "/mcp", "nobody's token; not in the list" }, { line.address, line.method, line.path, line.why })
    assert.match("^%x+$", line.id)
    assert.match("^%d%d%d%d%-.*Z$", line.time)
    assert.is_nil(line.principal)
    assert.equal(503, ask { ["X-Later"] = "1" })
    assert.equal("no token; the directory is down", find(path, { event = "refused", status = 503 }).why)
    assert.equal(500, ask { ["X-Crash"] = "1" })
    assert.match("^internal error %x+$", find(path, { event = "refused", status = 500 }).why)
    assert.equal(503, ask { ["X-Slow"] = "1" })
    find(path, { status = 503, why = "authentication timed out: try again later" })
    assert.equal(403, ask({ Host = "evil.example" }, "POST", "/sse/" .. ("é"):rep(2000)))
    line = find(path, { event = "refused", status = 403 })
    assert.same({ "evil.example", "POST" }, { line.host, line.method })
    assert.is_true(#line.path < 300)
    assert.equal(403, ask { Origin = "http://evil.example" })
    find(path, { event = "refused", status = 403, origin = "http://evil.example" })
    assert.equal(403, client.request(g, { path = "/status", headers = { Host = "evil.example" } }, { admin = true }).status)
    find(path, { event = "refused", status = 403, path = "/status" })
    for _, text in ipairs { "eve-secret", "in-the-query", "secret detail" } do assert.is_nil(read(path):find(text, 1, true)) end
    assert.has_nothing_left(g)
  end)

  it("has a principal that uses the session of another, and one that uses an unknown session (B-32)", function()
    local g <close>, path = start()
    local ann <close> = g:client("2025-11-25", { token = "ann-1" })
    assert.equal("user:ann", (credentials.ask(ann)))
    local own = find(path, { event = "call", principal = "user:ann", name = "who" })
    local function come(method, token, session)
      return client.request(g, { method = method, path = "/mcp", headers = {
        Authorization = "Bearer " .. token, ["Mcp-Session-Id"] = session, Accept = "application/json, text/event-stream",
        ["Content-Type"] = "application/json", ["MCP-Protocol-Version"] = "2025-11-25",
      }, body = method == "POST" and [[{"jsonrpc":"2.0","id":1,"method":"ping"}]] or nil }).status
    end
    for _, method in ipairs { "POST", "GET", "DELETE" } do
      assert.equal(404, come(method, "bob-1", ann.session))
      local line = find(path, { event = "foreign session", method = method })
      assert.same({ "user:bob", "127.0.0.1", "/mcp", 404, own.session }, { line.principal, line.address, line.path, line.status, line.session })
      assert.equal(404, come(method, "bob-1", unknown))
      assert.equal("user:bob", find(path, { event = "unknown session", method = method }).principal)
    end
    assert.is_nil(read(path):find(ann.session, 1, true))
    ann:delete()
    ann:close()
    assert.has_nothing_left(g)
  end)

  it("says in a call's own line that a scope was missing", function()
    local g <close>, path = start()
    local ann <close> = g:client("2026-07-28", { token = "ann-1" })
    local _, response = ann:call("tools/call", { name = "write" })
    assert.equal(403, response.status)
    local line = find(path, { event = "call", name = "write" })
    assert.equal("user:ann", line.principal)
    assert.equal("error", line.outcome)
    assert.truthy(line.why:find("notes:write", 1, true), line.why)
  end)

  it("has reloads, their cause and their result", function()
    local g <close>, path = start()
    local function save(text)
      local file <close> = assert(io.open(g.dir .. "/scripts/tools/who.lua", "w"))
      file:write(text)
    end
    save [[return tool { "Other.", function() return "x" end }]]
    assert.equal(200, client.request(g, { method = "POST", path = "/reload", headers = { ["Content-Length"] = 0 } }, { admin = true }).status)
    assert.equal("127.0.0.1", find(path, { event = "reload requested" }).address)
    local line = find(path, { event = "reload", by = "admin", outcome = "done" })
    assert.equal(2, line.generation)
    assert.truthy(line.changes:find("who", 1, true), line.changes)
    save "return tool {"
    uv.kill(g.pid, "sighup")
    line = find(path, { event = "reload", by = "SIGHUP", outcome = "refused" })
    assert.equal(2, line.generation)
    assert.truthy(line.why:find("who.lua", 1, true), line.why)
  end)

  it("has the files whose change caused a reload", function()
    local g <close>, path = start { scripts = { watch = true } }
    local file <close> = assert(io.open(g.dir .. "/scripts/tools/who.lua", "w"))
    file:write [[return tool { "Other.", function() return "x" end }]]
    file:close()
    find(path, { event = "reload", by = "files", outcome = "done" })
  end)

  it("of a flood that the disk cannot take is dropped and counted, and delays no call", function()
    local g <close> = start { log = { audit = "/dev/full", level = "error" } }
    local connection <close> = g:connect()
    for _ = 1, 300 do assert.equal(401, connection:request({ path = "/mcp" }).status) end
    g:wait_status(function(status) return status.counters.dropped.audit == 300 end)
    local ann <close> = g:client("2026-07-28", { token = "ann-1" })
    assert.equal("user:ann", (credentials.ask(ann)))
  end)
end)
