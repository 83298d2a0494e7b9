-- Recorded calls and grants: what a script may not use any more, or asks for without a grant, refuses a reload that is
-- checked by recorded calls, with the cause; what was refused when it was recorded does not.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local TOKEN <const> = ("o"):rep(32)
local TOOL <const> = 'return tool { "Reads.", input = { name = t.string }, function(args) %s end }'
local READS <const> = "return try(fs.read('data/' .. args.name))"

-- A gateway with one recorded call of the tool `read`, whose handler is `before`. `allowed`: the grants of its script.
local function start(before, allowed)
  local g = gateway.start {
    files = { ["data/MARK.txt"] = "text" }, scripts = { ["tools/read.lua"] = TOOL:format(before) },
    config = {
      admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = TOKEN } } }, record = { tools = { "*" } },
      scripts = { watch = false, reload_check = "refuse", grants = allowed and { ["tools/read.lua"] = allowed } },
    } }
  local c <close> = g:client "2026-07-28"
  local result = c:result("tools/call", { name = "read", arguments = { name = "MARK.txt" } })
  wait.for_fact("the record", 20, function() return g:status().counters.records.kept == 1 end)
  return g, result
end

-- Runs `moonpool replay` against the calls of the gateway.
local function replay(g)
  return gateway.exec({ "replay", "--admin", "127.0.0.1:" .. g.admin_port }, { cwd = g.dir, env = { MOONPOOL_ADMIN_TOKEN = TOKEN }, seconds = 60 })
end

-- Writes the handler, and takes the grants away or gives others; then reloads. Returns the answer.
local function reload(g, after, edit)
  local file <close> = assert(io.open(g.dir .. "/scripts/tools/read.lua", "w"))
  file:write(TOOL:format(after)):close()
  if edit then
    local config <close> = assert(io.open(g.dir .. "/moonpool.yaml", "r+"))
    local text = edit(config:read "a")
    config:close()
    local again <close> = assert(io.open(g.dir .. "/moonpool.yaml", "w"))
    again:write(text)
  end
  return client.request(g, { path = "/reload", method = "POST", headers = { Authorization = "Bearer " .. TOKEN } }, { admin = true, seconds = 60 })
end

describe("a recorded call that a grant refuses now", function()
  it("refuses the reload, and names script and grant: a grant that was taken away", function()
    local g <close>, result = start(READS, { read = { "data/" } })
    assert.equal("text", result.content[1].text)
    local answer = reload(g, READS, function(text)
      local changed, count = text:gsub("data\\/", "other/") -- as JSON has it
      assert.equal(1, count, text)
      return changed
    end)
    assert.equal(422, answer.status, answer.body)
    assert.matches("FAILS read %x+: failed now, ok before: tools/read%.lua asks for what no grant allows: read", answer.body)
    assert.matches("scripts.grants", answer.body, 1, true)
    for _, said in ipairs { answer.body, g:log(), g:admin("/status").body } do assert.is_nil(said:find("MARK", 1, true), said) end
    local _, out = replay(g)
    assert.matches("tools/read.lua asks for what no grant allows: read", out, 1, true)
  end)

  for kind, use in pairs { net = "try(http.get 'http://127.0.0.1:1/')", read = "try(fs.read 'secret/MARK')", write = "try(fs.write('secret/MARK', 'x'))",
    run = "try(exec { 'true' })", env = "try(env 'MARK')" } do
    it("refuses the reload, and names script and grant: a new use of the kind " .. kind, function()
      local g <close> = start "return args.name"
      local answer = reload(g, use .. " return args.name")
      assert.equal(422, answer.status, answer.body)
      assert.matches("FAILS read %x+: failed now, ok before: tools/read%.lua asks for what no grant allows: " .. kind, answer.body)
      for _, said in ipairs { answer.body, g:log() } do assert.is_nil(said:find("MARK", 1, true), said) end
    end)
  end

  it("is said, too, where the handler goes on without it, which refuses no reload", function()
    local g <close> = start "return args.name"
    local answer = reload(g, "return fs.read 'secret' or 'nothing'")
    assert.equal(200, answer.status, answer.body)
    assert.matches("differs read %x+: tools/read%.lua asks for what no grant allows: read", answer.body)
  end)
end)

describe("a call that was recorded as refused by a grant", function()
  it("is as recorded while the grant is missing, and does not fail anew once it is given", function()
    local g <close>, result = start(READS)
    assert.is_true(result.isError)
    local code, out, err = replay(g)
    assert.equal(0, code, out .. err)
    assert.matches("1 call, all answered as recorded", out)
    local answer = reload(g, "local _ = 1 " .. READS)
    assert.equal(200, answer.status, answer.body)
    answer = reload(g, READS, function(text)
      return (text:gsub("reload_check", 'grants": {"tools/read.lua": {"read": ["data/"]}}, "reload_check', 1))
    end)
    assert.equal(200, answer.status, answer.body)
    local c <close> = g:client "2026-07-28"
    assert.equal("text", c:result("tools/call", { name = "read", arguments = { name = "MARK.txt" } }).content[1].text)
  end)
end)
