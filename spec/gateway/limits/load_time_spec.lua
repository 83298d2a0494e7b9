-- Scripts that do not end while they load, in many variants: the file is refused with its line within the time for loading, a
-- reload leaves the serving generation in place, and the process still handles its signals.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local offenders = require "spec.helpers.offenders"

local LOOP <const> = "function() while true do end end"
local OK <const> = offenders.tool "return 'ok'"

local bodies = {
  loop = "while true do end",
  caught = "while true do pcall(" .. LOOP .. ") end",
  handler = "xpcall(error, " .. LOOP .. ")",
  handlers = "while true do xpcall(error, " .. LOOP .. ") end",
  telling = "error(setmetatable({}, { __tostring = " .. LOOP .. " }))",
  telling_twice = "error(setmetatable({}, { __tostring = function() while true do pcall(" .. LOOP .. ") end end }))",
  concatenating = "error(setmetatable({}, { __concat = " .. LOOP .. ", __name = {} }))",
  length = "return setmetatable({}, { __len = " .. LOOP .. " })",
  index = "return setmetatable({ 1 }, { __index = " .. LOOP .. ", __pairs = " .. LOOP .. " })",
  keys = "return { [setmetatable({}, { __tostring = " .. LOOP .. " })] = tool { 'T.', function() end } }",
  options = "return tool(setmetatable({ 'T.', function() end }, { __index = " .. LOOP .. ", __pairs = " .. LOOP .. " }))",
  description = "return tool { setmetatable({}, { __tostring = " .. LOOP .. " }), function() end }",
  title = "return tool { 'T.', title = setmetatable({}, { __tostring = " .. LOOP .. ", __len = " .. LOOP .. " }), function() end }",
  coroutine = "coroutine.wrap(" .. LOOP .. ")()",
  closed = "local co = coroutine.create(function() local c <close> = closing(" .. LOOP .. ") coroutine.yield() end) coroutine.resume(co) coroutine.close(co)",
  failed_wrap = "coroutine.wrap(function() local c <close> = closing(" .. LOOP .. ") error 'x' end)()",
  closer = "local c <close> = closing(" .. LOOP .. ")",
  closers = "local c <close> = closing(function() while true do pcall(" .. LOOP .. ") end end) while true do end",
  metamethod = "return setmetatable({}, { __index = " .. LOOP .. " }).x",
}

local names = {}
for name in pairs(bodies) do names[#names + 1] = name end
table.sort(names)

-- Processor time of a process, in seconds.
local function cpu(pid)
  local file <close> = assert(io.open("/proc/" .. pid .. "/stat"))
  local user, system = file:read("a"):match "%) %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ (%d+) (%d+)"
  return (user + system) / 100
end

local function write(g, path, text)
  local file <close> = assert(io.open(g.dir .. "/scripts/" .. path, "wb"))
  file:write(text)
end

describe("a file that does not end while it loads", function()
  local g

  lazy_setup(function()
    g = gateway.start {
      scripts = { ["tools/ok.lua"] = OK }, workers = 2, constants = { load_ms = 200 }, config = { scripts = { path = "scripts", watch = false } },
    }
  end)
  lazy_teardown(function() local _ <close> = g end) -- luacheck: ignore 211

  for _, name in ipairs(names) do
    it(("(%s) is refused, and the previous version still serves"):format(name), function()
      write(g, "tools/bad.lua", bodies[name])
      local before = cpu(g.pid)
      local response = g:admin("/reload", "POST")
      assert.equal(422, response.status, response.body)
      assert.matches("scripts/tools/bad.lua", response.body, 1, true)
      assert.truthy(cpu(g.pid) - before < 4, cpu(g.pid) - before)
      local c <close> = g:client "2026-07-28"
      assert.equal("ok", c:call("tools/call", { name = "ok" }).result.content[1].text)
      uv.fs_unlink(g.dir .. "/scripts/tools/bad.lua")
    end)
  end

  it("is named with its line, and with the time that it had", function()
    write(g, "tools/bad.lua", "\n\nwhile true do end")
    local body = g:admin("/reload", "POST").body
    uv.fs_unlink(g.dir .. "/scripts/tools/bad.lua")
    assert.matches("scripts/tools/bad.lua:3: ", body, 1, true)
    assert.matches("took longer than 0.2 s of processor time", body, 1, true)
  end)

  it("is named with its line also if it takes long to find the line", function()
    if os.getenv "TSAN_OPTIONS" then return pending "ThreadSanitizer's build finds it in more time than there is" end
    write(g, "tools/bad.lua", ("\n"):rep(60000) .. "while true do end")
    local body = g:admin("/reload", "POST").body
    uv.fs_unlink(g.dir .. "/scripts/tools/bad.lua")
    assert.matches("scripts/tools/bad.lua:60001: ", body, 1, true)
  end)

  it("is no longer in the way once it is mended", function()
    assert.equal(200, g:admin("/reload", "POST").status)
  end)

  it("is an error of `moonpool check`", function()
    for _, name in ipairs { "handler", "telling", "length", "keys" } do
      local dir = gateway.prepare { scripts = { ["tools/bad.lua"] = bodies[name] } }
      local code, out, err = gateway.exec({ "check" }, { cwd = dir, env = { SPEC_LIMIT_load_ms = "200" } })
      assert.equal(78, code, out .. err)
      assert.matches("scripts/tools/bad.lua", out .. err, 1, true)
      os.execute("rm -rf '" .. dir .. "'")
    end
  end)
end)

describe("six files that do not end while they load", function()
  it("take no longer together than one", function()
    local bad = { ["tools/ok.lua"] = OK }
    local g <close> = gateway.start { scripts = bad, workers = 2, constants = { load_ms = 500 }, config = { scripts = { path = "scripts", watch = false } } }
    for i = 1, 6 do write(g, "tools/bad" .. i .. ".lua", "while true do end") end
    local before = cpu(g.pid)
    assert.equal(422, g:admin("/reload", "POST").status)
    assert.truthy(cpu(g.pid) - before < 1.5, cpu(g.pid) - before)
    g:signal "sigterm"
    assert.equal(0, (g:wait_exit(20)))
  end)
end)

describe("a `visible` that does not end", function()
  it("hides its thing at a reload too, and the worker serves on", function()
    local hidden = "return tool { 'Hidden.', visible = function() if store.get 'loop' then while true do end end return true end, function() return 'x' end }"
    local g <close> = gateway.start { scripts = { ["tools/ok.lua"] = OK, ["tools/hidden.lua"] = hidden,
      ["tools/loop.lua"] = offenders.tool "store.set('loop', true) return 'set'" }, workers = 1, config = { scripts = { path = "scripts", watch = false } } }
    local c <close> = g:client "2025-06-18"
    c:get_stream()
    assert.equal("set", c:result("tools/call", { name = "loop" }).content[1].text)
    write(g, "tools/hidden.lua", (hidden:gsub("Hidden%.", "Changed.")))
    assert.equal(200, g:admin("/reload", "POST").status)
    g:wait_log "visible function failed"
    assert.equal("ok", c:result("tools/call", { name = "ok" }).content[1].text)
  end)
end)
