-- The programs of upstreams, as core/os runs them: lines both ways, stderr, bounds, and the end of all descendants. A
-- program of its own (process_driver.c) stands for the gateway.
local gateway = require "spec.helpers.gateway"
local process = require "spec.helpers.process"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local function write(path, text, mode)
  local file <close> = assert(io.open(path, "w"))
  file:write(text)
  uv.fs_chmod(path, mode)
end

local function wait_gone(pids)
  for _, pid in ipairs(pids) do
    wait.for_fact("process " .. pid .. " to be gone", 20, function() return process.is_gone(pid) end)
  end
end

-- A chain as npx makes it, a descendant with a session of its own, and one that ignores every signal that can be
-- ignored; prints their ids.
local family = [[
  sh -c 'sh -c "echo member \$\$; exec 1>&-; exec sleep 700" & echo member $!; exec 1>&-; wait' &
  setsid sh -c 'echo member $$; exec 1>&-; trap "" HUP INT QUIT TERM USR1; while :; do sleep 701; done' &
  echo program $$
]]

-- Starts the family as process `id`, followed by `last`; returns the ids of its members and of its keeper.
local function start_family(d, id, last, options)
  d:sh(id, family .. (last or "read x"), options)
  local pids = {}
  for i = 1, 3 do pids[i] = d:wait("^line " .. id .. " member (%d+)$") end
  pids[4] = d:wait("^line " .. id .. " program (%d+)$")
  pids[5] = process.status(pids[4], "PPid")
  return pids
end

