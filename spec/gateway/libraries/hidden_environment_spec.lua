-- Programs that scripts start run as the user of the gateway, and may read /proc/PID/environ of any of its processes:
-- the variables of the gateway, which may be secrets, are not there.
local uv = require "luv"
local upgrading = require "spec.helpers.upgrading"
local gateway = require "spec.helpers.gateway"

local WORD <const> = "hidden-" .. uv.hrtime()

local scripts = {
  -- This tool lists the processes whose environment contains WORD.
  ["tools/look.lua"] = ([[return tool { "Looks.", function()
    return try(exec { "sh", "-c", "grep -la '%s' /proc/[0-9]*/environ 2>/dev/null; true" }).stdout
  end }]]):format(WORD),
  ["tools/known.lua"] = [[return tool { "Known.", function()
    local words = { "sh", "-c", 'printf "%s" "$TOKEN"; tr "\\0" "\n" < /proc/$$/environ | grep -c TOKEN=' }
    return env "PLAIN" .. try(exec(words, { env = { TOKEN = secret "WORD" } })).stdout
  end }]],
}

local function options()
  return {
    workers = 1, scripts = scripts, env = { WORD = WORD, PLAIN = "plain ", OTHER = WORD .. "-other" },
    config = { scripts = { allow = { run = { "sh" }, env = { "PLAIN", "WORD", "TOKEN" } } } },
  }
end

local function assert_hidden(g)
  local c <close> = g:client "2026-07-28"
  local function ask(name) return c:result("tools/call", { name = name, arguments = {} }).content[1].text end
  assert.equal("plain " .. WORD .. "1\n", ask "known")
  assert.equal("", ask "look")
end

describe("the environment of the gateway", function()
  it("is not to be seen in /proc, and stays known to the gateway and its scripts, also after a reload", function()
    local g <close> = gateway.start(options())
    assert_hidden(g)
    assert.equal(200, g:admin("/reload", "POST").status)
    assert_hidden(g)
    local file <close> = assert(io.open("/proc/" .. g.pid .. "/environ", "rb"))
    assert.equal("", (file:read "a":gsub("\0", "")))
  end)

  it("goes to the process of an upgrade, and is hidden there, too", function()
    local g <close> = upgrading.start(options())
    assert.equal(0, (g:upgrade()))
    assert_hidden(g)
  end)
end)
