-- Mistakes of authors who know JavaScript and Python better than Lua, and do not know moonpool.yaml: each report has
-- the place, the error, and a hint.
local gateway = require "spec.helpers.gateway"

local function check(scripts, yaml, ...)
  local dir = gateway.prepare { scripts = scripts }
  if yaml then
    local file <close> = assert(io.open(dir .. "/moonpool.yaml", "wb"))
    file:write(yaml)
  end
  local code, out, err = gateway.exec({ "check", ... }, { cwd = dir })
  os.execute("rm -rf '" .. dir .. "'")
  return code, out, err
end

-- Statements in a handler, each in a file of its own: { code, line of the report, parts of the error and the hint }.
-- Line 1 of `code` is line 3 of the file.
local errors = {
  { "if 1 != 2 then return 1 end", 3, "near '!'", "Lua writes ~=" },
  { "if 1 !== 2 then return 1 end", 3, "near '!'", "Lua writes ~=" },
  { "if !args.a then return 1 end", 3, "near '!'", "Lua writes not x" },
  { "if args.a === 2 then return 1 end", 3, "near '='", "Lua writes ==" },
  { "return args.a || 1", 3, "near '|'", "Lua writes or" },
  { "return args.a && 1", 3, "near '&'", "Lua writes and" },
  { "local x = args.a ? 1 : 2", 3, "near '?'", "Lua has no ? : — write condition and a or b" },
  { "local x = args?.a", 3, "near '?'", "Lua has no ?.: write a and a.b" },
  { "local x = args.a ?? 1", 3, "near '?'", "Lua has no ??: write a or b" },
  { "local x = 1\nx += 1", 4, "near '+'", "Lua has no +=: write x = x + 1" },
  { "local x = 1\nx -= 1", 4, "near '-'", "Lua has no -=: write x = x - 1" },
  { "local x = 1\nx++", 4, "near '+'", "Lua has no ++: write x = x + 1" },
  { "const x = 1", 3, "near 'x'", "Lua writes local" },
  { "let x = 1", 3, "near 'x'", "Lua writes local" },
  { "var x = 1", 3, "near 'x'", "Lua writes local" },
  { "local x = [1, 2]", 3, "near '['", "a list is { 1, 2 }" },
  { "return [\"a\"]", 3, "near '['", "a list is { 1, 2 }" },
  { "local x = { \"a\": 1 }", 3, "near ':'", "a table is { name = 1, [\"other-name\"] = 2 }" },
  { "local x = { a: args }", 3, "expected near '}'", "a table is { name = 1, [\"other-name\"] = 2 }" },
  { "local function f(a: string) end", 3, "near ':'", "Lua has no types in code" },
  { "local x = { a: 1 }", 3, "<name> expected near '1'", "a table is { name = 1, [\"other-name\"] = 2 }" },
  { "return `hello`", 3, "near '`'", "a text is" },
  { "// a comment", 3, "near '//'", "a comment begins with --" },
  { "return 1 // the first of them", 3, "near 'first'", "a comment begins with --; // divides and rounds down" },
  { "/* a comment */", 3, "near '/'", "a comment begins with --" },
  { "# a comment", 3, "near '#'", "a comment begins with --" },
  { "local x = 1 # a comment", 3, "near '#'", "a comment begins with --" },
  { "retrun 1", 3, "near '1'", "did you mean 'return'?" },
  { "retrun args", 3, "near 'args'", "did you mean 'return'?" },
  { "fucntion inner() return 1 end", 3, "near 'inner'", "did you mean 'function'?" },
  { "if args.a thne return 1 end", 3, "near 'thne'", "did you mean 'then'?" },
  { "if args.a then\nreturn 1\nelif args.b then\nreturn 2\nend", 5, "near 'elif'", "Lua writes elseif" },
  { "if args.a:\n  return 1", 4, "near 'return'", "Lua writes then or do where a block begins" },
  { "def inner(x):\n  return x", 3, "near 'inner'", "a function is function name(x) … end" },
  { "local f = x => x + 1", 3, "near '='", "a function is function(x) … end: no braces, no arrow" },
  { "local f = (x) => { return x }", 3, "near '='", "a function is function(x) … end: no braces, no arrow" },
  { "local f = function(x) { return x }", 3, "near '{'", "a function is function(x) … end: no braces, no arrow" },
  { "if (args.a) {\n  return 1\n}", 4, "near 'return'", "Lua writes if … then … end" },
  { "for (let i = 0; i < 3; i++) {\n}", 3, "near '('", "a loop is for i = 1, n do … end" },
  { "for x in range(3):\n  print(x)", 5, "near 'end'", "a loop is for i = 1, n do … end" },
  { "for x of args.list do end", 3, "near 'of'", "a loop is for i = 1, n do … end" },
  { "try {\n  return 1\n} catch (e) {\n}", 4, "near 'return'", "Lua has no try: local ok, value = pcall(f)" },
  { "try:\n  f()\nexcept E:\n  g()", 5, "near 'E'", "Lua has no try: local ok, value = pcall(f)" },
  { "throw args.x", 3, "near 'args'", "error \"…\" raises a bug, fail \"…\"" },
  { "await http.get(args.x)", 3, "near 'http'", "nothing needs async or await" },
  { "import json", 3, "near 'json'", "local x = require \"x\" gives" },
  { "if x is None then return 1 end", 3, "near 'is'", "write x == nil" },
  { "return 1 if args.a else 2", 3, "near 'if'", "Lua has no such expression: write condition and a or b" },
  { "local f = lambda x: x", 4, "near 'end'", "a function is function(x) return … end" },
  { "return 'a\\d'", 3, "invalid escape sequence", "Lua's patterns have %d" },
  { "return \"a", 3, "unfinished string", "a text ends on its line" },
  { "if args.a then\n  return 1", 5, "near ','", "hint: the block that 'if' opened at line 3 may not be closed by an 'end'" },
  { "if args.a then\n  return 1\nelse if args.b then\n  return 2\nend", 8, "unexpected symbol near ','", "hint: line 5: Lua writes elseif" },
  { "if args.x = 1 then return 1 end", 3, "near '='", "Lua compares with ==" },
  { "while true { break }", 3, "near '{'", "Lua writes if … then … end, while … do … end" },
  { "local x: number = 1", 3, "near ':'", "Lua has no types in code" },
  { "return function(a = 1) return a end", 3, "near '='", "a parameter has no default" },
  { "x = y = 1", 3, "near '='", "an assignment is a statement of its own" },
  { "return args.x if args.y", 3, "near 'if'", "write if condition then return value end" },
  { "if not args.x: return", 3, "near 'return'", "Lua writes then or do where a block begins" },
  { "return args.x args.y", 3, "near 'args'", "is an operator or a comma missing before 'args'?" },
  { "print(1,)", 3, "near ')'", "a comma before ')' is one too many" },
  { "@cached", 3, "near '@'", "Lua has no decorators" },
  { "for i = 1 10 do end", 3, "near '10'", "a loop is for i = 1, n do … end" },
  { "return { 1, 2", 4, "near 'end'", "a '}' may be missing, at line 3 or below" },
  { "return (1 + 2", 4, "near 'end'", "a ')' may be missing, at line 3 or below" },
  { "end", 4, "near 'end'", "or there is one 'end' too many" },
}