describe("a process", function()
  it("gets lines and gives lines, in order, until it exits", function()
    local d <close> = process.driver()
    d:sh(1, [[echo first; read x; echo "got $x"; printf 'par'; read x; printf 'tial\r\n\n'; read x; printf 'last'; exit 3]])
    d:wait "^started 1$"
    d:wait "^line 1 first$"
    d:send(1, "a b"):wait "^line 1 got a b$"
    d:send(1, ""):wait "^line 1 partial$"
    d:send(1, ""):wait "^line 1 last$"
    d:wait "^ended 1 exited exit 3$"
    assert.same({}, d.lines)
    d:sh(2, "kill -KILL $$"):wait "^ended 2 exited signal 9 %(Killed%)$"
    d:command("leave", 1):command("leave", 2):wait_none()
  end)

  it("is found in PATH, or below its folder", function()
    local d <close> = process.driver()
    uv.fs_mkdir(d.dir .. "/bin", 493)
    write(d.dir .. "/bin/here", "#!/bin/sh\necho \"$0\" \"$1\" \"$(pwd)\"\n", 493)
    local there = uv.fs_realpath(d.dir)
    d:start(1, { "here", "a  $b" }, { env = { "PATH=relative:/none:" .. d.dir .. "/bin:/usr/bin:/bin" } })
    d:wait("^line 1 " .. (d.dir .. "/bin/here a  $b " .. there):gsub("%p", "%%%0") .. "$")
    d:start(2, { "./here" }, { folder = d.dir .. "/bin" })
    d:wait("^line 2 %./here  " .. (there .. "/bin"):gsub("%p", "%%%0") .. "$")
  end)

  it("says why it cannot start", function()
    local d <close> = process.driver()
    local dir = d.dir
    write(dir .. "/plain", "echo no", 420)
    write(dir .. "/broken", "\127ELF nonsense", 493)
    write(dir .. "/orphan", "#!/no/such/interpreter\n", 493)
    local expected = {
      { { "no-such-program" }, "no-such-program: there is no such program in PATH (/usr/bin:/bin)", { env = { "PATH=/usr/bin:/bin" } } },
      { { dir .. "/plain" }, dir .. "/plain: Permission denied" },
      { { dir .. "/none" }, dir .. "/none: No such file or directory" },
      { { dir .. "/broken" }, dir .. "/broken: Exec format error" },
      { { dir .. "/orphan" }, dir .. "/orphan: the interpreter that its first line names does not exist" },
      { { dir }, dir .. ": Permission denied" },
      { { "true" }, "true: cannot use the working folder " .. dir .. "/none: No such file or directory", { folder = dir .. "/none" } },
    }
    for i, row in ipairs(expected) do
      d:start(i, row[1], row[3])
      assert.equal("failed " .. row[2], d:wait("^ended " .. i .. " (.*)$"))
    end
    d:sh(50, "echo fine"):wait "^line 50 fine$"
    d:wait "^ended 50 "
  end)

  it("has only the variables that are named, descriptors 0 to 2, no new rights and no cores", function()
    local d <close> = process.driver { env = { TOP_SECRET = "hidden", USER = "me", TZ = "UTC" } }
    d:start(1, { "env" }, { env = { "LOG=quiet", "TZ=Asia/Tokyo", "HOME=" } })
    d:wait "^ended 1 "
    local seen = {}
    for _, line in ipairs(d.lines) do
      local name, value = line:match "^line 1 ([%w_]+)=(.*)$"
      if name then seen[name] = value end
    end
    for name in pairs(seen) do
      assert.is_truthy((" PATH HOME USER LANG TZ TMPDIR LOG "):find(" " .. name .. " ", 1, true), name .. " is in the environment")
    end
    assert.equal("quiet", seen.LOG)
    assert.equal("Asia/Tokyo", seen.TZ)
    assert.equal("", seen.HOME)
    assert.equal("me", seen.USER)
    d:sh(2, "n=0; while [ $n -lt 64 ]; do test -e /proc/$$/fd/$n && echo $n; n=$((n+1)); done; ulimit -c; exec cat /proc/self/status")
    d:wait "^ended 2 "
    local text = table.concat(d.lines, "\n")
    assert.matches("line 2 0\nline 2 1\nline 2 2\nline 2 0\nline 2 Name:", text)
    assert.matches("NoNewPrivs:%s1\n", text)
    assert.matches("SigBlk:%s0+\n", text)
    assert.matches("SigIgn:%s0+\n", text)
  end)

  it("ends in the eyes of its owner when it closes stdout or stdin and goes on", function()
    local d <close> = process.driver()
    d:sh(1, "echo one; exec 1>&-; exec sleep 702"):wait "^ended 1 closed closed its stdout$"
    d:sh(2, "exec 0<&-; echo ready; exec sleep 703"):wait "^line 2 ready$"
    d:send(2, "x"):wait "^ended 2 closed closed its stdin$"
    d:command("kill", 1):command("kill", 2):wait_none()
  end)

  it("has its last lines delivered even if it no longer reads", function()
    local d <close> = process.driver()
    d:sh(1, "read x; exec 0<&-; echo closed >&2; i=0; while [ $i -lt 100 ]; do echo line$i; i=$((i+1)); done; exit 4")
    d:send(1, "go"):wait "^error 1 closed$"
    d:send(1, "never read"):wait "^line 1 line99$"
    d:wait "^ended 1 exited exit 4$"
  end)

  it("knows which lines were not written", function()
    local d <close> = process.driver()
    d:sh(1, "echo up; read x; exec sleep 704"):wait "^line 1 up$"
    d:command("bulk", 1, 10):command("offsets", 1):wait "^offsets 1 11 "
    d:command("bulk", 1, 1 << 20)
    local function offsets()
      local queued, written = d:command("offsets", 1):wait "^offsets 1 (%d+) (%d+)$"
      return tonumber(queued), tonumber(written)
    end
    wait.for_fact("the pipe to be full", 20, function() return select(2, offsets()) >= 65536 end)
    local queued, written = offsets()
    assert.equal(11 + (1 << 20) + 1, queued)
    assert.is_true(written < queued)
    d:send(1, "later") -- this line begins at the offset `queued`, and was never written
    assert.is_true(select(2, offsets()) <= queued)
    d:command("kill", 1):wait_none()
  end)
end)

