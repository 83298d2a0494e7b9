-- The node that npm installed in spec/clients: the conformance suite needs a newer version than Debian's.
local uv = require "luv"

local machine = uv.os_uname().machine == "aarch64" and "arm64" or "x64"
local folder = uv.fs_realpath "spec/clients"
local path = ("%s/node_modules/node-linux-%s/bin/node"):format(folder, machine)

assert(uv.fs_stat(path), "there are no clients: run `./dev test`, or `npm ci` in spec/clients")

return { folder = folder, path = path, bin = folder .. "/node_modules/.bin" }
