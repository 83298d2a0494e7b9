-- What an upgrade has limits for: how many processes, how long each step takes, and who speaks the same format. The
-- binary for specs has shorter times (other_times.c), so that an hour passes in a second.
local uv = require "luv"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local knocking = require "spec.helpers.knocking"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"

local HOUR <const>, MINUTE <const>, TRIAL <const> = "SPEC_TIME_3600000", "SPEC_TIME_60000", "SPEC_TIME_2000"

-- Runs an upgrade that must fail with exit code 1, and returns what the command prints. No connection is refused
-- meanwhile.
local function must_fail(g)
  local pid, new = g.pid, knocking.start(g.port, 2)
  local code, _, err = g:upgrade()
  new:wait(20)
  new:stop()
  assert.equal(1, code, err)
  assert.equal(0, new.refused, tostring(new.last))
  assert.equal(pid, g:status().pid)
  return err
end

-- A session, whose process it keeps alive, without a connection.
local function open_session(g)
  local session = g:client "2025-06-18"
  session.kept:close()
  session.kept = nil
  return session
end

describe("the 33rd upgrade", function()
  it("is refused while 32 older processes serve their sessions, and names the oldest; when that has ended it is done", function()
    local g <close> = upgrading.start { workers = 1, env = { [TRIAL] = "100" }, config = { limits = { drain = "1s" } } }
    for _ = 1, 32 do
      open_session(g)
      g:must_upgrade()
    end
    local older = g:older()
    assert.equal(32, #older)
    local err = must_fail(g)
    assert.matches("32 older processes still serve their sessions; the oldest is process " .. older[1] .. ", version ", err, 1, true)
    assert.matches("it ends with its last session, or within an hour after its upgrade; SIGTERM ends it at once", err, 1, true)
    assert.same({ 32, 32 }, { #g:status().upgrade, #g:older() })
    uv.kill(older[1], "sigterm")
    g:wait_log("older process ended", { pid = older[1] })
    g:must_upgrade()
  end)
end)

describe("after its hour", function()
  it("an older process ends, its sessions are unknown, and one line says how many there were", function()
    local g <close> = upgrading.start_quick { env = { [HOUR] = "1500" }, config = { limits = { drain = "1s" } } }
    local first, sessions = g.pid, { open_session(g), open_session(g), open_session(g) }
    g:must_upgrade()
    g:wait_log("sessions of an older process ended", { sessions = 3, after_s = 3600 })
    g:wait_log("older process ended", { pid = first })
    assert.equal(1, select(2, g:log():gsub("sessions of an older process ended", "")))
    for _, session in ipairs(sessions) do
      local answer = client.request(g, { method = "POST", path = "/mcp", body = '{"jsonrpc":"2.0","id":1,"method":"tools/list"}', headers = {
        ["Content-Type"] = "application/json", Accept = "application/json, text/event-stream", ["Mcp-Session-Id"] = session.session,
        ["MCP-Protocol-Version"] = "2025-06-18" } })
      assert.equal(404, answer.status)
    end
    wait.for_fact("the end of the process", 20, function() return #g:older() == 0 end)
  end)
end)

describe("a new process", function()
  it("that does not serve within its minute is ended; a slow one that does takes over", function()
    local g <close> = upgrading.start { env = { [MINUTE] = "1000" } }
    g:replace "#!/bin/sh\nexec sleep 60\n"
    assert.matches("the new process does not serve after 60 s", must_fail(g), 1, true)
    local slow <close> = upgrading.start {}
    slow:replace_by_script "sleep 1"
    slow:must_upgrade()
  end)

  it("that gets SIGHUP before it can do anything about it takes over", function()
    local g <close> = upgrading.start_quick {}
    g:replace_by_script "kill -HUP $$"
    g:must_upgrade()
  end)
end)

-- A program that introduces itself in another format, as a binary of another release may.
local HELLO = [[
use strict;
open my $link, "+<&=", $ENV{MOONPOOL_HANDOVER} or die "no link: $!";
send $link, "\x01%d\x0017\x00$$\x00another\x0017\x00", 0 or die "not sent: $!";
sleep 60;
]]

-- A process of another format, whose successor is the binary.
local BEFORE = [[
use strict; use Socket; use Fcntl;
socketpair my $own, my $link, AF_UNIX, SOCK_SEQPACKET, 0 or die;
fcntl $link, F_SETFD, 0;
send $own, "\x01%d\x0017\x00$$\x00another\x0017\x00", 0 or die;
$ENV{MOONPOOL_HANDOVER} = fileno $link;
system @ARGV;
exit $? >> 8;
]]

describe("two programs that hand over by other formats", function()
  for _, format in ipairs { 0, 1, 1000000 } do
    it("do not follow each other: the old one serves on, and says what to do, at " .. format, function()
      local g <close> = upgrading.start_quick {}
      local path = g.dir .. "/other.pl"
      local file <close> = assert(io.open(path, "wb"))
      file:write((HELLO:gsub("%%d", format)))
      file:close()
      g:replace("#!/bin/sh\nexec perl " .. path .. "\n")
      local err = must_fail(g)
      assert.matches("the new process hands over by another format: stop the gateway, and start it again", err, 1, true)
      g:wait_log("not upgraded", { why = "the new process hands over by another format: stop the gateway, and start it again" })
      g:replace()
      g:must_upgrade()
    end)
  end

  it("do not follow each other: the new one ends before it reads a socket", function()
    local dir = gateway.prepare {}
    local args = { "-e", (BEFORE:gsub("%%d", 1)), uv.fs_realpath(gateway.binary), "run", "moonpool.yaml" }
    local code, _, err = gateway.run_program("/usr/bin/perl", args, { cwd = dir })
    assert.not_equal(0, code)
    assert.matches("the process before this one hands over by another format: stop it, and start it again", err, 1, true)
    gateway.run_program("/bin/rm", { "-r", dir })
  end)
end)

describe("the folder of a gateway whose processes were killed", function()
  it("is removed at the next gateway's first upgrade, and that of one which lives is not", function()
    local dir = gateway.new_folder()
    local function folders()
      local _, out = gateway.run_program("/bin/ls", { dir })
      local list = {}
      for name in out:gmatch "moonpool%-hop%-%w+" do list[#list + 1] = name end
      return list
    end
    local function start()
      local g = upgrading.start { env = { TMPDIR = dir } }
      return g, open_session(g), g:must_upgrade()
    end
    local living <close>, session = start()
    local kept = folders()[1]
    local killed = start()
    assert.equal(2, #folders())
    killed:kill()
    assert.equal(2, #folders())
    do
      local next <close> = start()
      assert.equal(2, #folders())
      assert.truthy(uv.fs_stat(dir .. "/" .. kept))
      assert.truthy(session:result "tools/list")
      next:stop()
    end
    assert.same({ kept }, folders())
    living:stop()
    assert.same({}, folders())
    gateway.run_program("/bin/rm", { "-r", dir })
  end)
end)
