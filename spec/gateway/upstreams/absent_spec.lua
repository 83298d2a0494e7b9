-- An upstream whose lists were never read, or that is gone for longer than `keep`: a request for one of its things is
-- told the state of the upstream, and not that no such thing exists.
local free_port = require "spec.helpers.free_port"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local faults = upstream.faults

local function start(one, two, entry)
  entry.list_wait, entry.circuit = entry.list_wait or "10s", { failures = 1000, open = "1s..1s" }
  return upstream.gateway({ one = one, other = two }, { workers = 2, entries = { one = entry }, constants = { upstream_keep_ms = 500 } })
end

-- The error for a call of a tool, which must be about the upstream `one`; its message.
local function check(c, method, params, reason)
  local answer = c:call(method, params)
  local data, message = upstream.failure(answer, "not_run", reason)
  assert.equal("one", data.upstream)
  assert.is_nil(message:find "did you mean")
  return message
end

describe("a call of a tool whose upstream was not listed yet", function()
  local causes = {
    ["answers 503"] = { function(u) u:when("*", faults.status(503)) end, "status" },
    ["refuses the credential"] = { function(u) u:when("*", faults.status(401)) end, "barred" },
    ["hangs"] = { function(u) u:when("*", faults.hangs()) end, "timeout", "500ms" },
  }
  for what, cause in pairs(causes) do
    it("that " .. what .. " is told so, and works once the upstream does", function()
      local one <close> = upstream.start { revision = "2025-11-25" }
      local two <close> = upstream.start { revision = "2025-11-25" }
      cause[1](one)
      local g <close> = start(one, two, { list_wait = cause[3], refresh = "1s", timeout = "2s" })
      local c <close> = g:client "2026-07-28"
      wait.for_fact("the other upstream", 20, function() return c:call("tools/call", { name = "other_echo", arguments = {} }).result end)
      check(c, "tools/call", { name = "one_echo", arguments = {} }, cause[2])
      check(c, "prompts/get", { name = "one_plain" }, cause[2])
      assert.truthy(c:call("tools/call", { name = "othe_echo", arguments = {} }).error.message:find "unknown tool")
      one:behave()
      if cause[2] == "barred" then return end     -- another credential ends that
      wait.for_fact("the tool", 40, function() return c:call("tools/call", { name = "one_echo", arguments = {} }).result end)
      assert.truthy(c:call("tools/call", { name = "one_ech", arguments = {} }).error.message:find "unknown tool 'one_ech': did you mean 'one_echo'")
    end)
  end

  it("is told that nothing listens at its address, also without a prefix", function()
    local two <close> = upstream.start { revision = "2025-11-25" }
    for _, prefix in ipairs { "one_", "" } do
      local g <close> = start({ url = ("http://127.0.0.1:%d/mcp"):format(free_port()) }, two, { prefix = prefix })
      local c <close> = g:client "2025-11-25"
      check(c, "tools/call", { name = prefix .. "echo", arguments = {} }, "refused")
      assert.truthy(c:call("tools/call", { name = "other_ech", arguments = {} }).error)
    end
  end)
end)

describe("a request for a thing of an upstream that is gone for longer than `keep`", function()
  for _, prefix in ipairs { "one_", "" } do
    it("is told the upstream's state, with the prefix '" .. prefix .. "'", function()
      local one <close> = upstream.start { revision = "2025-11-25" }
      local two <close> = upstream.start { revision = "2025-11-25", name = "two" }
      one:offer("resources", { '{"uri":"only://here","name":"here"}' })
      local g <close> = start(one, two, { prefix = prefix, refresh = "1s", retry = "never" })
      local c <close> = g:client "2025-11-25"
      wait.for_fact("the tool", 20, function() return c:call("tools/call", { name = prefix .. "echo", arguments = {} }).result end)
      one:when("*", faults.status(503))
      wait.for_fact("the tools to be gone", 40, function()
        for _, tool in ipairs(c:result("tools/list", {}).tools) do
          if tool.name == prefix .. "echo" then return false end
        end
        return true
      end)
      check(c, "tools/call", { name = prefix .. "echo", arguments = {} }, "status")
      check(c, "prompts/get", { name = prefix .. "plain" }, "status")
      check(c, "resources/read", { uri = "only://here" }, "status")
      one:behave()
      wait.for_fact("the tool again", 40, function() return c:call("tools/call", { name = prefix .. "echo", arguments = {} }).result end)
      assert.equal(-32602, c:call("tools/call", { name = prefix .. "nothing", arguments = {} }).error.code)
    end)
  end
end)
