-- examples/weather as its README has it: its commands run as they stand there, but for the ports.
local uv = require "luv"
local children = require "spec.helpers.children"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local function free_port()
  local tcp = uv.new_tcp()
  tcp:bind("127.0.0.1", 0)
  local port = tcp:getsockname().port
  tcp:close()
  return port
end

local files = { "README.md", "moonpool.yaml", "service.lua", "scripts/tools/forecast.lua", "scripts/tools/watch.lua" }

-- A copy of the example whose ports are free ones: its folder, and the commands of its README.
local function copy()
  local ports = { ["7300"] = free_port(), ["7301"] = free_port(), ["7380"] = free_port() }
  local list = {}
  for _, name in ipairs(files) do list["examples/weather/" .. name] = read("examples/weather/" .. name):gsub("73%d%d", ports) end
  local dir = gateway.prepare { files = list }
  local commands = {}
  for line in list["examples/weather/README.md"]:gmatch "\n    ([^\n]+)" do commands[#commands + 1] = line end
  return dir, commands, ports
end

-- Runs a command that ends in "&" in `dir`; gives what ends it.
local function run_beside(command, dir)
  local process = {}
  local program = uv.fs_realpath(gateway.binary)
  local line = "exec " .. command:gsub("%s*&$", ""):gsub("^moonpool ", program .. " ")
  process.handle, process.pid = uv.spawn("/bin/sh", { args = { "-c", line }, cwd = dir, stdio = { nil, nil, nil } }, function(code)
    process.code = code
    children.alive[process.pid] = nil
    process.handle:close()
  end)
  assert(process.handle, process.pid)
  children.alive[process.pid] = true
  return setmetatable(process, { __close = function(self)
    if not self.code then self.handle:kill "sigterm" end
    wait.for_fact("it to end", 10, function() return self.code end)
  end })
end

local function await_port(port)
  wait.for_fact("port " .. port, 10, function()
    local tcp, outcome = uv.new_tcp(), nil
    tcp:connect("127.0.0.1", port, function(failed) outcome = failed or true end)
    wait.for_fact("a connection", 5, function() return outcome end)
    tcp:close()
    return outcome == true
  end)
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
    local g <close> = gateway.start { scripts = scripts, workers = 1, config = { scripts = { allow = allow }, limits = { http = { idle = "5ms" } } } }
    local me = g:client "2026-07-28"
    local function text(name, arguments) return me:result("tools/call", { name = name, arguments = arguments }).content[1].text end
    assert.equal("28 degrees\n29 degrees", text("watch", { city = "San Juan", count = 2 }))
    assert.equal("today: sun, 28 to 35 degrees\ntomorrow: clouds, 29 to 36 degrees", text("forecast", { city = "San Juan", days = 2 }))
    assert.equal("nobody knows the weather in Atlantis", text("forecast", { city = "Atlantis" }))
    me:close()
    assert.is_empty_house(g)
    local closed <close> = gateway.start { scripts = scripts, workers = 1 }
    me = closed:client "2026-07-28"
    assert.matches("no grant allows it", text("forecast", { city = "Oslo" }))
    me:close()
    assert.is_nil(service.code)
    gateway.run_program("/bin/rm", { "-r", dir })
  end)
end)
