-- V14: options of library functions are read once, without metamethods: what was checked is what is used.
local granted = require "spec.helpers.granted"
local stub = require "spec.helpers.stub"

-- Returns `first` on the first read of a field, `later` afterwards.
local changing = [[
  local function changing(fields)
    local reads = {}
    return setmetatable({}, {
      __index = function(_, name)
        reads[name] = (reads[name] or 0) + 1
        local field = fields[name]
        if field == nil then return nil end
        return reads[name] == 1 and field[1] or field[2]
      end,
      __pairs = function() return function() end end,
      __len = function() return reads.len == nil and 1 or 100 end,
    })
  end
]]

describe("options that change while they are read", function()
  local g, me, upstream
  lazy_setup(function()
    upstream = stub.start(function(request, reply) reply:send(200, nil, request.target == "/big" and ("x"):rep(200000) or "small") end)
    g = granted.start {
      code = "return {}", allow = { run = { "sh" }, net = { upstream.at }, write = { "data/" }, read = { "data/" } }, files = { ["data/a"] = "" },
      limits = { exec = { time = "5s" }, http = { body = "64KiB" } }, constants = { exec_output = 65536 },
      scripts = {
        ["tools/exec.lua"] = granted.tool(changing .. [[
          local result, why = exec({ "sh", "-c", "head -c 200000 /dev/zero" }, changing { max = { 10, 1e9 }, timeout = { 1, 1e9 } })
          return { size = result and #result.stdout, why = why }]]),
        ["tools/words.lua"] = granted.tool(changing .. [[
          local words = setmetatable({ "sh", "-c", "echo right" }, { __index = function() return "wrong" end, __len = function() return 4 end })
          return { out = exec(words).stdout }]]),
        ["tools/env.lua"] = granted.tool(changing .. [[
          local result, why = exec({ "sh", "-c", "env" }, { env = changing { LD_PRELOAD = { nil, "/x.so" }, LANG = { "C", "C" } } })
          return { out = result and result.stdout, why = why }]]),
        ["tools/get.lua"] = granted.tool(changing .. [[
          local out = {}
          for _, ask in ipairs { http.get, function(url, options) return http.request(setmetatable({ url = url }, getmetatable(options))) end } do
            local res, why = ask(args.text, changing { max = { 10, 1e9 }, timeout = { 1, 1e9 } })
            out[#out + 1] = res and #res.body or why
          end
          return { out = out }]]),
        ["tools/headers.lua"] = granted.tool(changing .. [[
          local res, why = http.get(args.text, { headers = changing { host = { nil, "other" }, ["x-a"] = { "1", "2" } }, query = changing { a = { 1, {} } } })
          return { status = res and res.status, why = why }]]),
        ["tools/write.lua"] = granted.tool(changing .. [[
          try(fs.write("data/a", "one"))
          try(fs.write("data/a", "two", changing { append = { true, true } }))
          local _, bad = pcall(fs.write, "data/a", "x", 5)
          return { text = fs.read "data/a", bad = tostring(bad) }]]),
        ["tools/parallel.lua"] = granted.tool(changing .. [[
          local n, list = 0, {}
          local ok, why = pcall(parallel, setmetatable({}, { __len = function() return 2 end, __index = function(_, i)
            if i > 200 then return nil end
            return function() n = n + 1 return true end
          end }))
          return { n = n, why = tostring(why) }]]),
        ["tools/store.lua"] = granted.tool(changing .. [[
          store.set("k", 1, changing { ttl = { 5, -5 } })
          store.add("l", 1, changing { ttl = { 5, "x" } })
          return { k = store.get "k", l = store.get "l", n = store.incr("m", 1, changing { ttl = { 5, {} } }) }]]),
        ["tools/sqlite.lua"] = granted.tool(changing .. [[
          local db = try(sqlite.open(":memory:", changing { setup = { "create table a (x)", 5 } }))
          local params = setmetatable({ 1 }, { __index = function() return {} end, __len = function() return 5 end,
            __pairs = function() return function() end end })
          return { n = try(db:one("select ? as n", params)).n, tables = try(db:one "select count(*) as n from sqlite_schema").n }]]),
      },
    }
    me = g:client "2026-07-28"
  end)
  lazy_teardown(function()
    me:close()
    g:stop()
    upstream:__close()
  end)

  local function run(name, arguments) return granted.run(me, arguments, name) end

  it("exceed no limit of exec", function()
    assert.same({ why = "sh: the program printed more than 65536 bytes" }, run "exec")
    assert.same({ out = "right\n" }, run "words")
    local out = run "env".out
    assert.is_nil(out:find "LD_PRELOAD")
  end)

  it("exceed no limit of http", function()
    for _, got in ipairs(run("get", { text = upstream.url .. "/big" }).out) do assert.matches("larger than 65536 bytes", got) end
    assert.equal(200, run("headers", { text = upstream.url .. "/" }).status)
  end)

  it("mean nothing to fs, parallel, store and sqlite", function()
    local written = run "write"
    assert.equal("two", written.text)
    assert.matches("options must be a table", written.bad)
    local ran = run "parallel"
    assert.equal(0, ran.n)
    assert.matches("1 to 64 functions", ran.why)
    assert.same({ k = 1, l = 1, n = 1 }, run "store")
    assert.same({ n = 1, tables = 0 }, run "sqlite")
  end)
end)
