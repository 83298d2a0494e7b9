-- `exec`: runs a granted program with its arguments, without shell, descriptors and secrets of the gateway; the program
-- and all its descendants end with the call.
local granted = require "spec.helpers.granted"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local with_sh = [[local result, why = exec({ "sh", "-c", args.text }, { timeout = args.n and args.n / 1000 })
  return { result = result, why = why }]]

local function with(options, check)
  local g <close> = granted.start(options)
  local me = g:client "2026-07-28"
  check(function(arguments) return granted.run(me, arguments) end, g, me)
  me:close()
  assert.has_nothing_left(g)
end

-- The process ids of all descendants of `pid`, zombies included.
local function descendants(pid)
  local list, parent = {}, {}
  for name in require "lfs".dir "/proc" do
    local file = name:find "^%d+$" and io.open("/proc/" .. name .. "/stat")
    if file then
      local text = file:read "a"
      file:close()
      parent[name] = text and text:match "%) %a (%d+)"
    end
  end
  for child, above in pairs(parent) do
    if above == tostring(pid) then list[#list + 1] = child end
  end
  return list
end

-- The processes in `pids`, and all of their descendants.
local function all_below(pid)
  local list = descendants(pid)
  for i = 1, #list do table.move(all_below(list[i]), 1, 100, #list + 1, list) end
  return list
end

-- True if the process has ended; a zombie has ended.
local function is_gone(pid)
  local file = io.open("/proc/" .. pid .. "/stat")
  if not file then return true end
  local text = file:read "a"
  file:close()
  return text == nil or text:match "%) (%a)" == "Z"
end

local function none_left(g)
  wait.for_fact("all children to be gone", 20, function() return #descendants(g.pid) == 0 end)
end

describe("exec", function()
  it("returns status, stdout and stderr, and passes words unchanged", function()
    local code = [[local result, why = exec({ "printf", "%s|", "a b", "$HOME", "*", "'\"", "; exit 3", 7 }) return { result = result, why = why }]]
    with({ code = code, allow = { run = { "printf" } } }, function(run, g)
      assert.same({ status = 0, stdout = "a b|$HOME|*|'\"|; exit 3|7|", stderr = "" }, run {}.result)
      none_left(g)
    end)
    with({ code = with_sh, allow = { run = { "sh" } } }, function(run)
      assert.same({ status = 3, stdout = "out\n", stderr = "err\n" }, run { text = "echo out; echo err >&2; exit 3" }.result)
      assert.same({ signal = 15, stdout = "", stderr = "" }, run { text = "kill -TERM $$" }.result)
    end)
  end)

  it("runs what is granted by name or by path, and nothing else", function()
    local code = [[local result, why = exec { args.path, "x" } return { status = result and result.status, why = why }]]
    local echo = "/bin/echo"
    with({ code = code, allow = { run = { "true", echo, "none-such" } } }, function(run, g)
      assert.equal(0, run { path = "true" }.status)
      assert.equal(0, run { path = echo }.status)
      assert.equal(0, run { path = "echo" }.status)
      assert.equal("none-such: there is no such program", run { path = "none-such" }.why)
      for _, path in ipairs { "sh", "/bin/sh", "./true", "scripts/../../../../../../bin/sh", "true;sh", "/bin/../bin/sh" } do
        assert.matches("may not run", run { path = path }.why)
      end
      assert.equal('tools/run.lua may not run sh: no grant allows it (moonpool.yaml: scripts: {grants: {"tools/run.lua": {run: ["sh"]}}})',
        run { path = "sh" }.why)
      assert.is_truthy(g:wait_log("exec refused", { file = "tools/run.lua", program = "/bin/sh" }))
    end)
  end)

  it("passes stdin, a folder and variables, and no secrets of the gateway", function()
    local code = [[local result, why = exec({ "sh", "-c", "cat; pwd; env" }, { stdin = "in\n", cwd = args.path, env = { EXTRA = "1" } })
      return { out = result and result.stdout, why = why }]]
    local allow = { run = { "sh" }, read = { "data" }, env = { "EXTRA" } }
    with({ code = code, allow = allow, files = { ["data/a"] = "" }, env = { TOP_SECRET = "hidden" } }, function(run, g)
      local out = run { path = "data" }.out
      assert.matches("^in\n" .. uv.fs_realpath(g.dir):gsub("%p", "%%%0") .. "/data\n", out)
      assert.matches("\nEXTRA=1\n", out)
      assert.is_nil(out:find("hidden", 1, true))
      assert.is_nil(out:find("ASAN_OPTIONS", 1, true))
      assert.matches("may not read %.%.: no grant", (run { path = ".." }.why:gsub("may not read %S+:", "may not read ..:")))
      assert.matches("^in\n" .. uv.fs_realpath(g.dir):gsub("%p", "%%%0") .. "\n", run {}.out)
    end)
  end)

  it("hands on no descriptor, no ignored and no blocked signal", function()
    with({ code = with_sh, allow = { run = { "sh" } } }, function(run)
      local count = "n=0; while [ $n -lt 64 ]; do test -e /proc/$$/fd/$n && echo $n; n=$((n+1)); done"
      assert.equal("0\n1\n2\n", run { text = count }.result.stdout)
      local status = run { text = "exec cat /proc/self/status" }.result.stdout
      assert.matches("SigBlk:%s0+\n", status)
      assert.matches("SigIgn:%s0+\n", status)
      assert.matches("NoNewPrivs:%s1\n", status)
    end)
  end)

  it("takes large inputs and outputs at once, and ends what prints too much", function()
    local code = [[local text = ("x"):rep(1 << 20)
      local result, why = exec({ "cat" }, { stdin = text, max = args.n })
      return { same = result and result.stdout == text, why = why }]]
    with({ code = code, allow = { run = { "cat" } } }, function(run)
      assert.is_true(run {}.same)
      assert.equal("cat: the program printed more than 1000 bytes", run { n = 1000 }.why)
    end)
    with({ code = with_sh, allow = { run = { "sh" } }, constants = { exec_output = 65536 } }, function(run, g)
      assert.equal("sh: the program printed more than 65536 bytes", run { text = "yes" }.why)
      assert.equal("sh: the program printed more than 65536 bytes", run { text = "yes >&2" }.why)
      none_left(g)
    end)
  end)

  it("runs a program that reads nothing from stdin", function()
    local code = [[local result = exec({ "true" }, { stdin = ("x"):rep(1 << 20) }) return { status = result.status }]]
    with({ code = code, allow = { run = { "true" } } }, function(run) assert.equal(0, run {}.status) end)
  end)

  it("ends a program that takes too long, also one that ignores SIGTERM", function()
    with({ code = with_sh, allow = { run = { "sh" } }, constants = { exec_grace_ms = 100 } }, function(run, g)
      assert.equal("sh: the program did not end within 0.1 s", run { text = "sleep 60", n = 100 }.why)
      assert.equal("sh: the program did not end within 0.1 s", run { text = "trap '' TERM; sleep 60; sleep 60", n = 100 }.why)
      none_left(g)
    end)
  end)

  it("leaves nothing behind that a program started", function()
    with({ code = with_sh, allow = { run = { "sh" } } }, function(run, g)
      local got = run { text = "sleep 60 & echo $!" }
      assert.is_true(is_gone(got.result.stdout:match "%d+"))
      none_left(g)
    end)
  end)

  -- V15: a process with its own session or process group, or whose parent has ended, cannot hide from the keeper.
  it("leaves no process that left its group behind, and waits for none", function()
    local show = "while ! pgrep -fx '%s' > /dev/null; do :; done; pgrep -fx '%s'"
    local function shown(command) return show:format(command, command) end
    for name, text in pairs {
      ["a session"] = "setsid sleep 600 & sleep 0; echo $!",
      ["a session that forked"] = "setsid -f sleep 601; " .. shown "sleep 601",
      ["a daemon that forked twice"] = "(setsid sh -c 'sleep 602 & sleep 602 & exit' &); " .. shown "sleep 602",
      ["without an environment"] = "env -i setsid -f /bin/sleep 603; " .. shown "/bin/sleep 603",
      ["deaf to all it can be deaf to"] = "setsid -f sh -c 'trap \"\" HUP INT QUIT TERM USR1; sleep 604; sleep 604'; " .. shown "sleep 604",
    } do
      with({ code = with_sh, allow = { run = { "sh" } } }, function(run, g)
        local got = run { text = text }
        local n = 0
        for pid in got.result.stdout:gmatch "%d+" do
          n = n + 1
          assert.is_true(is_gone(pid), name .. ": " .. pid .. " is there after the call")
        end
        assert.is_true(n > 0, name .. ": " .. got.result.stdout .. got.result.stderr)
        none_left(g)
      end)
    end
  end)

  it("ends the processes that a program started when the call is cancelled, and leaves programs of other calls alone", function()
    with({ code = with_sh, allow = { run = { "sh" } }, constants = { exec_grace_ms = 50 } }, function(run, g, me)
      local other = granted.begin(me, { text = "setsid sleep 605 & sleep 606; wait" })
      local stream = granted.begin(me, { text = "setsid -f sleep 607; trap '' TERM; sleep 608; sleep 608" })
      local function found(word) return run { text = "pgrep -fx 'sleep " .. word .. "'" }.result.stdout:match "%d+" end
      local mine = wait.for_fact("the daemon", 20, function() return found(607) end)
      local theirs = wait.for_fact("the other call's daemon", 20, function() return found(605) end)
      stream:close()
      wait.for_fact("the daemon to be gone", 20, function() return is_gone(mine) end)
      assert.is_false(is_gone(theirs))
      other:close()
      wait.for_fact("the other daemon to be gone", 20, function() return is_gone(theirs) end)
      g:wait_status(function(now) return now.gauges.child_processes == 0 end)
      none_left(g)
    end)
  end)

  it("sets variables that a grant names, and those that only change words and times", function()
    local code = [[local out = {}
      for i, env in ipairs { { GIT_DIR = "x" }, { APP_MODE = "y" }, { LANG = "C", TZ = "UTC", NO_COLOR = "1" }, { OPENSSL_CONF = "/x" }, { PYTHONPATH = "." },
        { NODE_OPTIONS = "x" }, { HOME = "/tmp" }, { PATH = "." }, { PERL5OPT = "x" }, { BASH_ENV = "x" } } do
        local result, why = exec({ "sh", "-c", "echo $APP_MODE$NO_COLOR" }, { env = env })
        out[i] = result and result.stdout or why
      end
      return { out = out }]]
    with({ code = code, allow = { run = { "sh" }, env = { "APP_*" } } }, function(run, g)
      local out = run {}.out
      assert.equal("y\n", out[2])
      assert.equal("1\n", out[3])
      for _, i in ipairs { 1, 4, 5, 6, 7, 8, 9, 10 } do assert.matches("may not see or set the environment variable %u.*no grant allows it", out[i]) end
      g:wait_log("exec refused", { variable = "OPENSSL_CONF", why = "no grant" })
    end)
  end)

  it("copies no more words than a program takes", function()
    local code = [[local big, many = ("x"):rep(1 << 20), {}
      local word = ("y"):rep(100000)
      for i = 1, 3000 do many[i] = word end
      many[1] = "true"
      local function told(...) local ok, a, b = pcall(exec, ...) return tostring(ok and b or a) end
      local lots = {}
      for i = 1, 5000 do lots[i] = "true" end
      return { list = { told { "true", big }, told(many), told(lots), told({ "true" }, { env = { APP_A = big } }) } }]]
    with({ code = code, allow = { run = { "true" }, env = { "APP_*" } } }, function(run)
      local list = run {}.list
      assert.equal("true: argument 2 has 1048576 bytes, and a program takes at most 131071: pass it by 'stdin'", list[1])
      assert.equal("true: the arguments have more than 1048576 bytes together: pass them by 'stdin'", list[2])
      assert.matches("at most 4096 words, got 5000", list[3])
      assert.matches("the environment is larger than a program takes: the limit is reached at 'APP_A'", list[4])
    end)
  end)

  it("says why a program cannot start", function()
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write "\127ELF nonsense"
    file:close()
    uv.fs_chmod(path, 493)
    local code = ("local result, why = exec { %q } return { why = why }"):format(path)
    with({ code = code, allow = { run = { path } } }, function(run) assert.equal(path .. ": Exec format error", run {}.why) end)
    os.remove(path)
  end)

  it("is one of at most 16 of a worker", function()
    with({ code = with_sh, allow = { run = { "sh" } }, constants = { exec_processes = 2 } }, function(run, g, me)
      local streams = { granted.begin(me, { text = "sleep 60" }), granted.begin(me, { text = "sleep 60" }) }
      g:wait_status(function(now) return now.gauges.child_processes == 2 end)
      assert.equal("sh: 2 programs are running, and one worker runs no more at once", run { text = "true" }.why)
      assert.equal(1, g:status().counters.refused.processes)
      for _, stream in ipairs(streams) do stream:close() end
      g:wait_status(function(now) return now.gauges.child_processes == 0 end)
      none_left(g)
    end)
  end)

  it("reports mistakes of the script", function()
    local code = [[local function told(...) local _, why = pcall(exec, ...) return tostring(why) end
      return { list = { told "ls", told { "ls", { 1 } }, told({ "ls" }, { tiemout = 1 }), told({ "ls" }, { timeout = 0 }), told({ "ls", "a\0b" }),
        told({ "ls" }, { env = { LD_PRELOAD = "x" } }), told({ "ls" }, { env = { GCONV_PATH = "." } }), told({ "ls" }, { env = { ["A=B"] = 1 } }) } }]]
    with({ code = code, allow = { run = { "ls" } } }, function(run)
      local list = run {}.list
      assert.matches("exec needs a list of words", list[1])
      assert.matches("argument 2 of exec must be a string or a number, got a table", list[2])
      assert.matches("exec has no option 'tiemout'", list[3])
      assert.matches("'timeout' must be above 0", list[4])
      assert.matches("argument 2 of exec contains a NUL byte", list[5])
      assert.matches("'env' may not set LD_PRELOAD", list[6])
      assert.matches("'env' may not set GCONV_PATH", list[7])
      assert.matches("'env' has an invalid name of a variable", list[8])
    end)
  end)
end)

describe("a program whose call is cancelled", function()
  for name, text in pairs { ["plain"] = "sleep 60", ["with children"] = "sleep 60 & sleep 60", ["deaf to SIGTERM"] = "trap '' TERM; sleep 60; sleep 60" } do
    it("is ended with it: " .. name, function()
      with({ code = with_sh, allow = { run = { "sh" } }, constants = { exec_grace_ms = 100 } }, function(_, g, me)
        local streams = {}
        for i = 1, 6 do streams[i] = granted.begin(me, { text = text }) end
        g:wait_status(function(now) return now.gauges.child_processes == 6 end)
        for i, stream in ipairs(streams) do
          if i % 2 == 0 then stream:reset() else stream:close() end
        end
        g:wait_status(function(now) return now.gauges.child_processes == 0 end)
        none_left(g)
      end)
    end)
  end

  it("is ended at once, at every moment of its start", function()
    with({ code = with_sh, allow = { run = { "sh" } } }, function(_, g, me)
      for _ = 1, 40 do granted.begin(me, { text = "sleep 60" }):close() end
      g:wait_status(function(now) return now.gauges.child_processes == 0 and now.gauges.tasks == 0 end)
      none_left(g)
    end)
  end)

  it("does not outlive a gateway that stops, or one that is killed", function()
    for _, how in ipairs { "stop", "kill" } do
      local g = granted.start { code = with_sh, allow = { run = { "sh" } }, limits = { drain = "0s" }, workers = 2 }
      local me = g:client "2026-07-28"
      local stream = granted.begin(me, { text = "setsid sleep 61 & exec sleep 61" }) -- the keeper, the program, the daemon
      g:wait_status(function(now) return now.gauges.child_processes == 1 end)
      local pids = wait.for_fact("the processes", 20, function()
        local list = all_below(g.pid)
        return #list == 3 and list
      end)
      g[how](g)
      for _, pid in ipairs(pids) do
        wait.for_fact("process " .. pid .. " to be gone", 20, function() return is_gone(pid) end)
      end
      stream:close()
      me:close()
    end
  end)
end)
