-- The official TypeScript SDKs before real servers: clients of the SDK 1.x and 2.x drive a form, a question to the
-- model, progress, a cancelled call and a changed list through the gateway, in all four combinations of stateful and
-- stateless clients and upstreams. No published server-everything speaks a stateless revision: there a server made with
-- the SDK 2.x stands for it.
local cjson = require "cjson.safe"
local real = require "spec.helpers.real"
local talk = require "spec.helpers.talk"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local EVERYTHING <const> = {
  elicit = "trigger-elicitation-request", sample = "trigger-sampling-request", work = "trigger-long-running-operation", grow = "gzip-file-as-resource",
}
local MODERN <const> = { elicit = "ask", sample = "sample", work = "work", grow = "grow" }

local CLIENTS <const> = {
  one = { "SDK 1.x", "converse1.mjs", "http" }, one_sse = { "SDK 1.x, over HTTP+SSE,", "converse1.mjs", "sse" },
  two = { "SDK 2.x", "converse2.mjs", "modern", era = "modern" }, two_legacy = { "SDK 2.x, stateful,", "converse2.mjs", "legacy", era = "legacy" },
}
local PAIRS <const> = {
  { "one", "everything 2026.8.31 http" }, { "one", "everything 2026.8.31 stdio" }, { "one", "sdk 2.4.0 http" }, { "one", "sdk 2.4.0 stdio" },
  { "two", "everything 2026.8.31 http" }, { "two", "everything 2026.8.31 stdio" }, { "two", "sdk 2.4.0 http" }, { "two", "sdk 2.4.0 stdio" },
  { "one_sse", "everything 2026.8.31 sse" }, { "two_legacy", "everything 2026.8.31 http" },
}

-- The SDKs may take an answer before a progress that comes with it, so the last ones can be missing.
local function check_progress(steps)
  assert.is_true(#steps > 0)
  local before = 0
  for _, step in ipairs(steps) do
    assert.is_true(step.progress > before and step.progress <= 3)
    assert.equal(3, step.total)
    before = step.progress
  end
end

for _, pair in ipairs(PAIRS) do
  local client, name = CLIENTS[pair[1]], pair[2]
  local is_modern = name:find "^sdk" ~= nil
  describe(("a client of the %s before %s"):format(client[1], name), function()
    it("is asked, sees progress, cancels, and hears of changes", function()
      local u <close> = real.start(name)
      local g <close> = upstream.gateway({ one = u }, { workers = 2, entries = { one = { list_wait = "20s", prefix = "" } } })
      local url = client[3] == "sse" and g.url:gsub("/mcp$", "/sse") or g.url
      -- Where a program of both eras is a client's own, its lists are those that another process of it has.
      local hears_changes = client.era == "modern" or name ~= "sdk 2.4.0 stdio"
      local names = { elicit = MODERN.elicit, sample = MODERN.sample, work = MODERN.work, grow = hears_changes and MODERN.grow or nil }
      local user <close> = talk.start(client[2], { client[3], url, cjson.encode(is_modern and names or EVERYTHING) })
      assert.equal(client.era, user:wait_fact("connected").era)
      assert.equal("name", user:wait_fact("asked").fields[1])
      assert.matches("Ada", user:wait_fact("elicited").text, 1, true)
      assert.matches("hi", user:wait_fact("sampled").prompt, 1, true)
      assert.matches("hey there", user:wait_fact("answered").text, 1, true)
      user:wait_fact "worked"
      check_progress(user:all "progress")
      user:wait_fact "cancelled"
      if hears_changes then user:wait_fact "changed" end
      user:wait_fact "left"
      user:finish()
      -- nothing is left of the cancelled call, which would take ten minutes
      g:wait_status(function(status) return status.gauges.tasks == 0 and status.gauges.upstream_exchanges == 0 end)
      -- a client of an older revision has a program of its own, which has ended
      if is_modern and (client.era == "modern" or name:find "http$") then
        local c <close> = g:client "2026-07-28"
        wait.for_fact("the end of the call in the server", 20, function()
          return upstream.text(c:call("tools/call", { name = "cancelled", arguments = {} })) == "1"
        end)
      end
    end)
  end)
end
