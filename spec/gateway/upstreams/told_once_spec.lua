-- A list of an upstream that changes, where clients of several classes see it: each client is notified once, when its
-- own list has the change, and no list is read that has not changed.
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local META <const> = "io.modelcontextprotocol/"
local CHANGED <const> = "notifications/tools/list_changed"

local function count(stream, method)
  local n = 0
  for _, message in ipairs(stream:messages()) do n = n + (message.method == (method or CHANGED) and 1 or 0) end
  return n
end

-- An upstream whose list of tools has an entry for each kind of question that the client can be asked; `u.version` is in
-- each description.
local function choosy(kind)
  local u = upstream.start { revision = kind[1], transport = kind[2] }
  u.version = "before"
  local function definition(name) return ('{"name":"%s","description":"%s","inputSchema":{"type":"object"}}'):format(name, u.version) end
  u:when("tools/list", function(x)
    local can = x.modern and x.meta[META .. "clientCapabilities"] or x.session.capabilities or {}
    local list = { definition "echo" }
    for _, question in ipairs { "roots", "sampling", "elicitation" } do
      if can[question] then list[#list + 1] = definition(question) end
    end
    x:result(x:complete('{"tools":[' .. table.concat(list, ",") .. "]}", true))
  end)
  return u
end

local function versions(c)
  local found = {}
  for i, tool in ipairs(c:result("tools/list", {}).tools) do found[i] = tool.name .. " " .. tool.description end
  return table.concat(found, ", ")
end

local CLIENTS <const> = {
  { "2025-11-25", {} }, { "2025-11-25", { roots = {} } }, { "2025-06-18", { sampling = {} } }, { "2026-07-28", { elicitation = {} } },
}

-- Clients of four classes, each of which has listed, has called a tool, and is notified of changes.
local function listeners(g, u)
  local all = {}
  for i, row in ipairs(CLIENTS) do
    local c = g:client(row[1], { capabilities = row[2] })
    local name = next(row[2]) or "echo"
    wait.for_fact("the list of the class", 20, function() return versions(c):find(name .. " before", 1, true) end)
    upstream.text(c:call("tools/call", { name = "echo", arguments = { text = "x" } }))
    local stream
    if row[1] == "2026-07-28" then
      stream = c:open("subscriptions/listen", { notifications = { toolsListChanged = true } })
      stream:wait "notifications/subscriptions/acknowledged"
    else
      stream = c:get_stream()
    end
    all[i] = { c = c, name = name, stream = stream }
  end
  wait.for_fact("a way for changes", 20, function()
    if u.is_modern then return #u:listening() > 0 end
    if u.kind ~= "http" then return u:count_sessions() > 0 end
    u:all {}
    local streams, sessions = 0, 0
    for _, session in pairs(u.sessions) do streams, sessions = streams + (session.stream and 1 or 0), sessions + 1 end
    return streams == sessions and streams > 0
  end)
  g:wait_status(function(status) return status.gauges.tasks == 0 end)
  return all
end

for _, kind in ipairs(upstream.kinds()) do
  describe(("a change of the tools of an upstream of %s over %s"):format(kind[1], kind[2]), function()
    it("is told once to the clients of each class, after it is in their lists", function()
      local u <close> = choosy(kind)
      local g <close> = upstream.gateway({ one = u }, { entries = { one = { prefix = "", refresh = "1h" } }, workers = 2 })
      local all = listeners(g, u)
      local before = {}
      for i, one in ipairs(all) do before[i] = count(one.stream) end
      local others = #u:all { method = "resources/list" } + #u:all { method = "prompts/list" }
      local tools = #u:all { method = "tools/list" }
      for _, version in ipairs { "after", "later" } do
        u.version = version
        u:announce(CHANGED)
        for i, one in ipairs(all) do
          wait.for_fact("the notification", 20, function() return count(one.stream) > before[i] end)
          assert.equal(("%s %s"):format(one.name, version), versions(one.c):match(one.name .. " %a+"))
        end
        g:wait_status(function(status) return status.gauges.tasks == 0 end)
        for i, one in ipairs(all) do
          assert.equal(before[i] + 1, count(one.stream))
          before[i] = count(one.stream)
        end
      end
      -- for two changes and four classes; where each client has a session of its own, the list of each session as well
      assert.is_true(#u:all { method = "tools/list" } - tools <= 16)
      assert.equal(others, #u:all { method = "resources/list" } + #u:all { method = "prompts/list" })
      for _, one in ipairs(all) do
        one.stream:close()
        one.c:close()
      end
    end)
  end)
end

describe("a client that reads page after page", function()
  it("goes on though clients of another class have come, or have gone, meanwhile", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local names, differ = {}, false
    for i = 1, 40 do names[i] = ("tool_%02d"):format(i) end
    u:when("tools/list", function(x)
      local list = {}
      for i, name in ipairs(names) do
        local mark = differ and (x.session.capabilities or {}).roots and "roots" or "plain"
        list[i] = ('{"name":"%s","description":"%s","inputSchema":{"type":"object"}}'):format(name, mark .. (" "):rep(100))
      end
      x:result('{"tools":[' .. table.concat(list, ",") .. "]}")
    end)
    local g <close> = upstream.gateway({ one = u }, {
      entries = { one = { prefix = "", refresh = "1h" } }, workers = 2, config = { limits = { page = "4KiB" } },
    })
    local c <close> = g:client "2025-11-25"
    local other <close> = g:client("2025-11-25", { capabilities = { roots = {} } })
    local function change(to)
      differ = to
      u:announce(CHANGED)
      wait.for_fact("the list of the class", 20, function()
        local first = other:result("tools/list", {}).tools[1]
        return first and first.description:find(to and "roots" or "plain", 1, true) == 1
      end)
      g:wait_status(function(status) return status.gauges.tasks == 0 end)
    end
    wait.for_fact("the list", 20, function() return #c:result("tools/list", {}).tools > 0 end)
    change(false)
    for _, to in ipairs { true, false } do
      local first = c:result("tools/list", {})
      local got = #first.tools
      assert.is_string(first.nextCursor)
      change(to)
      local cursor = first.nextCursor
      while cursor do
        local page = c:result("tools/list", { cursor = cursor })
        assert.equal(names[got + 1], page.tools[1].name)
        got, cursor = got + #page.tools, page.nextCursor
      end
      assert.equal(#names, got)
    end
  end)
end)
