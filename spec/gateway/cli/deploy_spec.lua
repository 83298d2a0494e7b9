-- examples/deploy: the Dockerfile and compose.yaml agree with the repository and with the configuration that the
-- container runs. No container engine is needed: both files are read here.
local cjson = require "cjson"
local uv = require "luv"
local yaml = require "lyaml"
local gateway = require "spec.helpers.gateway"
local shell = require "spec.helpers.shell"
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

  it("runs as a user of its own, by number, which owns the folders that it writes, and reports its health without curl", function()
    assert.same({ "65532:65532" }, find(final, "USER"))
    local runs = table.concat(find(final, "RUN"), " ")
    assert.truthy(runs:find("groupadd %-%-system %-%-gid 65532 moonpool "))
    assert.truthy(runs:find("useradd %-%-system %-%-uid 65532 %-%-gid 65532 [^&]*%smoonpool "))
    assert.truthy(runs:find("install %-%-directory %-%-owner 65532 %-%-group 65532 %-%-mode 0700 /var/lib/moonpool /run/moonpool$"))
    assert.same({ "STATE_DIRECTORY=/var/lib/moonpool RUNTIME_DIRECTORY=/run/moonpool" }, find(final, "ENV"))
    assert.is_nil(runs:find "curl[ ]")
    local position = {}
    for i, one in ipairs(final) do position[one[1]] = i end
    assert.is_true(position.USER < position.ENTRYPOINT)
    local health = find(final, "HEALTHCHECK")[1]
    local command = cjson.decode(health:match "CMD (%[.*%])$")
    assert.same({ "moonpool", "status", "--healthy", "--admin", "127.0.0.1:7301" }, command)
    assert.truthy(read(folder .. "moonpool.yaml"):find("\nadmin:\n  listen: " .. command[5] .. "\n", 1, true))
  end)

  it("exposes the port that the configuration listens on, and compose publishes it on this machine alone", function()
    local port = find(final, "EXPOSE")[1]
    assert.truthy(read(folder .. "moonpool.yaml"):find("\nlisten: 0.0.0.0:" .. port .. "\n", 1, true))
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
    assert.same({ "/tmp", "/run/moonpool:uid=65532,gid=65532,mode=0700" }, service.tmpfs)
    assert.equal("moonpool", service.image) -- the name in the commands docker build --tag and docker run
    local config = yaml.load(read(folder .. "moonpool.yaml"))
    local function mib(text) return tonumber(text:match "^(%d+)[Mm]") end
    -- 64 MiB is the default of store.bytes
    local sum = config.workers * mib(config.limits.lua_memory) + mib(config.limits.bodies) + mib(config.limits.answers) + 64
    assert.is_true(sum < mib(service.mem_limit), sum .. " MiB")
    assert.same({ "/var/lib/moonpool" }, find(final, "VOLUME"))
    assert.equal("moonpool_keys", service.secrets[1].target)
    assert.truthy(read(folder .. "moonpool.yaml"):find("/run/secrets/moonpool_keys", 1, true))
  end)

  -- The configuration with free ports, in a folder with the scripts and a key. `change` is applied to its text.
  local function prepared(change)
    local dir = gateway.new_folder()
    gateway.run_program("/bin/cp", { "-r", folder .. "scripts", dir })
    local text = change(read(folder .. "moonpool.yaml")):gsub("0%.0%.0%.0:730[01]", "0.0.0.0:0"):gsub("127%.0%.0%.1:7301", "127.0.0.1:0")
    shell.write(dir .. "/moonpool.yaml", text)
    local code, key, err = gateway.exec { "key", "new", "ann", "--file", dir .. "/keys" }
    assert.equal(0, code, err)
    return dir, key:match "%S+", { MOONPOOL_KEYS = dir .. "/keys", MOONPOOL_STATE = dir, STATE_DIRECTORY = dir .. "/state", RUNTIME_DIRECTORY = dir .. "/run" }
  end

  it("serves, with its configuration, clients that have a key", function()
    local dir, key, env = prepared(function(text) return text end)
    local g <close> = gateway.start { dir = dir, env = env }
    assert.equal(401, wire.post(g, wire.initialize_message "2025-06-18").status)
    local me <close> = g:client("2025-06-18", { token = key })
    assert.equal("Hello, key:ann!", me:result("tools/call", { name = "hello", arguments = {} }).content[1].text)
    local admin = "127.0.0.1:" .. g.admin_port
    local code, out = gateway.exec { "status", "--healthy", "--admin", admin } -- the health check of the container
    assert.same({ 0, "ok\n" }, { code, out })
    -- runs as by docker exec
    code, out = gateway.exec({ "dashboard", "--admin", admin }, { env = { RUNTIME_DIRECTORY = dir .. "/run" } })
    assert.equal(0, code)
    assert.matches("#code=", out)
  end)

  it("has an admin listener for the host, with a token, in lines that are comments", function()
    local compose = read(folder .. "compose.yaml")
    for _, line in ipairs { '- "127.0.0.1:7301:7301"', "- source: admin", "  target: moonpool_admin", "admin:", "  file: ./admin.token" } do
      local count
      compose, count = compose:gsub("\n( *)# (" .. line:gsub("%p", "%%%0") .. ")\n", "\n%1%2\n")
      assert.equal(1, count, line)
    end
    compose = yaml.load(compose)
    assert.same({ file = "./admin.token" }, compose.secrets.admin)
    assert.same({ source = "admin", target = "moonpool_admin" }, compose.services.moonpool.secrets[2])
    assert.equal("127.0.0.1:7301:7301", compose.services.moonpool.ports[2])
    local token = ("t"):rep(64)
    local path = os.tmpname()
    shell.write(path, token .. "\n")
    local dir, _, env = prepared(function(text)
      text = text:gsub("\nadmin:\n  listen: [^\n]*\n# In the place[^\n]*\n", "\n"):gsub("\n# (admin:\n)#(   listen: [^\n]*\n)#(   tokens:)", "\n%1 %2 %3")
      return (text:gsub("/run/secrets/moonpool_admin", path))
    end)
    local g <close> = gateway.start { dir = dir, env = env }
    assert.truthy(g.ready:find("admin=http://0.0.0.0:", 1, true), g.ready)
    assert.equal(401, g:admin("/status").status)
    local admin = "127.0.0.1:" .. g.admin_port
    assert.equal(0, (gateway.exec { "status", "--healthy", "--admin", admin })) -- the health check needs no token
    assert.equal(1, (gateway.exec { "status", "--admin", admin }))
    assert.equal(0, (gateway.exec({ "status", "--admin", admin }, { env = { MOONPOOL_ADMIN_TOKEN = token } })))
    os.remove(path)
  end)

  it("serves as the user 65532 with a root that is read-only but for the folders of the image, and its commands work there", function()
    if uv.getuid() ~= 0 or gateway.run_program("/usr/bin/unshare", { "-m", "mount", "-t", "tmpfs", "none", "/mnt" }) ~= 0 then
      return pending "only root can make another root"
    end
    local dir, key = prepared(function(text) return text:gsub("listen: 0%.0%.0%.0:7300", "listen: 127.0.0.1:0") end)
    gateway.run_program("/bin/cp", { uv.fs_realpath(gateway.binary), dir .. "/moonpool" })
    for path, mode in pairs { [dir] = 493, [dir .. "/moonpool"] = 493, [dir .. "/keys"] = 420 } do uv.fs_chmod(path, mode) end
    local script = [[
      set -e
      root=/mnt/root; mount -t tmpfs none /mnt; mkdir $root; mount --rbind / $root
      mount -t tmpfs none $root/var/lib; mkdir $root/var/lib/moonpool; mount -t tmpfs -o uid=65532,gid=65532,mode=0700 none $root/var/lib/moonpool
      mount -t tmpfs none $root/run; mkdir -p $root/run/moonpool $root/run/secrets; mount -t tmpfs -o uid=65532,gid=65532,mode=0700 none $root/run/moonpool
      mount -t tmpfs none $root/usr/local; mkdir $root/usr/local/bin; cp @HERE/moonpool $root/usr/local/bin/; cp @HERE/keys $root/run/secrets/moonpool_keys
      mkdir $root/usr/local/etc; cp -r @HERE/moonpool.yaml @HERE/scripts $root/usr/local/etc/
      mount -t tmpfs none $root/tmp; chmod 1777 $root/tmp
      for folder in . run usr/local var/lib; do mount -o remount,bind,ro $root/$folder; done
      cat >/mnt/inner <<'END'
set -e
cd /var/lib/moonpool
! touch /x 2>/dev/null
moonpool run /usr/local/etc/moonpool.yaml --ready-fd 3 3>ready 2>log &
pid=$!
trap 'kill $pid 2>/dev/null || true' EXIT
for i in $(seq 200); do [ -s ready ] && break; sleep 0.05; done
cat log >&2
mcp=$(sed -n 's/.*mcp=\([^ ]*\).*/\1/p' ready); admin=$(sed -n 's/.*admin=http:..\([^ ]*\).*/\1/p' ready)
for i in $(seq 100); do [ -e last-good ] && break; sleep 0.05; done
moonpool call -u $mcp -H "X-Api-Key: @KEY" hello
for command in "status --healthy" "log --level debug --for 1s" "dashboard" "drain"; do moonpool $command --admin $admin; done
wait $pid || { cat log >&2; exit 1; }
cat log >&2
ls /var/lib/moonpool
END
      exec chroot $root setpriv --reuid 65532 --regid 65532 --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs \
        env -i PATH=/usr/local/bin:/usr/bin:/bin STATE_DIRECTORY=/var/lib/moonpool RUNTIME_DIRECTORY=/run/moonpool \
        ASAN_OPTIONS="$ASAN_OPTIONS" LSAN_OPTIONS="$LSAN_OPTIONS" \
        sh -c "$(cat /mnt/inner)"
    ]]
    local code, out, err = gateway.run_program("/usr/bin/unshare", { "-m", "/bin/sh", "-c", (script:gsub("@HERE", dir):gsub("@KEY", key)) }, { seconds = 60 })
    assert.equal(0, code, out .. err)
    assert.matches("^Hello, key:ann!\nok\nthe level is debug for 1s\nhttp://127.0.0.1:%d+/#code=%x+\nit drains\n", out)
    assert.truthy(out:find("\nlast-good\n", 1, true), out .. err)
    assert.matches("\nstore%.db\n", out)
    os.execute("rm -r '" .. dir .. "'")
  end)
end)
