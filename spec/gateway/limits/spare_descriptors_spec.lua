-- No descriptor is left in the process: a module in C, which nothing counts, has taken all. The operator's connections are
-- accepted all the same, and say and change what they always do.
local gateway = require "spec.helpers.gateway"
local uv = require "luv"

local FILES <const> = 256

local taking = [[
local lfs = require "lfs"
local kept = {}
return tool { "Opens folders by a module in C until there is none left.", function()
  for _ = 1, 1000 do
    local ok, _, folder = pcall(lfs.dir, "/")
    if not ok then return #kept .. "" end
    kept[#kept + 1] = folder
  end
  return "all" end }]]

local function start()
  local dir = gateway.new_folder()
  local file = assert(io.open(dir .. "/moonpool", "w"))
  file:write(("#!/bin/sh\nulimit -n %d\nexec '%s' \"$@\"\n"):format(FILES, uv.fs_realpath(gateway.binary))):close()
  assert(uv.fs_chmod(dir .. "/moonpool", 493))
  return gateway.start {
    binary = dir .. "/moonpool", workers = 1, config = { scripts = { trust = "full" } }, scripts = { ["tools/taking.lua"] = taking },
  }
end

describe("a process without descriptors", function()
  it("serves its operator", function()
    local g <close> = start()
    local me <close> = g:client "2026-07-28"
    local text = me:result("tools/call", { name = "taking", arguments = {} }).content[1].text
    assert.is_true(tonumber(text) > 100, text)
    for _ = 1, 20 do
      for _, path in ipairs { "/healthz", "/readyz", "/metrics", "/status" } do assert.equal(200, g:admin(path).status, path) end
    end
    local code, out, err = gateway.exec({ "switch", "--admin", "127.0.0.1:" .. g.admin_port, "off", "tool", "taking" }, { seconds = 30 })
    assert.equal(0, code, out .. err)
    assert.equal("unknown tool 'taking'", me:call("tools/call", { name = "taking", arguments = {} }).error.message)
  end)
end)
