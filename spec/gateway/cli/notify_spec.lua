-- The messages that the gateway sends to systemd, at the socket that $NOTIFY_SOCKET names.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

-- Receives datagrams and prints each on a line. Perl, which every Debian has: luv has no datagrams of Unix sockets.
local receiver = [[
use Socket; $| = 1;
socket(my $s, PF_UNIX, SOCK_DGRAM, 0) or die $!;
my $name = $ARGV[0] =~ /^@/ ? "\0" . substr($ARGV[0], 1) : $ARGV[0];
bind($s, sockaddr_un($name)) or die $!;
print "bound\n";
while (defined recv($s, my $text, 4096, 0)) { $text =~ s/\n/ /g; print "$text\n"; }
]]

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local function listen(address)
  local dir = gateway.new_folder()
  address = address or dir .. "/notify"
  local process = gateway.spawn("/usr/bin/perl", { "-e", receiver, address }, dir, {})
  local self = { address = address, dir = dir }
  function self.text() return read(dir .. "/stdout") end
  function self.wait(part, seconds)
    return wait.for_fact(function() return "'" .. part .. "' in\n" .. self.text() end, seconds or 5, function()
      return self.text():find(part, 1, true)
    end)
  end
  self.wait "bound"
  return setmetatable(self, { __close = function()
    uv.kill(process.pid, "sigkill")
    wait.for_fact("perl to end", 20, function() return process.code end)
    gateway.run_program("/bin/rm", { "-r", dir })
  end })
end

describe("a gateway with $NOTIFY_SOCKET", function()
  it("says when it serves, reads its files again, and stops", function()
    local manager <close> = listen()
    local g <close> = gateway.start { env = { NOTIFY_SOCKET = manager.address } }
    manager.wait "READY=1 STATUS=serving"
    g:signal "sighup"
    manager.wait "RELOADING=1 MONOTONIC_USEC="
    wait.for_fact("ready again", 20, function() return select(2, manager.text():gsub("READY=1", "")) == 2 end)
    assert.is_nil(manager.text():find("WATCHDOG", 1, true))
    g:stop()
    manager.wait "STOPPING=1"
  end)

  it("sends WATCHDOG=1 twice per interval that systemd asks for", function()
    local manager <close> = listen()
    local g <close> = gateway.start { env = { NOTIFY_SOCKET = manager.address, WATCHDOG_USEC = "200000" } }
    wait.for_fact("signs of life", 10, function() return select(2, manager.text():gsub("WATCHDOG=1", "")) >= 5 end)
    assert.is_true(g:is_alive())
    local foreign <close> = listen()
    local other <close> = gateway.start { env = { NOTIFY_SOCKET = foreign.address, WATCHDOG_USEC = "1000", WATCHDOG_PID = "1" } }
    foreign.wait "READY=1"
    other:stop()
    foreign.wait "STOPPING=1"
    assert.is_nil(foreign.text():find("WATCHDOG", 1, true))
  end)

  it("takes an abstract name, and goes on with a socket that is wrong or not read", function()
    local manager <close> = listen("@moonpool-spec-" .. uv.os_getpid())
    local g <close> = gateway.start { env = { NOTIFY_SOCKET = manager.address } }
    manager.wait "READY=1"
    for _, wrong in ipairs { "/nowhere/at/all", "relative", "", "/" .. ("x"):rep(200), g.dir } do
      local other <close> = gateway.start { env = { NOTIFY_SOCKET = wrong, WATCHDOG_USEC = "20000" } }
      other:signal "sighup"
      assert.equal(200, other:admin("/healthz").status)
    end
  end)

  it("sends nothing on stdio: the client started it, not the service manager", function()
    local manager <close> = listen()
    local code = gateway.run_program("/bin/sh", { "-c", uv.fs_realpath(gateway.binary) .. " stdio scripts.yaml </dev/null" },
      { env = { NOTIFY_SOCKET = manager.address }, cwd = "/tmp" })
    assert.not_equal(0, code)
    local dir = gateway.prepare {}
    assert.equal(0, (gateway.run_program("/bin/sh", { "-c", uv.fs_realpath(gateway.binary) .. " stdio </dev/null" },
      { env = { NOTIFY_SOCKET = manager.address }, cwd = dir })))
    gateway.run_program("/bin/rm", { "-r", dir })
    assert.equal("bound\n", manager.text())
  end)
end)