-- Unknown names in a handler: { code, name, hint }. `check` reports none of them as an error.
local warnings = {
  { "return null", "null", "Lua's word is nil" }, { "return None", "None", "Lua's word is nil" }, { "return undefined", "undefined", "Lua's word is nil" },
  { "return True", "True", "Lua writes true" }, { "return False", "False", "Lua writes false" },
  { "return this.x", "this", "Lua has no 'this'" }, { "return self.x", "self", "self is there in functions declared with ':'" },
  { "console.log(1)", "console", "log.info" }, { "for i in range(3) do end", "range", "for i = 1, n do" },
  { "return len(args)", "len", "#x" }, { "return str(1)", "str", "tostring(x)" }, { "return Math.floor(1)", "Math", "math.floor" },
  { "return JSON.stringify(args)", "JSON", "json.encode" }, { "raise(1)", "raise", "fail" }, { "return fetch('x')", "fetch", "http.get" },
  { "setTimeout(1)", "setTimeout", "sleep" }, { "return open('x')", "open", "fs.read" }, { "return process.env", "process", "env \"NAME\"" },
  { "return typeof(1)", "typeof", "type(x)" }, { "return unpack(args)", "unpack", "table.unpack" },
  { "return 1 // comment", "comment", "a comment begins with --" },
  { "return math.floor(7 // halves)", "halves", "a comment begins with --" },
  { "local x = new Date()", "new", "call the function: Lua has no 'new'" },
  { "catch(args)", "catch", "pcall(f) gives true" },
  { "hits = 1", nil, "write 'local hits' where it begins", "'hits' is assigned and was never declared" },
  { "return list[1]", "list", "a script's own names begin with 'local'" },
  { "return list(args)", "list", "a list is { 1, 2 }" },
  { "return f(args)", "f", "a script's own names begin with 'local'" },
  { "return f'{args}'", "f", ":format(name, count) fills a text" },
  { "return nothing_like_it", "nothing_like_it", "a script's own names begin with 'local'" },
}

