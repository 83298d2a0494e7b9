-- examples/api-keys and examples/jwt: the commands of their READMEs run as written, except for the ports.
local example = require "spec.helpers.example"
local gateway = require "spec.helpers.gateway"
local uv = require "luv"

local function run(command, dir)
  local folder = uv.fs_realpath(gateway.binary):match "^(.*)/"
  return gateway.run_program("/bin/sh", { "-c", "PATH='" .. folder .. "':$PATH; " .. command }, { cwd = dir })
end

for _, name in ipairs { "api-keys", "jwt" } do
  describe("the example " .. name, function()
    it("does what its README says", function()
      local dir, commands, ports = example.copy(name, { "README.md", "moonpool.yaml", "scripts/auth/main.lua", "scripts/tools/whoami.lua" })
      assert.equal(3, #commands)
      assert.equal(0, (run(commands[1], dir)))
      local served <close> = example.run_beside(commands[2], dir)
      example.await_port(ports["7300"])
      local code, out = run(commands[3], dir)
      assert.equal(0, code)
      assert.truthy(out:find(example.read(dir .. "/examples/" .. name .. "/README.md"):match "`…(.-)…`", 1, true), out)
      local _, refused = run(commands[3]:gsub('%-H "[AX]%S+ .-" %-H', "-i -H", 1), dir)
      assert.matches("^HTTP/1.1 401 ", refused)
      assert.is_nil(served.code)
      gateway.run_program("/bin/rm", { "-r", dir })
    end)
  end)
end
