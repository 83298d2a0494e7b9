-- Things that are switched on and off while they are served: every worker has the change at once, and exactly the
-- clients that can see a changed list are notified, once. Rules T-12, S-25, B-30, B-51.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local scripts = {
  ["tools/extra.lua"] = 'return tool { "Extra.", enabled = false, function() return "here" end }',
  ["tools/switch.lua"] = [[
return tool { "Switch.", input = { on = t.boolean, word = t.string, name = t.string }, function(args)
  local f = args.on and enable or disable
  f(args.word, args.name)
  f(args.word, args.name)
  return "switched"
end }]],
  ["tools/slow.lua"] = 'return tool { "Slow.", function(_, call) call:progress(1) sleep(60) end }',
  ["prompts/hello.lua"] = 'return prompt { "Hello.", "hello" }',
  ["resources/note.lua"] = 'return resource { "A note.", uri = "note://one", "text" }',
}

local legacy = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25" }

local function switch(c, on, word, name)
  assert.equal("switched", c:call("tools/call", { name = "switch", arguments = { on = on, word = word, name = name } }).result.content[1].text)
end

local function session(g, revision)
  local c = g:client(revision)
  c.own = c.endpoint and c.stream or c:get_stream().connection
  c.own:read_head()
  return c
end

-- The list_changed notifications that arrived, as "prompts tools": by name, since those that two workers send may arrive
-- in either order.
local function told(stream)
  local list = {}
  for _, message in ipairs(stream:messages()) do
    local kind = (message.method or ""):match "^notifications/(%a+)/list_changed$"
    if kind then list[#list + 1] = kind end
  end
  table.sort(list)
  return table.concat(list, " ")
end

describe("a tool, prompt or resource that is switched on or off", function()
  it("is notified to every session and every subscriber of its kind, once", function()
    local g <close> = gateway.start { scripts = scripts }
    local all = {}
    for i, revision in ipairs(legacy) do all[i] = session(g, revision) end
    local modern <close> = g:client "2026-07-28"
    local tools = modern:open("subscriptions/listen", { notifications = { toolsListChanged = true } }):wait "notifications/subscriptions/acknowledged"
    local prompts = modern:open("subscriptions/listen", { notifications = { promptsListChanged = true, resourcesListChanged = true } })
      :wait "notifications/subscriptions/acknowledged"
    switch(modern, true, "tool", "extra")
    switch(modern, true, "tool", "extra")
    switch(all[1], false, "prompt", "hello")
    switch(all[4], false, "resource", "note")
    for _, c in ipairs(all) do c.own:wait_event "notifications/resources/list_changed" end
    prompts:wait_event "notifications/resources/list_changed"
    tools:wait_event "notifications/tools/list_changed"
    wait.quietly(0.1)
    for _, c in ipairs(all) do assert.equal("prompts resources tools", told(c.own)) end
    assert.equal("tools", told(tools))
    assert.equal("prompts resources", told(prompts))
    for _, c in ipairs(all) do
      if c.delete then c:delete() end
      c:close()
    end
    modern:close()
    assert.has_nothing_left(g)
  end)

  it("is notified once to a session with a stream of its own and three running calls (B-51)", function()
    local g <close> = gateway.start { scripts = scripts }
    local c = session(g, "2025-11-25")
    local streams = {}
    for i = 1, 3 do streams[i] = c:open("tools/call", { name = "slow", _meta = { progressToken = i } }):wait "notifications/progress" end
    switch(c, true, "tool", "extra")
    c.own:wait_event "notifications/tools/list_changed"
    wait.quietly(0.1)
    assert.equal("tools", told(c.own))
    for _, stream in ipairs(streams) do assert.equal("", told(stream)) end
    c:delete()
    c:close()
    assert.has_nothing_left(g)
  end)

  it("has the new state on every worker by the time of the notification, in lists and for calls (B-30)", function()
    local g <close> = gateway.start { scripts = scripts, workers = 4 }
    local me = session(g, "2025-11-25")
    local modern <close> = g:client "2026-07-28"
    local function post(params)       -- posts on a connection of its own, which any worker may get
      local message = modern:message("tools/call", params)
      return client.request(g, { method = "POST", path = "/mcp", headers = modern:headers(message), body = message }):json()
    end
    for round = 1, 10 do
      local on = round % 2 == 1
      switch(modern, on, "tool", "extra")
      me.own:wait_event "notifications/tools/list_changed"
      for _ = 1, 8 do
        local answer = post { name = "extra" }
        if on then
          assert.equal("here", answer.result.content[1].text)
        else
          assert.same({ code = -32602, message = "unknown tool 'extra'" }, answer.error)
        end
      end
    end
    assert.equal(-32602, post({ name = "other" }).error.code)
    me:delete()
    me:close()
    modern:close()
    assert.has_nothing_left(g)
  end)
end)
