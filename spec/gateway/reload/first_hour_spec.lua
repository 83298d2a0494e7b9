-- README's "A tool of your own": its commands run as written, except for the ports; its statements about saving and
-- breaking the tool are true, and a saved file is live before a person can call again.
local example = require "spec.helpers.example"
local gateway = require "spec.helpers.gateway"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local WITHIN = os.getenv "ASAN_OPTIONS" and 2000 or 300 -- ms from the save to the new answer
local SAVES = 20 -- tries at most; the quickest one counts, since the machine may delay others

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

-- The section's text, and the commands that it has in the new folder, without their comments.
local function section()
  local text = example.read("README.md"):match "\n## A tool of your own\n(.-)\n## "
  local blocks, commands = {}, {}
  for block in text:gmatch "```sh\n(.-)```" do blocks[#blocks + 1] = block end
  assert.equal('export PATH="$PWD/build/quick:$PATH"\nmkdir ../first && cd ../first\n', blocks[1])
  for line in blocks[2]:gmatch "[^\n]+" do commands[#commands + 1] = line:gsub("%s+# .*", "") end
  return text, commands
end

local function has(part, text) assert.truthy(text:find(part, 1, true), text) end

describe("the first hour", function()
  it("runs as the README says", function()
    local told, commands = section()
    assert.same({ "moonpool new tool greet", "moonpool check", "moonpool run &", "sleep 1", commands[5] }, commands)
    local dir = gateway.new_folder()
    local function moonpool(line)
      local words = {}
      for word in line:gmatch "%S+" do words[#words + 1] = word end
      return gateway.exec({ table.unpack(words, 2) }, { cwd = dir })
    end

    assert.equal(0, (moonpool(commands[1])))
    local code, out, err = moonpool(commands[2])
    assert.same({ 0, "" }, { code, err })
    assert.truthy(out:find "^tool  greet")
    write(dir .. "/moonpool.yaml", example.read(dir .. "/moonpool.yaml") .. "admin: {listen: 127.0.0.1:0}\n")

    local g <close> = gateway.start { dir = dir, args = { "--listen", "127.0.0.1:0" } }
    local typed = commands[5]:gsub("127%.0%.0%.1:7300", "127.0.0.1:" .. g.port)
    local function curl() return select(2, gateway.run_program("/bin/sh", { "-c", typed }, { cwd = dir })) end
    has(told:match 'answer has `(.-)`', curl())

    local clients, streams = { g:client "2025-11-25", g:client "2024-11-05" }, {}
    streams[1], streams[2] = clients[1]:get_stream(), clients[2].stream
    streams[1]:head()
    local function greet() return clients[1]:result("tools/call", { name = "greet", arguments = { name = "Ann" } }).content[1].text end

    local path = dir .. "/scripts/tools/greet.lua"
    local old, new = told:match "Change `(.-)` to `(.-)`"
    local text = example.read(path)
    local edited = text:gsub(old, new)
    assert.not_equal(text, edited)
    local said = told:match "same curl says `(.-)`"
    local function save(what, words)
      local saved = uv.hrtime()
      write(path, what)
      wait.for_fact("the new answer", 10, function() return greet() == words end)
      return (uv.hrtime() - saved) / 1e6
    end
    local took = save(edited, said)
    has(said, curl())
    g:wait_log("reloaded", { changes = told:match 'changes="(.-)"' })
    for i = 2, SAVES do
      if i > 4 and took <= WITHIN then break end
      took = math.min(took, save(text:gsub(old, "Save " .. i), (said:gsub(new, "Save " .. i))))
    end
    took = math.min(took, save(edited, said))
    assert.is_true(took <= WITHIN, ("%.0f ms from the save to the new answer"):format(took))
    assert.same({}, streams[1]:messages())

    local described = edited:gsub("Say what this does, ", "Greets people, ")
    assert.not_equal(edited, described)
    write(path, described)
    for _, stream in ipairs(streams) do stream:wait_event "notifications/tools/list_changed" end
    assert.matches("^Greets people", clients[1]:result("tools/list").tools[1].description)

    write(path, described .. told:match "with a `(.-)` at its end")
    g:wait_log "not reloaded"
    assert.equal(said, greet())
    has(said, curl())
    local mistake = "scripts/tools/greet.lua:" .. select(2, described:gsub("\n", "")) + 1 .. ": "
    has(mistake, g:wait_log("script refused").fields.error)
    code, out = moonpool("moonpool status --admin 127.0.0.1:" .. g.admin_port)
    assert.equal(0, code)
    has(mistake, out)
    code, out, err = moonpool("moonpool reload --admin 127.0.0.1:" .. g.admin_port)
    assert.same({ 1, "" }, { code, out })
    has(mistake, err)

    write(path, described)
    g:wait_status(function(status) return status.scripts.ok end)
    clients[1]:delete()
    for _, client in ipairs(clients) do client:close() end
    assert.has_nothing_left(g)
  end)

  it("has saved files at once beside an empty moonpool.yaml, with which the tutorial begins", function()
    local function tool(n) return ('return tool { "Answers.", function() return "answer %d" end }'):format(n) end
    local g <close> = gateway.start { scripts = { ["tools/one.lua"] = tool(0) }, args = { "--listen", "127.0.0.1:0" }, before = function(dir)
      write(dir .. "/moonpool.yaml", "")
    end }
    local client <close> = g:client "2025-11-25"
    local took
    for n = 1, SAVES do
      if took and took <= WITHIN then break end
      local saved = uv.hrtime()
      write(g.dir .. "/scripts/tools/one.lua", tool(n))
      wait.for_fact("the new answer", 10, function()
        return client:result("tools/call", { name = "one", arguments = { [" "] = nil } }).content[1].text == "answer " .. n
      end)
      took = math.min(took or math.huge, (uv.hrtime() - saved) / 1e6)
    end
    assert.is_true(took <= WITHIN, ("%.0f ms from the save to the new answer"):format(took))
  end)
end)
