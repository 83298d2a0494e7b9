-- examples/sign-in: the commands of its README, with the official client, and a person who opens the page that it prints.
local uv = require "luv"
local example = require "spec.helpers.example"
local gateway = require "spec.helpers.gateway"
local node = require "spec.helpers.node"

describe("the example sign-in", function()
  it("does what its README says", function()
    local dir, commands, ports = example.copy("sign-in", { "README.md", "moonpool.yaml", "package.json", "client.mjs", "scripts/tools/whoami.lua" })
    assert.equal(4, #commands)
    -- in place of `npm install`, which ./dev has run before
    assert.truthy(commands[3]:find("^npm install"))
    assert(uv.fs_symlink(node.folder .. "/node_modules", dir .. "/examples/sign-in/node_modules"))
    local made, said, why = gateway.run_program("/bin/sh", { "-c", (commands[1]:gsub("| moonpool", "| " .. example.program())) }, { cwd = dir })
    assert.equal(0, made, said .. why)
    local served <close> = example.run_beside(commands[2], dir)
    example.await_port(ports["7300"])
    local person = dir .. "/person"
    local file = assert(io.open(person, "w"))
    file:write(("#!/bin/sh\nexec '%s' '%s/person.mjs' ann hello12345 \"$1\" go\n"):format(node.path, node.folder))
    file:close()
    uv.fs_chmod(person, 493)
    local code, out, err = gateway.run_program("/bin/sh", { "-c", (commands[4]:gsub("^node ", node.path .. " ")) }, { cwd = dir, env = { BROWSER = person } })
    assert.equal(0, code, out .. err)
    assert.is_nil(served.code)
    local readme = example.read(dir .. "/examples/sign-in/README.md"):match "It prints.*"
    for told in readme:gmatch "`([^`]+)`" do assert.truthy(out:find(told, 1, true), told .. " is not in\n" .. out) end
    gateway.run_program("/bin/rm", { "-r", dir })
  end)
end)
