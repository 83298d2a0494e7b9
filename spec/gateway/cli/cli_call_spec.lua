-- `moonpool call`: calls one tool, without a server or at a URL, in every revision.
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local scripts = {
  ["tools/add.lua"] = "--- Add two numbers.\n---@param a number\n---@param b number\nreturn function(a, b) return a + b end",
  ["tools/show.lua"] = [[return tool { "Shows what came.", open = true, input = {
      n = t.optional(t.integer), yes = t.optional(t.boolean), text = t.optional(t.string), list = t.optional(t.list(t.integer)),
    }, function(args) return json.encode(args) end }]],
  ["tools/count.lua"] = [[return tool { "Counts.", function(_, call)
    for i = 1, 2 do call:progress(i, 2, "step " .. i) end
    call:log("info", "half way")
    return "counted" end }]],
  ["tools/chatty.lua"] = [[return tool { "Prints.", function() print("here", 42) log.info("there", { a = 1 }) return "done" end }]],
  ["tools/fails.lua"] = [[return tool { "Fails.", function() return nil, "out of stock" end }]],
  ["tools/sure.lua"] = [[return tool { "Asks.", function(_, call)
    local yes, why = call:elicit("sure", "Really?", { confirm = t.boolean })
    return yes and "yes" or why end }]],
  ["tools/far.lua"] = [[return tool { "Mirrored.", input = { region = t.string { header = "Region" } }, function(args) return args.region end }]],
  ["tools/mixed.lua"] = [[return tool { "Mixed.", function() return { text "words", image("12345", "image/png") } end }]],
}

local dir

local function call(...)
  return gateway.exec({ "call", ... }, { cwd = dir })
end

