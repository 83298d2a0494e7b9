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
end)
