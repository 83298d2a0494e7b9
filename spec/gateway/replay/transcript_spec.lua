-- moonpool tap --record writes tool calls as a transcript, and moonpool test --play plays one against the scripts on
-- disk.
local gateway = require "spec.helpers.gateway"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local token = ("o"):rep(32)
local scripts = {
  ["tools/login.lua"] = [[return tool { "Greets.", input = { name = t.string, password = t.string },
    function(args) return { greeting = "hello " .. args.name, token = "MARK-token", cost = "$5" } end }]],
  ["tools/fails.lua"] = 'return tool { "Fails.", function() return nil, "no luck" end }',
}

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local function start()
  return gateway.start { scripts = scripts, config = {
    admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } }, scripts = { watch = false },
  } }
end

-- Runs `moonpool tap --record` while `f` runs; gives its exit code and stderr.
local function tapping(g, arguments, f)
  local list = { "tap", "--admin", "127.0.0.1:" .. g.admin_port, "--record", g.dir .. "/calls.txt" }
  table.move(arguments, 1, #arguments, #list + 1, list)
  local command = gateway.spawn(uv.fs_realpath(gateway.binary), list, gateway.new_folder(), { env = { MOONPOOL_ADMIN_TOKEN = token }, cwd = g.dir })
  wait.for_fact("the recording", 20, function() return g:log():find("recording begun", 1, true) or command.code end)
  f()
  uv.kill(command.pid, "sigint")
  wait.for_fact("the command to end", 20, function() return command.code end)
  local err = read(command.dir .. "/stderr")
  os.remove(command.dir .. "/stderr")
  os.remove(command.dir .. "/stdout")
  uv.fs_rmdir(command.dir)
  return command.code, err
end

local function play(g, name) return gateway.exec({ "test", "--play", name or "calls.txt" }, { cwd = g.dir, seconds = 60 }) end

local function recorded()
  local g = start()
  local code, err = tapping(g, {}, function()
    local me = g:client "2026-07-28"
    me:result("tools/call", { name = "login", arguments = { name = "Ann", password = "MARK-password" } })
    me:result("tools/call", { name = "fails", arguments = {} })
    g:client("2025-06-18"):result("tools/call", { name = "login", arguments = { name = "$Bob", password = "MARK-password" } })
  end)
  assert.equal(0, code, err)
  assert.matches("3 calls recorded", err)
  return g
end

describe("a transcript of recorded calls", function()
  it("has no secret, and plays", function()
    local g <close> = recorded()
    local text = read(g.dir .. "/calls.txt")
    assert.not_matches("MARK%-", text)
    assert.matches('C: 1 tools/call {', text)
    assert.matches('"password":"%*%*%*"', text)
    assert.matches("%$%$5", text)
    local code, out, err = play(g)
    assert.equal(0, code, out .. err)
    assert.matches("3 requests, all as written", out)
  end)

  it("shows what a changed script answers", function()
    local g <close> = recorded()
    write(g.dir .. "/scripts/tools/login.lua", (scripts["tools/login.lua"]:gsub("hello", "good morning,")))
    os.remove(g.dir .. "/scripts/tools/fails.lua")
    local code, out = play(g)
    assert.equal(1, code)
    assert.matches("FAIL  calls.txt:%d+  tools/call  login", out)
    assert.matches("%+ .*good morning, Ann", out)
    assert.matches("unknown tool 'fails'", out)
    assert.matches("3 requests, 3 failed", out)
  end)

  it("is not written over another file, nor where nothing can be written", function()
    local g <close> = start()
    write(g.dir .. "/calls.txt", "mine")
    local code, err = tapping(g, {}, function() end)
    assert.equal(1, code)
    assert.matches("File exists", err)
    assert.equal("mine", read(g.dir .. "/calls.txt"))
    os.remove(g.dir .. "/calls.txt")
    code, err = tapping(g, { "--outcome", "ok" }, function() end)
    assert.equal(2, code)
    assert.matches("exclude each other", err)
  end)

  it("is refused where it says what cannot be played", function()
    local g <close> = start()
    for text, why in pairs {
      ["C: 1 tools/call {"] = "the params are no JSON", ["S: 1 {}"] = "no request 1", ["C: (listen)"] = "begins with its id",
      ["C: 1 tools/list"] = "the request has no answer", ["H> DELETE /mcp"] = "only lines of 'C:' and 'S:'", ["hello"] = "no part of a transcript",
      ["C: 1 tools/list\nS: 1 error -1 x"] = "is no text", ["C: 1 tools/list\nS: 1 {}\nS: 1 {}"] = "no request 1", ["# nothing"] = "has no requests",
      ["script tools/a.lua\n  return 1"] = "only lines of", ["C: 1"] = "begins with its id", ["\27[2J\0"] = "no part of a transcript",
    } do
      write(g.dir .. "/calls.txt", text .. "\n")
      local code, out, err = play(g)
      assert.equal(1, code, text)
      assert.truthy(err:find(why, 1, true), text .. ": " .. out .. err)
    end
    assert.equal(1, (play(g, "missing.txt")))
  end)

  it("may have patterns", function()
    local g <close> = start()
    write(g.dir .. "/calls.txt", [[
# Patterns

C: 1 tools/call {"name":"login","arguments":{"name":"Ann","password":"x"}}
S: 1 {"structuredContent":{"greeting":"...An...","...":true},
      "content":["..."],}
C: 2 tools/call {"name":"fails","arguments":{}}
S: 2 {"isError":true,"content":[{"type":"text","text":"$word"}]}
C: 3 tools/call {"name":"fails","arguments":{}}
S: 3 {"isError":true,"content":[{"type":"text","text":"$word"}]}
C: 4 tools/call {"name":"nothing"}
S: 4 error -32602 "unknown tool ..."
]])
    local code, out, err = play(g)
    assert.equal(0, code, out .. err)
  end)
end)
