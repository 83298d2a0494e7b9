-- examples/hello: the commands of its README, which are also the first commands of the main README.
local example = require "spec.helpers.example"
local gateway = require "spec.helpers.gateway"

local files = {
  "README.md", "moonpool.yaml", "scripts/tools/add.lua", "scripts/tools/greet.lua", "scripts/tools/countdown.lua", "scripts/resources/greeting.lua",
  "scripts/prompts/introduce.lua",
}

local function has(text, part) assert.truthy(text:find(part, 1, true), part .. " is not in: " .. text) end

local function shell(line, dir) return gateway.run_program("/bin/sh", { "-c", (line:gsub("^moonpool ", example.program() .. " ")) }, { cwd = dir }) end

describe("the example hello", function()
  it("does what its README says", function()
    local dir, commands, ports = example.copy("hello", files)
    local page = example.read(dir .. "/examples/hello/README.md")
    assert.equal(2, #commands)
    do
      local served <close> = example.run_beside(commands[1], dir)
      example.await_port(ports["7300"])
      local _, out = shell(commands[2], dir)
      has(out, page:match "It answers `…(.-)…`")
      local code, told = shell(page:match "`(moonpool status .-)`", dir)
      assert.equal(0, code)
      has(told, "\nscripts: generation 1\n")
      has(told, "\n  calls                 1\n")
      assert.is_nil(served.code)
    end
    local code, greeting = shell(page:match "`(moonpool call .-)`", dir)
    assert.same({ 0, "Hello, Ann!\n" }, { code, greeting })
    gateway.run_program("/bin/rm", { "-r", dir })
  end)

  it("answers as the first page says, and is the file that it shows", function()
    local page = example.read "README.md"
    local path, text = page:match "```lua\n%-%- (%S+)\n(.-)```"
    assert.equal(example.read(path), text)
    local g <close> = gateway.start { scripts_path = "examples/hello/scripts" }
    local line = page:match "From another terminal:\n\n```sh\n(.-)```":gsub("127%.0%.0%.1:7300", "127.0.0.1:" .. g.port)
    local _, out = shell(line)
    -- The version is that of the commit.
    assert.equal(page:match "```json\n(.-)\n```", (out:gsub("\n$", ""):gsub('"version":"0%.1%.0[%w.+]*"', '"version":"0.1.0"')))
    assert.has_nothing_left(g)
  end)
end)
