-- The fakes of `moonpool test`: clocks, variables, programs, files, streams and principals; and the notifications that
-- were sent to clients.
local gateway = require "spec.helpers.gateway"

local scripts = {
  ["tools/clocks.lua"] = [[return tool { "Clocks.", function()
    local from, steady = time.now(), time.monotonic()
    sleep(90)
    return { now = time.now() - from, steady = time.monotonic() - steady, text = time.format(), os = os.time() - from, date = os.date "!%H:%M:%S" }
  end }]],
  ["tools/remember.lua"] = [[return tool { "Remembers.", input = { text = t.optional(t.string) }, function(args)
    if args.text then store.set("text", args.text, { ttl = 10 * minutes }) end
    return { text = store.get "text", keys = store.list() }
  end }]],
  ["tools/leaves.lua"] = [[return tool { "Leaves nothing.", function()
    sleep(0)
    local file <close> = closing(function()
      sleep(0)
      try(fs.remove "data/tmp")
    end)
    try(fs.write("data/tmp", "text"))
    local inner = coroutine.wrap(function()
      local note <close> = closing(function() store.set("leaves", "closed") end)
      coroutine.yield(sleep(0))
    end)
    inner()
    sleep(0)
    return "done"
  end }]],
  ["tools/counted.lua"] = "return tool { 'Counted.', function() return 'fine' end }",
  ["policy/few.lua"] = "return limit { tools = { 'counted' }, rate = 2, per = 1 * minutes }",
  ["tools/daily.lua"] = "return tool { 'Daily.', function() return 'fine' end }",
  ["policy/day.lua"] = "return quota { tools = { 'daily' }, most = 1, per = 'day' }",
  ["tools/variables.lua"] = [[return tool { "Variables.", function()
    local key, why = secret "API_KEY"
    if not key then return nil, why end
    local res = try(http.get("https://api.example/x", { headers = { authorization = "Bearer " .. key } }))
    return { url = try(env "API_URL"), debug = env("API_DEBUG", "off"), key = tostring(key), got = res.body }
  end }]],
  ["tools/log.lua"] = [[return tool { "Log.", input = { n = t.integer }, function(args)
    local out = try(exec({ "git", "log", "-" .. args.n }, { stdin = "in" }))
    if out.status ~= 0 then return nil, out.stderr end
    return out.stdout
  end }]],
  ["tools/cached.lua"] = [[local cache = try(redis.open { "redis://127.0.0.1:6379", timeout = 0.1 })
  return tool { "Cached.", function()
    local value, why, reason = cache:get "k"
    if reason then return nil, reason .. " " .. why end
    local got = try(cache:transaction { { "INCR", "n" }, { "GET", "none" } })
    return { value = value, n = got[1], none = got[2] == json.null, last = cache:pipeline({ { "GET", "l" } })[1].error }
  end }]],
  ["tools/stored.lua"] = [[local db = try(postgres.open { "postgres://app@127.0.0.1:5432/shop", timeout = 0.1 })
  return tool { "Stored.", function()
    local row, why = db:row("select name from users where id = $1", { 1 })
    if why then return nil, why.reason .. " " .. why end
    local n = try(db:transaction(function(tx) return tx:exec "update users set seen = now()" end))
    local _, twice = db:exec "insert into users values (1)"
    return { name = row and row.name, n = n, state = twice.state }
  end }]],
  ["tools/files.lua"] = [[return tool { "Files.", function()
    local text = try(fs.read "data/in.csv")
    try(fs.write("data/out.csv", text:upper()))
    try(fs.write("data/out.csv", "!", { append = true }))
    try(fs.mkdir "data/more")
    return { names = fs.list "data", size = fs.stat("data/out.csv").size, there = fs.exists "data/gone.csv", type = fs.stat("data/more").type }
  end }]],
  ["tools/missing_file.lua"] = [[return tool { "Missing.", function() return fs.read "data/none.csv" end }]],
  ["tools/stream.lua"] = [[return tool { "Streams.", input = { by = t.string }, function(args)
    local got = {}
    local stream = try(http.stream("https://api.example/events", { idle = 60 }))
    if args.by == "events" then
      for event in stream:events() do got[#got + 1] = event.event .. "=" .. event.data end
    elseif args.by == "lines" then
      for line in stream:lines() do got[#got + 1] = line end
    else
      return try(stream:text())
    end
    return table.concat(got, ",")
  end }]],
  ["tools/slow.lua"] = [[return tool { "Slow.", function() return try(http.get("https://api.example/slow", { timeout = 5 })).body end }]],
  ["tools/secretive.lua"] = "return tool { 'For few.', scopes = { 'notes:read' }, function(_, call) return call.principal.id end }",
  ["tools/hidden.lua"] = [[return tool { 'For a team.', visible = function(p) return p.claims and p.claims.team == "web" end,
    function(_, call) return call.principal.claims.team end }]],
  ["tools/tells.lua"] = [[return tool { "Tells.", function(_, call)
    call:progress(1, 2, "half")
    call:log("debug", { rows = 3 })
    resource_updated "note://7"
    disable("tool", "counted")
    enable("tool", "counted")
    return "done"
  end }]],
  ["resources/note.lua"] = [[return resource { "A note.", uri = "note://{id}", scopes = { "notes:read" },
    function(vars, call) return call.principal.id .. vars.id end }]],
  ["auth/main.lua"] = [[return auth { implies = { admin = { "notes:read" } }, function(request)
    local key = try(request.headers["x-api-key"], "an API key is needed")
    if key ~= "good" then return nil, "unknown API key" end
    return { id = "ann", scopes = { "notes:read" } }
  end }]],
  ["auth/second.lua"] = [[return auth.keys { header = "x-lent-key", keys = { lee = { sha256 = digest.sha256 "lent", expires = "2026-03-31" } } }]],
  ["jobs/sweep.lua"] = [[return job { "Sweeps.", every = 1 * hours, function()
    if store.get "broken" then return nil, "it is broken" end
    return store.incr "sweeps"
  end }]],
  ["policy/redact.lua"] = [[return policy { tools = { "nothing" }, function(call, next)
    if call.args.secret then fail "not that" end
    call.args.seen = call.principal.id
    return (next(call) .. ""):gsub("%d", "#"), nil
  end }]],
}

local config = { scripts = { path = "scripts", allow = {
  env = { "API_*" }, net = { "api.example", "127.0.0.1:6379", "127.0.0.1:5432" }, run = { "git" }, read = { "data/" }, write = { "data/" },
} } }

local function run(text, more)
  local all = {}
  for path, script in pairs(scripts) do all[path] = script end
  for path, script in pairs(more or {}) do all[path] = script end
  all["x_spec.lua"] = text
  all["tools/x_spec.lua"], all["x_spec.lua"] = text, nil
  local dir = gateway.prepare { scripts = all, config = config }
  local code, out, err = gateway.exec({ "test" }, { cwd = dir })
  os.execute("rm -rf '" .. dir .. "'")
  return code, out, err
end

local function fine(text)
  local code, out, err = run(text)
  assert.equal(0, code, out .. err)
end

describe("a spec of scripts", function()
  it("has one time on every clock", function()
    fine [[
      it("moves", function()
        fake.time(1000000000)
        assert.equal(1000000000, time.now())
        local steady = time.monotonic()
        assert.same({ now = 90, steady = 90, text = "2001-09-09T01:48:10Z", os = 90, date = "01:48:10" }, call("clocks").structured)
        fake.time(1000000100)
        assert.equal(100, math.floor(time.monotonic() - steady + 0.5))
      end)
      it("moves by the longest of sleeps side by side", function()
        fake.time(1e9)
        local woke = {}
        parallel { function() sleep(5) woke[#woke + 1] = time.now() end, function() sleep(3) woke[#woke + 1] = time.now() end }
        assert.same({ 1e9 + 3, 1e9 + 5 }, woke)
      end)
      it("is left behind", function() assert(time.now() > 1.7e9 and os.time() > 1.7e9) end)
    ]]
  end)

  it("lets what is stored expire", function()
    fine [[
      it("expires", function()
        fake.time(1e9)
        assert.equal("kept", call("remember", { text = "kept" }).structured.text)
        sleep(9 * minutes)
        assert.equal("kept", call("remember", {}).structured.text)
        sleep(2 * minutes)
        local got = call("remember", {}).structured
        assert.is_nil(got.text)
        assert.equal(0, #(got.keys or {}))
        call("remember", { text = "another" })
      end)
      it("expires from the last time to live that it was given", function()
        fake.time(1e9)
        assert(store.cas("swapped", nil, 1, { ttl = 1 * minutes }) and store.cas("swapped", 1, 2) and store.near.set("own", 1, { ttl = 1 * minutes }))
        sleep(2 * minutes)
        assert.is_nil(store.get "swapped")
        assert.is_nil(store.near.get "own")
        assert(store.cas("swapped", nil, 1) and store.cas("swapped", 1, 2, { ttl = 1 * minutes }))
        sleep(2 * minutes)
        assert.same({}, store.list "swapped")
      end)
      it("keeps a lock while its holder sleeps", function()
        fake.time(1e9)
        assert.equal("awake", store.lock("held", { ttl = 2 }, function(lock)
          sleep(10 * minutes)
          assert(store.set("guarded", 1, { lock = lock, ttl = 1 * hours }))
          return "awake"
        end))
        assert.equal(1e9 + 600, os.time())
        assert.same({ nil, "locked" }, { store.lock("held", {}, function() return store.lock("held", { wait = 5 }, function() end) end) })
        assert.equal(1e9 + 605, os.time())
        store.delete "guarded"
      end)
      it("ends with the fake clock that it began by", function() assert.is_nil(call("remember", {}).structured.text) end)
    ]]
  end)

  it("lets buckets and quotas fill again, and each spec begin with full ones", function()
    fine [[
      for _, name in ipairs { "one", "two" } do
        it(name, function()
          fake.time(1e9)
          assert(call("counted"))
          assert(call("counted"))
          assert.contains("try again in 30 seconds", select(2, call("counted")))
          sleep(30)
          assert(call("counted"))
          assert(not call("counted"))
          assert(call("daily"))
          assert.contains("is used up", select(2, call("daily")))
          sleep(24 * hours)
          assert(call("daily"))
        end)
      end
    ]]
  end)

  it("lets keys expire", function()
    fine [[
      it("expires", function()
        local request = { headers = { ["x-lent-key"] = "lent" } }
        fake.time(os.time { year = 2026, month = 3, day = 1, hour = 12 })
        assert.equal("key:lee", assert(authenticate(request)).id)
        sleep(40 * 24 * hours)
        assert.is_nil((authenticate(request)))
      end)
    ]]
  end)

  it("has variables and secrets", function()
    fine [[
      it("reads them", function()
        fake.env { API_URL = "https://x", API_DEBUG = false }
        fake.secret { API_KEY = "s3cret" }
        local asked = fake.http { ["GET https://api.example/x"] = "body" }
        assert.same({ url = "https://x", debug = "off", key = "***", got = "body" }, call("variables").structured)
        assert.equal("Bearer s3cret", asked[1].headers.authorization)
      end)
      it("says what to add", function()
        fake.secret {}
        assert.equal("fake.secret has no 'API_KEY': add API_KEY = \"…\" to its table, or false for a variable that is not set",
          select(2, call("variables")))
      end)
      it("leaves them behind", function() assert.contains("API_KEY is not set", select(2, call("variables"))) end)
    ]]
  end)

  it("has programs", function()
    fine [[
      it("runs them", function()
        local ran = fake.exec { ["git log"] = "a log", ["git log -2"] = { status = 1, stderr = "no such" },
          ["git log -3"] = function(command) return command.stdin .. #command.argv end }
        assert.equal("a log", call("log", { n = 1 }).text)
        assert.same({ nil, "no such" }, { call("log", { n = 2 }) })
        assert.equal("in3", call("log", { n = 3 }).text)
        assert.same({ "git", "log", "-1" }, ran[1].argv)
      end)
      it("says what to add", function()
        fake.exec {}
        assert.equal("fake.exec has no answer for 'git log -1': add [\"git\"] = … to its table", select(2, call("log", { n = 1 })))
      end)
    ]]
  end)

  it("has caches in Redis", function()
    fine [[
      it("answers commands", function()
        local sent = fake.redis { ["GET k"] = "v", INCR = function(command) return #command end, ["GET none"] = false, ["GET l"] = { error = "WRONGTYPE" } }
        assert.same({ value = "v", n = 2, none = true, last = "WRONGTYPE" }, call("cached").structured)
        assert.same({ "MULTI" }, sent[2])
      end)
      it("says what to add", function()
        fake.redis {}
        assert.equal("unavailable fake.redis has no answer for 'GET k': add [\"GET\"] = … to its table", select(2, call("cached")))
      end)
      it("leaves them behind", function() assert.contains("unavailable unavailable: 127.0.0.1:6379", select(2, call("cached"))) end)
    ]]
  end)

  it("has databases in PostgreSQL", function()
    fine [[
      it("answers statements", function()
        local function one(sql, params) return { { name = "user " .. params[1] } } end
        local sent = fake.postgres { select = one, update = 3, insert = { error = "twice", state = "23505" } }
        assert.same({ name = "user 1", n = 3, state = "23505" }, call("stored").structured)
        assert.same({ sql = "select name from users where id = $1", "1" }, sent[1])
        assert.equal(3, #sent)
      end)
      it("says what to add", function()
        fake.postgres {}
        assert.contains("unavailable fake.postgres has no answer for 'select name from users where id = $1': add [\"select\"] = ", select(2, call("stored")))
      end)
      it("leaves them behind", function() assert.contains("unavailable unavailable: 127.0.0.1:5432/shop: connection refused", select(2, call("stored"))) end)
    ]]
  end)

  it("has files", function()
    fine [[
      it("reads and writes them", function()
        local files = fake.fs { ["data/in.csv"] = "a,b" }
        assert.same({ names = { "in.csv", "more/", "out.csv" }, size = 4, there = false, type = "folder" }, call("files").structured)
        assert.equal("A,B!", files["data/out.csv"])
      end)
      it("says what to add", function()
        fake.fs {}
        assert.contains("fake.fs has none; add [\"data/none.csv\"] = \"…\" to its table", select(2, call("missing_file")))
      end)
      it("leaves them behind", function() assert(not call("missing_file")) end)
    ]]
  end)

  it("has streams, and answers that take time", function()
    fine [[
      local place = "GET https://api.example/events"
      it("has events", function()
        fake.http { [place] = { events = { "one", { event = "two", data = { a = 1 } } } } }
        assert.equal('message=one,two={"a":1}', call("stream", { by = "events" }).text)
      end)
      it("has chunks", function()
        fake.http { [place] = { chunks = { "a\nb", "c\n" } } }
        assert.equal("a,bc", call("stream", { by = "lines" }).text)
        fake.http { [place] = "whole" }
        assert.equal("whole", call("stream", { by = "text" }).text)
      end)
      it("waits", function()
        fake.time(1e9)
        fake.http { [place] = { chunks = { "a", { "b", after = 100000 } } } }
        assert.contains("no bytes arrived for", select(2, call("stream", { by = "text" })))
        fake.http { ["https://api.example/slow"] = { body = "x", after = 4 } }
        assert.equal("x", call("slow").text)
        fake.http { ["https://api.example/slow"] = { body = "x", after = 6 } }
        assert.contains("no answer within 5 s", select(2, call("slow")))
      end)
      it("says what to add", function()
        fake.http {}
        assert.contains('add ["GET https://api.example/events"] = … to its table', select(2, call("stream", { by = "text" })))
      end)
    ]]
  end)

  it("calls as a principal", function()
    fine [[
      it("passes scopes", function()
        assert.equal("ann", call("secretive", {}, { as = { id = "ann", scopes = { "notes:read" } } }).text)
        assert.equal("root", call("secretive", {}, { as = { id = "root", scopes = { "admin" } } }).text)
        assert.contains("unknown tool 'secretive'", select(2, call("secretive", {}, { as = "bob" })))
        assert.contains("unknown tool", select(2, call("secretive", {}, { as = "anonymous" })))
        assert.equal("local", call("secretive").text)
      end)
      it("passes visible", function()
        assert.equal("web", call("hidden", {}, { as = { id = "ann", claims = { team = "web" } } }).text)
        assert(not call("hidden", {}, { as = { id = "bob", claims = { team = "db" } } }))
      end)
      it("reads", function()
        assert.equal("ann7", read("note://7", { as = { id = "ann", scopes = { "notes:read" } } }).text)
        assert(not read("note://7", { as = "bob" }))
      end)
      it("says what is wrong", function()
        assert.error(function() call("secretive", {}, { as = { name = "ann" } }) end, "a principal has no 'name'")
        assert.error(function() call("secretive", {}, { sa = "ann" }) end, "there is no option 'sa'")
      end)
    ]]
  end)

  it("runs jobs, policies and auth scripts", function()
    fine [[
      it("jobs", function()
        assert.same({ true, 1 }, { run_job "sweep" })
        store.set("broken", true)
        assert.same({ nil, "it is broken" }, { run_job "sweep" })
        assert.error(function() run_job "swep" end, "there is no job 'swep'")
      end)
      it("policies", function()
        local seen
        local got = run_policy("redact", { tool = "files", args = {}, as = "ann" }, function(args) seen = args.seen return "at 12:30" end)
        assert.equal("at ##:##", got)
        assert.equal("ann", seen)
        assert.same({ nil, "not that" }, { run_policy("redact", { tool = "files", args = { secret = 1 } }, function() return "x" end) })
      end)
      it("auth", function()
        assert.equal("ann", authenticate { headers = { ["X-Api-Key"] = "good" } }.id)
        assert.same({ nil, "unknown API key" }, { authenticate { headers = { ["x-api-key"] = "bad" } } })
        assert.same({ nil, "an API key is needed" }, { authenticate {} })
      end)
    ]]
  end)

  it("sees what was sent to clients", function()
    fine [[
      it("tells", function()
        assert(call("tells"))
        assert.same({ progress = 1, total = 2, message = "half" }, notified("progress")[1].params)
        assert.same({ level = "debug", data = { rows = 3 } }, notified("message")[1].params)
        assert.equal("note://7", notified("resources/updated")[1].params.uri)
        assert.equal(2, #notified("tools/list_changed"))
        assert.equal(5, #notified())
      end)
      it("begins anew", function() assert.equal(0, #notified()) end)
    ]]
  end)

  it("gets an error that lists the fakes there are", function()
    local code, out = run [[ it("x", function() fake.tiem(1) end) ]]
    assert.equal(1, code)
    assert.truthy(out:find("there is no fake.tiem", 1, true) and out:find("did you mean 'time'?", 1, true), out)
  end)

  it("sees what a tool does when its client cancels", function()
    fine [[
      local function begin(wait)
        local files = fake.fs { ["data/"] = "" }
        fake.cancel(wait)
        local answer, why = call "leaves"
        return files, answer, why
      end
      it("cleans up at each wait", function()
        for wait = 1, 4 do
          local files, answer, why = begin(wait)
          assert.is_nil(answer)
          assert.equal("cancelled", why, wait)
          assert.is_nil(files["data/tmp"], wait)
          assert.equal(wait == 3 and "closed" or nil, store.get "leaves", wait)
          store.delete "leaves"
        end
      end)
      it("is not cancelled where it waits less often, and the next call is not either", function()
        local _, answer = begin(100)
        assert.equal("done", answer.text)
        assert.equal("done", call("leaves").text)
        store.delete "leaves"
      end)
      it("passes errors on", function()
        fake.cancel(9)
        assert.contains("unknown tool", select(2, call "nothing"))
        assert.error(function() fake.cancel(0) end, "number of a wait")
      end)
    ]]
  end)
end)
