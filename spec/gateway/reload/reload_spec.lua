-- Saved scripts take effect at once, on every worker; a broken script changes nothing; clients are notified of the
-- lists that changed, and of nothing else.
local lfs = require "lfs"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local function tool(text, more) return ("return tool { %q, %s function(_, call) return %q end }"):format("Says " .. text .. ".", more or "", text) end

local function write(g, path, text)
  local file <close> = assert(io.open(g.dir .. "/scripts/" .. path, "wb"))
  file:write(text)
end

-- Saves like editors that write a new file and rename it.
local function replace(g, path, text)
  write(g, path .. ".tmp", text)
  assert(os.rename(g.dir .. "/scripts/" .. path .. ".tmp", g.dir .. "/scripts/" .. path))
end

local function says(client, name)
  local answer = client:call("tools/call", { name = name or "one" })
  return answer.result and answer.result.content[1].text or answer.error.message
end

local function wait_says(g, text, name)
  for _ = 1, 8 do -- the kernel picks the worker of each connection
    local client <close> = g:client "2026-07-28"
    wait.for_fact("every worker to say " .. text, 20, function() return says(client, name) == text end)
  end
end

local function reload(g)
  local response = g:admin("/reload", "POST")
  return response.status, response.body
end

describe("a script that is saved", function()
  for how, save in pairs { ["written over"] = write, ["put in place of the old"] = replace } do
    it(how .. ", serves on every worker, and nobody is told when no list changed", function()
      local g <close> = gateway.start { scripts = { ["tools/one.lua"] = tool("old") } }
      local session = g:client "2025-11-25"
      local stream = session:get_stream()
      stream:head()
      wait_says(g, "old")
      save(g, "tools/one.lua", (tool("old"):gsub('return "old"', 'return "new"')))
      wait_says(g, "new")
      g:wait_log("reloaded", { changes = "~ one (code)" })
      assert.equal("new", says(session))
      assert.same({}, stream:messages())
      assert.equal(2, g:status().scripts.generation)
      session:close()
      stream.connection:close()
      g:wait_status(function(status) return status.gauges.vms == 2 end)
    end)
  end

  it("notifies sessions and subscribers once of the lists that changed", function()
    local g <close> = gateway.start { scripts = {
      ["tools/one.lua"] = tool("one"), ["prompts/ask.lua"] = 'return prompt { "Asks.", function() return "Hello" end }',
    } }
    local session, old, new = g:client "2025-11-25", g:client "2024-11-05", g:client "2026-07-28"
    local stream = session:get_stream()
    stream:head()
    local ears = new:open("subscriptions/listen", { notifications = { toolsListChanged = true, promptsListChanged = true } })
    ears:wait "notifications/subscriptions/acknowledged"
    write(g, "tools/two.lua", tool "two")
    stream:wait "notifications/tools/list_changed"
    ears:wait "notifications/tools/list_changed"
    old.stream:wait_event "notifications/tools/list_changed"
    assert.equal("two", says(session, "two"))
    assert.equal(2, #session:result("tools/list").tools)
    write(g, "prompts/ask.lua", 'return prompt { "Asks nicely.", function() return "Hello" end }')
    stream:wait "notifications/prompts/list_changed"
    g:wait_log("reloaded", { changes = "~ ask (description)" })
    assert(os.remove(g.dir .. "/scripts/tools/two.lua"))
    stream:wait "notifications/tools/list_changed"
    g:wait_log("reloaded", { changes = "- two" })
    local seen = {}
    for _, message in ipairs(stream:messages()) do seen[#seen + 1] = message.method end
    assert.same({ "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/tools/list_changed" }, seen)
    session:close()
    old:close()
    ears:hang_up()
  end)

  it("may be a new target of a symbolic link, as config maps do it", function()
    local g <close> = gateway.start { scripts = { ["tools/one.lua"] = tool("old") }, config = { scripts = { path = "served" } }, before = function(dir)
      assert(lfs.mkdir(dir .. "/v2"))
      assert(lfs.mkdir(dir .. "/v2/tools"))
      assert(lfs.link("scripts", dir .. "/served", true))
      local file <close> = assert(io.open(dir .. "/v2/tools/one.lua", "wb"))
      file:write(tool "new")
    end }
    wait_says(g, "old")
    assert(lfs.link("v2", g.dir .. "/served.tmp", true))
    assert(os.rename(g.dir .. "/served.tmp", g.dir .. "/served"))
    wait_says(g, "new")
  end)

  it("leaves running calls on the code they began with, whose state goes when the last has ended", function()
    local slow = [[local version = "old" return tool { "Slow.", function(_, call) call:progress(1) sleep(5) return version end }]]
    local g <close> = gateway.start { scripts = { ["tools/one.lua"] = slow } }
    local c = g:client "2026-07-28"
    local stream = c:open("tools/call", { name = "one", _meta = { progressToken = 1 } })
    stream:wait "notifications/progress"
    write(g, "tools/one.lua", (slow:gsub("old", "new"):gsub("sleep%(5%)", "")))
    g:wait_log "reloaded"
    g:wait_status(function(status) return status.gauges.vms == 3 end)
    wait_says(g, "new")
    assert.equal("old", stream:answer().result.content[1].text)
    g:wait_status(function(status) return status.gauges.vms == 2 end)
    c:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a script that is broken", function()
  it("changes nothing, is shown in the log and /status, and is loaded once it is mended", function()
    local g <close> = gateway.start { scripts = { ["tools/one.lua"] = tool("old") } }
    local session = g:client "2025-11-25"
    local stream = session:get_stream()
    stream:head()
    write(g, "tools/one.lua", "return tool { 'One.', function() retrun 1 end }")
    local line = g:wait_log "script refused"
    assert.truthy(line.fields.error:find("scripts/tools/one.lua:1:", 1, true), line.fields.error)
    wait_says(g, "old")
    local scripts = g:status().scripts
    assert.same({ false, 1 }, { scripts.ok, scripts.generation })
    assert.truthy(scripts.errors:find("one.lua:1:", 1, true))
    local status, text = reload(g)
    assert.equal(422, status)
    assert.truthy(text:find("one.lua:1:", 1, true))
    write(g, "tools/one.lua", tool "mended")
    wait_says(g, "mended")
    g:wait_status(function(now) return now.scripts.ok end) -- a worker serves the new scripts before the last one has switched
    stream:wait "notifications/tools/list_changed"
    session:close()
    stream.connection:close()
  end)

  it("may be taken back: then nothing has happened", function()
    local g <close> = gateway.start { scripts = { ["tools/one.lua"] = tool("old") } }
    write(g, "tools/two.lua", "this is no Lua")
    g:wait_log "not reloaded"
    assert(os.remove(g.dir .. "/scripts/tools/two.lua"))
    g:wait_status(function(status) return status.scripts.ok end)
    assert.equal(1, g:status().scripts.generation)
  end)
end)

describe("POST /reload", function()
  it("answers with what changed once every worker serves it; SIGHUP does the same without an answer", function()
    local g <close> = gateway.start { scripts = { ["tools/one.lua"] = tool("old") }, config = { scripts = { watch = "false" } } }
    assert.same({ 200, "nothing changed\n" }, { reload(g) })
    write(g, "tools/one.lua", tool "new")
    write(g, "tools/two.lua", tool "two")
    wait_says(g, "old")
    assert.same({ 200, "~ one (description)  + two\n" }, { reload(g) })
    local c <close> = g:client "2026-07-28"
    assert.equal("new", says(c))
    write(g, "tools/one.lua", tool "third")
    g:signal "sighup"
    wait_says(g, "third")
    assert.equal(405, g:admin("/reload").status)
    g:wait_status(function(status) return status.scripts.changes == "~ one (description)" end)
  end)
end)
