-- B-126: a pattern that would match for ever soon becomes an error of that call; calls of other clients are answered.
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local scripts = {
  ["tools/explode.lua"] = [[return tool { "Seeks in vain.", input = { length = t.integer, how = t.string }, function(args)
    local text, pattern = ("a"):rep(args.length), ".-.-.-[bc]$"
    if args.how == "gmatch" then return { found = text:gmatch(pattern)() } end
    return { found = (string[args.how](text, pattern, args.how == "gsub" and "" or nil)) }
  end }]],
  ["tools/bomb.lua"] = [[return tool { "Makes too much.", input = { how = t.string }, function(args)
    if args.how == "rep" then return #("x"):rep(1 << 40) end
    local long = ("x"):rep(1 << 20)
    local list = {}
    for i = 1, 100 do list[i] = long end
    if args.how == "concat" then return #table.concat(list) end
    return #(("%s"):rep(100)):format(table.unpack(list))
  end }]],
  ["tools/fill.lua"] = [[return tool { "Waits in a replacement.", input = { text = t.string, seconds = t.number { default = 0.001 } }, function(args)
    local filled = args.text:gsub("{(%w+)}", function(name)
      local gate <close> = closing(function() log.info "gate closed" end)
      log.info "waits"
      sleep(args.seconds)
      return name:upper()
    end)
    return filled
  end }]],
  ["tools/add.lua"] = 'return tool { "Adds.", input = { a = t.number, b = t.number }, function(args) return args.a + args.b end }',
}

local function call(me, name, arguments)
  return me:call("tools/call", { name = name, arguments = arguments }).result
end

local function refused(g, result, told)
  assert.is_true(result.isError, cjson.encode(result))
  local id = result.content[1].text:match "^internal error (%x%x%x%x)$"
  assert.truthy(id, result.content[1].text)
  local line = g:wait_log("tool failed", { id = id })
  assert.truthy(line.text:find(told), line.text)
end

