-- What the package's script runs as the user of the service. The rest of the script runs in the clean rooms.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local shell = require "spec.helpers.shell"

local PROGRAM <const> = [[#!/bin/sh
env
if (: </dev/tty) 2>/dev/null; then echo "has a terminal"; fi
echo "arguments: $*"
]]

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

describe("what the package's script runs as the user of the service", function()
  it("has the variables of the service, none of root's, and no terminal", function()
    if uv.getuid() ~= 0 or not uv.fs_stat "/usr/bin/script" then return pending "this needs root, and script of bsdutils" end
    local dir = gateway.new_folder()
    local file <close> = assert(io.open("packaging/postinst", "rb"))
    local functions = assert(file:read("a"):match "^(.-)\ncase "):gsub("/usr/bin/moonpool", { ["/usr/bin/moonpool"] = dir .. "/program" })
    write(dir .. "/functions", functions)
    write(dir .. "/program", PROGRAM)
    uv.fs_chmod(dir .. "/program", 493)
    write(dir .. "/try", ([[
      cd '%s' || exit 1
      OF_SERVICE="two words" sleep 60 & of=$!
      . ./functions
      export OF_ROOT=secret
      as_service $of check
      kill $of
    ]]):format(dir))
    local out = shell.run(("script -qec 'bash %s/try' /dev/null </dev/null 2>&1"):format(dir))
    os.execute("rm -rf '" .. dir .. "'")
    assert.matches("arguments: check /etc/moonpool/moonpool.yaml", out, 1, true)
    assert.matches("OF_SERVICE=two words", out, 1, true)
    assert.is_nil(out:find("OF_ROOT", 1, true), out)
    assert.is_nil(out:find("has a terminal", 1, true), out)
  end)
end)
