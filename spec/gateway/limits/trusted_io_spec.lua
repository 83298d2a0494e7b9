-- Files and pipes that a script with `trust: full` opens by Lua's io: counted for the script, until they are closed or
-- collected.
local gateway = require "spec.helpers.gateway"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local FILES <const>, SHARE <const> = 256, 8 -- with so few, a script has 8

local script = [[
local kept = {}
local ways = {
  open = function() return io.open(NAME) end,
  popen = function() return io.popen("exec cat", "w") end,
  tmpfile = function() return io.tmpfile() end,
  lines = function() return select(4, io.lines(NAME)) end,
  input = function() return io.input(NAME) end,
  exec = function() return exec { "true" } end,
  output = function() return io.output(NAME .. ".out") end,
}
return tool { "Opens files.", input = { count = t.integer, way = t.string, keep = t.boolean }, function(args)
  for i = 1, args.count do
    local ok, file, why, code = pcall(ways[args.way])
    if not (ok and file) then return table.concat({ i .. ":", tostring(ok and why or file), tostring(code) }, " ") end
    if args.keep then kept[#kept + 1] = file end
  end
  return "ok" end }]]

-- Two scripts that open files, and one that runs Lua.
local function start()
  local dir = gateway.new_folder()
  local name = dir .. "/text"
  assert(io.open(name, "w")):write "one\ntwo\n":close()
  local file = assert(io.open(dir .. "/moonpool", "w"))
  file:write(("#!/bin/sh\nulimit -n %d\nexec '%s' \"$@\"\n"):format(FILES, uv.fs_realpath(gateway.binary))):close()
  assert(uv.fs_chmod(dir .. "/moonpool", 493))
  local text = script:gsub("NAME", ("%q"):format(name))
  return gateway.start {
    binary = dir .. "/moonpool", workers = 1, config = { scripts = { trust = "full", allow = { run = { "true" } } } },
    scripts = { ["tools/one.lua"] = text, ["tools/two.lua"] = text, ["tools/read.lua"] = ([[
      return tool { "Reads.", input = { how = t.string }, function(args)
        return tostring(load(args.how, "=how", "t", setmetatable({ NAME = %q }, { __index = _G }))()) end }]])
      :format(name) },
  }
end

local function call(me, name, count, way, keep)
  return me:result("tools/call", { name = name, arguments = { count = count, way = way, keep = keep } }).content[1].text
end

local function open_files(g) return g:status().gauges.outgoing_descriptors end

describe("a script with trust: full", function()
  for way, words in pairs {
    open = "too many open files.* 24$", popen = "too many open files.* 24$", tmpfile = "too many open files.* 24$",
    lines = "cannot open file '[^']+/text' %(too many open files", input = "cannot open file '[^']+/text' %(too many open files",
    output = "cannot open file '[^']+/text.out' %(too many open files",
  } do
    it("opens as many files by io." .. way .. " as its share of descriptors has, and other scripts open theirs", function()
      local g <close> = start()
      local me <close> = g:client "2026-07-28"
      assert.matches(("^%d: .*"):format(SHARE + 1) .. words, call(me, "one", 400, way, true))
      assert.equal(SHARE, open_files(g))
      assert.equal(1, g:status().counters.refused.descriptors)
      assert.equal("ok", call(me, "two", 1, way, true))
      for _, path in ipairs { "/healthz", "/readyz", "/metrics" } do assert.equal(200, g:admin(path).status, path) end
    end)
  end

  it("has one share for its files and its programs", function()
    local g <close> = start()
    local me <close> = g:client "2026-07-28"
    assert.equal("ok", call(me, "one", 1, "exec", false))
    assert.equal("ok", call(me, "one", SHARE, "open", true))
    assert.matches("^1: true: too many programs", call(me, "one", 1, "exec", false))
    assert.equal("ok", call(me, "two", 1, "exec", false))
  end)

  it("that forgets its files is refused no longer once they are collected", function()
    local g <close> = start()
    local me <close> = g:client "2026-07-28"
    call(me, "one", 400, "open", false)
    g:wait_status(function(status) return status.gauges.outgoing_descriptors == 0 end)
    wait.for_fact("a file", 20, function() return call(me, "one", 1, "open", true) == "ok" end)
  end)

  it("gives a descriptor back when a file is closed, at the end of io.lines, and where none was opened", function()
    local g <close> = start()
    local me <close> = g:client "2026-07-28"
    local function run(how) return me:result("tools/call", { name = "read", arguments = { how = how } }).content[1].text end
    for how, outcome in pairs {
      ["local f <close> = io.open(NAME) return f:read 'a'"] = "one\ntwo\n",
      ["local n = '' for line in io.lines(NAME) do n = n .. line .. ';' end return n"] = "one;two;",
      ["for a, b in io.lines(NAME, 1, 'l') do return a .. b end"] = "one",
      ["local f = io.popen 'exit 3' return select(3, f:close())"] = "3",
      ["local f = io.tmpfile() f:write 'x' f:seek 'set' local x = f:read 'a' f:close() return x"] = "x",
      ["io.input(NAME) local x = io.read 'l' io.input():close() return x"] = "one",
      ["return table.concat({ io.open(NAME .. 'no') == nil and 'none', select(2, io.open(NAME .. 'no')):match ': (.*)', select(3, io.open 'no') }, ' ')"] =
        "none No such file or directory 2",
      ["return select(2, pcall(io.open, NAME, 'x'))"] = "bad argument #2 to 'io.open' (invalid mode)",
      ["return select(2, pcall(io.lines, NAME .. 'no')):match '%(.*'"] = "(No such file or directory)",
    } do
      for _ = 1, 2 * SHARE do assert.equal(outcome, run(how), how) end
      assert.equal(0, open_files(g), how)
    end
    assert.equal(0, g:status().counters.refused.descriptors)
  end)
end)
