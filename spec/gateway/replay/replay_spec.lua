-- Calls that are recorded, and `moonpool replay`, which runs them against the scripts on disk and reaches nothing
-- outside.
local client = require "spec.helpers.client"
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local stub = require "spec.helpers.stub"
local wait = require "spec.helpers.wait"

local token = ("o"):rep(32)

local shop = [[return tool {
  "Orders something.",
  input = { item = t.string, password = t.optional(t.string), pin = t.optional(t.string { write_only = true }) },
  function(args, call)
    local db = sqlite.open("data/shop.db", { setup = "create table if not exists orders (id integer primary key, item text)" })
    local _, id = db:exec("insert into orders (item) values (?)", { args.item })
    local rows = db:query("select item from orders where id = ?", { id })
    local n = store.incr "orders" + store.near.incr "orders"
    assert(store.cas("last", store.get "last", n))
    local fence = store.lock("shop", {}, function(lock)
      try(store.set("locked", n, { lock = lock }))
      return try(store.near.lock("shop", {}, function() return lock.fence end))
    end)
    local out = try(exec { "echo", "ordered", args.item })
    try(fs.write("data/last.txt", args.item))
    local price = try(http.get(env "SHOP_URL" .. "/price?item=" .. args.item, { headers = { authorization = secret "SHOP_KEY" } }))
    local flow = try(http.stream(env "SHOP_URL" .. "/flow"))
    local parts = {}
    for piece in flow:chunks() do parts[#parts + 1] = piece end
    return { id = id, rows = rows, n = n, fence = fence, out = out.stdout, price = json.decode(price.body).price, flow = table.concat(parts), at = os.time(),
      now = time.now(), dice = math.random(1 << 50), id4 = uuid.v4(), who = call.principal.id }
  end,
}]]

local add = 'return tool { "Adds.", input = { a = t.integer, b = t.integer }, function(args) return args.a + args.b end }'

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

-- A gateway that records. `options`: scripts, record, more (of the configuration), env.
local function start(options)
  local config = {
    admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token }, view = { ann = ("v"):rep(32) } } },
    record = options.record or { tools = { "*" } },
    scripts = { watch = false, allow = options.allow },
  }
  for name, value in pairs(options.config or {}) do config[name] = value end
  return gateway.start { scripts = options.scripts, config = config, env = options.env, files = options.files, workers = options.workers,
    constants = options.constants }
end

local function admin(g, path, method, body)
  return client.request(g, {
    path = path, method = method, body = body and cjson.encode(body),
    headers = { Authorization = "Bearer " .. token, ["moonpool-admin"] = method and "1", ["Content-Type"] = method and "application/json" },
  }, { admin = true })
end

