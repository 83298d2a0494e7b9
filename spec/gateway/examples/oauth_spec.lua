-- examples/oauth: the commands of its README, with a real authorization server and the official client: discovery, 401,
-- PKCE, a call, a step-up.
local uv = require "luv"
local example = require "spec.helpers.example"
local gateway = require "spec.helpers.gateway"
local node = require "spec.helpers.node"

local files = {
  "README.md", "moonpool.yaml", "package.json", "provider.mjs", "client.mjs", "scripts/auth/main.lua", "scripts/tools/read_note.lua",
  "scripts/tools/write_note.lua",
}

describe("the example oauth", function()
  it("does what its README says", function()
    local dir, commands, ports = example.copy("oauth", files)
    assert.equal(3, #commands)
    -- in place of `npm install`, which ./dev has run before
    assert(uv.fs_symlink(node.folder .. "/node_modules", dir .. "/examples/oauth/node_modules"))
    for i, line in ipairs(commands) do commands[i] = line:gsub("^node ", node.path .. " ") end
    local provider <close> = example.run_beside(commands[1], dir)
    local served <close> = example.run_beside(commands[2], dir)
    example.await_port(ports["7390"])
    example.await_port(ports["7300"])
    local code, out = gateway.run_program("/bin/sh", { "-c", commands[3] .. " 2>&1" }, { cwd = dir })
    assert.equal(0, code, out)
    assert.is_nil(provider.code or served.code)
    local readme = example.read(dir .. "/examples/oauth/README.md")
    local at = 1
    for told in readme:match("It prints.*"):gmatch "`([^`]+)`" do
      local _, stop = out:find(told, at, true)
      assert.truthy(stop, told .. " is not next in\n" .. out)
      at = stop + 1
    end
    assert.match("read_note: nothing is noted\n.*read_note: milk, bread\n$", out)
    gateway.run_program("/bin/rm", { "-r", dir })
  end)
end)
