-- moonpool add tries an upstream before it writes the entry; moonpool check --connect asks every upstream once. Neither
-- contacts anything else.
local gateway = require "spec.helpers.gateway"
local stub = require "spec.helpers.stub"
local wait = require "spec.helpers.wait"

local tools = {
  ["tools/one.lua"] = [[return tool { "The first.", function() return "1" end }]],
  ["tools/two.lua"] = [[return tool { "The second.\nMore about it.", function() return "2" end }]],
  ["prompts/hello.lua"] = [[return prompt { "Says hello.", function() return "hello" end }]],
  ["resources/note.lua"] = [[return resource { "A note.", uri = "note://a", function() return "n" end }]],
}

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local function in_folder(text, use, scripts)
  local dir = gateway.prepare { config = text, scripts = scripts }
  use(dir, function(args, env) return gateway.exec(args, { cwd = dir, env = env }) end)
  os.execute("rm -rf '" .. dir .. "'")
end

local function url_of(g) return ("http://127.0.0.1:%d/mcp"):format(g.port) end

local GONE <const> = "http://127.0.0.1:9/mcp"

describe("moonpool add", function()
  it("connects, prints what the upstream offers, and writes the entry", function()
    local g <close> = gateway.start { scripts = tools }
    in_folder("admin: off\n", function(dir, run)
      local code, out, err = run { "add", "other", url_of(g) }
      assert.equal("", err)
      assert.equal(0, code)
      assert.equal(("other: 2026-07-28 over http, moonpool %s: 2 tools, 1 prompt, 1 resource\n  other_one  The first.\n  other_two  The second.\n"
        .. "  other_hello  Says hello.\n  note://a  A note.\nadded other to moonpool.yaml\n"):format(out:match "moonpool ([%w.+]+):"), out)
      assert.equal("admin: off\n\nupstreams:\n  other: " .. url_of(g) .. "\n", read(dir .. "/moonpool.yaml"))
    end)
  end)

  it("sends the credentials, from the variable", function()
    local seen
    local upstream <close> = stub.start(function(request, reply)
      seen = seen or request.headers
      reply:send(401)
    end)
    in_folder("admin: off\n", function(dir, run)
      local code, out, err = run({ "add", "a", upstream.url .. "/mcp", "-b", "TOKEN", "-H", "x-key: ${KEY}" }, { TOKEN = "hunter2", KEY = "hunter3" })
      assert.equal(1, code)
      assert.same({ "Bearer hunter2", "hunter3" }, { seen.authorization, seen["x-key"] })
      assert.truthy(err:find("a: it refuses the credentials (status 401)", 1, true), err)
      assert.falsy((out .. err):find "hunter")
      assert.equal("admin: off\n", read(dir .. "/moonpool.yaml"))
    end)
  end)

  it("writes nothing if the upstream does not answer, a variable is missing, or with --dry-run", function()
    local g <close> = gateway.start { scripts = tools }
    in_folder("admin: off\n", function(dir, run)
      local code, _, err = run { "add", "a", GONE }
      assert.equal(1, code)
      assert.truthy(err:find("a: no connection", 1, true), err)
      assert.truthy(err:find("--untried", 1, true))
      code, _, err = run { "add", "a", url_of(g), "-b", "NOT_SET" }
      assert.equal(78, code)
      assert.truthy(err:find("the environment variable NOT_SET is not set", 1, true), err)
      local out
      code, out = run { "add", "-n", "a", url_of(g) }
      assert.equal(0, code)
      assert.truthy(out:find("\nupstreams:\n  a: " .. url_of(g) .. "\n", 1, true), out)
      assert.equal("admin: off\n", read(dir .. "/moonpool.yaml"))
    end)
  end)

  it("says what is not an MCP server", function()
    local upstream <close> = stub.start(function(request, reply)
      reply:send(request.path == "/html" and 200 or 404, { ["Content-Type"] = "text/html" }, "<html>")
    end)
    in_folder("admin: off\n", function(_, run)
      local _, _, err = run { "add", "a", upstream.url .. "/none" }
      assert.truthy(err:find("a: it answered with an HTTP error (status 404)", 1, true), err)
      assert.truthy(err:find("hint: the path of its endpoint", 1, true), err)
    end)
  end)
end)

