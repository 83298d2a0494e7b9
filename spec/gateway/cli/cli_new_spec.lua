-- From an empty folder to a tool that is served: `moonpool new`, `check`, `call`; and the files for editors and shells.
local gateway = require "spec.helpers.gateway"
local uv = require "luv"

local dir

local function moonpool(...)
  return gateway.exec({ ... }, { cwd = dir })
end

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

before_each(function() dir = assert(uv.fs_mkdtemp((os.getenv "TMPDIR" or "/tmp") .. "/moonpool-XXXXXX")) end)
after_each(function() os.execute("rm -rf '" .. dir .. "'") end)

describe("moonpool new", function()
  it("makes a tool that can be called at once, in a folder that had nothing", function()
    local code, out, err = moonpool("new", "tool", "greet")
    assert.same({ 0, "" }, { code, err })
    assert.equal("wrote moonpool.yaml\nwrote scripts/tools/greet.lua\nwrote scripts/tools/greet_spec.lua\n" ..
      "  next: edit it, then\n  moonpool check\n  moonpool test\n" ..
      "  moonpool call greet name=Ann times=2\n  moonpool run     # serves it, and each change when you save it\n", out)
    assert.same({ 0, "Hello, Ann!\nHello, Ann!\n", "progress 1/2\nprogress 2/2\n" }, { moonpool("call", "greet", "name=Ann", "times=2") })
  end)

  it("makes each kind without a warning of check", function()
    for _, kind in ipairs { "tool", "resource", "prompt" } do
      assert.equal(0, (moonpool("new", kind, "some/thing")))
    end
    local code, out, err = moonpool "list"
    assert.same({ 0, "" }, { code, err })
    assert.truthy(out:find("tool  some_thing", 1, true))
    assert.truthy(out:find("resource  example://some_thing/{id}", 1, true))
    assert.truthy(out:find("prompt  some_thing", 1, true))
    assert.same({ 0, out, "" }, { moonpool "list" })
    assert.equal("", (select(3, moonpool "check")))
  end)

  it("makes a policy that no warning is about, also where there is no tool yet", function()
    local empty = gateway.prepare {}
    assert.equal(0, (gateway.exec({ "new", "policy", "watch" }, { cwd = empty })))
    local code, _, err = gateway.exec({ "check" }, { cwd = empty })
    assert.equal(0, code)
    assert.is_nil(err:find("policy", 1, true), err)
    gateway.run_program("/bin/rm", { "-r", empty })
  end)

  it("makes a job, a policy and a library that load and work", function()
    for _, kind in ipairs { "tool", "job", "policy", "lib" } do assert.equal(0, (moonpool("new", kind, "names/end"))) end
    local code, out, err = moonpool "check"
    assert.same({ 0, "" }, { code, err })
    assert.truthy(out:find("job  names_end", 1, true), out)
    assert.truthy(out:find("names_end", 1, true), out)
    local file <close> = assert(io.open(dir .. "/scripts/tools/tidy.lua", "wb"))
    file:write '--- Tidies.\n---@param name string\nreturn function(name) return require("names.end").tidy(name) end\n'
    file:close()
    local said
    code, out, said = moonpool("call", "tidy", "name=  Ann   Lee ")
    assert.same({ 0, "Ann Lee\n" }, { code, out })
    assert.matches("^%S+ info  called           seconds=%S+ tool=tidy who=local\n$", said)       -- the log has the policy's line, and no other
    local g <close> = gateway.start { scripts_path = dir .. "/scripts" }
    local c = g:client "2026-07-28"
    c:result("tools/call", { name = "names_end", arguments = { name = "Ann" } })
    c:close()
    g:wait_log("called", { tool = "names_end", who = "anonymous" })
    g:wait_log("names_end ran", { count = "1" })
    assert.has_nothing_left(g)
  end)

  it("makes a spec beside each kind, which passes", function()
    local kinds = { "auth", "job", "lib", "policy", "prompt", "resource", "tool" }
    for _, kind in ipairs(kinds) do assert.equal(0, (moonpool("new", kind, "orders/2nd"))) end
    local code, out, err = moonpool "test"
    assert.equal(0, code, out .. err)
    for _, folder in ipairs { "auth", "jobs", "lib", "policy", "prompts", "resources", "tools" } do
      assert.truthy(out:find("\nok    scripts/" .. folder .. "/orders/2nd_spec.lua  ", 1, true) or out:find("^ok    scripts/" .. folder), out)
    end
    assert.equal(0, (moonpool("check", "--strict")))
  end)

  it("leaves a spec that is there", function()
    moonpool("new", "tool", "greet")
    os.remove(dir .. "/scripts/tools/greet.lua")
    local _, out = moonpool("new", "tool", "greet")
    assert.truthy(out:find("left scripts/tools/greet_spec.lua as it is\n", 1, true), out)
  end)

  it("makes an auth script, in its folder", function()
    assert.equal(0, (moonpool("new", "auth", "main")))
    assert.truthy(read(dir .. "/scripts/auth/main.lua"):find("return auth {", 1, true))
  end)

  it("never writes over a file", function()
    moonpool("new", "tool", "greet")
    local file = assert(io.open(dir .. "/scripts/tools/greet.lua", "wb"))
    file:write "mine"
    file:close()
    local code, out, err = moonpool("new", "tool", "greet")
    assert.same({ 1, "", "moonpool: scripts/tools/greet.lua exists already\n  hint: choose another name, or remove it\n" }, { code, out, err })
    assert.equal("mine", read(dir .. "/scripts/tools/greet.lua"))
  end)

  it("writes below scripts.path of the configuration", function()
    local file = assert(io.open(dir .. "/other.yaml", "wb"))
    file:write "scripts: lua\n"
    file:close()
    assert.equal(0, (moonpool("new", "-c", "other.yaml", "tool", "x")))
    assert.truthy(uv.fs_stat(dir .. "/lua/tools/x.lua"))
    assert.is_nil(uv.fs_stat(dir .. "/moonpool.yaml"))
  end)

  for _, misuse in ipairs {
    { { "tol", "x" }, "there is no kind of script 'tol'", "did you mean 'tool'?" },
    { { "tool" }, "new takes a kind and one name", "as in moonpool new tool greet" },
    { { "tool", "../x" }, "'../x' is not a valid name for a script", "letters, digits, '_' and '-', and '/' for folders, as in orders/refund" },
    { { "tool", "/etc/x" }, "'/etc/x' is not a valid name for a script", "letters, digits, '_' and '-', and '/' for folders, as in orders/refund" },
  } do
    it("refuses " .. table.concat(misuse[1], " "), function()
      local code, out, err = moonpool("new", table.unpack(misuse[1]))
      assert.same({ 2, "", ("moonpool: %s\n  hint: %s\n"):format(misuse[2], misuse[3]) }, { code, out, err })
      assert.is_nil(uv.fs_stat(dir .. "/scripts"))
    end)
  end
end)

