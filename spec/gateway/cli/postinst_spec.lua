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

describe("the configuration of the package", function()
  it("can be read by root and the service alone, unless an operator has decided otherwise", function()
    if uv.getuid() ~= 0 or not uv.fs_stat "/usr/bin/dpkg-statoverride" then return pending "this needs root, and dpkg" end
    local dir = gateway.new_folder()
    local file <close> = assert(io.open("packaging/postinst", "rb"))
    write(dir .. "/functions", assert(file:read("a"):match "^(.-)\ncase "))
    uv.fs_mkdir(dir .. "/etc", 493)
    write(dir .. "/etc/group", "root:x:0:\nmoonpool:x:4711:\n")
    for _, path in ipairs { "/etc/fresh", "/etc/opened" } do write(dir .. path, "listen: 127.0.0.1:0\n") end
    uv.fs_chown(dir .. "/etc/opened", 0, 4712)
    local command <const> = "cd '%s' && bash -ec 'DPKG_ROOT=%s; . ./functions; keep_from_others /etc/fresh; keep_from_others /etc/opened' 2>&1"
    local function run() return shell.run(command:format(dir, dir)) end
    local function mode(path)
      local found = uv.fs_stat(dir .. path)
      return ("%o %d %d"):format(found.mode & 511, found.uid, found.gid)
    end
    assert.equal("", run())
    assert.same({ "640 0 4711", "644 0 4712" }, { mode "/etc/fresh", mode "/etc/opened" })
    uv.fs_chmod(dir .. "/etc/fresh", 416 | 4)
    assert.equal("", run())
    assert.equal("644 0 4711", mode "/etc/fresh")
    os.execute("rm -rf '" .. dir .. "'")
  end)
end)
