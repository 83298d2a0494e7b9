-- Definitions and results of upstreams with a member of a wrong type: a client of any revision gets lists and results
-- that fit the official schema of its revision, and everything that is right, whatever stands beside it.
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local misshapen = require "spec.helpers.misshapen"
local official = require "spec.helpers.official"()
local upstream = require "spec.helpers.upstream"

local LISTS <const> = {
  tools = { "tools/list", "tools", "name" }, prompts = { "prompts/list", "prompts", "name" },
  resources = { "resources/list", "resources", "uri" }, templates = { "resources/templates/list", "resourceTemplates", "uriTemplate" },
}
local OWN <const> = {
  ["tools/own.lua"] = 'return tool { "Own.", function() return "own" end }',
  ["prompts/own.lua"] = 'return prompt { "Own.", function() return "own" end }',
  ["resources/own.lua"] = 'return { a = resource { "Own.", uri = "own://a", function() return "own" end },'
    .. ' b = resource { "Own.", uri = "own://b/{id}", function() return "own" end } }',
}

-- The answer to a request: its text, and the text decoded.
local function ask(c, method, params)
  local text
  if c.revision == "2024-11-05" then
    local stream = c:open(method, params)
    text = stream.connection:wait_event(stream.id, 20).data
  else
    local _, response = c:call(method, params)
    text = response.body
    for _, event in ipairs(response.sse and c.kept.events or {}) do
      if event.json and event.json.id == c.ids then text = event.data end
    end
  end
  return text, cjson.decode(text)
end

-- The complaint about an answer by the official schema of the client's revision; without the schemas nil.
local function complaint(c, method, text)
  if not official then return nil end
  return official.complaint(c.revision, official.json.decode(text), method)
end

