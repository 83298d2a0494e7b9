-- A reload compares the upstreams one by one, and its plan names those that differ and how. Rule B-88.
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"

local scripts = { ["tools/one.lua"] = [[return tool { "One.", function() return "one" end }]] }

-- The configuration as text: JSON is YAML, but its members have no order, so upstreams are written as given.
local function config(upstreams, more)
  local rest = cjson.encode { listen = "127.0.0.1:0", admin = { listen = "127.0.0.1:0" }, workers = 2, scripts = { path = "scripts" }, hosts = more }
  return rest:gsub("}$", ", \"upstreams\": {" .. upstreams:gsub("%%", "%%%%") .. "}}")
end

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

local before = 'github: {url: "https://mcp.example.com/mcp", auth: {bearer: a}, timeout: 60s}, old: "https://old.example.com", files: {command: [cat]}'

-- Each row: a name, the upstreams after the change, the plan.
local changes = {
  { "another token, and one less",
    'github: {url: "https://mcp.example.com/mcp", auth: {bearer: b}, timeout: 60s}, files: {command: [cat]}', "~ github (auth)  - old" },
  { "one more", before .. ', new: "https://new.example.com"', "+ new" },
  { "a program's argument and variable",
    before:gsub("command: %[cat%]", "command: [cat, -u], process: {env: {A: b}, cwd: /srv}"), "~ files (command, process)" },
  { "names, filters and times",
    before:gsub("timeout: 60s", "timeout: 1s, prefix: gh_, only: ['a*'], rename: {a: b}, circuit: {open: 1s..2s}"),
    "~ github (prefix, only, rename, timeout, circuit)" },
  { "another order", 'old: "https://old.example.com", ' .. before:gsub(', old: "[^"]*"', ""), "~ upstreams (order)" },
  { "none", "", "- github  - old  - files" },
}

describe("a reload", function()
  for _, row in ipairs(changes) do
    it("names " .. row[1], function()
      local g <close> = gateway.start { scripts = scripts, config = config(before) }
      write(g.dir .. "/moonpool.yaml", config(row[2]))
      g:wait_log("reloaded", { generation = 2, changes = row[3] })
      assert.truthy(g:status().scripts.changes:find(row[3], 1, true))
    end)
  end

  it("that changes an upstream's spelling alone changes nothing", function()
    local g <close> = gateway.start { scripts = scripts, config = config(before) }
    write(g.dir .. "/moonpool.yaml", config((before:gsub("timeout: 60s", "timeout: 1m"))))
    local response = g:admin("/reload", "POST")
    assert.equal("nothing changed\n", response.body)
  end)

  it("with a broken upstream changes nothing and names its line", function()
    local g <close> = gateway.start { scripts = scripts, config = config(before) }
    write(g.dir .. "/moonpool.yaml", config "github: {}")
    g:wait_log "config refused"
    local response = g:admin("/reload", "POST")
    assert.equal(422, response.status)
    assert.truthy(response.body:find("'github' needs 'url' or 'command'", 1, true))
  end)

  it("keeps a program whose connection is unchanged, and starts another one for a changed variable", function()
    local program = require("luv").fs_realpath(gateway.binary)
    local line = 'files: {command: [sh, -c, "echo x >> starts; exec ' .. program .. ' stdio inner/moonpool.yaml"], process: {env: {A: b}}, timeout: 60s}'
    local g <close> = gateway.start { scripts = scripts, config = config(line), before = function(dir)
      os.execute("mkdir -p '" .. dir .. "/inner/scripts/tools'")
      write(dir .. "/inner/moonpool.yaml", "admin: off\n")
      write(dir .. "/inner/scripts/tools/two.lua", scripts["tools/one.lua"])
    end }
    local function starts()
      local file <close> = assert(io.open(g.dir .. "/starts"))
      return #file:read "a" // 2
    end
    local function call(name)
      local me <close> = g:client "2025-11-25"
      local answer = me:call("tools/call", { name = name, arguments = {} })
      return answer.result and answer.result.content[1].text or answer.error.message
    end
    g:wait_status(function(status) return status.upstreams.files.state == "up" end)
    assert.equal("one", call "files_two")
    assert.equal(1, starts())
    write(g.dir .. "/moonpool.yaml", config((line:gsub("60s", "50s, prefix: f_"))))
    g:wait_log("reloaded", { generation = 2, changes = "~ files (prefix, timeout)" })
    assert.equal("one", call "f_two")
    assert.equal(1, starts())
    write(g.dir .. "/moonpool.yaml", config((line:gsub("A: b", "A: c"))))
    g:wait_log("reloaded", { generation = 3, changes = "~ files (process, prefix, timeout)" })
    assert.equal("one", call "files_two")
    assert.equal(2, starts())
  end)
end)
