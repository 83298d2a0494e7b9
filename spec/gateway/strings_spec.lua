-- B-126: a script's pattern that would take for ever is an error of that call, soon; who calls beside it is answered.
local cjson = require "cjson"
local uv = require "luv"
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
        local began = uv.hrtime()
        refused(g, call(me, "explode", { length = length, how = how }),
          "scripts/tools/explode%.lua:%d: the pattern '%.%-%.%-%.%-%[bc%]%$' took too long on a text of " .. length .. " bytes.*hint: ")
        assert.truthy(uv.hrtime() - began < 3e9, "as long as a sanitizer takes, and no longer")
        assert.equal("3", call(me, "add", { a = 1, b = 2 }).content[1].text)
      end
    end
    me:close()
    assert.is_empty_house(g)
  end)
end)

describe("a text that would be too long", function()
  it("is not made", function()
    local g <close> = gateway.start { scripts = scripts, config = { limits = { lua_memory = "64MiB" } } }
    local me = g:client "2026-07-28"
    for how, size in pairs { rep = "1099511627776 bytes", concat = "%d+ bytes or more", format = "%d+ bytes or so" } do
      refused(g, call(me, "bomb", { how = how }), "scripts/tools/bomb%.lua:%d: the text would be " .. size .. ": more than 16777216 are not made here")
      assert.equal("3", call(me, "add", { a = 1, b = 2 }).content[1].text)
    end
    me:close()
    assert.is_empty_house(g)
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
    assert.is_empty_house(g)
  end)

  it("is called off with its call", function()
    local g <close> = gateway.start { scripts = scripts }
    local me = g:client "2026-07-28"
    local stream = me:open("tools/call", { name = "fill", arguments = { text = "{a}{b}", seconds = 60 } })
    g:wait_log "waits"
    stream:close()
    g:wait_log "gate closed"
    wait.for_fact("the call to be gone", 5, function() return g:status().gauges.tasks == 0 end)
    me:close()
    assert.is_empty_house(g)
  end)
end)