describe("moonpool check --connect", function()
  it("prints what clients would see, with names, filters and collisions", function()
    local g <close> = gateway.start { scripts = tools }
    local config = ([[
admin: off
upstreams:
  first: {url: "%s", prefix: "", hide: [two], rename: {one: uno}, only: ["*"]}
  second: {url: "%s", prefix: "", only: [one, two], rename: {one: uno}}
  third: {url: "%s", only: [two], describe: {two: "Another text."}}
]]):format(url_of(g), url_of(g), url_of(g))
    in_folder(config, function(_, run)
      local code, out, err = run { "check", "--connect" }
      assert.equal(0, code, err)
      assert.truthy(out:find "first: 2026%-07%-28 over http[^\n]*: 1 tool, 1 prompt, 1 resource, 1 hidden\n  uno  The first.\n", out)
      assert.truthy(out:find "second: [^\n]*: 1 tool, 2 hidden, 1 withheld\n  two  The second.\n", out)
      assert.truthy(out:find "third: [^\n]*: 1 tool, 3 hidden\n  third_two  Another text.\n", out)
      assert.truthy(err:find("second: tool 'uno' is withheld: upstream 'first' has this name", 1, true), err)
      assert.equal(1, (run { "check", "--connect", "--strict" }))
      assert.equal(2, (run { "check", "--connect", "--json" }))
    end)
  end)

  it("asks the others if one fails, and exits with 1", function()
    local g <close> = gateway.start { scripts = tools }
    in_folder(("admin: off\nupstreams:\n  gone: %s\n  here: %s\n"):format(GONE, url_of(g)), function(_, run)
      local code, out, err = run { "check", "--connect" }
      assert.equal(1, code)
      assert.truthy(out:find("here: 2026-07-28 over http", 1, true), out)
      assert.truthy(err:find("gone: no connection", 1, true), err)
    end)
  end)

  it("contacts nothing without the option, and nothing if the configuration has errors", function()
    local upstream <close> = stub.start(function(_, reply) reply:send(404) end)
    in_folder("admin: off\nupstreams: {a: \"" .. upstream.url .. "/mcp\"}\n", function(dir, run)
      assert.equal(0, (run { "check" }))
      local file <close> = assert(io.open(dir .. "/moonpool.yaml", "a"))
      file:write "nonsense: 1\n"
      file:close()
      assert.equal(78, (run { "check", "--connect" }))
      assert.equal(0, #upstream.requests)
    end)
  end)
end)

describe("moonpool upstreams --connect", function()
  it("asks the upstreams themselves, or one of them, without a gateway", function()
    local g <close> = gateway.start { scripts = tools }
    in_folder(("admin: off\nupstreams: {here: \"%s\", gone: \"%s\"}\n"):format(url_of(g), GONE), function(_, run)
      local code, out, err = run { "upstreams", "--connect", "here" }
      assert.same({ 0, "" }, { code, err })
      assert.truthy(out:find("^here: 2026%-07%-28 over http, moonpool [%w.+]+: 2 tools, 1 prompt, 1 resource\n"), out)
      code, out, err = run { "upstreams", "--connect" }
      assert.equal(1, code)
      assert.truthy(out:find("here: ", 1, true) and err:find("gone: no connection", 1, true), out .. err)
      code, _, err = run { "upstreams", "--connect", "hare" }
      assert.equal(1, code)
      assert.truthy(err:find("there is no upstream 'hare'\n  hint: did you mean 'here'?", 1, true), err)
      code, _, err = run { "upstreams", "--connect", "--json" }
      assert.equal(2, code)
      assert.truthy(err:find("--connect asks no running gateway", 1, true), err)
    end)
  end)

  it("is not needed for the number of things in the lines of a running gateway", function()
    local inner <close> = gateway.start { scripts = tools }
    local g <close> = gateway.start { config = { upstreams = { here = url_of(inner) } } }
    wait.for_fact("the lists of the upstream", 15, function()
      local served = (g:status().upstreams.here or {}).served
      return served and served.tools == 2
    end)
    local code, out = gateway.exec { "upstreams", "-a", "127.0.0.1:" .. g.admin_port }
    assert.equal(0, code)
    assert.truthy(out:find("  2 tools, 1 prompt, 1 resource; ", 1, true), out)
  end)
end)
