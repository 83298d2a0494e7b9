local host = require "spec.helpers.host"

-- The answer of a tool with this body.
local function run(body, more, options)
  local scripts = { ["tools/it.lua"] = "return tool { 'It.', function(args, call) " .. body .. " end }" }
  for path, text in pairs(more or {}) do scripts[path] = text end
  local vm = host.start(scripts, options)
  assert.is_nil(vm.errors, vm.errors and table.concat(vm.errors, "\n"))
  local result = vm:tool("it", {})
  return result.content[1] and result.content[1].text, vm
end

local function why(body)
  local _, vm = run(body)
  return vm.logs[1] and vm.logs[1].fields.why, vm.logs[1] and vm.logs[1].fields.hint
end

describe("a script", function()
  after_each(host.stop)

  it("has no way to files, programs, bytecode or the library's insides (B-129)", function()
    for _, name in ipairs { "io", "debug", "package", "dofile", "loadfile", "moonpool", "host", "arg" } do
      local what = why("return " .. name)
      assert.equal("scripts/tools/it.lua:1: unknown name '" .. name .. "'", what)
    end
    for _, body in ipairs {
      "return tostring(os.execute)", "return tostring(os.getenv)", "return tostring(os.exit)", "return tostring(os.setlocale)",
      "return tostring(string.dump)", "return tostring(('').dump)", "return tostring(getmetatable(''))", "return tostring(math.randomseed)",
    } do
      assert.equal("nil", run(body), body)
    end
    assert.truthy(why("require 'os'"):find("there is no library 'os'", 1, true))
    assert.truthy(why("require 'moonpool.host'"):find("there is no library", 1, true))
    assert.truthy(why("collectgarbage 'stop'"):find("may only ask", 1, true))
    assert.equal("false", run "return tostring(load('\\27Lua') ~= nil)")
    assert.equal("false", run "return tostring(getmetatable(_G))")
    assert.truthy(why("setmetatable(_G, {})"):find("protected", 1, true))
    assert.truthy(why("setmetatable({}, { __gc = function() end })"):find("use closing(f)", 1, true))
  end)

  it("may load text, in its own environment", function()
    assert.equal("5", run "x = 4 return load('return x + 1')()")
    assert.equal("7", run "return load('return y', 'y', 't', { y = 7 })()")
  end)

  it("gets an error for a name that does not exist, with the nearest", function()
    local what, hint = why "return tostrng(1)"
    assert.equal("scripts/tools/it.lua:1: unknown name 'tostrng'", what)
    assert.equal("did you mean 'tostring'?", hint)
  end)

  it("cannot change what another sees", function()
    local other = [[
string.format = nil
table.concat = function() return "tainted" end
math.floor = nil
json.encode = function() return "tainted" end
log.info = nil
t = nil
tostring = function() return "tainted" end
_G.tool = _G.tool
pcall(rawset, json.array_mt, "__index", function() return "tainted" end)
pcall(function() json.array_mt.__index = function() return "tainted" end end)
mine = "visible to me"
return { ["taint"] = tool { "Taint.", function() return mine end } }]]
    local body = [[ return ("%d"):format(7) .. string.format("%s", 1) .. table.concat({ "a", "b" }) .. math.floor(2.5)
      .. json.encode({ 1 }) .. tostring(nil) .. tostring(json.array({}).x) .. tostring(rawget(_G, "mine")) ]]
    local text, vm = run(body, { ["tools/tools.lua"] = other })
    assert.equal("71ab2[1]nilnilnil", text)
    assert.equal("visible to me", vm:tool("taint", {}).content[1].text)
    assert.equal("71ab2[1]nilnilnil", vm:tool("it", {}).content[1].text)
  end)

  it("marks arrays as lua-cjson does", function()
    assert.equal("[] true []", run [[
      local a = setmetatable({}, json.array_mt)
      return json.encode(a) .. " " .. tostring(getmetatable(a) == json.array_mt) .. " " .. json.encode(json.empty_array)]])
  end)

  it("logs by level, and prints to the log", function()
    local _, vm = run "log.warn('event', { n = 1, t = true }) print('a', 1, nil)"
    assert.same({ level = "warn", event = "event", fields = { n = 1, t = true } }, vm.logs[1])
    assert.same({ level = "info", event = "a 1 nil", fields = {} }, vm.logs[2])
  end)

  it("runs what it closes however its block ends, and knows units", function()
    local text, vm = run "local _ <close> = closing(function() log.info 'closed' end) sleep(2 * seconds) fail(tostring(3 * minutes) .. hours)"
    assert.equal("1803600", text)
    assert.equal("closed", vm.logs[1].event)
    assert.same({ 2 }, vm.slept)
  end)

  it("has the whole standard library when it is trusted", function()
    local sort = table.sort
    assert.equal("function function", run("return type(io.open) .. ' ' .. type(string.dump)", nil, { trust_full = true }))
    assert.equal(sort, table.sort) -- the replacement that scripts get belongs to them alone
  end)
end)

describe("what a script can reach", function()
  after_each(host.stop)

  -- Walks through everything below _G and names it.
  local walk = [[
    local found = {}
    local function visit(prefix, value)
      for name, inner in next, value do
        found[#found + 1] = prefix .. tostring(name)
        if type(inner) == "table" and prefix == "" then visit(tostring(name) .. ".", inner) end
      end
    end
    for _, name in ipairs { ]] .. "%s" .. [[ } do
      local ok, value = pcall(function() return _G[name] end)
      if ok then
        found[#found + 1] = name
        if type(value) == "table" and name ~= "_G" then visit(name .. ".", value) end
      end
    end
    table.sort(found)
    return table.concat(found, " ") ]]

  it("is exactly this list", function()
    local candidates = {}
    for name in pairs(_G) do candidates[#candidates + 1] = ("%q"):format(name) end
    for _, name in ipairs {
      "tool", "t", "fail", "try", "text", "image", "audio", "link", "embed", "bytes", "resource", "prompt", "user",
      "assistant", "sleep", "log", "json", "closing", "seconds", "minutes", "hours",
    } do candidates[#candidates + 1] = ("%q"):format(name) end
    local text = run(walk:format(table.concat(candidates, ", ")))
    assert.equal("_G _VERSION assert assistant audio bytes closing collectgarbage coroutine coroutine.close coroutine.create coroutine.isyieldable " ..
      "coroutine.resume coroutine.running coroutine.status coroutine.wrap coroutine.yield embed error fail getmetatable hours image ipairs " ..
      "json json.array json.array_mt json.decode json.empty_array json.encode json.null json.object json.object_mt link load log log.debug " ..
      "log.error log.info log.warn math math.abs math.acos math.asin math.atan math.ceil math.cos math.deg math.exp math.floor math.fmod " ..
      "math.huge math.log math.max math.maxinteger math.min math.mininteger math.modf math.pi math.rad math.random math.sin math.sqrt " ..
      "math.tan math.tointeger math.type math.ult minutes next os os.clock os.date os.difftime os.time pairs pcall print prompt rawequal rawget " ..
      "rawlen rawset require resource seconds select setmetatable sleep string string.byte string.char string.find string.format string.gmatch " ..
      "string.gsub string.len string.lower string.match string.pack string.packsize string.rep string.reverse string.sub string.unpack " ..
      "string.upper t table table.concat table.insert table.move table.pack table.remove table.sort table.unpack text tonumber tool " ..
      "tostring try type user utf8 utf8.char utf8.charpattern utf8.codepoint utf8.codes utf8.len utf8.offset xpcall", text)
  end)
end)
