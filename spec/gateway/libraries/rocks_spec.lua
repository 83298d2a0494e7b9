-- scripts.rocks: pure-Lua modules of a LuaRocks tree, if they run without the rest of Lua's library, and the error if
-- they do not.
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local here = "rocks/share/lua/5.4/"

local config = { scripts = { rocks = "rocks", allow = { env = { "SECRET_OF_SPEC" }, read = { "." } } } }

-- A tool that returns the value of an expression.
local function tool(before, value) return ("%s\nreturn tool { 'Tells.', function() return { value = %s } end }"):format(before, value) end

local function start(files, scripts, more)
  local all = { scripts = { rocks = "rocks" } }
  for key, value in pairs(more or {}) do all.scripts[key] = value end
  return gateway.start { workers = 1, files = files, scripts = scripts, config = all, env = { SECRET_OF_SPEC = "s3cret" } }
end

local function tell(client, name)
  local result = client:result("tools/call", { name = name or "tell" })
  return result.structuredContent and result.structuredContent.value, result.isError
end

local function once(files, before, value, more)
  local g <close> = start(files, { ["tools/tell.lua"] = tool(before, value) }, more)
  local me <close> = g:client "2026-07-28"
  return tell(me)
end

local function check(files, scripts, options)
  local dir = gateway.prepare { files = files, scripts = scripts, config = options or config }
  local code, out, err = gateway.exec({ "check" }, { cwd = dir })
  os.execute("rm -rf '" .. dir .. "'")
  return code, out .. err
end

describe("a rock", function()
  it("is found by require after lib, as x.lua and as x/init.lua, and is run once", function()
    local g <close> = start({
      [here .. "shape.lua"] = "runs = (runs or 0) + 1 return { name = ..., runs = function() return runs end }",
      [here .. "deep/init.lua"] = "return { inner = require 'deep.inner' }", [here .. "deep/inner.lua"] = "return 'inner'",
      [here .. "both.lua"] = "return 'rock'",
    }, {
      ["lib/both.lua"] = "return 'lib'",
      ["lib/user.lua"] = "return require 'shape'",
      ["tools/tell.lua"] = tool("local shape, user = require 'shape', require 'user'",
        "{ shape.name, shape.runs(), shape == user, require 'deep'.inner, require 'both' }"),
    })
    local me <close> = g:client "2026-07-28"
    assert.same({ "shape", 1, true, "inner", "lib" }, (tell(me)))
  end)

  it("reads unknown names as nil", function()
    assert.same({ "default", "function", "nil", "nil", "/", false, true }, (once({
      [here .. "ini.lua"] = [[local backend = "default"
        if love then backend = "love" end
        local sep = _G.package.config:sub(1, 1)
        local ok = pcall(require, "lpeg")
        local jit, ngx, http = jit, ngx, http
        return { backend, type(_G.io.open), tostring(jit or ngx), tostring(http), sep, ok, rawget(_G, "string") == string }]],
    }, "local ini = require 'ini'", "ini")))
  end)

  it("keeps what it sets to itself", function()
    assert.same({ 7, 7, "nil", false, false }, (once({
      [here .. "leak.lua"] = "leaked = 7 string.extra = 1 function helper() return leaked end return { get = helper, inner = require 'leak.inner' }",
      [here .. "leak/inner.lua"] = "return leaked",
      [here .. "other.lua"] = "return { tostring(leaked), string.extra ~= nil }",
    }, "local leak, other = require 'leak', require 'other'", "{ leak.get(), leak.inner, other[1], other[2], string.extra ~= nil }")))
  end)

  it("has no grants: neither those of scripts.allow nor what lib has", function()
    local got = once({
      [here .. "thief.lua"] = [[return { type(env), type(secret), type(fs), type(exec), type(store), type(auth), type(sqlite), type(tool),
        (pcall(require, "keys")), type(string.dump), type(debug), type(os.getenv), use = function(f, ...) return (f(...)) end }]],
    }, "local thief = require 'thief'", "{ table.concat(thief, ' ', 1, 8), thief[9], thief[10], thief[11], thief[12], thief.use(env, 'SECRET_OF_SPEC') }",
      { allow = { env = { "SECRET_OF_SPEC" } } })
    assert.same({ ("nil "):rep(8):sub(1, -2), false, "nil", "table", "nil", "s3cret" }, got) -- debug has a traceback alone
  end)

  it("may be required by a call, and by the rock when it is called", function()
    assert.same({ "late", true }, (once({
      [here .. "lazy.lua"] = "return { get = function() return require 'lazy.part' end }", [here .. "lazy/part.lua"] = "return 'late'",
      [here .. "nothing.lua"] = "local x = 1",
    }, "local lazy = require 'lazy'", "{ lazy.get(), require 'nothing' }")))
  end)

  it("ends by the limits of a call where it never ends", function()
    local g <close> = gateway.start { workers = 1, files = { [here .. "endless.lua"] = "while true do end" }, scripts = {
      ["tools/tell.lua"] = tool("", "require 'endless'"), ["tools/fine.lua"] = tool("", "1"),
    }, config = { scripts = { rocks = "rocks" }, limits = { call = { cpu = "200ms" } } } }
    local me <close> = g:client "2026-07-28"
    local answer = me:call("tools/call", { name = "tell" })
    assert.truthy(answer.error or answer.result.isError)
    assert.equal(1, (tell(me, "fine")))
    g:wait_log("call over its limit", { file = "rocks/share/lua/5.4/endless.lua" })
  end)

  it("that is changed serves at once, and a broken one changes nothing", function()
    local g <close> = start({ [here .. "word.lua"] = "return 'old'" }, { ["tools/tell.lua"] = tool("local word = require 'word'", "word") })
    local me <close> = g:client "2026-07-28"
    local function save(text)
      local file <close> = assert(io.open(g.dir .. "/" .. here .. "word.lua", "wb"))
      file:write(text)
    end
    assert.equal("old", (tell(me)))
    save "return 'new'"
    wait.for_fact("the new word", 20, function() return tell(me) == "new" end)
    g:wait_log("reloaded", { changes = "~ rock word.lua" })
    save "return ="
    g:wait_log "script refused"
    assert.truthy(g:log():find(here .. "word.lua:1: ", 1, true), g:log())
    assert.equal("new", (tell(me)))
  end)
end)