describe("the bounds of a process", function()
  it("carry 50 lines of 100 KB and lines of 2 MB, and drop a line over the limit alone", function()
    local d <close> = process.driver()
    d:start(1, { "cat" }, { line = 2 << 20 })
    for _ = 1, 50 do d:command("bulk", 1, 102400) end
    for _ = 1, 50 do d:wait "^line 1 x+ %(102400%)$" end
    d:command("bulk", 1, 2 << 20):wait "^line 1 x+ %(2097152%)$"
    d:command("bulk", 1, (2 << 20) + 1):wait "^long 1$"
    d:send(1, "after"):wait "^line 1 after$"
    d:command("leave", 1):wait_none()
  end)

  it("end a program that reads nothing, and refuse what does not fit", function()
    local d <close> = process.driver()
    d:sh(1, "echo up; exec sleep 705", { stall = 300, stall_bytes = 1 << 20, queued = 4 << 20 }):wait "^line 1 up$"
    d:command("bulk", 1, 3 << 20):command("bulk", 1, 2 << 20):wait "^refused 1$"
    d:wait "^ended 1 stalled read nothing for 300 ms$"
    d:send(1, "x"):wait "^refused 1$"
    d:command("leave", 1)
    d:sh(2, "exec sleep 706", { stall = 50, queued = 4 << 20 }):wait "^started 2$"
    d:command("bulk", 2, 900000) -- fewer bytes than may wait for this process
    d:sh(3, "sleep 0.3; echo later"):wait "^line 3 later$"
    d:command("offsets", 2):wait "^offsets 2 900001 "
    d:command("kill", 2):wait_none()
  end)

  it("keep reading a program that writes while it does not read", function()
    local d <close> = process.driver()
    d:sh(1, "head -c 8388608 /dev/zero | tr '\\0' 'y' | fold -w 1000 | head -n 8000; head -c 8388609 | wc -c", { queued = 16 << 20 })
    d:command("bulk", 1, 8 << 20)
    d:wait "^line 1 8388609$"
    d:command("leave", 1):wait_none()
  end)

  it("hand on stderr in lines of 4 KiB and 64 KiB a second, and keep the last 20", function()
    local d <close> = process.driver()
    d:sh(1, [[echo one >&2; printf 'two\r\n\n' >&2; head -c 10000 /dev/zero | tr '\0' 'z' >&2; echo >&2; echo four >&2; echo up; read x
      i=0; while [ $i -lt 3000 ]; do echo "line $i of the log, which is longer than the limit of a second" >&2; i=$((i+1)); done; echo done; read x]])
    d:wait "^line 1 up$"
    d:wait "^error 1 one$"
    d:wait "^error 1 two$"
    d:wait "^error 1 z+ %(4096%)$"
    d:wait "^error 1 four$"
    d:send(1, "go"):wait "^line 1 done$"
    wait.for_fact("the last lines to be read", 20, function()
      return d:command("errors", 1):wait "^kept 1 line 2999 " and true
    end)
    local kept = 0
    d:command("errors", 1):wait "^kept 1$"
    for _, line in ipairs(d.lines) do
      if line:find "^kept 1 line %d+ of" then kept = kept + 1 end
    end
    assert.is_true(kept >= 19 and kept <= 60, kept .. " lines are kept")
    d:command("leave", 1):wait_none()
  end)

  it("hold while a program writes 1 GB to stderr", function()
    local d <close> = process.driver()
    d:sh(1, "echo up; read x; head -c 1073741824 /dev/zero >&2; echo answer; read x"):wait "^line 1 up$"
    local before = d:rss()
    d:send(1, "go"):wait("^line 1 answer$", 120)
    assert.is_true(d:rss() < before + 8e6, ("%d bytes before, %d after"):format(before, d:rss()))
    d:command("leave", 1):wait_none()
  end)

  it("hold while programs start and crash", function()
    local d <close> = process.driver()
    d:sh(0, "exit 1"):wait "^ended 0 "
    d:command("leave", 0):wait_none()
    local fds = d:fds()
    for id = 1, 200 do
      d:sh(id, id % 2 == 0 and "exit 1" or "setsid sleep 707 & kill -SEGV $$")
      if id % 10 == 0 then
        for one = id - 9, id do
          d:wait("^ended " .. one .. " ")
          d:command("leave", one)
        end
      end
    end
    d:wait_none()
    assert.equal(fds, d:fds())
    assert.same({}, process.below(d.pid))
  end)
end)

describe("the memory of a process", function()
  it("is that of all its descendants, without the keeper", function()
    local d <close> = process.driver()
    d:sh(1, "setsid sleep 708 & sh -c 'sleep 709 & wait' & echo $$; wait", { measure = 50 })
    local pid = d:wait "^line 1 (%d+)$"
    local memory, first = wait.for_fact("four processes", 20, function() return d:wait "^measured 1 4 (%d+) (%d+)$" end)
    assert.equal(pid, first)
    assert.is_true(tonumber(memory) > 4 * 100000 and tonumber(memory) < 100e6, memory)
    d:command("kill", 1):wait_none()
  end)

  it("is that of a keeper, for the keeper, at most 1.5 MB", function()
    if os.getenv "ASAN_OPTIONS" or os.getenv "TSAN_OPTIONS" then return end -- sanitizers have memory of their own
    local d <close> = process.driver()
    d:sh(1, "echo $$; read x")
    local keeper = process.status(d:wait "^line 1 (%d+)$", "PPid")
    wait.for_fact("a small keeper", 20, function() return tonumber(process.status(keeper, "VmRSS")) <= 1536 end)
    d:command("leave", 1):wait_none()
  end)
end)

