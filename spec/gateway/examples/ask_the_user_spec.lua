-- examples/ask-the-user: the commands of its README, and the behaviour of its tool.
local example = require "spec.helpers.example"
local gateway = require "spec.helpers.gateway"

local files = { "README.md", "moonpool.yaml", "scripts/tools/photo/tools.lua", "scripts/tools/photo/tools_spec.lua" }
local able = { elicitation = { form = { [" "] = 1 } } }

local function text(answer) return answer.result.content[1].text end

describe("the example ask-the-user", function()
  it("does what its README says", function()
    local dir, commands, ports = example.copy("ask-the-user", files)
    assert.equal(4, #commands)
    local words = {}
    for word in commands[1]:gmatch "%S+" do words[#words + 1] = word end
    local code, out = gateway.exec({ table.unpack(words, 2) }, { cwd = dir })
    assert.equal(0, code, out)
    do
      local served <close> = example.run_beside(commands[2], dir)
      example.await_port(ports["7300"])
      assert.matches("added", (select(2, gateway.run_program("/bin/sh", { "-c", commands[3] }, { cwd = dir }))))
      code, out = gateway.run_program("/bin/sh", { "-c", commands[4] }, { cwd = dir })
      assert.equal(0, code)
      assert.truthy(out:find(example.read(dir .. "/examples/ask-the-user/README.md"):match "The last answers `…(.-)…`", 1, true), out)
      assert.truthy(out:find("input_required", 1, true), out)
      local typed = example.read(dir .. "/examples/ask-the-user/README.md"):match "At a terminal `(.-)`":gsub("^moonpool", example.program())
      code, out = gateway.run_program("/bin/sh", { "-c", ("printf 'yes\\n' | script -qec '%s' /dev/null"):format(typed) }, { cwd = dir })
      assert.equal(0, code, out)
      assert.truthy(out:find("Delete Oslo (1999)?", 1, true) and out:find("1 deleted", 1, true), out)
      assert.is_nil(served.code)
    end
    gateway.run_program("/bin/rm", { "-r", dir })
  end)

  for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
    it("deletes what the user saw and nothing else, in " .. revision, function()
      local g <close> = gateway.start { scripts_path = "examples/ask-the-user/scripts" }
      local me, other = g:client(revision, { capabilities = able }), g:client "2026-07-28"
      local function add(title) other:result("tools/call", { name = "photo_add", arguments = { title = title, year = 1999 } }) end
      local clear = { name = "photo_clear", arguments = { before = 2000 } }
      add "Oslo"
      local answer
      if revision == "2026-07-28" then
        local asked = me:result("tools/call", clear)
        assert.equal("Delete Oslo (1999)?", asked.inputRequests.sure.params.message)
        add "Bergen"
        answer = me:call("tools/call", {
          name = clear.name, arguments = clear.arguments, requestState = asked.requestState,
          inputResponses = { sure = { action = "accept", content = { confirm = true } } },
        })
      else
        local stream = me:open("tools/call", clear)
        local question = stream:wait_event("elicitation/create").json
        assert.equal("Delete Oslo (1999)?", question.params.message)
        add "Bergen"
        me:post { jsonrpc = "2.0", id = question.id, result = { action = "accept", content = { confirm = true } } }
        answer = stream:answer()
        me:delete()
      end
      assert.equal("1 deleted", text(answer))
      answer = other:call("tools/call", clear)
      assert.same({ "the client cannot ask its user: nothing is deleted", true }, { text(answer), answer.result.isError })
      me:close()
      other:close()
      assert.has_nothing_left(g)
    end)
  end
end)
