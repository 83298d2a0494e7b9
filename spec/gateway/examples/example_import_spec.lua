-- examples/import: the commands of its README, and the moonpool.yaml that they make.
local example = require "spec.helpers.example"
local gateway = require "spec.helpers.gateway"

local files = { "README.md", "moonpool.yaml", "claude_desktop_config.json", "scripts/.gitkeep" }

local expected = [[

upstreams:
  filesystem:
    command: [npx, -y, "@modelcontextprotocol/server-filesystem", /srv/shared]
  github:
    command: [docker, run, -i, --rm, -e, GITHUB_TOKEN, ghcr.io/github/github-mcp-server]
    process: {env: {GITHUB_TOKEN: "${GITHUB_TOKEN:?set it}"}}
  # memory:
  #   command: [npx, -y, "@modelcontextprotocol/server-memory"]
  postgres:
    command: [npx, -y, "@modelcontextprotocol/server-postgres", "${POSTGRES_ARGUMENT_3:?set it}"]
]]

local function shell(line, dir)
  return gateway.run_program("/bin/sh", { "-c", (line:gsub("%f[%w]moonpool ", example.program() .. " ", 1)) }, { cwd = dir })
end

describe("the example import", function()
  it("does what its README says", function()
    local dir, commands = example.copy("import", files)
    local root = dir .. "/examples/import/"
    local page, before = example.read(root .. "README.md"), example.read(root .. "moonpool.yaml")
    assert.equal(2, #commands)
    local code, out, err = shell(commands[1], dir)
    assert.equal(0, code, err)
    assert.truthy(err:find(page:match "`(set before the gateway starts: .-)`", 1, true), err)
    assert.equal(before .. expected, example.read(root .. "moonpool.yaml"))
    assert.falsy((out .. err .. expected):find("made", 1, true))
    code, out, err = shell(commands[2], dir)
    assert.equal(0, code, err)
    assert.falsy(out:find "made")
    code = shell(commands[1], dir)
    assert.equal(0, code)
    assert.equal(before .. expected, example.read(root .. "moonpool.yaml"))
    gateway.run_program("/bin/rm", { "-r", dir })
  end)
end)