describe("the end of a process", function()
  it("is in order: end of its stdin, SIGTERM, SIGKILL", function()
    local d <close> = process.driver()
    local function text(name)
      local file = io.open(d.dir .. "/" .. name)
      local found = file and file:read "a"
      if file then file:close() end
      return found
    end
    d:sh(1, "echo up; cat >" .. d.dir .. "/rest; echo dropped; echo exit >>" .. d.dir .. "/rest"):wait "^line 1 up$"
    d:send(1, "last words"):command("leave", 1):wait_none()
    assert.equal("last words\nexit\n", text "rest")
    d:sh(2, "trap 'echo term >" .. d.dir .. "/two; exit' TERM; echo up; while :; do sleep 0.01; done", { grace = 10000 }):wait "^line 2 up$"
    d:command("leave", 2):wait_none()
    assert.equal("term\n", text "two")
    d:sh(3, "trap '' TERM; echo up; while :; do sleep 710; done", { grace = 100 }):wait "^line 3 up$"
    d:command("leave", 3):wait_none()
  end)

  it("drains what a program says while it ends", function()
    local d <close> = process.driver()
    d:sh(1, "echo up; cat >/dev/null; head -c 1000000 /dev/zero | tr '\\0' 'n' | fold -w 100; head -c 1000000 /dev/zero >&2; echo well >" .. d.dir .. "/end",
      { grace = 60000 }):wait "^line 1 up$"
    d:command("leave", 1):wait_none()
    assert.is_truthy(uv.fs_stat(d.dir .. "/end"))
  end)

  it("is the end of all its descendants", function()
    local d <close> = process.driver()
    for id, how in ipairs { "leave", "kill" } do
      local pids = start_family(d, id, nil, { grace = 100 })
      d:command(how, id)
      wait_gone(pids)
    end
    local pids = start_family(d, 3, "exec 1>&-; exec sleep 711", { grace = 100 })
    d:wait "^ended 3 closed "
    wait_gone(pids)
    pids = start_family(d, 4)
    uv.kill(tonumber(pids[4]), "sigkill") -- kills the program itself, not one of its descendants
    d:wait "^ended 4 exited signal 9 "
    wait_gone(pids)
    pids = start_family(d, 5, "read x; exit 0")
    d:send(5, ""):wait "^ended 5 exited exit 0$"
    wait_gone(pids)
  end)

  it("comes at every moment of its start", function()
    local d <close> = process.driver()
    for id = 1, 60 do
      d:sh(id, "setsid sleep 712 & exec sleep 712")
      if id % 3 == 0 then d:sh(id + 100, "true"):wait("^ended " .. id + 100) end
      d:command(id % 2 == 0 and "leave" or "kill", id)
    end
    d:wait_none()
    wait.for_fact("no child", 20, function() return #process.below(d.pid) == 0 end)
  end)

  it("comes when its loop ends, or when the gateway's process is killed", function()
    for _, how in ipairs { "stop", "kill" } do
      local d <close> = process.driver()
      local pids = start_family(d, 1)
      d:sh(2, "exec sleep 713") -- this program may still be starting when the driver ends
      d[how](d)
      wait_gone(pids)
    end
  end)

  it("comes when the keeper's pipe ends, without any signal", function()
    local ends = assert(uv.pipe({ nonblock = false }, { nonblock = false }))
    local report = uv.new_pipe(false)
    local folder = assert(uv.fs_open("/", "r", 0))
    local out = uv.new_pipe(false)
    local text, code = "", nil
    local handle, pid = uv.spawn("bash", {
      args = { "-c", [[exec -a "moonpool: keeper" "$0" /bin/sh sh -c "$1"]], uv.fs_realpath(gateway.binary), family .. "while :; do sleep 714; done" },
      stdio = { nil, out, nil, folder, report, ends.read }, env = { "PATH=/usr/bin:/bin" },
    }, function(status) code = status end)
    assert(handle, pid)
    uv.fs_close(ends.read)
    uv.fs_close(folder)
    report:close()
    out:read_start(function(_, bytes) text = text .. (bytes or "") end)
    wait.for_fact("the family", 20, function() return select(2, text:gsub("\n", "")) == 4 end)
    local pids = {}
    for one in text:gmatch "%d+" do pids[#pids + 1] = one end
    assert.is_nil(code)
    uv.fs_close(ends.write)
    wait.for_fact("the keeper to end", 20, function() return code end)
    wait_gone(pids)
    handle:close()
    out:close()
  end)
end)
