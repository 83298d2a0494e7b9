-- How `print`, `log.*` and errors show values that are not texts; and warnings about grants, which name the line of the
-- configuration.
local gateway = require "spec.helpers.gateway"

local function tool(body) return 'return tool { "X.", input = {}, function(_, call) ' .. body .. ' return "done" end }' end

local function run(body, config, level)
  local g = gateway.start { workers = 1, scripts = { ["tools/x.lua"] = tool(body) }, config = config, args = { "--log-level", level or "info" } }
  local c <close> = g:client "2026-07-28"
  local answer = c:call("tools/call", { name = "x", arguments = {} })
  return g, answer
end

describe("print and log", function()
  it("show tables as JSON, their keys in order", function()
    local g <close> = run [[
      print({ b = 2, a = { 1, "two", true } }, 7, nil, "text")
      log.info("order", { items = { { id = 1 } }, note = "n", empty = {}, list = json.array {}, nothing = json.null })
      log.info({ 1, 2 }, { 3 })]]
    g:wait_log '{"a":[1,"two",true],"b":2} 7 nil text'
    g:wait_log("order", { items = '[{"id":1}]', note = "n", empty = "{}", list = "[]", nothing = "null" })
    g:wait_log("[1,2]", { ["1"] = "3" })
  end)

  it("show values that JSON lacks: cycles, functions, secrets, infinities", function()
    local g <close> = run([[
      local t = { name = "t" }
      t.self = t
      local shared = {}
      log.info("odd", { cycle = t, twice = { shared, shared }, f = { function() end }, c = { print }, n = { math.huge, 1.5 }, co = coroutine.create(print),
        who = call.principal, own = setmetatable({}, { __tostring = function() return "mine" end }),
        bad = { setmetatable({}, { __tostring = function() error "no" end }) } })
      log.info("key", { key = secret "TOKEN_X", inside = { secret "TOKEN_X" } })]],
      { scripts = { allow = { env = { "TOKEN_*" } } } })
    local odd = g:wait_log "odd".fields
    assert.equal('{"name":"t","self":<cycle>}', odd.cycle)
    assert.equal("[{},{}]", odd.twice)
    assert.equal("[<function at scripts/tools/x.lua:4>]", odd.f)
    assert.equal("[<function>]", odd.c)
    assert.equal("[inf,1.5]", odd.n)
    assert.equal("<thread>", odd.co)
    assert.equal("mine", odd.own)
    assert.equal('["<table>"]', odd.bad)
    assert.is_nil(g:log():find("0x", 1, true))
  end)

  it("show secrets as ***", function()
    local config = { scripts = { allow = { env = { "TOKEN_X" } } } }
    local g <close> = gateway.start { workers = 1, env = { TOKEN_X = "hunter2-hunter2" }, config = config, scripts = {
      ["tools/x.lua"] = tool [[log.info("key", { key = secret "TOKEN_X", inside = { secret "TOKEN_X" } }) print({ k = secret "TOKEN_X" })]] } }
    local c <close> = g:client "2026-07-28"
    c:call("tools/call", { name = "x", arguments = {} })
    g:wait_log("key", { key = "***", inside = "[***]" })
    g:wait_log '{"k":***}'
    assert.is_nil(g:log():find("hunter2", 1, true))
  end)

  it("are bounded in depth, members and bytes, and take no time for values beyond the bounds", function()
    local g <close> = run [[
      local deep = {}
      for _ = 1, 100 do deep = { deep } end
      local wide = {}
      for i = 1, 300000 do wide[i] = i end
      local bush = { "x" }
      for _ = 1, 40 do bush = { bush, bush, bush } end
      print(deep)
      print(wide)
      print(bush)
      print({ text = ("x"):rep(1e6) })
      log.debug("not shown", { bush = bush })
      print "end"]]
    g:wait_log "end"
    for line in g:log():gmatch "[^\n]+" do assert.is_true(#line < 5000, #line) end
    assert.truthy(g:log():find("[[[[[[…]]]]]]", 1, true))
  end)

  it("show tables that are raised as errors, which the client does not see", function()
    local g <close>, answer = run "error { code = 7, why = { 'broken' } }"
    local line = g:wait_log("tool failed", { why = '{"code":7,"why":["broken"]}' })
    assert.equal("error", line.level)
    assert.match("^internal error %x+$", answer.result.content[1].text)
    local h <close>, failed = run "local t = {} t.me = t fail { reason = 'late', t = t }"
    assert.equal('{"reason":"late","t":{"me":<cycle>}}', failed.result.content[1].text)
    assert.is_table(h)
  end)
end)

describe("call:log", function()
  it("is in the gateway's log at debug, whether the client asked for logs or not", function()
    local g <close> = run('call:log("info", { rows = 7 }) call:log("warn", "slow", "db")', nil, "debug")
    g:wait_log("call log", { level = "info", data = '{"rows":7}', method = "tools/call" })
    g:wait_log("call log", { level = "warning", data = "slow", logger = "db" })
    local h <close> = run 'call:log("info", { rows = 7 })'
    h:stop()
    assert.is_nil(h:log():find("call log", 1, true))
  end)
end)

describe("warnings about grants", function()
  local yaml = [[
listen: 127.0.0.1:0
admin: {listen: "off"}
workers: 2
scripts:
  allow:
    run: [true, no-such-program-a]
  grants:
    scripts/tools/x.lua:
      net: ["example.com:443"]
    tools/y.lua: {net: ["example.com:443"]}
    tools/x.lua:
      env: [HOME]
      run:
        - no-such-program-b
]]

  local function check(text)
    local dir = gateway.prepare { scripts = { ["tools/x.lua"] = tool "" }, config = (text:gsub("%[true", '["true"')) }
    local code, _, err = gateway.exec({ "check" }, { cwd = dir })
    assert.equal(0, code, err)
    return err, dir
  end

  it("name the line and the mistake, at check and at start", function()
    local err, dir = check(yaml)
    for _, part in ipairs {
      'at=moonpool.yaml:8 hint="paths are relative to scripts/: write tools/x.lua" path=scripts/tools/x.lua',
      [[at=moonpool.yaml:10 hint="did you mean 'tools/x.lua'?" path=tools/y.lua]],
      'at=moonpool.yaml:6 hint="install it, or correct the name: it is looked up in PATH" program=no-such-program-a',
      "at=moonpool.yaml:13 ", "program=no-such-program-b",
    } do
      assert.truthy(err:find(part, 1, true), part .. " is not in: " .. err)
    end
    local g <close> = gateway.start { dir = dir }
    g:wait_log("granted program does not exist", { at = "moonpool.yaml:13", program = "no-such-program-b" })
    g:wait_log("unused grant: no script has this path", { at = "moonpool.yaml:8" })
    local _, count = g:log():gsub("no%-such%-program%-b", "")
    assert.equal(1, count)                                   -- the warning is logged once, not once per worker
    local file <close> = assert(io.open(dir .. "/moonpool.yaml", "a"))
    file:write "    tools/z.lua: {net: [\"example.com:443\"]}\n"
    file:flush()
    g:signal "sighup"
    g:wait_log("unused grant: no script has this path", { at = "moonpool.yaml:15" })
  end)

  it("of a refused use have the line of YAML that would grant it", function()
    local g <close> = run [[http.get "http://example.com/" env "HOME" fs.read "/etc/passwd" exec { "ls" }]]
    g:wait_log("http refused", { why = "no grant", grant = 'scripts: {grants: {"tools/x.lua": {net: ["example.com:80"]}}}' })
    g:wait_log("env refused", { grant = 'scripts: {grants: {"tools/x.lua": {env: ["HOME"]}}}' })
    g:wait_log("fs refused", { grant = 'scripts: {grants: {"tools/x.lua": {read: ["/etc/passwd"]}}}' })
    g:wait_log("exec refused", { grant = 'scripts: {grants: {"tools/x.lua": {run: ["ls"]}}}' })
  end)
end)