describe("moonpool call", function()
  setup(function() dir = gateway.prepare { scripts = scripts } end)
  teardown(function() os.execute("rm -rf '" .. dir .. "'") end)

  for _, revision in ipairs { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" } do
    it("calls in " .. revision, function()
      local code, out, err = call("add", "a=2", "b=3", "--revision", revision)
      assert.same({ 0, "5\n", "" }, { code, out, err })
    end)
  end

  it("reads values as the schema says", function()
    local code, out = call("show", "n=3", "yes=true", "text=3", "list=[1,2]", "more=x")
    assert.equal(0, code)
    assert.same({ n = 3, yes = true, text = "3", list = { 1, 2 }, more = "x" }, cjson.decode(out))
  end)

  it("takes arguments as JSON, and more beside them", function()
    local _, out = call("--json", '{"a": 40}', "add", "b=2")
    assert.equal("42\n", out)
  end)

  it("prints progress and logs on stderr", function()
    local code, out, err = call "count"
    assert.same({ 0, "counted\n" }, { code, out })
    assert.equal("progress 1/2  step 1\nprogress 2/2  step 2\ninfo: half way\n", err)
  end)

  it("shows what a script prints and logs, and nothing else", function()
    local code, out, err = call "chatty"
    assert.same({ 0, "done\n" }, { code, out })
    assert.matches("^%S+ info  here 42\n%S+ info  there            a=1\n$", err)
  end)

  it("exits with 1 when the tool fails, and prints the reason on stderr", function()
    assert.same({ 1, "", "out of stock\n" }, { call "fails" })
  end)

  it("describes content that is not text, and prints the whole result with an option", function()
    local _, out = call "mixed"
    assert.equal("words\n[image image/png, 5 bytes]\n", out)
    local _, raw = call("mixed", "--raw")
    assert.equal("image", cjson.decode(raw).content[2].type)
  end)

  it("cannot be asked without a terminal, and the tool gets an error", function()
    for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
      local _, out = call("sure", "-r", revision)
      assert.equal("unsupported\n", out)
    end
  end)

  it("asks at a terminal", function()
    for _, revision in ipairs { "2025-06-18", "2026-07-28" } do
      local binary = require "luv".fs_realpath(gateway.binary)
      local code, out = gateway.run_program("/bin/sh", { "-c",
        ("printf 'perhaps\\nyes\\n' | script -qec '%s call sure -r %s' /dev/null"):format(binary, revision) }, { cwd = dir })
      assert.equal(0, code)
      assert.truthy(out:find("Really?", 1, true), out)
      assert.truthy(out:find("'perhaps' is not a boolean", 1, true), out)
      assert.truthy(out:find "no%): yes\r?\n$", out)
    end
  end)

  local misuses = {
    { { "ad" }, "there is no tool 'ad'", "did you mean 'add'?" },
    { { "add", "c=1" }, "'add' has no argument 'c'", "did you mean 'a'?" },
    { { "add", "a" }, "'a' is not an argument", "write KEY=VALUE, as in add name=Ann" },
    { { "add", "-r", "2025-06-19" }, "there is no revision '2025-06-19'", "did you mean '2025-06-18'?" },
    { {}, "call takes the name of a tool", "as in moonpool call greet name=Ann; moonpool list shows them" },
  }
  for _, misuse in ipairs(misuses) do
    it("refuses " .. table.concat(misuse[1], " "), function()
      local code, out, err = call(table.unpack(misuse[1]))
      assert.equal(("moonpool: %s\n  hint: %s\n"):format(misuse[2], misuse[3]), err)
      assert.same({ 2, "" }, { code, out })
    end)
  end

  it("refuses a value that the schema cannot mean", function()
    assert.same({ 2, "", "moonpool: a: 'x' is not a number\n" }, { call("add", "a=x") })
  end)

  it("gives 78 for scripts that do not load, with what is wrong", function()
    local broken = gateway.prepare { scripts = { ["tools/x.lua"] = "return tool {" } }
    local code, _, err = gateway.exec({ "call", "x" }, { cwd = broken })
    os.execute("rm -rf '" .. broken .. "'")
    assert.equal(78, code)
    assert.truthy(err:find "^scripts/tools/x.lua:1: ")
  end)
end)

describe("moonpool call --url", function()
  it("calls at a running gateway, and leaves nothing behind", function()
    local g <close> = gateway.start { scripts = scripts }
    for _, revision in ipairs { "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" } do
      local code, out, err = gateway.exec { "call", "--url", g.url, "-r", revision, "count" }
      assert.same({ 0, "counted\n" }, { code, out })
      assert.truthy(err:find("progress 2/2  step 2\n", 1, true), err)
    end
    local _, out = gateway.exec { "call", "--url", g.url, "far", "region=münchen" }
    assert.equal("münchen\n", out)
    g:wait_status(function(status) return status.gauges.sessions.http == 0 end)
    assert.has_nothing_left(g)
  end)

  it("says that no gateway answers", function()
    local g = gateway.start {}
    local url = g.url
    assert.has_nothing_left(g)
    g:stop()
    local code, _, err = gateway.exec { "call", "--url", url, "add" }
    assert.equal(1, code)
    assert.equal("moonpool: " .. url .. ": Connection refused\n  hint: is it running there? `moonpool run` starts a gateway\n", err)
  end)
end)

describe("moonpool status", function()
  it("prints what the admin listener says, by TCP and by Unix socket", function()
    local g <close> = gateway.start {}
    local code, out = gateway.exec { "status", "--json", "--admin", "127.0.0.1:" .. g.admin_port }
    assert.equal(0, code)
    assert.equal(g.pid, cjson.decode(out).pid)
    assert.has_nothing_left(g)
  end)

  it("prints for people which scripts serve, the faults of others, and the counters that are not 0", function()
    local g <close> = gateway.start { scripts = scripts, workers = 1 }
    local function shown()
      local code, out, err = gateway.exec { "status", "--admin", "127.0.0.1:" .. g.admin_port }
      assert.same({ 0, "" }, { code, err })
      return out
    end
    local function save(text)
      local file <close> = assert(io.open(g.dir .. "/scripts/tools/add.lua", "wb"))
      file:write(text)
    end
    local out = shown()
    local begins = "^nothing is wrong\n\nmoonpool %%d[%%w.+]*, process %d, for %%d+ s, 1 worker\nscripts: generation 1\n\ngauges\n"
    assert.truthy(out:find(begins:format(g.pid)), out)
    assert.truthy(out:find("\n  connections           1\n", 1, true), out)
    assert.is_nil(out:find " 0[,\n]", out)
    save "return tool { 'Adds.', function() return 1 end }"
    g:wait_log "reloaded"
    assert.truthy(shown():find "\nscripts: generation 2, since 20%S+Z: ~ add %(")
    save "return tool { 'Adds.',"
    g:wait_log "not reloaded"
    out = shown()
    assert.truthy(out:find "^warning   the files on the disk have errors: what was loaded before still serves, since 20%S+Z\n          next: ", out)
    assert.truthy(out:find "\nscripts: generation 2\nnot reloaded at 20%S+Z: the previous version still serves\n\nscripts/tools/add.lua:1: ", out)
    assert.truthy(out:find "\ncounters\n.*\n  requests +%d+\n", out)
    assert.truthy(out:find("[^\n]\n\ngauges\n"), out)
    save "return tool { 'Adds.', function() return 1 end }"
    g:wait_log "change reverted"
    assert.truthy(shown():find "\nscripts: generation 2, since 20%S+Z\n\ngauges\n", shown())
  end)

  it("finds the address in the configuration", function()
    local dir_of = gateway.prepare { config = "listen: 127.0.0.1:0\nhosts: [example.com]\nadmin: {listen: 'unix:${DIR}/admin.sock'}\n" }
    local uv = require "luv"
    local ready = uv.new_pipe(false)
    local process = gateway.spawn(uv.fs_realpath(gateway.binary), { "run", "--ready-fd", "3" }, dir_of, { env = { DIR = dir_of }, cwd = dir_of }, ready)
    local line = ""
    ready:read_start(function(_, bytes) line = line .. (bytes or "") end)
    wait.for_fact("the gateway to be ready", 20, function() return line:find "\n" end)
    ready:close()
    local code, out = gateway.exec({ "status", "--json" }, { cwd = dir_of, env = { DIR = dir_of } })
    uv.kill(process.pid, "sigterm")
    wait.for_fact("its end", 20, function() return process.code end)
    os.execute("rm -rf '" .. dir_of .. "'")
    assert.equal(0, code)
    assert.equal(process.pid, cjson.decode(out).pid)
  end)

  it("has a reload beside it, which prints what changed, or what is wrong", function()
    local g <close> = gateway.start { scripts = scripts, config = { scripts = { watch = false } } }
    local admin = "127.0.0.1:" .. g.admin_port
    local function save(path, text)
      local file <close> = assert(io.open(g.dir .. "/scripts/" .. path, "wb"))
      file:write(text)
    end
    save("tools/new.lua", "--- New.\nreturn function() return 1 end")
    local code, out, err = gateway.exec { "reload", "--admin", admin }
    assert.same({ 0, "" }, { code, err })
    assert.truthy(out:find("+ new", 1, true), out)
    save("tools/new.lua", "return tool {")
    code, out, err = gateway.exec { "reload", "-a", admin }
    assert.same({ 1, "" }, { code, out })
    assert.truthy(err:find("scripts/tools/new.lua:1: ", 1, true), err)
    assert.has_nothing_left(g)
  end)

  it("says that no gateway answers, and that there is no such listener", function()
    for _, command in ipairs { "reload", "tap", "profile", "record" } do
      local code, _, err = gateway.exec { command, "--admin", "unix:/nowhere/at/all" }
      assert.equal(1, code)
      assert.equal("moonpool: no gateway answers at unix:/nowhere/at/all: No such file or directory\n" ..
        "  hint: is it running? `moonpool run` starts it; --admin names another address\n", err)
    end
    local without = gateway.prepare { config = "admin: {listen: off}\n" }
    local code, _, err = gateway.exec({ "reload" }, { cwd = without })
    os.execute("rm -rf '" .. without .. "'")
    assert.equal(78, code)
    assert.equal("moonpool: this configuration has no admin listener", err:match "^[^\n]+")
  end)

  it("says how to ask a gateway whose configuration has errors", function()
    local folder = gateway.new_folder()
    local file <close> = assert(io.open(folder .. "/moonpool.yaml", "w"))
    assert(file:write "lisen: 1\n")
    file:close()
    local code, _, err = gateway.exec({ "status" }, { cwd = folder })
    os.execute("rm -r '" .. folder .. "'")
    assert.equal(78, code)
    assert.matches("\nmoonpool: a running gateway can be asked without this file: moonpool status --admin 127.0.0.1:7301\n", err, 1, true)
  end)
end)