local function add(list, what, complained)
  if complained then list[#list + 1] = what .. ": " .. complained end
end

-- All entries of a list, by key.
local function listed(c, kind, wrong)
  local method, member, key = table.unpack(LISTS[kind])
  local found, cursor = {}, nil
  repeat
    local text, answer = ask(c, method, { cursor = cursor })
    assert(answer.result, ("%s %s gave %s"):format(c.revision, method, text))
    add(wrong, c.revision .. " " .. method, complaint(c, method, text))
    for _, one in ipairs(answer.result[member]) do found[one[key]] = one end
    cursor = answer.result.nextCursor
  until not cursor
  return found
end

-- The definitions that one upstream offers: wrong ones, each with a name of its own unless the name is what is wrong.
local function definitions_of(kind)
  local texts, keys = {}, {}
  local key = LISTS[kind][3]
  for i, one in ipairs(misshapen.of(cjson.decode(misshapen.definitions[kind]))) do
    if not one.place:find("^/" .. key .. " ") then
      one.value[key] = key == "name" and "n" .. i or "x://n" .. i .. (key == "uriTemplate" and "/{a}" or "")
      keys[one.value[key]] = one.place
    end
    texts[#texts + 1] = cjson.encode(one.value)
  end
  return texts, keys
end

describe("the lists", function()
  for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
    it("of an upstream of " .. revision .. " whose definitions have members of wrong types fit every revision", function()
      local bad <close> = upstream.start { revision = revision, page = 1000 }
      local good <close> = upstream.start { revision = revision }
      local keys = {}
      for kind in pairs(LISTS) do
        local texts
        texts, keys[kind] = definitions_of(kind)
        bad:offer(kind, texts)
      end
      local entries = { bad = { prefix = "", list_wait = "20s" } }
      local g <close> = upstream.gateway({ bad = bad, good = good }, { scripts = OWN, entries = entries })
      local wrong, lost = {}, {}
      for _, date in ipairs(upstream.revisions) do
        local c <close> = g:client(date)
        for kind in pairs(LISTS) do
          local found = listed(c, kind, wrong)
          for _, healthy in ipairs(({
            tools = { "own", "good_echo" }, prompts = { "own", "good_greet" }, resources = { "own://a", "stub://text" },
            templates = { "own://b/{id}", "stub://item/{id}" },
          })[kind]) do
            assert(found[healthy], ("%s: %s is not in the list of %s"):format(date, healthy, kind))
          end
          -- what is required is wrong: the definition is withheld; else it is served without what is wrong
          for name, place in pairs(keys[kind]) do
            local is_required = place:find "^/inputSchema #" or place:find "^/inputSchema/type #" or place:find "^/name #"
            if not found[name] and not is_required then lost[#lost + 1] = ("%s %s: %s"):format(date, kind, place) end
          end
        end
      end
      assert.equal("", table.concat(wrong, "\n"))
      assert.equal("", table.concat(lost, "\n"))
    end)
  end
end)

describe("a definition", function()
  it("that is wrong is named everywhere, and so is what was left out of one", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:offer("tools", {
      '{"name":"broken","inputSchema":7}', '{"name":"half","inputSchema":{"type":"object"},"icons":[{"sizes":"any","src":"https://a.example/i"}]}',
      '{"name":"odd","inputSchema":{"type":"object","properties":{"a":{"type":"strng"}}}}', '{"name":"quiet","inputSchema":{"type":"object"},"title":null}',
    })
    local g <close> = upstream.gateway({ one = u }, { entries = { one = { prefix = "" } } })
    local c <close> = g:client "2025-11-25"
    assert.equal(3, #c:result("tools/list").tools)
    local BROKEN <const>, HALF <const> = "it is wrong: its inputSchema is not an object", "its icons[1].sizes is not a list, and is left out"
    local status = g:status().upstreams.one
    assert.equal("broken " .. BROKEN, status.withheld[1].name .. " " .. status.withheld[1].why)
    assert.equal(2, #status.doubts)
    assert.equal("half " .. HALF, status.doubts[1].name .. " " .. status.doubts[1].why)
    assert.matches("its inputSchema is not a valid JSON Schema: .*strng", status.doubts[2].why)
    g:wait_log("definition withheld", { upstream = "one", name = "broken", why = BROKEN })
    g:wait_log("upstream definitions repaired", { upstream = "one", count = 1, why = "tool 'half': " .. HALF })
    local _, out = gateway.exec { "upstreams", "--admin", "127.0.0.1:" .. g.admin_port }
    assert.truthy(out:find("withheld: one tool broken: " .. BROKEN, 1, true), out)
    local _, checked, err = gateway.exec({ "check", "--connect" }, { cwd = g.dir })
    assert.truthy((checked .. err):find("tool 'broken' is withheld: " .. BROKEN, 1, true), err)
    assert.truthy((checked .. err):find("tool 'half': " .. HALF, 1, true), err)
    local _, told = gateway.exec({ "doctor", "one" }, { cwd = g.dir })
    assert.truthy(told:find("1 withheld, the first because tool 'broken': " .. BROKEN, 1, true), told)
    assert.truthy(told:find("2 doubts, the first: tool 'half': " .. HALF, 1, true), told)
  end)
end)

describe("a result", function()
  -- what whole results become in the other revisions is no different, and each case is a call
  local FEW <const> = { "2024-11-05", "2025-11-25", "2026-07-28" }
  local GOOD <const> = '{"type":"text","text":"good"}'

  -- Asks for each of `cases`, texts of results, in each revision, or those of `dates`; returns what does not fit, or has
  -- not `count` good parts.
  local function wrong_of(revision, method, params, cases, count, dates)
    local u <close> = upstream.start { revision = revision }
    local current
    u:when(method, function(x) x:result(x:complete(current, method == "resources/read")) end)
    local g <close> = upstream.gateway({ one = u }, { entries = { one = { prefix = "" } } })
    local wrong = {}
    for _, date in ipairs(dates or upstream.revisions) do
      local c <close> = g:client(date)
      ask(c, "tools/list")
      for _, case in ipairs(cases) do
        current = case
        local text = ask(c, method, params)
        local what = ("%s %s: %s\n  gave %s"):format(date, method, current, text)
        add(wrong, what, complaint(c, method, text))
        local _, found = text:gsub('"good"', "")
        if count and found ~= count then add(wrong, what, ("%d of %d good parts are there"):format(found, count)) end
      end
    end
    return table.concat(wrong, "\n", 1, math.min(#wrong, 12)) .. (wrong[13] and "\n… of " .. #wrong or "")
  end

  local function texts_of(text, around)
    local texts = {}
    for i, one in ipairs(misshapen.of(cjson.decode(text))) do texts[i] = around and around:format(cjson.encode(one.value)) or cjson.encode(one.value) end
    return texts
  end

  for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
    it("of a tool, by " .. revision .. ", with wrong content blocks of all kinds keeps the right ones", function()
      local results = {}
      for name, block in pairs(misshapen.blocks) do
        local blocks = texts_of(block)
        results[#results + 1] = ('{"content":[%s,%s,%s],"_meta":{"kind":"%s"}}'):format(GOOD, table.concat(blocks, "," .. GOOD .. ","), GOOD, name)
      end
      for _, result in ipairs(results) do
        local _, count = result:gsub('"good"', "")
        assert.equal("", wrong_of(revision, "tools/call", { name = "look", arguments = {} }, { result }, count))
      end
    end)
  end

  -- such results may take the quick way through C
  for name, block in pairs { text = '{"type":"text","text":"t"}', image = '{"type":"image","data":"AAEC","mimeType":"image/png"}' } do
    it("of a tool whose only block, of the kind " .. name .. ", is wrong fits every revision", function()
      assert.equal("", wrong_of("2026-07-28", "tools/call", { name = "look", arguments = {} }, texts_of(block, '{"content":[%s]}'), nil, FEW))
    end)
  end

  local WHOLE <const> = {
    ["tools/call"] = { { name = "look", arguments = {} }, '{"content":[' .. GOOD .. '],"structuredContent":{"a":1},"isError":true,"_meta":{"a":1}}' },
    ["prompts/get"] = { { name = "plain" }, '{"description":"D","messages":[{"role":"user","content":{"type":"text","text":"t"}}],"_meta":{"a":1}}' },
    ["resources/read"] = { { uri = "stub://text" }, '{"contents":[{"uri":"stub://text","mimeType":"text/plain","text":"t","_meta":{"a":1}}],"_meta":{"a":1}}' },
    ["completion/complete"] = {
      { ref = { type = "ref/prompt", name = "greet" }, argument = { name = "who", value = "x" } }, '{"completion":{"values":["a"],"total":1,"hasMore":false}}',
    },
  }
  for method, one in pairs(WHOLE) do
    it("of " .. method .. " with members of wrong types fits every revision", function()
      assert.equal("", wrong_of("2025-11-25", method, one[1], texts_of(one[2]), nil, FEW))
    end)
  end
end)