describe("moonpool check", function()
  local function refused(rock, use, files)
    files = files or {}
    files[here .. "rock.lua"] = rock
    local code, told = check(files, { ["tools/tell.lua"] = tool(use or "local rock = require 'rock'", "1") })
    assert.equal(78, code)
    return told
  end

  it("names the line of a rock that is no Lua", function()
    local told = refused "local x = 1\nreturn +"
    assert.truthy(told:find(here .. "rock.lua:2: ", 1, true), told)
    assert.truthy(told:find("\n    return +\n", 1, true) or told:find("\n    return +", 1, true), told)
  end)

  for what, text in pairs {
    ["there is no 'loadstring'"] = "local f = loadstring 'return 1'", ["io.open is closed to rocks"] = "local file = io.open 'x'",
    ["io.lines is closed to rocks"] = "for line in _G.io.lines 'x' do end",
  } do
    it("says of what a rock runs without: " .. what, function()
      local told = refused("\n" .. text .. "\nreturn {}")
      assert.truthy(told:find(here .. "rock.lua:2: ", 1, true), told)
      assert.truthy(told:find(what, 1, true), told)
      assert.truthy(told:find("trust: full", 1, true), told)
    end)
  end

  it("runs Penlight, whose files take functions of io, os and debug into locals", function()
    assert.equal("{4,6} Ab Cd", (once({}, "local List, pretty, stringx = require 'pl.List', require 'pl.pretty', require 'pl.stringx'",
      "pretty.write(List { 2, 3 }:map(function(x) return 2 * x end), '') .. ' ' .. stringx.title 'ab cd'", { rocks = "/usr" })))
  end)

  it("does not stop at a rock that takes functions of io and debug into locals, and calls none", function()
    assert.equal(7, (once({ [here .. "template.lua"] = [[
      local open, popen, stdout, trace = io.open, io.popen, io.stdout, debug.traceback
      return { render = function() return 7 end, read = function(path) return open(path):read "a" end }]],
    }, "local template = require 'template'", "template.render()")))
  end)

  it("names os.execute, which a rock runs without", function()
    local told = refused "return os.execute 'true'"
    assert.truthy(told:find("scripts have no os.execute", 1, true), told)
  end)

  it("says that a module is a C module", function()
    for _, use in ipairs { "local x = require 'fast.core'", "local x = require 'rock'" } do
      local told = refused("return require 'fast.core'", use, { ["rocks/lib/lua/5.4/fast/core.so"] = "\127ELF" })
      assert.truthy(told:find("rocks/lib/lua/5.4/fast/core.so is a C module: only trust: full could load it", 1, true), told)
    end
  end)

  it("says where a module was looked for", function()
    local told = refused("return 1", "local x = require 'absent.part'")
    assert.truthy(told:find("scripts/lib/absent/part.lua does not exist, and ", 1, true), told)
    assert.truthy(told:find("rocks/share/lua/5.4/absent/part.lua does not exist", 1, true), told)
  end)

  it("names rocks that require each other", function()
    local told = refused("return require 'rock.other'", nil, { [here .. "rock/other.lua"] = "return require 'rock'" })
    assert.truthy(told:find("rocks require each other: rock -> rock.other -> rock", 1, true), told)
  end)

  it("says that the tree does not exist, and what makes one", function()
    local code, told = check({}, { ["tools/tell.lua"] = tool("", "1") })
    assert.equal(78, code)
    assert.truthy(told:find("rocks/share/lua/5.4: No such file or directory", 1, true), told)
    assert.truthy(told:find("luarocks install", 1, true), told)
  end)

  it("looks at no file outside the tree", function()
    for _, name in ipairs { "../../../secret", "/etc/passwd", "a/../../b", "..secret", "a..b" } do
      local told = refused("return 1", ("local x = require %q"):format(name), { ["rocks/share/secret.lua"] = "return 'out'" })
      assert.truthy(told:find("there is no library", 1, true), told)
    end
  end)
end)
