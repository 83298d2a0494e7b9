-- What the package has for a service: its units, with the parts of units that docs/how-to/systemd.md shows, and its
-- logrotate file.
local example = require "spec.helpers.example"
local gateway = require "spec.helpers.gateway"
local page = require "spec.helpers.page"
local shell = require "spec.helpers.shell"
local wait = require "spec.helpers.wait"

local run, write = shell.run, shell.write

local function is_there(program) return select(2, run("command -v " .. program)) == 0 end

describe("the units of the package", function()
  if not is_there "systemd-analyze" then return pending "systemd-analyze is not installed" end
  local scratch

  before_each(function()
    scratch = gateway.new_folder()
    -- /usr/bin/moonpool may not be installed here
    for _, name in ipairs { "moonpool.service", "moonpool.socket" } do
      write(scratch .. "/" .. name, (example.read("packaging/" .. name):gsub("/usr/bin/moonpool", "/bin/true")))
    end
  end)
  after_each(function() run("rm -r " .. scratch) end)

  -- What systemd says of the units: lines about what it does not know or cannot read.
  local function complaints()
    local out, code = run(("systemd-analyze verify --man=no %s/moonpool.service %s/moonpool.socket"):format(scratch, scratch))
    local list = {}
    for line in out:gmatch "[^\n]+" do
      if line:find "/moonpool%.%l+[%w./]*:%d+:" then list[#list + 1] = line end
    end
    assert.is_true(code == 0 or #list > 0 or out:find "not found" ~= nil, out)
    return list
  end

  it("are accepted by systemd, and give the service few privileges", function()
    assert.same({}, complaints())
    local out, code = run "systemd-analyze security --offline=true --threshold=20 packaging/moonpool.service"
    assert.equal(0, code, out)
  end)

  it("are accepted with each part of a unit on the page", function()
    local count = 0
    local function add(text)
      local name = scratch .. "/moonpool." .. text:match "%[(%u%l+)%]":lower() .. ".d"
      run("mkdir -p " .. name)
      write(name .. "/page.conf", (text:gsub("/usr/bin/moonpool", "/bin/true")))
      local list = complaints()
      run("rm -r " .. name)
      return list
    end
    for _, block in ipairs(page.blocks "docs/how-to/systemd.md") do
      if block.language == "ini" then
        assert.same({}, add(block.text), "line " .. block.line)
        count = count + 1
      end
    end
    assert.is_true(count >= 3)
    assert.matches("Nonsense", add("[Service]\nNonsense=1\n")[1])
    assert.is_true(#add "[Socket]\nListenStream=no address\n" > 0)
  end)
end)

describe("the logrotate file of the package", function()
  if not is_there "logrotate" then return pending "logrotate is not installed" end

  it("renames and compresses the log and the audit, and no line is lost", function()
    local who = run("id -un"):match "%S+"
    local g <close> = gateway.start { config = { log = { file = "a.log", audit = "audit.jsonl", level = "debug" } },
      scripts = { ["tools/hi.lua"] = [[return tool { "Says hi.", function() return "hi" end }]] } }
    local file = example.read("packaging/logrotate"):gsub("/var/log/moonpool/", g.dir .. "/"):gsub("su moonpool moonpool", "su " .. who .. " " .. who)
    local asked
    file, asked = file:gsub("if %[ %-d /run/systemd/system %]; then systemctl kill %-%-kill%-who=main %-%-signal=USR1 moonpool.service",
      "if true; then kill -USR1 " .. g.pid)
    assert.equal(1, asked)
    write(g.dir .. "/rotate.conf", file)
    run("chmod 644 " .. g.dir .. "/rotate.conf && chmod 755 " .. g.dir)
    local me <close> = g:client "2026-07-28"
    local calls = 0
    local function call()
      calls = calls + 1
      me:result("tools/call", { name = "hi", arguments = {} })
      for name, line in pairs { ["audit.jsonl"] = '"name":"hi"', ["a.log"] = "request .*name=hi" } do
        wait.for_fact("each call in " .. name, 10, function()
          return run(("zcat -f %s/%s* | grep -c '%s'"):format(g.dir, name, line)) == calls .. "\n"
        end)
      end
    end
    for _ = 1, 2 do
      call()
      local out, code = run(("cd %s && logrotate --force --state $PWD/state rotate.conf"):format(g.dir))
      assert.equal(0, code, out)
      wait.for_fact("new files", 10, function() return select(2, run(("cd %s && ls a.log audit.jsonl"):format(g.dir))) == 0 end)
    end
    call()
    assert.equal("a.log a.log.1 a.log.2.gz audit.jsonl audit.jsonl.1 audit.jsonl.2.gz\n", (run(("cd %s && echo a*"):format(g.dir))))
  end)
end)
