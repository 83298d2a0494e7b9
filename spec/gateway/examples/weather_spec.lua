-- examples/weather: the commands of its README run as written, except for the ports.
local example = require "spec.helpers.example"
local gateway = require "spec.helpers.gateway"

local read, run_beside, await_port = example.read, example.run_beside, example.await_port

local function copy()
  return example.copy("weather", { "README.md", "moonpool.yaml", "service.lua", "scripts/tools/forecast.lua", "scripts/tools/watch.lua" })
end

describe("the example weather", function()
  it("does what its README says", function()
    local dir, commands, ports = copy()
    assert.equal(3, #commands)
    local service <close> = run_beside(commands[1], dir)
    local served <close> = run_beside(commands[2], dir)
    await_port(ports["7380"])
    await_port(ports["7300"])
    local code, out = gateway.run_program("/bin/sh", { "-c", commands[3] }, { cwd = dir })
    assert.equal(0, code)
    assert.truthy(out:find(read(dir .. "/examples/weather/README.md"):match "`…(.-)…`", 1, true), out)
    assert.is_nil(served.code or service.code)
    gateway.run_program("/bin/rm", { "-r", dir })
  end)

  it("watches, says what is not known, and names the grant that is missing", function()
    local dir, commands, ports = copy()
    local service <close> = run_beside(commands[1], dir)
    await_port(ports["7380"])
    local scripts = {}
    for _, name in ipairs { "forecast", "watch" } do scripts["tools/" .. name .. ".lua"] = read(dir .. "/examples/weather/scripts/tools/" .. name .. ".lua") end
    local allow = { net = { "127.0.0.1:" .. ports["7380"] } }
    local g <close> = gateway.start { scripts = scripts, workers = 1, constants = { http_idle_ms = 5 }, config = { scripts = { allow = allow } } }
    local me = g:client "2026-07-28"
    local function text(name, arguments) return me:result("tools/call", { name = name, arguments = arguments }).content[1].text end
    assert.equal("28 degrees\n29 degrees", text("watch", { city = "San Juan", count = 2 }))
    assert.equal("today: sun, 28 to 35 degrees\ntomorrow: clouds, 29 to 36 degrees", text("forecast", { city = "San Juan", days = 2 }))
    assert.equal("no weather is known for Atlantis", text("forecast", { city = "Atlantis" }))
    me:close()
    assert.has_nothing_left(g)
    local closed <close> = gateway.start { scripts = scripts, workers = 1 }
    me = closed:client "2026-07-28"
    assert.matches("no grant allows it", text("forecast", { city = "Oslo" }))
    me:close()
    assert.is_nil(service.code)
    gateway.run_program("/bin/rm", { "-r", dir })
  end)
end)
