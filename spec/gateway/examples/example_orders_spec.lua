-- examples/orders: the commands of its README with a real server, and its own spec.
local example = require "spec.helpers.example"
local gateway = require "spec.helpers.gateway"
local postgres = require "spec.helpers.postgres"
local write = require "spec.helpers.shell".write

local files <const> = { "README.md", "moonpool.yaml", "tables.sql", "scripts/lib/shop.lua", "scripts/tools/order.lua", "scripts/tools/orders.lua",
  "scripts/tools/order_spec.lua" }

describe("the example orders", function()
  postgres.it(it, pending)("does what its README says", function()
    local server <close> = postgres.start()
    server:sql "create database shop"
    local dir, commands, ports = example.copy("orders", files)
    for _, file in ipairs { "moonpool.yaml", "scripts/lib/shop.lua" } do
      local path = dir .. "/examples/orders/" .. file
      write(path, (example.read(path):gsub("5432", tostring(server.port))))
    end
    local function run(command) return select(2, gateway.run_program("/bin/sh", { "-c", command .. " 2>&1" }, { cwd = dir })) end
    assert.truthy(run((commands[1]:gsub("^psql", postgres.find() .. "psql -X -p " .. server.port))):find("INSERT", 1, true))
    local first, second = example.read("examples/orders/README.md"):match "first call answers `(.-)`, the second `(.-)`"
    do
      local served <close> = example.run_beside(commands[2], dir)
      example.await_port(ports["7300"])
      for i, expected in ipairs { first, second } do
        local out = run((commands[i + 2]:gsub("^moonpool", example.program())))
        assert.truthy(out:find(expected, 1, true), out)
      end
      assert.is_nil(served.code)
    end
    gateway.run_program("/bin/rm", { "-r", dir })
  end)

  it("has a spec that needs no server", function()
    local code, out, err = gateway.exec { "test", "-c", "examples/orders/moonpool.yaml" }
    assert.equal(0, code, out .. err)
    assert.truthy(out:find("3 specs, all fine", 1, true), out)
  end)
end)
