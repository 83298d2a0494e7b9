-- B-129: the values that a strict script reaches in the real binary, through tables and metatables down to the last
-- function, are those of a list in this file, and equal those of the library in plain Lua. Also: paths of special files
-- (the process's own, the kernel's, devices).
local gateway = require "spec.helpers.gateway"
local granted = require "spec.helpers.granted"
local reach = require "spec.helpers.reach"

-- `next` shows nothing in the _G of a script: the names are read one by one, and everything below a found name is
-- searched.
local walk = [[return tool { "Walks.", input = { names = t.list(t.string) }, function(args)
  local found, seen = {}, {}
  local function visit(prefix, value)
    local kind = type(value)
    if kind ~= "table" or seen[value] then return end
    seen[value] = true
    for name, inner in next, value do
      found[#found + 1] = prefix .. tostring(name)
      visit(prefix .. tostring(name) .. ".", inner)
    end
    local mt = getmetatable(value)
    if type(mt) == "table" then
      found[#found + 1] = prefix .. "<metatable>"
      visit(prefix .. "<metatable>.", mt)
    end
  end
  for _, name in ipairs(args.names) do
    local ok, value = pcall(function() return _G[name] end)
    if ok and value ~= nil then
      found[#found + 1] = name
      if name ~= "_G" then visit(name .. ".", value) end
    end
  end
  local odd = {}
  for _, value in ipairs { "", 1, true, print, json.null, coroutine.create(print), _G } do
    if getmetatable(value) then odd[#odd + 1] = type(value) end
  end
  table.sort(found)
  return { found = table.concat(found, "\n") .. "\n", odd = json.array(odd), bare = next(_G) == '_G' and next(_G, '_G') == nil }
end }]]

-- Names of Lua, of related languages, and of the inside of this library.
local others = {
  "_G", "_ENV", "arg", "bit32", "debug", "dofile", "getfenv", "host", "io", "jit", "load", "loadfile", "loadstring", "module", "moonpool", "newproxy",
  "package", "rawequal", "registry", "require", "sandbox", "setfenv", "unpack", "warn", "call", "hearing", "topics", "tasks", "signal", "wire", "vm", "task",
}

describe("what a script reaches in the binary", function()
  it("is the list, and no metatable of Lua's own values", function()
    local g <close> = gateway.start { scripts = { ["tools/walk.lua"] = walk }, workers = 1 }
    local me = g:client "2026-07-28"
    local names, there = {}, {}
    for _, list in ipairs { reach.top, others } do
      for _, name in ipairs(list) do
        if not there[name] then names[#names + 1], there[name] = name, true end
      end
    end
    for name in pairs(_G) do
      if not there[name] then names[#names + 1], there[name] = name, true end
    end
    local got = me:result("tools/call", { name = "walk", arguments = { names = names } }).structuredContent
    assert.equal(reach.in_the_binary(), got.found)
    assert.same({}, got.odd)
    assert.is_true(got.bare)
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a grant of everything", function()
  it("opens no device, nothing of /proc and /sys, by no path", function()
    local g <close> = granted.start { allow = { read = { "/" }, write = { "/" } }, files = { ["data/a"] = "a" },
      code = [[if args.n == 1 then local ok, why = fs.write(args.path, "x") return { text = ok and "written", why = why } end
        if args.n == 2 then local ok, why = fs.write(args.path, "x", { append = true }) return { text = ok and "written", why = why } end
        if args.n == 3 then local list, why = fs.list(args.path) return { text = list and table.concat(list, " "), why = why } end
        local text, why = fs.read(args.path) return { text = text, why = why }]] }
    local me = g:client "2026-07-28"
    local here = require "luv".fs_realpath(g.dir)
    require "luv".fs_symlink("/proc/self/environ", here .. "/data/link")
    assert.equal("a", granted.run(me, { path = "data/a" }).text)
    for _, path in ipairs {
      "/proc/self/mem", "/proc/self/environ", "/proc/self/cmdline", "/proc/self/maps", "/proc/thread-self/environ", "/proc/" .. g.pid .. "/environ",
      "/proc/self/root/etc/passwd", "/proc/self/cwd/moonpool.yaml", "/proc/self/fd/2", "/dev/fd/2", "/dev/stdin", "/proc/1/environ", "/proc/cpuinfo",
      "/proc/sys/kernel/hostname", "/sys/kernel/mm/transparent_hugepage/enabled", "/dev/zero", "/dev/null", "/dev/urandom", "/dev/tty", "data/link",
      "/dev/../proc/self/environ", "//proc/self/./environ",
    } do
      for n = 0, 2 do
        if n ~= 1 or path:find "^/proc" then -- a spec that may fail must not write to the machine's own files
          local got = granted.run(me, { path = path, n = n })
          assert.is_nil(got.text, path .. " " .. n)
          assert.truthy(got.why, path)
        end
      end
    end
    if os.execute("mknod " .. here .. "/data/null c 1 3 2>/dev/null") then
      for n = 0, 2 do
        local why = "cannot " .. (n == 0 and "read" or "write") .. " data/null: the path is not a regular file"
        assert.equal(why, granted.run(me, { path = "data/null", n = n }).why)
      end
    end
    for _, path in ipairs { "/proc/self", "/proc/self/fd", "/proc", "/sys/kernel" } do
      assert.is_nil(granted.run(me, { path = path, n = 3 }).text, path)
    end
    me:close()
    assert.has_nothing_left(g)
  end)
end)