describe("a pattern that explodes", function()
  it("is an error with the line and the pattern, and the next caller is answered", function()
    local g <close> = gateway.start { scripts = scripts }
    local me = g:client "2026-07-28"
    for _, how in ipairs { "find", "match", "gmatch", "gsub" } do
      for _, length in ipairs { 300, 1500, 10000 } do
        local began = g:cpu()
        refused(g, call(me, "explode", { length = length, how = how }),
          "scripts/tools/explode%.lua:%d: the pattern '%.%-%.%-%.%-%[bc%]%$' took too long on a text of " .. length .. " bytes.*hint: ")
        assert.truthy(g:cpu() - began < 3, "as long as a sanitizer takes, and no longer")
        assert.equal("3", call(me, "add", { a = 1, b = 2 }).content[1].text)
      end
    end
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a text that would be too long", function()
  it("is not made", function()
    local g <close> = gateway.start { scripts = scripts, config = { limits = { lua_memory = "64MiB" } } }
    local me = g:client "2026-07-28"
    for how, size in pairs { rep = "1099511627776 bytes", concat = "%d+ bytes or more", format = "%d+ bytes or so" } do
      refused(g, call(me, "bomb", { how = how }), "scripts/tools/bomb%.lua:%d: the string would be " .. size .. ", more than the limit of 16777216")
      assert.equal("3", call(me, "add", { a = 1, b = 2 }).content[1].text)
    end
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a gsub whose function waits", function()
  it("goes on where it was, many at once", function()
    local g <close> = gateway.start { scripts = scripts }
    local me = g:client "2026-07-28"
    local streams = {}
    for i = 1, 10 do
      streams[i] = me:open("tools/call", { name = "fill", arguments = { text = ("{a}-{b%d} "):format(i):rep(20) } })
    end
    for i, stream in ipairs(streams) do
      assert.equal(("A-B%d "):format(i):rep(20), stream:answer().result.content[1].text)
    end
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is cancelled with its call", function()
    local g <close> = gateway.start { scripts = scripts }
    local me = g:client "2026-07-28"
    local stream = me:open("tools/call", { name = "fill", arguments = { text = "{a}{b}", seconds = 60 } })
    g:wait_log "waits"
    stream:close()
    g:wait_log "gate closed"
    wait.for_fact("the call to be gone", 20, function() return g:status().gauges.tasks == 0 end)
    me:close()
    assert.has_nothing_left(g)
  end)
end)

-- One match that takes many milliseconds, in every function, and in a coroutine of the script's own. `count` counts the
-- calls that this worker answered; each of these tools reads the count before and after a single match. The task may be
-- preempted once before and once after the match.
local long = {
  find = "local from, to = text:find(pattern) return from == 1 and to == #text",
  match = "return #text:match(pattern) == #text - 1",
  gmatch = "local found = text:gmatch(pattern)() return #found == #text - 1",
  each = "local n = 0 for found in text:gmatch(pattern) do n = n + #found end return n == #text - 1",
  gsub = "local made, n = text:gsub(pattern, '<%1>') return n == 1 and made == '<' .. text:sub(1, -2) .. '>'",
  replacing = "local made, n = text:gsub(pattern, string.len) return n == 1 and made == tostring(#text - 1)",
  many = "local made, n = text:gsub('a', { a = 'bb' }) return n == #text - 1 and #made == 2 * n + 1",
  plain = "local made, n = text:gsub('a', 'bb') return n == #text - 1 and #made == 2 * n + 1",
  apart = "return coroutine.wrap(function() return coroutine.wrap(function() return #text:match(pattern) == #text - 1 end)() end)()",
  caught = "local ok, from, to = pcall(string.find, text, pattern) return ok and from == 1 and to == #text",
  over = "local ok, why = pcall(string.find, text, '.-.-.-[bc]$') return not ok and why:find 'took too long' ~= nil",
}

local function long_scripts()
  local all = {
    ["lib/count.lua"] = "return { calls = 0 }",
    ["tools/ok.lua"] = [[local count = require "count"
      return tool { "Counts.", function() count.calls = count.calls + 1 return "ok" end }]],
    ["tools/alike.lua"] = [[
      local text = ("key = value, (a (b) c) [x] 2024-01-02 "):rep(1500)
      local patterns = { "(%w+)%s*=%s*(%w+)", "%b()", "%f[%w]%w+", "()%d+()", "(.)%1", "x", "^(.-)%s*$", "^%s*$", "%d-$", "e, (.-)[x]", "", ".-[y]?$" }
      local ways = {
        find = function(pattern) return table.concat({ text:find(pattern) }, " ") end,
        match = function(pattern) return table.concat({ text:match(pattern) }, " ") end,
        gmatch = function(pattern)
          local n, list = 0, {}
          for a, b in text:gmatch(pattern) do n = n + 1 list[n] = n < 50 and ("%s %s"):format(a, b) or nil end
          return n .. " " .. table.concat(list, ",")
        end,
        texts = function(pattern) return table.concat({ text:gsub(pattern, "<%0>") }, " ") end,
        tables = function(pattern) return table.concat({ text:gsub(pattern, { key = "lock" }) }, " ") end,
      }
      -- What cannot be left, since C calls it.
      local alone = setmetatable({}, { __index = function(_, key) return ways[key.way](key.pattern) end })
      return tool { "Compares.", function()
        local n = 0
        for way, run in pairs(ways) do
          for _, pattern in ipairs(patterns) do
            if run(pattern) ~= alone[{ way = way, pattern = pattern }] then error(way .. " " .. pattern) end
            n = n + 1
          end
        end
        return n
      end }]],
    ["tools/lasting.lua"] = [[return tool { "Does not end.", function()
      local text = ("a"):rep(500000)
      log.info "matching"
      while true do pcall(string.find, text, ".-.-.-[bc]$") end
    end }]],
  }
  for name, body in pairs(long) do
    all["tools/" .. name .. ".lua"] = ([[local count = require "count"
      local text, pattern = ("a"):rep(1000000) .. "1", "(.-)[%%d]"
      local function match() %s end
      return tool { "Takes long.", function()
        local most = 0
        for _ = 1, 30 do
          local before = count.calls
          if not match() then return "wrong" end
          most = math.max(most, count.calls - before)
          if most >= 4 then return "others had turns" end
        end
        return most .. " had a turn"
      end }]]):format(body)
  end
  return all
end

describe("a match that takes long", function()
  local g

  lazy_setup(function()
    local limits = { call = { cpu = os.getenv "TSAN_OPTIONS" and "20s" or "2s", memory = "64MiB" } }
    g = gateway.start { scripts = long_scripts(), workers = 1, config = { limits = limits } }
  end)
  lazy_teardown(function() local _ <close> = g end) -- luacheck: ignore 211

  -- The answer on `stream`, while other clients call.
  local function among_others(stream, other)
    while not stream:has_begun() do assert.equal("ok", call(other, "ok").content[1].text) end
    return stream:answer(20)
  end

  for name in pairs(long) do
    it(("(%s) lets other calls run in the middle"):format(name), function()
      local c <close> = g:client "2026-07-28"
      local other <close> = g:client "2026-07-28"
      local answer = among_others(c:open("tools/call", { name = name }), other)
      assert.equal("others had turns", answer.result.content[1].text)
    end)
  end

  it("gives the result that it gives where it cannot be preempted", function()
    local c <close> = g:client "2026-07-28"
    local other <close> = g:client "2026-07-28"
    assert.equal("60", among_others(c:open("tools/call", { name = "alike" }), other).result.content[1].text)
  end)

  it("ends with the client that leaves", function()
    local c <close> = g:client "2026-07-28"
    local stream = c:open("tools/call", { name = "lasting" })
    g:wait_log "matching"
    stream:close()
    g:wait_log("call cancelled", { why = "disconnected", method = "tools/call" })
    g:wait_status(function(status) return status.gauges.tasks == 0 and status.gauges.requests_in_flight == 0 end)
  end)

  it("ends with the time that the call has, and the log names the line", function()
    local c <close> = g:client "2026-07-28"
    local answer = c:open("tools/call", { name = "lasting" }):answer(60)
    assert.equal("the call ran Lua for longer than limits.call.cpu", answer.error.message)
    local line = g:wait_log("call over its limit", { why = answer.error.message })
    assert.truthy(line.fields.file:find "tools/lasting%.lua$", line.text)
    assert.equal("4", line.fields.line)
    c:close()
    assert.has_nothing_left(g)
  end)
end)
