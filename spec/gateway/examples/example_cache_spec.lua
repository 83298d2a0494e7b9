-- examples/cache: the commands of its README with a real server, and its own spec.
local example = require "spec.helpers.example"
local gateway = require "spec.helpers.gateway"
local redis = require "spec.helpers.redis"
local write = require "spec.helpers.shell".write

local files <const> = { "README.md", "moonpool.yaml", "scripts/lib/cache.lua", "scripts/tools/square.lua", "scripts/tools/square_spec.lua" }

describe("the example cache", function()
  redis.it(it, pending)("does what its README says", function()
    local server <close> = redis.start()
    local dir, commands, ports = example.copy("cache", files)
    for _, file in ipairs { "moonpool.yaml", "scripts/lib/cache.lua" } do
      local path = dir .. "/examples/cache/" .. file
      write(path, (example.read(path):gsub("6379", tostring(server.port))))
    end
    local first, second = example.read("examples/cache/README.md"):match "first answers `(.-)`, the second `(.-)`"
    do
      local served <close> = example.run_beside(commands[1], dir)
      example.await_port(ports["7300"])
      for i, expected in ipairs { first, second } do
        local _, out = gateway.run_program("/bin/sh", { "-c", (commands[i + 1]:gsub("^moonpool", example.program())) }, { cwd = dir })
        assert.truthy(out:find(expected, 1, true), out)
      end
      assert.is_nil(served.code)
    end
    assert.equal("144", server:cli("GET", "square:12"))
    gateway.run_program("/bin/rm", { "-r", dir })
  end)

  it("has a spec that needs no server", function()
    local code, out, err = gateway.exec { "test", "-c", "examples/cache/moonpool.yaml" }
    assert.equal(0, code, out .. err)
    assert.truthy(out:find("3 specs, all fine", 1, true), out)
  end)
end)
