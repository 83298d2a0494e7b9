-- Commands whose output cannot be written say so, exit with 1, and let go of what the gateway keeps for them.
local gateway = require "spec.helpers.gateway"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local token = ("o"):rep(32)
local scripts = { ["tools/echo.lua"] = 'return tool { "Echoes.", input = { text = t.string }, function(args) return args.text end }' }

-- Runs `work(g)` while a shell runs `line`, in which $M is the binary; the shell's exit code, stdout and stderr.
local function beside(line, ready, work)
  local g <close> = gateway.start { scripts = scripts, config = { admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } } } }
  local near = "--admin 127.0.0.1:" .. g.admin_port
  local out, done = {}, nil
  local stdio = { nil, uv.new_pipe(false), uv.new_pipe(false) }
  local handle = uv.spawn("/bin/sh", {
    args = { "-c", (line:gsub("NEAR", near)) }, cwd = g.dir, stdio = stdio,
    env = { "PATH=" .. os.getenv "PATH", "M=" .. uv.fs_realpath(gateway.binary), "MOONPOOL_ADMIN_TOKEN=" .. token },
  }, function(code) done = code end)
  assert(handle)
  for i = 2, 3 do
    out[i] = ""
    stdio[i]:read_start(function(_, bytes) out[i] = out[i] .. (bytes or "") end)
  end
  if ready then g:wait_log(ready) end
  if work then work(g) end
  wait.for_fact("the end of " .. line, 60, function() return done end)
  handle:close()
  stdio[2]:close()
  stdio[3]:close()
  local _, modes = gateway.run_program("/bin/sh", { "-c", "stat -L -c %a link out.jsonl 2>/dev/null; true" }, { cwd = g.dir })
  return done, out[2], out[3], g:log(), modes
end

local function echo(g)
  local peer <close> = g:client "2026-07-28"
  peer:result("tools/call", { name = "echo", arguments = { text = "hello" } })
end

describe("moonpool record", function()
  it("on a full disk says so, counts what it has written, and ends the recording", function()
    for _, to in ipairs { "--out /dev/full", "> /dev/full" } do
      local code, _, err, log = beside("exec $M record --for 1h NEAR " .. to, "recording begun", echo)
      assert.equal(1, code, err)
      assert.matches("cannot write the records: No space left on device", err, 1, true)
      assert.matches("0 calls recorded", err, 1, true)
      assert.matches("recording ended", log, 1, true)
    end
  end)

  it("makes a file that only its owner can read, also at the end of a link", function()
    for _, before in ipairs { "", "ln -s out.jsonl link; " } do
      local path = before == "" and "out.jsonl" or "link"
      local code, _, err, _, modes = beside("umask 022; " .. before .. "exec $M record --for 1s NEAR --out " .. path)
      assert.equal(0, code, err)
      assert.matches("600\n", modes, 1, true)
      assert.is_nil(modes:find "644")
    end
  end)
end)

describe("moonpool tap", function()
  it("ends where nobody reads it, or the disk is full, and closes its tap", function()
    for _, to in ipairs { "> /dev/full", "--json > /dev/full" } do
      local code, _, err, log = beside("exec $M tap --for 1h NEAR " .. to, "tap opened", echo)
      assert.equal(1, code, err)
      assert.matches("cannot write to stdout: No space left on device", err, 1, true)
      assert.matches("tap closed", log, 1, true)
    end
    local _, out, _, log = beside("$M tap --for 1h --json NEAR | head -n 1", "tap opened", function(g)
      wait.for_fact("the tap to notice that its reader has gone", 60, function()
        echo(g)
        return g:log():find("tap closed", 1, true)
      end)
    end)
    assert.matches("tap opened", out, 1, true)
    assert.matches("tap closed", log, 1, true)
  end)
end)

describe("a command of the operator", function()
  it("whose output is lost exits with 1 and says why", function()
    for _, line in ipairs { "status NEAR", "status --json NEAR", "switch NEAR" } do
      local code, _, err = beside("exec $M " .. line .. " > /dev/full")
      assert.equal(1, code, line .. ": " .. err)
      assert.matches("cannot write to stdout: No space left on device", err, 1, true)
    end
    local code, _, err = beside "ln -s /dev/full x.svg; exec $M profile --for 1s --out x.svg NEAR"
    assert.equal(1, code, err)
    assert.matches("cannot write x.svg: No space left on device", err, 1, true)
  end)

  it("whose reader has seen enough, as head has, says nothing of it", function()
    local code, _, err = beside "mkfifo p; exec 3<>p 4>p 3>&-; exec $M status NEAR >&4 4>&-"
    assert.same({ 1, "" }, { code, err })
  end)
end)