-- The recorded lines, once there are `n` of them.
local function recorded(g, n)
  local lines
  wait.for_fact(n .. " records", 20, function()
    local body = admin(g, "/api/records").body
    lines = {}
    for line in body:gsub("^[^\n]*\n", ""):gmatch "[^\n]+" do lines[#lines + 1] = line end
    return #lines >= n
  end)
  return lines
end

local function save(g, lines, name)
  write(g.dir .. "/" .. (name or "calls.jsonl"), table.concat(lines, "\n") .. "\n")
end

-- Runs `moonpool replay` in the folder of the gateway.
local function replay(g, args, env)
  local list = { "replay" }
  table.move(args or { "calls.jsonl" }, 1, #(args or { 1 }), 2, list)
  return gateway.exec(list, { cwd = g.dir, env = env, seconds = 60 })
end

local function call(g, name, arguments, revision)
  return g:client(revision or "2025-11-25"):result("tools/call", { name = name, arguments = arguments })
end

local function with_shop(run, change)
  local asked = 0
  local server <close> = stub.start(function(request, reply)
    asked = asked + 1
    if request.path:find "flow" then return reply:send(200, {}, "one two") end
    reply:json { price = 12, access_token = "MARK-answer" }
  end)
  local env = { SHOP_URL = server.url, SHOP_KEY = "MARK-key" }
  local options = {
    scripts = { ["tools/shop.lua"] = shop }, env = env, files = { ["data/readme"] = "" },
    allow = { net = { server.at }, read = { "data" }, write = { "data" }, run = { "echo" }, env = { "SHOP_*" } },
  }
  if change then change(options, server) end
  local g <close> = start(options)
  run(g, server, function() return asked end, env)
end

describe("a recorded call", function()
  it("is the same against the same scripts, with each library, and nothing outside is touched", function()
    with_shop(function(g, _, asked)
      assert.is_nil(call(g, "shop", { item = "apple" }).isError)
      assert.is_nil(call(g, "shop", { item = "pear" }, "2026-07-28").isError)
      save(g, recorded(g, 2))
      local before, count = read(g.dir .. "/data/last.txt"), asked()
      local entries = g:status().gauges.store_entries
      local code, out, err = replay(g)
      assert.equal(0, code, out .. err)
      assert.matches("2 calls, all answered as recorded", out)
      assert.equal(count, asked())
      assert.equal(before, read(g.dir .. "/data/last.txt"))
      assert.equal(entries, g:status().gauges.store_entries)
    end)
  end)

  it("shows what a changed script answers, and asks outside, as a diff", function()
    with_shop(function(g)
      call(g, "shop", { item = "apple" })
      save(g, recorded(g, 1))
      write(g.dir .. "/scripts/tools/shop.lua", (shop:gsub("price = json.decode%(price.body%).price", "price = 2 * json.decode(price.body).price")))
      local code, out = replay(g)
      assert.equal(1, code)
      assert.matches("DIFFERS shop", out)
      assert.matches("%- +price: 12", out)
      assert.matches("%+ +price: 24", out)
      assert.not_matches("outside", out)
      write(g.dir .. "/scripts/tools/shop.lua", (shop:gsub('"ordered", args.item', '"bought", args.item')))
      code, out = replay(g)
      assert.equal(1, code)
      assert.matches("FAILS +shop", out)
      assert.matches("%- exec echo ordered apple", out)
      assert.matches("%+ exec echo bought apple", out)
      assert.matches("1 was refused: the record has no answer", out)
      local _, json = replay(g, { "--json", "calls.jsonl" })
      local row = cjson.decode(json)
      assert.equal("fails", row.state)
      assert.equal(1, row.difference.refused)
    end)
  end)

  it("tells a script that fails now, a tool that is gone, and scripts that do not load", function()
    local g <close> = start { scripts = { ["tools/add.lua"] = add } }
    call(g, "add", { a = 1, b = 2 })
    save(g, recorded(g, 1))
    write(g.dir .. "/scripts/tools/add.lua", (add:gsub("return args.a", "error 'broken' return args.a")))
    local code, out = replay(g)
    assert.equal(1, code)
    assert.matches("FAILS +add", out)
    os.remove(g.dir .. "/scripts/tools/add.lua")
    write(g.dir .. "/scripts/tools/sum.lua", add)
    code, out = replay(g)
    assert.equal(1, code)
    assert.matches("unknown tool 'add'", out)
    write(g.dir .. "/scripts/tools/sum.lua", "return tool {")
    local err
    code, out, err = replay(g)
    assert.is_true(code == 1 or code == 78, out)
    assert.matches("sum.lua", err)
  end)

  it("with wrong arguments is answered as its revision has it", function()
    local g <close> = start { scripts = { ["tools/add.lua"] = add } }
    local dates = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" }
    for _, date in ipairs(dates) do
      local me <close> = g:client(date)
      me:call("tools/call", { name = "add", arguments = { a = "x" } })
    end
    save(g, recorded(g, #dates))
    local code, out, err = replay(g)
    assert.equal(0, code, out .. err)
    assert.matches("5 calls, all answered as recorded", out)
  end)

  it("keeps principal, failures and policies", function()
    local g <close> = start {
      scripts = {
        ["auth/a.lua"] = [[return auth { function(request) if request.bearer == "t" then
          return { id = "ann", scopes = { "orders:read" }, claims = { team = "MARKteam", session_token = "MARK-claim" } } end end }]],
        ["tools/who.lua"] = [[return tool { "Who.", scopes = { "orders:read" }, input = { fail = t.optional(t.boolean) },
          function(args, call) if args.fail then return nil, "no luck" end return call.principal.id .. call.principal.claims.team end }]],
        ["policy/slow.lua"] = 'return policy { "*", function(call, next) if call.args.deny then return nil, "denied" end return next() end }',
      },
      config = { auth = "scripts" },
    }
    local me = g:client("2026-07-28", { token = "t" })
    assert.equal("annMARKteam", me:result("tools/call", { name = "who", arguments = {} }).content[1].text)
    assert.is_true(me:result("tools/call", { name = "who", arguments = { fail = true } }).isError)
    local lines = recorded(g, 2)
    assert.equal("ann", cjson.decode(lines[1]).principal.id)
    assert.not_matches("MARK%-claim", table.concat(lines))
    save(g, lines)
    local code, out, err = replay(g)
    assert.equal(0, code, out .. err)
    assert.equal("failed", cjson.decode(lines[2]).outcome)
  end)

  it("never has a secret, and says what it hides", function()
    with_shop(function(g)
      call(g, "shop", { item = "apple", password = "MARK-password", pin = "MARK-pin" })
      call(g, "shop", { item = "MARK-password", password = "MARK-password" })
      local lines = recorded(g, 2)
      save(g, lines)
      local text = table.concat(lines, "\n")
      assert.not_matches("MARK%-", text)
      local one = cjson.decode(lines[1])
      assert.is_false(one.exact)
      local hidden = " " .. table.concat(one.hidden, " ") .. " "
      for _, place in ipairs { "arguments.password", "arguments.pin", "http.authorization", "http.answer.access_token" } do
        assert.truthy(hidden:find(" " .. place .. " ", 1, true), place .. " in" .. hidden)
      end
      local code, out, err = replay(g)
      assert.not_matches("MARK%-", out .. err .. g:log())
      -- hidden values are replaced by the same text in the record and in the replay, so no call differs
      assert.equal(0, code, out)
    end)
  end)
end)

describe("recording", function()
  it("is begun and ended by an operator, and counts", function()
    local g <close> = start { scripts = { ["tools/add.lua"] = add, ["tools/other.lua"] = add }, record = {} }
    local me = g:client "2026-07-28"
    me:result("tools/call", { name = "add", arguments = { a = 1, b = 1 } })
    assert.equal(200, admin(g, "/api/record", "POST", { tool = "a*", most = 2 }).status)
    assert.equal(409, admin(g, "/api/record", "POST", { tool = "a*" }).status)
    for i = 1, 3 do me:result("tools/call", { name = "add", arguments = { a = i, b = 1 } }) end
    me:result("tools/call", { name = "other", arguments = { a = 7, b = 1 } })
    local lines = recorded(g, 2)
    assert.equal(2, #lines)
    assert.same({ a = 1, b = 1 }, cjson.decode(lines[1]).arguments)
    assert.equal(2, g:status().counters.records.kept)
    assert.is_true(g:status().gauges.record_bytes > 100)
    admin(g, "/api/record/stop", "POST", {})
    assert.equal(200, admin(g, "/api/record", "POST", { tool = "*" }).status)
    assert.is_true(admin(g, "/api/record/stop", "POST", {}):json().ended)
    assert.is_false(admin(g, "/api/record/stop", "POST", {}):json().ended)
  end)

  it("refuses what makes no sense", function()
    local g <close> = start { scripts = { ["tools/add.lua"] = add }, record = {} }
    for _, body in ipairs { {}, { tool = "" }, { tool = 1 }, { tool = ("x"):rep(300) }, { tool = "a", seconds = 0 }, { tool = "a", most = 0 },
      { tool = "a", other = 1 }, { tool = "a\0b" } } do
      assert.equal(400, admin(g, "/api/record", "POST", body).status, cjson.encode(body))
    end
    assert.equal(400, admin(g, "/api/records?after=-1").status)
    assert.equal(400, admin(g, "/api/records?x=1").status)
    local view = { Authorization = "Bearer " .. ("v"):rep(32) }
    assert.equal(403, client.request(g, { path = "/api/records", headers = view }, { admin = true }).status)
    assert.equal(401, client.request(g, { path = "/api/records" }, { admin = true }).status)
  end)

  it("is bounded in calls, bytes and the size of a call", function()
    local g <close> = start {
      scripts = { ["tools/echo.lua"] = 'return tool { "Echoes.", input = { text = t.string }, function(args) return args.text end }' },
      record = { tools = { "echo" } }, constants = { record_calls = 5, record_call = 4096, record_bytes = 64 << 10 },
    }
    local me = g:client "2026-07-28"
    for i = 1, 20 do me:result("tools/call", { name = "echo", arguments = { text = "n" .. i } }) end
    wait.for_fact("20 records", 20, function() return g:status().counters.records.kept == 20 end)
    local lines = recorded(g, 5)
    assert.equal(5, #lines)
    assert.equal("n16", cjson.decode(lines[1]).arguments.text)
    assert.equal(15, g:status().counters.records.dropped)
    me:result("tools/call", { name = "echo", arguments = { text = ("x"):rep(100000) } })
    wait.for_fact("a large call", 20, function() return g:status().counters.records.large == 1 end)
    assert.is_true(g:status().gauges.record_bytes < 65536)
    local last = recorded(g, 5)[5]
    assert.is_true(#last < 8192)
    assert.is_true(cjson.decode(last).cut)
    save(g, { last })
    local code, out = replay(g)
    assert.equal(0, code)
    assert.matches("skipped", out)
  end)

  it("is written by moonpool record as calls come", function()
    local g <close> = start { scripts = { ["tools/add.lua"] = add }, record = {} }
    local env = { MOONPOOL_ADMIN_TOKEN = token }
    local at = "127.0.0.1:" .. g.admin_port
    local arguments = { "record", "--tool", "add", "--most", "2", "--out", g.dir .. "/out.jsonl", "--admin", at }
    local command = gateway.spawn(require("luv").fs_realpath(gateway.binary), arguments, gateway.new_folder(), { env = env, cwd = g.dir })
    wait.for_fact("the recording", 20, function() return g:log():find("recording begun", 1, true) end)
    local me = g:client "2026-07-28"
    for i = 1, 3 do me:result("tools/call", { name = "add", arguments = { a = i, b = 1 } }) end
    wait.for_fact("the command to end", 20, function() return command.code end)
    assert.equal(0, command.code, read(command.dir .. "/stderr"))
    assert.matches("2 calls recorded", read(command.dir .. "/stderr"))
    os.remove(command.dir .. "/stderr")
    os.remove(command.dir .. "/stdout")
    require("luv").fs_rmdir(command.dir)
    local code, out, err, _ = replay(g, { "out.jsonl" })
    assert.equal(0, code, out .. err)
    assert.matches("2 calls, all answered as recorded", out)
    code, out = replay(g, { "--last", "1", "--admin", at }, env)
    assert.equal(0, code)
    assert.matches("1 call, all answered as recorded", out)
    local stat = require("luv").fs_stat(g.dir .. "/out.jsonl")
    assert.equal(384, stat.mode & 511)                         -- 0600
    code, _, err = gateway.exec({ "record", "--out", g.dir, "--admin", at }, { cwd = g.dir, env = env })
    assert.equal(1, code)
    assert.matches("cannot write the records", err)
  end)
end)

describe("a file of records", function()
  it("that is cut, empty, missing or something else is told, and the rest is replayed", function()
    local g <close> = start { scripts = { ["tools/add.lua"] = add } }
    call(g, "add", { a = 1, b = 2 })
    local lines = recorded(g, 1)
    write(g.dir .. "/calls.jsonl", lines[1] .. "\n" .. lines[1]:sub(1, 80))
    local code, out, err = replay(g)
    assert.equal(0, code)
    assert.matches("calls.jsonl:2: only the beginning of a record is there", err)
    assert.matches("1 call, 1 torn and left out", out)
    write(g.dir .. "/calls.jsonl", lines[1] .. "\nnonsense\n")
    code, out, err = replay(g)
    assert.equal(1, code)
    assert.matches("calls.jsonl:2: the line is no record of a call", err)
    assert.matches("1 call, all answered as recorded", out)
    write(g.dir .. "/calls.jsonl", "")
    local _
    code, _, err = replay(g)
    assert.equal(1, code)
    assert.matches("there are no recorded calls", err)
    code, _, err = replay(g, { "missing.jsonl" })
    assert.equal(1, code)
    assert.matches("missing.jsonl", err)
    code, out, err = replay(g, { "calls.jsonl", "--last", "3" })
    assert.equal(2, code, out .. err)
    code = replay(g, { "--last", "no", "--admin", "127.0.0.1:1" })
    assert.equal(2, code)
  end)

  it("made by an attacker reaches nothing outside", function()
    with_shop(function(g, server, asked)
      call(g, "shop", { item = "apple" })
      local good = recorded(g, 1)[1]
      local before = asked()
      local last = read(g.dir .. "/data/last.txt")
      local function with(change)
        local one = cjson.decode(good)
        change(one)
        return cjson.encode(one)
      end
      local hostile = {
        with(function(one) one.events = {} end),
        with(function(one) one.events = { { kind = "exec", args = { argv = { "rm", "-rf", "/" } }, results = { 1 } } } end),
        with(function(one) for _, event in ipairs(one.events) do event.results = { {}, {}, {}, {} } end end),
        with(function(one) for _, event in ipairs(one.events) do event.results = { { ["$handle"] = 1 }, "x" } end end),
        with(function(one) for _, event in ipairs(one.events) do event.results = nil end end),
        with(function(one) one.values = { draw = { {}, "x" }, bytes = { 1, { ["$base64"] = "%%" } }, time = { "x" }, clock = { {} } } end),
        with(function(one) one.variables = { SHOP_URL = server.url .. "/attack", LD_PRELOAD = "/x.so" } end),
        with(function(one) one.tool = "\27[2Jshop" end),
        with(function(one) one.tool = "../../etc/passwd" end),
        with(function(one) one.principal = { id = ("x"):rep(5000) } end),
        with(function(one) one.principal = { id = "root", scopes = { 1, {}, "*" } } end),
        with(function(one) one.arguments = { item = { ["$handle"] = 1 } } end),
        with(function(one) one.time = "\27]0;x\7" one.hidden = { {}, "\27[2J" } one.outcome = "\27[2J" end),
        '{"moonpool":"record 1"}', '{"moonpool":"record 1","tool":"shop","outcome":"ok","arguments":[],"events":[1],"values":{},"variables":{}}',
        ("["):rep(100000), '{"moonpool":"record 2"}', "null", "\0\0\0",
      }
      save(g, hostile)
      local code, out, err = replay(g)
      assert.equal(1, code)
      assert.not_matches("[\0-\8\14-\31]", out .. err)
      assert.not_matches("stack traceback", out .. err)
      assert.equal(before, asked())
      assert.equal(last, read(g.dir .. "/data/last.txt"))
      assert.is_nil(io.open(g.dir .. "/passwd"))
    end)
  end)

  it("does not open Lua's library to scripts, even where they are trusted", function()
    local g <close> = start {
      scripts = { ["tools/touch.lua"] = [[return tool { "Touches.", function()
        local file = io and io.open("touched", "w")
        if file then file:close() end
        return os.execute and "os" or "none"
      end }]] },
      config = { scripts = { trust = "full", watch = false } },
    }
    call(g, "touch", {})
    os.remove(g.dir .. "/touched")
    save(g, recorded(g, 1))
    local code, out, err = replay(g)
    assert.equal(1, code, out .. err)
    assert.is_nil(io.open(g.dir .. "/touched"))
  end)
end)
