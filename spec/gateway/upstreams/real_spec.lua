-- Servers that people run, behind the gateway: the official TypeScript SDKs of each revision, the official Python and
-- Go SDKs, and server-everything, over each of their transports.
local gateway = require "spec.helpers.gateway"
local real = require "spec.helpers.real"
local upstream = require "spec.helpers.upstream"

for _, row in ipairs(real.servers) do
  describe(row.name .. ", of " .. row.revision, function()
    it("lists, answers and ends, for a client of each revision", function()
      if real.lacks(row.name) then return pending(real.lacks(row.name)) end
      local u <close> = real.start(row.name)
      local g <close> = upstream.gateway({ one = u }, { entries = { one = { list_wait = "20s" } } })
      for _, asks in ipairs(upstream.revisions) do
        local c <close> = g:client(asks)
        local names = {}
        for _, tool in ipairs(c:result("tools/list", {}).tools) do names[tool.name] = true end
        assert.is_true(names["one_" .. row.tool], "the tool is not in the list")
        assert.equal(row.answer, upstream.text(c:call("tools/call", { name = "one_" .. row.tool, arguments = row.arguments })))
        if names.one_counter then
          upstream.text(c:call("tools/call", { name = "one_counter", arguments = { n = 1 } }))
          local stream = c:open("tools/call", { name = "one_steps", arguments = { n = 1 }, _meta = { progressToken = "p" } })
          for step = 1, 3 do assert.equal(step, stream:wait_event("notifications/progress").json.params.progress) end
          assert.equal("done", upstream.text(stream:answer()))
        end
        if row.is_fixture then
          assert.equal("Hello, you", c:result("prompts/get", { name = "one_hello", arguments = { who = "you" } }).messages[1].content.text)
          assert.equal("hello", c:result("resources/read", { uri = "fixture://text" }).contents[1].text)
        end
      end
    end)

    if row.is_newest then
      it("is added, examined, called and checked from a terminal", function()
        if real.lacks(row.name) then return pending(real.lacks(row.name)) end
        local u <close> = real.start(row.name)
        local words = u.entry.url and { u.entry.url } or { "--", table.unpack(u.entry.command) }
        local dir = gateway.prepare { config = "admin: off\n" }
        local function run(...)
          local args = { ... }
          local code, out, err = gateway.exec(args, { cwd = dir })
          assert.equal(0, code, table.concat(args, " ") .. ": " .. out .. err)
          return out
        end
        run("add", "one", table.unpack(words))
        local report = run("doctor", "one")
        assert.truthy(report:find(row.revision .. " over ", 1, true), report)
        local url = u.entry.url
        local called = url and { "call", "-u", url, row.tool, "text=hi" } or { "call", row.tool, "text=hi", "--", table.unpack(u.entry.command) }
        assert.equal("hi\n", run(table.unpack(called)))
        assert.truthy(run("check", "--connect"):find("one_" .. row.tool, 1, true))
        os.execute("rm -rf '" .. dir .. "'")
      end)
    end
  end)
end
