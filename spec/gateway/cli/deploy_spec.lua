-- examples/deploy: the Dockerfile and compose.yaml agree with the repository and with the configuration that the container runs. No
-- container engine is needed: both files are read here.
local cjson = require "cjson"
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local wire = require "spec.helpers.wire"

local folder = "examples/deploy/"

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local function words(text)
  local list = {}
  for word in text:gmatch "%S+" do list[#list + 1] = word end
  return list
end

-- Stages: { { from =, name =, { "RUN", "…" }, … }, … }. Comments are removed, lines that end in a backslash are joined.
local function stages_of(text)
  local stages = {}
  text = text:gsub("\r", ""):gsub("%f[^\n%z]#[^\n]*\n", "\n"):gsub("^#[^\n]*\n", ""):gsub("\\\n%s*", " ")
  for line in text:gmatch "[^\n]+" do
    local name, rest = line:match "^(%u+)%s+(.+)$"
    assert(name or line:match "^%s*$", "not an instruction: " .. line)
    if name == "FROM" then
      stages[#stages + 1] = { from = rest:match "^%S+", name = rest:match " AS (%S+)$" }
    elseif name then
      table.insert(assert(stages[#stages], "before FROM: " .. line), { name, rest })
    end
  end
  return stages
end

local function find(stage, name)
  local found = {}
  for _, one in ipairs(stage) do
    if one[1] == name then found[#found + 1] = one[2] end
  end
  return found
end

local known = { RUN = 1, COPY = 1, WORKDIR = 1, USER = 1, VOLUME = 1, EXPOSE = 1, HEALTHCHECK = 1, STOPSIGNAL = 1, ENTRYPOINT = 1, CMD = 1, ENV = 1 }

-- The gateway's own YAML reader prints the file as JSON, so that no other one is needed.
local function config_of(path) return read(path) end

describe("examples/deploy", function()
  local stages = stages_of(read(folder .. "Dockerfile"))
  local build, final = stages[1], stages[#stages]

  it("has a Dockerfile of Debian 12 in two stages, of instructions that there are", function()
    assert.equal(2, #stages)
    for _, stage in ipairs(stages) do
      assert.equal("debian:12-slim", stage.from)
      for _, one in ipairs(stage) do assert.truthy(known[one[1]], one[1]) end
    end
    assert.equal("build", build.name)
    for _, name in ipairs { "ENTRYPOINT", "CMD" } do assert.is_table(cjson.decode(find(final, name)[1])) end
    assert.same({ "moonpool" }, cjson.decode(find(final, "ENTRYPOINT")[1]))
  end)

  it("copies files that exist, and all that the build needs", function()
    local ignore = read(folder .. "Dockerfile.dockerignore")
    local made = {}
    for _, stage in ipairs(stages) do
      for _, line in ipairs(find(stage, "COPY")) do
        local list = words(line)
        local from = list[1]:match "^%-%-from=(.+)$"
        for i = from and 2 or 1, #list - 1 do
          if from then
            assert.equal(build.name, from)
            made[#made + 1] = list[i]
          else
            assert.truthy(uv.fs_stat(list[i]), list[i] .. " is not in the repository")
            local top = list[i]:match "^examples/deploy" or list[i]
            assert.truthy(ignore:find("\n!" .. top .. "\n", 1, true), list[i] .. " is ignored")
          end
        end
      end
    end
    assert.same({ "/src/build/release/moonpool" }, made)
    -- Every file that CMakeLists.txt needs at configure time is copied, or optional.
    local copied = table.concat(find(build, "COPY"), " ")
    for _, name in ipairs { "CMakeLists.txt", "CMakePresets.json", ".git", "lua" } do assert.truthy(copied:find(name, 1, true)) end
    for part in read "CMakeLists.txt":gmatch "\n%s*include%((%w+)/" do assert.truthy(copied:find(part .. " " .. part, 1, true), part) end
  end)

  it("installs the packages that ./dev builds with", function()
    local runs = table.concat(find(build, "RUN"), " ") .. " "
    for _, package in ipairs(words(read "dev":match '\npackages_build="([^"]+)"')) do
      assert.truthy(runs:find("[ ]" .. package:gsub("%W", "%%%0") .. "[ ]"), package .. " is not installed")
    end
  end)

  it("runs as a user of its own, not root, and reports its health", function()
    local user = find(final, "USER")
    assert.same({ "moonpool" }, user)
    assert.truthy(table.concat(find(final, "RUN"), " "):find("useradd %-%-system [^&]*%smoonpool$"))
    local position = {}
    for i, one in ipairs(final) do position[one[1]] = i end
    assert.is_true(position.USER < position.ENTRYPOINT)
    local health = find(final, "HEALTHCHECK")[1]
    local command = cjson.decode(health:match "CMD (%[.*%])$")
    assert.same({ "moonpool", "status", "--admin", "127.0.0.1:7301" }, command)
    assert.truthy(config_of(folder .. "moonpool.yaml"):find("\nadmin:\n  listen: " .. command[4] .. "\n", 1, true))
  end)

  it("exposes the port that the configuration listens on, and compose publishes it on this machine alone", function()
    local port = find(final, "EXPOSE")[1]
    assert.truthy(config_of(folder .. "moonpool.yaml"):find("\nlisten: 0.0.0.0:" .. port .. "\n", 1, true))
    local yaml = require "lyaml"
    local service = yaml.load(read(folder .. "compose.yaml")).services.moonpool
    assert.same({ "127.0.0.1:" .. port .. ":" .. port }, service.ports)
    assert.truthy(uv.fs_stat(folder .. service.build.context .. "/" .. service.build.dockerfile))
    assert.is_true(service.read_only)
    assert.same({ "ALL" }, service.cap_drop)
    assert.same({ "no-new-privileges:true" }, service.security_opt)
    assert.is_nil(service.user)
    assert.is_nil(service.privileged)
    for _, volume in ipairs(service.volumes) do
      local from = volume:match "^(%./[^:]+):"
      assert.truthy(not from or uv.fs_stat(folder .. from:sub(3)), volume)
    end
    assert.equal("state:/var/lib/moonpool", service.volumes[1])
    assert.same({ "/var/lib/moonpool" }, find(final, "VOLUME"))
    assert.equal("moonpool_keys", service.secrets[1].target)
    assert.truthy(config_of(folder .. "moonpool.yaml"):find("/run/secrets/moonpool_keys", 1, true))
  end)

  it("serves, with its configuration, clients that have a key", function()
    local dir = gateway.new_folder()
    gateway.run_program("/bin/cp", { "-r", folder .. "scripts", dir })
    local text = config_of(folder .. "moonpool.yaml"):gsub("0%.0%.0%.0:7300", "0.0.0.0:0"):gsub("127%.0%.0%.1:7301", "127.0.0.1:0")
    local file <close> = assert(io.open(dir .. "/moonpool.yaml", "wb"))
    file:write(text)
    file:flush()
    local code, key, err = gateway.exec { "key", "new", "ann", "--file", dir .. "/keys" }
    assert.equal(0, code, err)
    local g <close> = gateway.start { dir = dir, env = { MOONPOOL_KEYS = dir .. "/keys", MOONPOOL_STATE = dir } }
    assert.equal(401, wire.post(g, wire.initialize_message "2025-06-18").status)
    local response = wire.post(g, wire.initialize_message "2025-06-18", { ["X-Api-Key"] = key:match "%S+" })
    assert.equal(200, response.status)
    local session = response.headers["mcp-session-id"]
    local called = wire.post(g, wire.message(2, "tools/call", { name = "hello", arguments = {} }),
      { ["X-Api-Key"] = key:match "%S+", ["Mcp-Session-Id"] = session })
    assert.equal("Hello, key:ann!", called:json().result.content[1].text)
    assert.equal(0, (gateway.exec { "status", "--admin", "127.0.0.1:" .. g.admin_port })) -- the health check of the container
  end)
end)
