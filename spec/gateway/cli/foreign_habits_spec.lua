-- What people write who know other tools: keys of clients' and other gateways' files, files in the wrong place, names
-- from JavaScript and Python. Each report says where, what, and what to write next.
local gateway = require "spec.helpers.gateway"

local tool = "return tool { 'X.', function() end }"

-- The code, stdout and stderr of `moonpool check` with `yaml` and `scripts`.
local function check(yaml, scripts)
  local dir = gateway.prepare { scripts = scripts or { ["tools/x.lua"] = tool } }
  local file <close> = assert(io.open(dir .. "/moonpool.yaml", "wb"))
  file:write(yaml)
  file:close()
  local code, out, err = gateway.exec({ "check" }, { cwd = dir })
  os.execute("rm -rf '" .. dir .. "'")
  return code, out, err
end

-- Runs `check` on each row of a table, and lists what is missing from the reports.
local function try(rows, run)
  local wrong = {}
  for _, row in ipairs(rows) do
    local code, out, err = run(row)
    local told = out .. err
    if code ~= (row.code or 78) then wrong[#wrong + 1] = row[1] .. "\n  exit code " .. code .. "\n" .. told end
    for i = 2, #row do
      if not told:find(row[i], 1, true) then wrong[#wrong + 1] = row[1] .. "\n  wants: " .. row[i] .. "\n" .. told end
    end
  end
  assert.equal("", table.concat(wrong, "\n\n"))
end

local url = "upstreams:\n  a:\n    url: http://127.0.0.1:9/mcp\n    "
local program = "upstreams:\n  a:\n    command: [npx, x]\n    "
local by_script = "`moonpool new auth main` writes scripts/auth/main.lua"

-- { moonpool.yaml, where and what, what next }
local keys = {
  { "mcpServers: {a: {command: npx}}\n", "moonpool.yaml:1:1: unknown key 'mcpServers'", "hint: that is a client's file: `moonpool import FILE`" },
  { "{\"mcpServers\": {\"a\": {\"command\": \"npx\"}}}\n", "moonpool.yaml:1:2: unknown key 'mcpServers'", "`moonpool import FILE`" },
  { "mcp_servers: {a: {command: npx}}\n", ":1:1: unknown key 'mcp_servers'", "`moonpool import FILE`" },
  { "servers: {a: {command: npx}}\n", ":1:1: unknown key 'servers'", "The key here is 'upstreams'" },
  { "port: 8080\n", ":1:1: unknown key 'port'", "hint: address and port are one text, as in listen: 127.0.0.1:7300" },
  { "host: 0.0.0.0\n", ":1:1: unknown key 'host'", "as in listen: 127.0.0.1:7300" },
  { "tls: {cert: x}\n", ":1:1: unknown key 'tls'", "listen: {address: \"0.0.0.0:443\", tls: {certificate: cert.pem, key: key.pem}}" },
  { "tools: {}\n", ":1:1: unknown key 'tools'", "`moonpool new tool NAME` writes scripts/tools/NAME.lua" },
  { "api_key: x\n", ":1:1: unknown key 'api_key'", by_script },
  { "auth: {type: jwt}\n", ":1:8: unknown key 'type' in 'auth'", by_script },
  { "debug: true\n", ":1:1: unknown key 'debug'", "log: {level: debug}" },
  { "database: x.db\n", ":1:1: unknown key 'database'", "store: {file: store.db}" },
  { "rate_limit: 10\n", ":1:1: unknown key 'rate_limit'", "limit { rate = 10, per = 1 * minutes }" },
  { "level: debug\n", ":1:1: unknown key 'level'", "'level' belongs in 'log'" },
  { "log: debug\n", ":1:6: 'log' must be keys and values", "hint: as in 'log: {level: debug}'" },
  { "log: json\n", ":1:6: 'log' must be keys and values", "hint: as in 'log: {format: json}'" },
  { "log: /var/log/x.log\n", ":1:6: 'log' must be keys and values", "hint: as in 'log: {file: /var/log/x.log}'" },
  { "store: x.db\n", ":1:8: 'store' must be keys and values", "hint: as in 'store: {file: x.db}'" },
  { "listen: {address: \"127.0.0.1:0\", ssl: {cert: a}}\n", ":1:34: unknown key 'ssl' in 'listen'", "it is 'tls'" },
  { program .. "env: {A: b}\n", ":4:5: unknown key 'env' in 'upstreams.NAME'", "hint: variables of the program are process: {env: {NAME: value}}" },
  { program .. "args: [x]\n", ":4:5: unknown key 'args'", "program and arguments are one list: command: [npx, -y, some-server]" },
  { program .. "type: stdio\n", ":4:5: unknown key 'type'", "remove the key" },
  { program .. "disabled: true\n", ":4:5: unknown key 'disabled'", "remove the entry" },
  { program .. "cwd: /\n", ":4:5: unknown key 'cwd'", "'cwd' belongs in 'upstreams.NAME.process'" },
  { program .. "autoApprove: [x]\n", ":4:5: unknown key 'autoApprove'", "`moonpool lock`" },
  { "upstreams: {a: {serverUrl: \"http://127.0.0.1:9/mcp\"}}\n", ":1:17: unknown key 'serverUrl'", "hint: it is 'url'" },
  { "scripts: {grants: {tools/x.lua: {secret: [A]}}}\n", ":1:34: unknown key 'secret' in a grant", "did you mean 'env'?" },
  { "scripts: {grants: {tools/x.lua: {hosts: [A]}}}\n", ":1:34: unknown key 'hosts' in a grant", "did you mean 'net'?" },
  { "scripts: {grants: {x: {env: [A]}}}\n", "'x' is neither a script nor a folder of scripts", "the path of a script, as in tools/x.lua" },
  { url .. "token: x\n", ":4:5: unknown key 'token'", "auth: {bearer: \"${TOKEN}\"}" },
  { url .. "transport: http\n", ":4:5: unknown key 'transport'", "remove the key" },
  { url .. "allowedTools: [x]\n", ":4:5: unknown key 'allowedTools'", "it is 'only'" },
}

-- { path of the script, what and where, what next }
local files = {
  { "auth.lua", "scripts/auth.lua: the file is in no folder", "hint: the files of this kind go into scripts/auth/, as in scripts/auth/main.lua" },
  { "policy.lua", "scripts/policy.lua: the file is in no folder", "scripts/policy/main.lua" },
  { "greet.lua", "scripts/greet.lua: the file is in no folder", "a tool goes into scripts/tools/greet.lua" },
  { "tools/x.spec.lua", "scripts/tools/x.spec.lua: the name of a spec ends with _spec.lua", "rename it, as in scripts/tools/greet_spec.lua" },
  { "tools/x.test.lua", "scripts/tools/x.test.lua: the name of a spec ends with _spec.lua", "rename it" },
  { "tools/x_test.lua", "scripts/tools/x_test.lua: the name of a spec ends with _spec.lua", "rename it", text = "describe('x', function() end)" },
  { "tools/test_x.lua", "scripts/tools/test_x.lua: the name of a spec ends with _spec.lua", "rename it", text = "describe('x', function() end)" },
  { "tools/x_test.lua", "tool  x_test", code = 0, text = tool },
  { "utils/x.lua", "scripts/utils/x.lua: folder 'utils' is not a kind of script", "did you mean 'lib'?" },
  { "middleware/x.lua", "scripts/middleware/x.lua: folder 'middleware' is not a kind of script", "did you mean 'policy'?" },
}

-- { the handler's code, part of the error, part of the hint }: what fails when it runs
local running = {
  { 'return "a" + "b"', "attempt to add a 'string' with a 'string'", "texts are joined by .." },
  { "for x in args.list do print(x) end", "attempt to call a table value", "for i, x in ipairs(list) do … end goes over a list" },
  { "return args.list.length + 1", "nil value (field 'length')", "#x is the length" },
  { "local i = 0 while i < args.list.length do i = i + 1 end", "attempt to compare number with nil", "#x is the length" },
  { "return args.list[0].name", "attempt to index a nil value", "lists begin at 1" },
  { "return args.list[9] .. '!'", "attempt to concatenate a nil value", "a list ends at #list" },
  { 'args.list.push("x")', "nil value (field 'push')", "list[#list + 1] = x adds to a list" },
  { 'args.list:append("x")', "nil value (method 'append')", "list[#list + 1] = x adds to a list" },
  { 'return "n: " .. args.list', "attempt to concatenate a table value", "table.concat(list, \", \") joins a list" },
  { 'return "n: " .. args.missing', "attempt to concatenate a nil value", "where a value may be missing" },
  { 'return "yes: " .. true', "attempt to concatenate a boolean value", "tostring(x)" },
  { 'return "1" > 2', "attempt to compare number with string", "tonumber(text)" },
  { "return args.missing.name", "attempt to index a nil value", "x and x.name" },
  { "return #args.missing", "attempt to get length of a nil value", "#(list or {})" },
  { "return math.round(1.5)", "nil value (field 'round')", "math.floor(x + 0.5)" },
  { "return json.stringify(args)", "nil value (field 'stringify')", "json.encode(value)" },
  { "return json.loads('{}')", "nil value (field 'loads')", "json.decode(text)" },
  { "time.sleep(1)", "nil value (field 'sleep')", "sleep(seconds)" },
  { "return http.fetch('https://example.com')", "nil value (field 'fetch')", "http.get(url)" },
  { "return fs.readFile('x')", "nil value (field 'readFile')", "fs.read(path)" },
  { "return string.trim(' x ')", "nil value (field 'trim')", "is without the white space around it" },
  { 'log.warning("x")', "nil value (field 'warning')", 'log.warn("…")' },
  { "return os.getenv('HOME')", "nil value (field 'getenv')", 'env "NAME"' },
  { "return time.format(0, '%Y')", "time.format takes 1 argument, got 2", "os.date(format, seconds)" },
  { "return time.parse('2026-01-01', '%Y-%m-%d')", "time.parse takes 1 argument, got 2", "RFC 3339" },
  { "return json.encode(args, true)", "json.encode takes 1 argument, got 2", "no options" },
  { "return args.list:execute('select 1')", "nil value (method 'execute')", "db:query(sql, { … }) returns them" },
  { "return call:elicit('Really?', { sure = t.boolean })", "a question's message must be a string, got a table", "call:elicit(\"sure\", \"Really?\"" },
}

-- { the script, part of the error, part of the hint }: what fails when it loads
local function with_input(input) return "return tool { 'X.', input = " .. input .. ", function() end }" end
local loading = {
  { with_input "{ a = t.str }", "there is no type t.str", "it is t.string here" },
  { with_input "{ a = t.int }", "there is no type t.int", "it is t.integer here" },
  { with_input "{ a = t.bool }", "there is no type t.bool", "it is t.boolean here" },
  { with_input "{ a = t.array(t.string) }", "there is no type t.array", "it is t.list(t.string) here" },
  { with_input "{ a = t.enum { 'a' } }", "there is no type t.enum", "it is t.one_of" },
  { with_input "{ a = t.dict }", "there is no type t.dict", "it is t.map(t.string) here" },
  { with_input "{ a = t.strin }", "there is no type t.strin", "did you mean 'string'?" },
  { with_input "{ a = t.string('d', { optional = true }) }", "t.string takes 1 argument, got 2", 'as in t.string { "About it", optional = true }' },
  { with_input "{ a = t.list(t.string, 'd', {}) }", "t.list takes 2 arguments, got 3", "all options are one table" },
  { with_input "{ type = 'object', properties = { a = { type = 'string' } } }", "'input' is JSON Schema", "input = t.schema { type = \"object\", … }" },
  { with_input "{ a = 'string' }", "'a' is not a type", "as in input = { a = t.string }" },
  { "local s = require 'lsqlite3' " .. with_input "{}", "there is no library 'lsqlite3'", "'sqlite' does that here, and needs no require" },
  { "local s = require 'socket.http' " .. with_input "{}", "there is no library 'socket.http'", "'http' does that here" },
  { "local db = sqlite.open(':memory:', { readonly = true }) " .. with_input "{}", "no option 'readonly'", "opens the file for reading only" },
  { "return tool { 'X.', function(args) if (args.a) { return 1 } end }", "unexpected symbol near 'return'", "Lua writes if … then … end" },
  { "return tool { 'X.', function(args) while (args.a) { return 1 } end }", "unexpected symbol near 'return'", "while … do … end" },
  { "return tool { 'X.', function(args)\nimport json\nend }", "near 'json'", 'local x = require "x"' },
  { "return tool { 'X.', function(args)\nswitch (args.a) { case 1: return 2 }\nend }", "near '1'", "Lua has no switch" },
  { "return tool { 'X.', function(args) return args.list.map(x => x + 1) end }", "near '='", "no arrow" },
}

describe("habits from other tools", function()
  it("in moonpool.yaml", function() try(keys, function(row) return check(row[1]) end) end)

  it("about where files go", function()
    try(files, function(row) return check("", { [row[1]] = row.text or "return 1" }) end)
  end)

  it("in scripts, where they load", function()
    local scripts = {}
    for i, row in ipairs(loading) do scripts[("tools/x%02d.lua"):format(i)] = row[1] end
    local code, _, err = check("", scripts)
    assert.equal(78, code)
    local wrong = {}
    for i, row in ipairs(loading) do
      local told = err:match("scripts/tools/" .. ("x%02d.lua"):format(i) .. "(:[12]: .-\n  hint: [^\n]*)") or "no report"
      for at = 2, 3 do
        if not told:find(row[at], 1, true) then wrong[#wrong + 1] = row[1] .. "\n  wants: " .. row[at] .. "\n" .. told end
      end
    end
    assert.equal("", table.concat(wrong, "\n\n"))
  end)

  it("in handlers, where they run", function()
    local scripts = { ["tools/wrapped.lua"] = "return tool { 'X.', function() return { content = { { type = 'text', text = 'hi' } } } end }" }
    for i, row in ipairs(running) do
      scripts[("tools/x%02d.lua"):format(i)] = ("return tool { 'X.', function(args, call)\n  args.list = { 'a' }\n  %s\nend }"):format(row[1])
    end
    local g <close> = gateway.start { workers = 1, scripts = scripts }
    local c <close> = g:client("2026-07-28", { capabilities = { elicitation = { form = { [" "] = 1 } } } })
    for i, row in ipairs(running) do
      local name = ("x%02d"):format(i)
      c:call("tools/call", { name = name, arguments = { [" "] = nil } })
      local told = g:wait_log("tool failed", { name = name }).fields
      local file = "scripts/tools/" .. name .. ".lua"      -- a tail call, as in return time.parse(x), leaves no line
      assert.truthy(told.at == file or told.why:find(file .. ":3: ", 1, true), row[1] .. ": " .. tostring(told.why))
      assert.truthy(told.why:find(row[2], 1, true), row[1] .. ": " .. told.why)
      assert.truthy((told.hint or ""):find(row[3], 1, true), row[1] .. ": " .. told.why .. " hint: " .. tostring(told.hint))
    end
    c:call("tools/call", { name = "wrapped", arguments = { [" "] = nil } })
    local told = g:wait_log("tool returned a result of an SDK's form", { name = "wrapped" }).fields
    assert.equal("scripts/tools/wrapped.lua", told.file)
    assert.truthy(told.hint:find("return the text itself", 1, true), told.hint)
  end)
end)