local function of_handler(code)
  return "return tool { 'X.',\n  function(args)\n" .. ("\n" .. code):gsub("\n", "\n    "):sub(2) .. "\n  end,\n}\n"
end

-- The reports about a file, up to the next empty line.
local function report_of(err, file)
  local at = err:find("scripts/tools/" .. file, 1, true)
  return at and err:sub(at):match "^(.-)\n\n" or at and err:sub(at) or ""
end

local function has(part, text, about) assert.truthy(text:find(part, 1, true), about .. "\n" .. text) end

describe("mistakes in scripts", function()
  it("that do not compile say what Lua writes instead", function()
    local scripts = {}
    for i, row in ipairs(errors) do scripts[("tools/x%02d.lua"):format(i)] = of_handler(row[1]) end
    local code, _, err = check(scripts)
    assert.equal(78, code)
    local wrong = {}
    for i, row in ipairs(errors) do
      local file = ("x%02d.lua"):format(i)
      local told = report_of(err, file)
      for _, part in ipairs { file .. ":" .. row[2] .. ": ", row[3], row[4] } do
        if not told:find(part, 1, true) then wrong[#wrong + 1] = row[1] .. "\n  wants " .. part .. "\n" .. told end
      end
    end
    assert.equal("", table.concat(wrong, "\n\n"))
  end)

  it("that are names of other languages are warnings with a hint, and never a wrong one", function()
    local scripts = {}
    for i, row in ipairs(warnings) do scripts[("tools/x%02d.lua"):format(i)] = of_handler(row[1]) end
    local code, _, err = check(scripts)
    assert.equal(0, code)
    for i, row in ipairs(warnings) do
      local file = ("x%02d.lua"):format(i)
      local told = report_of(err, file)
      has(file .. ":3: " .. (row[4] or "unknown name '" .. row[2] .. "'"), told, row[1])
      has(row[3], told:match "hint: (.*)" or "", row[1] .. "\n" .. told)
    end
    assert.equal(1, (check(scripts, nil, "--strict")))
  end)

  local loaded = {
    ["a call without its parameter"] = { "return tool { 'X.', function(args) call:progress(1) end }",
      "1: unknown name 'call'", "the handler's last parameter", 0 },
    ["an option of JSON Schema"] = { "return tool { 'X.', input = { a = t.number { minimum = 3 } }, function() end }", "1: t.number has no option 'minimum'",
      "it is 'min' here" },
    ["an enum"] = { "return tool { 'X.', input = { a = t.string { enum = {} } }, function() end }", "1: t.string has no option 'enum'", "t.one_of" },
    ["a description by name"] = { "return tool { description = 'X.', function() end }", "tool has no option 'description'", "it is the first item" },
    ["a handler by name"] = { "return tool { 'X.', handler = function() end }", "tool has no option 'handler'", "the function is the item after" },
    ["an unknown format"] = { "return tool { 'X.', input = { a = t.string { format = 'dat' } }, function() end }", "1: unknown format 'dat'",
      "did you mean 'date'?", 0 },
  }
  for name, row in pairs(loaded) do
    it("such as " .. name .. " say what to write", function()
      local code, _, err = check { ["tools/x.lua"] = row[1] }
      assert.equal(row[4] or 78, code, err)
      has(row[2], err, name)
      has("hint: " .. row[3], err:gsub("hint: .-" .. row[3]:gsub("%p", "%%%0"), "hint: " .. row[3]), name)
    end)
  end

  it("such as every = \"5m\" say what to write", function()
    local _, _, err = check { ["jobs/x.lua"] = "return job { 'X.', every = '5m', function() end }" }
    has("scripts/jobs/x.lua:1: 'every' must be", err, "every")
    has("5 * minutes", err:match "hint: (.*)" or "", err)
  end)

  it("such as a library that returns nothing are reported for the library, once", function()
    local code, _, err = check { ["lib/prices.lua"] = "local prices = {}",
      ["tools/a.lua"] = "local p = require 'prices' return tool { 'A.', function() return p.x end }" }
    assert.equal(78, code)
    has("scripts/lib/prices.lua: the file returns nothing\n  hint: end it with 'return { … }'", err, "lib")
    assert.equal(1, select(2, err:gsub("returns nothing", "")))
  end)
end)

describe("an output that does not fit", function()
  it("is logged with the place where 'output' is declared", function()
    local g <close> = gateway.start { scripts = { ["tools/sum.lua"] =
      "return tool {\n  'Adds.',\n  output = { sum = t.number },\n  function() return { sum = 'x' } end }" } }
    local c <close> = g:client "2026-07-28"
    c:call("tools/call", { name = "sum", arguments = {} })
    g:wait_log("tool failed", { name = "sum", at = "scripts/tools/sum.lua:3" })
  end)
end)

describe("moonpool check", function()
  it("says that nothing is served, and --strict fails for it", function()
    local code, out, err = check {}
    assert.same({ 0, "" }, { code, out })
    has("nothing is served: scripts/ has no tools, resources or prompts\n  hint: ", err, "empty")
    assert.equal(1, (check({}, nil, "--strict")))
  end)

  it("--strict exits with 0 if there is no warning", function()
    local scripts = { ["tools/x.lua"] = "return tool { 'X.', function() end }" }
    local code, _, err = check(scripts, nil, "--strict")
    assert.same({ 0, "" }, { code, err })
  end)

  it("--strict fails for policies and grants that fit nothing", function()
    local tool = "return tool { 'X.', function() end }"
    local policy = "return policy { tools = { 'y*' }, function(_, next) return next() end }"
    assert.equal(1, (check({ ["tools/x.lua"] = tool, ["policy/p.lua"] = policy }, nil, "--strict")))
    assert.equal(1, (check({ ["tools/x.lua"] = tool }, "scripts: {grants: {tools/y.lua: {env: [HOME]}}}\n", "--strict")))
  end)
end)

describe("mistakes in moonpool.yaml", function()
  local scripts = { ["tools/x.lua"] = "return tool { 'X.', function() end }" }

  it("such as a line that is indented by too much say so", function()
    local code, _, err = check(scripts, "workers: 1\n  listen: 127.0.0.1:0\n")
    assert.equal(78, code)
    has("moonpool.yaml:2:9: not valid YAML", err, "indent")
    has("hint: check whether this line is indented too far", err, "indent")
  end)

  it("such as 'admin: off' are explained", function()
    local code, _, err = check(scripts, "admin: off\n")
    assert.same({ 0, "" }, { code, err })
  end)

  it("such as a file without read permission name the user that must be able to read it", function()
    if os.execute "test \"$(id -u)\" = 0" then return end      -- root can read every file
    local dir = gateway.prepare { scripts = scripts }
    os.execute("chmod 000 '" .. dir .. "/moonpool.yaml'")
    local code, _, err = gateway.exec({ "check" }, { cwd = dir })
    os.execute("rm -rf '" .. dir .. "'")
    assert.equal(78, code)
    has("hint: the user who runs moonpool must be able to read", err, "unreadable")
  end)

  it("such as a port that is in use name the key", function()
    local g <close> = gateway.start { scripts = scripts }
    local dir = gateway.prepare { scripts = scripts }
    local code, _, err = gateway.exec({ "run", "--listen", "127.0.0.1:" .. g.port }, { cwd = dir })
    assert.equal(1, code, err)
    has("listen: cannot listen on 127.0.0.1:" .. g.port, err, "listen")
    os.execute("rm -rf '" .. dir .. "'")
  end)
end)
