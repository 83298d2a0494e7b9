-- The token that a gateway without configured ones makes for itself: commands of root and of its user find it without
-- any variable, and those of other users do not.
local cjson = require "cjson"
local uv = require "luv"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local shell = require "spec.helpers.shell"
local wait = require "spec.helpers.wait"

local ENV <const> = "/usr/bin/env"
local binary = uv.fs_realpath(gateway.binary)

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

-- Runs a command of moonpool without any variable: exit code, stdout, stderr. `as` is a program before it, as {
-- "/usr/bin/setpriv", … }; `program` is the binary.
local function bare(words, as, program)
  local list = { "-i" }
  for _, part in ipairs { as or {}, { program or binary }, words } do table.move(part, 1, #part, #list + 1, list) end
  return gateway.run_program(ENV, list, { cwd = "/" })
end

local function as_user(id)
  return { "/usr/bin/setpriv", "--reuid", tostring(id), "--regid", tostring(id), "--clear-groups" }
end

-- A command that needs the role operate, for a gateway at this address.
local function log_at(address) return { "log", "--admin", address, "--level", "info", "--for", "1s" } end

-- The commands that need the role operate, for a gateway at this address.
local function commands(address)
  return {
    log_at(address), { "dashboard", "--admin", address }, { "tap", "--admin", address, "--for", "1s" },
    { "profile", "--admin", address, "--for", "1s" }, { "switch", "--admin", address, "off", "tool", "none" },
  }
end

describe("a command without any variable", function()
  it("has the role operate at a gateway of its user that had none either", function()
    local g <close> = gateway.start { scripts = { ["tools/none.lua"] = "--- None.\nreturn function() return 1 end" } }
    for _, host in ipairs { "127.0.0.1", "localhost" } do
      for _, words in ipairs(commands(host .. ":" .. g.admin_port)) do
        local code, _, err = bare(words)
        assert.equal(0, code, words[1] .. ": " .. err)
      end
    end
    assert.is_nil(g:log():find("no admin token", 1, true))
  end)

  it("has it over IPv6, too", function()
    local g <close> = gateway.start { config = { admin = { listen = "[::1]:0" } } }
    local port = g.ready:match "admin=http://%[::1%]:(%d+)"
    assert.equal(0, (bare(log_at("[::1]:" .. port))))
  end)

  it("has it after a reload that removed the tokens of the configuration", function()
    local g <close> = gateway.start { config = { admin = { listen = "127.0.0.1:0", tokens = { operate = { ann = ("x"):rep(32) } } } } }
    local words = log_at("127.0.0.1:" .. g.admin_port)
    assert.equal(1, (bare(words)))
    local config = cjson.decode(read(g.dir .. "/moonpool.yaml"))
    config.admin.tokens = nil
    shell.write(g.dir .. "/moonpool.yaml", cjson.encode(config))
    wait.for_fact("the token", 10, function() return bare(words) == 0 end)
  end)
end)

describe("the token", function()
  it("is in no argument, variable, page or log, and programs of scripts do not inherit it", function()
    local g <close> = gateway.start { config = { scripts = { grants = { ["tools/list.lua"] = { run = { "/bin/ls" } } } } }, scripts = {
      ["tools/list.lua"] = '--- List.\nreturn function() return try(exec { "/bin/ls", "-l", "/proc/self/fd" }).stdout end' } }
    local found
    for name in assert(io.popen("ls /proc/" .. g.pid .. "/fd")):lines() do
      local path = "/proc/" .. g.pid .. "/fd/" .. name
      if (uv.fs_readlink(path) or ""):find("moonpool-admin-token", 1, true) then found = path end
    end
    assert.equal(tonumber("400", 8), uv.fs_stat(found).mode & 511)
    local token = read(found):match "^(%x+)\n$"
    assert.equal(64, #token)
    assert.equal(200, client.request(g, { path = "/api/config", headers = { Authorization = "Bearer " .. token } }, { admin = true }).status)
    for _, place in ipairs { g:log(), read("/proc/" .. g.pid .. "/environ"), read("/proc/" .. g.pid .. "/cmdline"), g:admin("/status").body } do
      assert.is_nil(place:find(token, 1, true))
    end
    local me <close> = g:client "2025-11-25"
    local listed = me:result("tools/call", { name = "list", arguments = {} }).content[1].text
    assert.truthy(listed:find("/proc", 1, true), listed)
    assert.is_nil(listed:find("moonpool-admin-token", 1, true), listed)
    local file = io.open(found, "r+b") -- sealed: not even its owner can replace it
    assert.is_true(file == nil or not (file:write "x" and file:flush()))
    if file then file:close() end
  end)

  it("does not go to another program at the same port of another address, nor to another machine", function()
    local g <close> = gateway.start {}
    local got, server = "", uv.new_tcp()
    assert(server:bind("127.0.0.2", g.admin_port))
    server:listen(16, function()
      local one = uv.new_tcp()
      server:accept(one)
      one:read_start(function(_, data)
        got = got .. (data or "")
        if data then one:write("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", function() one:close() end) end
      end)
    end)
    local code, _, err = bare(log_at("127.0.0.2:" .. g.admin_port))
    assert.equal(1, code)
    assert.matches("needs a token", err)
    server:close()
    assert.truthy(got:find("POST /api/log", 1, true))
    assert.is_nil(got:lower():find("authorization", 1, true), got)
  end)

  -- A program that listens, and has an open file of the name that the token's has: one that is no sealed memory file is
  -- not read, since a process of another user could have any file of root shown under that name, and get what is in it.
  it("is read from nothing but a sealed memory file", function()
    local number = ({ x86_64 = 319, aarch64 = 279 })[uv.os_uname().machine]
    if not uv.fs_stat "/usr/bin/perl" or not number then return pending "there is no perl, or its number of memfd_create is not known" end
    local dir = gateway.new_folder()
    local process = gateway.spawn("/usr/bin/perl", { "-MIO::Socket::INET", "-e", ([[
      my $name = "moonpool-admin-token"; my $fd = syscall(%d, $name, 0);
      open(my $file, "+<&=", $fd) or die; syswrite($file, "e" x 64 . "\n");
      my $socket = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1") or die;
      syswrite(STDOUT, $socket->sockport . "\n");
      my $one = $socket->accept; sysread($one, my $got, 65536); syswrite(STDOUT, $got);
      syswrite($one, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    ]]):format(number) }, dir, { cwd = "/" })
    local port = wait.for_fact("its port", 20, function() return read(dir .. "/stdout"):match "^(%d+)\n" end)
    local code, _, err = bare(log_at("127.0.0.1:" .. port))
    assert.equal(1, code)
    assert.matches("needs a token", err)
    wait.for_fact("its end", 20, function() return process.code end)
    local got = read(dir .. "/stdout")
    assert.truthy(got:find("POST /api/log", 1, true), got)
    assert.is_nil(got:lower():find("authorization", 1, true), got)
    os.execute("rm -r '" .. dir .. "'")
  end)

  it("is there for root and the user of the gateway, and for no other user", function()
    if uv.getuid() ~= 0 then return pending "only root can run commands as other users" end
    if not uv.fs_stat "/usr/bin/setpriv" then return pending "there is no setpriv: apt-get install util-linux" end
    -- A folder and a copy of the binary that these users can read.
    local dir = assert(uv.fs_mkdtemp "/tmp/moonpool-XXXXXX")
    gateway.run_program("/bin/cp", { binary, dir .. "/moonpool" })
    uv.fs_chmod(dir, 493)
    shell.write(dir .. "/moonpool.yaml", "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n")
    assert(uv.fs_mkdir(dir .. "/scripts", 493))
    assert(uv.fs_mkdir(dir .. "/out", 511))
    local args = as_user(65532)
    local program = table.remove(args, 1)
    table.move({ dir .. "/moonpool", "run", dir .. "/moonpool.yaml" }, 1, 3, #args + 1, args)
    local process = gateway.spawn(program, args, dir .. "/out", { cwd = "/" })
    local at_end <close> = setmetatable({}, { __close = function() if not process.code then uv.kill(process.pid, "sigkill") end end }) -- luacheck: ignore 211
    local port
    wait.for_fact(function() return "the admin listener: " .. read(dir .. "/out/stderr") end, 20, function()
      port = read(dir .. "/out/stderr"):match "address=127%.0%.0%.1:(%d+) for=admin"
      return port
    end)
    local words = log_at("127.0.0.1:" .. port)
    for user, wanted in pairs { [0] = 0, [65532] = 0, [65533] = 1 } do
      local code, _, err = bare(words, as_user(user), dir .. "/moonpool")
      assert.equal(wanted, code, user .. ": " .. err)
      if code ~= 0 then assert.matches("needs a token\n  hint: [^\n]*as root or as the user of the gateway", err) end
    end
    uv.kill(process.pid, "sigterm")
    wait.for_fact("the end", 20, function() return process.code end)
    os.execute("rm -r '" .. dir .. "'")
  end)
end)