describe("moonpool completion", function()
  local function commands()
    local _, help = gateway.exec { "--help" }
    local list = {}
    for name in help:match "ARGUMENT%]%.%.%.\n\n(.-)\n\n":gmatch "%f[^\n\0] +(%l+)" do list[#list + 1] = name end
    return list
  end

  it("knows every command and option in every shell", function()
    for _, shell in ipairs { "bash", "zsh", "fish" } do
      local code, script = gateway.exec { "completion", shell }
      assert.equal(0, code)
      for _, name in ipairs(commands()) do
        local _, page = gateway.exec { "help", name }
        assert.truthy(script:find("%f[%w]" .. name .. "%f[%W]"), shell .. " lacks " .. name)
        for option in page:gmatch "\n  %-?%w?,? +%-%-([%l-]+)" do
          assert.truthy(script:find("%f[%w]" .. option:gsub("%-", "%%-") .. "%f[%W]"), shell .. " lacks --" .. option)
        end
      end
    end
  end)

  local function complete(...)
    local words = { ... }
    local binary = uv.fs_realpath(gateway.binary)
    local quoted = {}
    for i, word in ipairs(words) do quoted[i] = "'" .. word .. "'" end
    local _, out = gateway.run_program("/bin/bash", { "-c", ([[source <('%s' completion bash)
      COMP_WORDS=(moonpool %s) COMP_CWORD=%d; _moonpool; printf '%%s ' "${COMPREPLY[@]}"]]):format(binary, table.concat(quoted, " "), #words) })
    return out
  end

  it("completes in bash", function()
    assert.equal("completion ", complete "completi")
    assert.equal("--revision --raw ", complete("call", "--r"))
    assert.equal("2025-03-26 2025-06-18 2025-11-25 ", complete("call", "-r", "2025"))
    assert.equal("tool ", complete("new", "to"))
  end)

  it("completes the names of what is served in bash", function()
    assert.equal(0, (moonpool("new", "tool", "greet")))
    assert.equal(0, (moonpool("new", "prompt", "ask_greet")))
    local binary = uv.fs_realpath(gateway.binary)
    local _, out = gateway.run_program("/bin/bash", { "-c", ([[PATH='%s':$PATH; source <(moonpool completion bash)
      for command in call prompt; do
        COMP_WORDS=(moonpool $command ""); COMP_CWORD=2; _moonpool; printf '%%s ' "${COMPREPLY[@]}"
      done]]):format(binary:match "^(.*)/") }, { cwd = dir })
    assert.equal("greet ask_greet ", out)
  end)

  local typed = {
    ["moonpool completi"] = "on", ["moonpool call gre"] = "et",
    ["moonpool new po"] = "licy", ["moonpool call --bear"] = "er-env", ["moonpool call -r 2026"] = "-07-28",
  }

  it("completes in fish", function()
    assert.equal(0, (moonpool("new", "tool", "greet")))
    local binary, asked = uv.fs_realpath(gateway.binary), {}
    for line in pairs(typed) do asked[#asked + 1] = ("complete -C '%s'"):format(line) end
    local code, out = gateway.run_program("/usr/bin/env", { "fish", "--no-config", "-c",
      ("set -x PATH '%s' $PATH; '%s' completion fish | source; %s"):format(binary:match "^(.*)/", binary, table.concat(asked, "; ")) }, { cwd = dir })
    if code == 127 then return pending "fish is not installed" end
    assert.equal(0, code, out)
    for line, rest in pairs(typed) do
      local whole = line:match "%S+$" .. rest
      assert.truthy(("\n" .. out):find("\n" .. whole:gsub("%-", "%%-") .. "%f[%s]"), whole .. " is not in " .. out)
    end
  end)

  -- Typed at a terminal, because only there zsh starts its line editor.
  it("completes in zsh", function()
    assert.equal(0, (moonpool("new", "tool", "greet")))
    local binary, keys = uv.fs_realpath(gateway.binary), {}
    for line in pairs(typed) do keys[#keys + 1] = "'" .. line .. "'" end
    local code, out = gateway.run_program("/usr/bin/env", { "timeout", "10", "zsh", "-f", "-c", ([[setopt extendedglob
      zmodload zsh/zpty
      zpty z "zsh -f -i"
      zpty -w z "PATH='%s':\$PATH; autoload -Uz compinit; compinit -D -u; source <('%s' completion zsh); PS1='rea''dy> '"
      zpty -r -m z out "*ready> *"
      for typed in %s; do
        zpty -w -n z "$typed"$'\t'
        zpty -r -m z out "*${typed}[^ ]## *"
        print -r -- "$out"
        zpty -w -n z $'\025'
      done
      zpty -d z]]):format(binary:match "^(.*)/", binary, table.concat(keys, " ")) }, { cwd = dir })
    if code == 127 then return pending "zsh is not installed" end
    assert.equal(0, code, out)
    for line, rest in pairs(typed) do assert.truthy(out:find(line .. rest, 1, true), line .. rest .. " is not in " .. out) end
  end)

  it("refuses a shell that it does not know", function()
    local code, _, err = gateway.exec { "completion", "bsh" }
    assert.same({ 2, "moonpool: no completions for the shell 'bsh'\n  hint: did you mean 'bash'?\n" }, { code, err })
  end)
end)
