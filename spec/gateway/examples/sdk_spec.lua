-- Widely used clients: the official TypeScript SDK 1.x and 2.x, over every transport that they support. Each runs
-- spec/clients/story.mjs and prints what it received.
-- proves: the official TypeScript SDKs 2025-11-25 sse
-- proves: the official TypeScript SDKs 2025-11-25.. http stdio
local uv = require "luv"
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local node = require "spec.helpers.node"

local scripts = {
  ["tools/add.lua"] = [[
--- Add two numbers.
---@param a number
---@param b number
return function(a, b) return a + b end]],
  ["tools/countdown.lua"] = [[
return tool { "Count down.", input = { from = t.integer { min = 1, max = 9 } },
  function(args, call)
    for done = 1, args.from do
      call:progress(done, args.from, (args.from - done) .. " to go")
      sleep(0.05) -- SDK 1.x may take the answer before a progress that comes with it
    end
    return "Lift-off!"
  end }]],
  ["tools/nap.lua"] = [[return tool { "Lets its client go.", function(_, call)
    local away = call:detach(0.02)
    sleep(0.05)
    return "away: " .. tostring(away)
  end }]],
}

-- Runs a client to its end; returns its facts in order, and by name.
local function facts_of(script, kind, ...)
  local code, out, err = gateway.run_program(node.path, { node.folder .. "/" .. script, kind, ... }, { seconds = 60 })
  local facts, by_name = {}, {}
  for line in out:gmatch "[^\n]+" do
    local fact = assert(cjson.decode(line), "no fact: " .. line)
    -- If a progress notification comes in one chunk with the answer, the SDK reports an unknown token: it has forgotten
    -- the token when it reads the notification.
    local late = fact.fact == "error" and fact.message:match "^Error: Received a progress notification for an unknown token: (.*)"
    if late then
      fact = cjson.decode(late).params
      fact.fact = "progress"
    end
    facts[#facts + 1] = fact
    by_name[fact.fact] = fact
  end
  assert.same({ 0, "" }, { code, err }, out)
  assert.is_nil(by_name.failed, out)
  assert.is_nil(by_name.error, out)
  return facts, by_name
end

local function names(facts)
  local list = {}
  for i, fact in ipairs(facts) do
    list[i] = fact.fact
  end
  return table.concat(list, " ")
end

local stories = {
  { "SDK 1.x over Streamable HTTP", "sdk1.mjs", "http", session = true },
  { "SDK 1.x over HTTP+SSE", "sdk1.mjs", "sse" },
  { "SDK 2.x, pinned to 2026-07-28,", "sdk2.mjs", "modern", era = "modern", revision = "2026-07-28" },
  { "SDK 2.x, legacy over Streamable HTTP,", "sdk2.mjs", "legacy", era = "legacy", session = true },
  { "SDK 2.x, left to find out,", "sdk2.mjs", "auto", era = "modern", revision = "2026-07-28" },
  { "SDK 2.x over HTTP+SSE", "sdk2.mjs", "sse", era = "legacy" },
}

local stdio_stories = {
  { "SDK 1.x", "sdk1.mjs", "stdio" },
  { "SDK 2.x, pinned to 2026-07-28,", "sdk2.mjs", "stdio-modern", era = "modern", revision = "2026-07-28" },
  { "SDK 2.x, legacy,", "sdk2.mjs", "stdio-legacy", era = "legacy", revision = "2025-11-25" },
  { "SDK 2.x, left to find out,", "sdk2.mjs", "stdio-auto", era = "modern", revision = "2026-07-28" },
}

local function check_story(facts, by_name, resumes)
  assert.equal("moonpool", by_name.connected.server.name)
  assert.same({ "add", "countdown", "nap" }, by_name.tools.names)
  assert.equal("object", by_name.tools.schema.type)
  assert.same({ "42", false }, { by_name.add.text, by_name.add.isError })
  assert.is_true(by_name.refused.isError)
  assert.matches("b", by_name.refused.text, 1, true)
  assert.equal("Lift-off!", by_name.countdown.text)
  assert.equal("connected tools add refused progress progress progress countdown nap left", names(facts))
  assert.equal(3, by_name.progress.progress)
  assert.equal(3, by_name.progress.total)
  assert.equal("0 to go", by_name.progress.message)
  assert.equal("away: " .. tostring(resumes), by_name.nap.text)
end

describe("a client in common use", function()
  for _, story in ipairs(stories) do
    it(story[1] .. " connects, lists, calls, gets progress and leaves nothing behind", function()
      local g <close> = gateway.start { scripts = scripts }
      local facts, by_name = facts_of(story[2], story[3], story[3] == "sse" and g.sse_url or g.url)

      if story.session ~= nil then
        assert.equal(story.session, by_name.connected.session)
      end
      assert.equal(story.era, by_name.connected.era)
      if story.revision then
        assert.equal(story.revision, by_name.connected.revision)
      end
      check_story(facts, by_name, story.session == true)
      assert.has_nothing_left(g)
    end)
  end

  for _, story in ipairs(stdio_stories) do
    it(story[1] .. " starts it over stdio, does the same and ends it", function()
      local dir = gateway.prepare { scripts = scripts }
      local command = { uv.fs_realpath(gateway.binary), "stdio", "--log-level", "error", dir .. "/moonpool.yaml" }
      local facts, by_name = facts_of(story[2], story[3], table.unpack(command))
      assert.equal(story.era, by_name.connected.era)
      assert.equal(story.revision, by_name.connected.revision)
      check_story(facts, by_name, false)
    end)
  end
end)
