-- `fs`: files within the grants, and none beyond them, by any name, link or race; other calls are served during file
-- operations.
local granted = require "spec.helpers.granted"
local uv = require "luv"

local reading = [[local text, why = fs.read(args.path) return { text = text, why = why }]]
local writing = [[local done, why = fs.write(args.path, args.text or "") return { done = done, why = why }]]

local function read(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read "a"
  file:close()
  return text
end

-- Runs `check(run, g)` where run(arguments) calls the tool.
local function with(options, check)
  local g <close> = granted.start(options)
  local me = g:client "2026-07-28"
  check(function(arguments) return granted.run(me, arguments) end, g, me)
  me:close()
  assert.has_nothing_left(g)
end

describe("fs.read", function()
  it("reads granted files, by a path from the folder of moonpool.yaml or from the root", function()
    with({ code = reading, allow = { read = { "data/" } }, files = { ["data/a.txt"] = "one\0two", ["data/deep/b"] = "" } }, function(run, g)
      assert.equal("one\0two", run { path = "data/a.txt" }.text)
      assert.equal("one\0two", run { path = "./data/deep/../a.txt" }.text)
      assert.equal("one\0two", run { path = uv.fs_realpath(g.dir) .. "/data/a.txt" }.text)
      assert.equal("", run { path = "data/deep/b" }.text)
      assert.equal("cannot read data/none: there is no such file or folder", run { path = "data/none" }.why)
      assert.equal("cannot read data/deep: Is a directory", run { path = "data/deep" }.why)
    end)
  end)

  it("refuses files without a grant, and names the grant that would allow it", function()
    with({ code = reading, allow = { read = { "data" } }, files = { ["secret.txt"] = "s", ["data/a"] = "", ["database/x"] = "" } }, function(run, g)
      for _, path in ipairs { "secret.txt", "data/../secret.txt", "../" .. g.dir:match "[^/]*$" .. "/secret.txt", "data/../../../../../../../etc/passwd",
        "/etc/passwd", "/proc/self/environ", "database/x", "moonpool.yaml", "." } do
        local got = run { path = path }
        assert.is_nil(got.text, path)
        assert.matches("^tools/run.lua may not read %S+: no grant allows it", got.why)
      end
      assert.equal('tools/run.lua may not read secret.txt: no grant allows it (moonpool.yaml: scripts: {grants: {"tools/run.lua": {read: ["secret.txt"]}}})',
        run { path = "secret.txt" }.why)
      assert.is_truthy(g:wait_log("fs refused", { file = "tools/run.lua", path = "/etc/passwd" }))
    end)
  end)

  it("follows links within the grant and none out of it", function()
    with({ code = reading, allow = { read = { "data" } }, files = { ["secret.txt"] = "s", ["data/sub/a"] = "inside" } }, function(run, g)
      for name, target in pairs { out = "../secret.txt", up = "..", far = "/etc", inside = "sub/a", same = "/proc/self/root/etc" } do
        assert(uv.fs_symlink(target, g.dir .. "/data/" .. name))
      end
      assert(uv.fs_symlink(uv.fs_realpath(g.dir) .. "/data/sub/a", g.dir .. "/data/whole"))
      assert.equal("inside", run { path = "data/inside" }.text)
      for _, path in ipairs { "data/out", "data/up/secret.txt", "data/far/passwd", "data/same/passwd", "data/whole" } do
        assert.equal("cannot read " .. path .. ": the path leads out of the granted folder", run { path = path }.why)
      end
    end)
  end)

  it("never gets out while a folder and a link change places", function()
    local code = [[local seen = {}
      for _ = 1, 100 do
        local text, why = fs.read("data/swap/a")
        local got = text or why
        seen[got] = (seen[got] or 0) + 1
      end
      return seen]]
    with({ code = code, allow = { read = { "data" } }, files = { ["out/a"] = "OUTSIDE", ["data/real/a"] = "inside" } }, function(_, g)
      assert(uv.fs_symlink("../out", g.dir .. "/data/link"))
      local me = g:client "2026-07-28"
      local swapper, turn = uv.new_idle(), 0
      swapper:start(function()
        turn = turn + 1
        local from = g.dir .. "/data/" .. (turn % 2 == 0 and "link" or "real")
        uv.fs_rename(from, g.dir .. "/data/swap")
        uv.fs_rename(g.dir .. "/data/swap", from)
      end)
      local seen = {}
      for _ = 1, 20 do
        for text, n in pairs(granted.run(me)) do seen[text] = (seen[text] or 0) + n end
      end
      swapper:close()
      assert.is_nil(seen.OUTSIDE)
      assert.is_true(turn > 100)
      me:close()
    end)
  end)

  it("reads no device, no pipe, and nothing above 16 MiB", function()
    with({ code = reading, allow = { read = { "data", "/dev/zero" } }, constants = { fs_file = 65536 },
      files = { ["data/fit"] = ("x"):rep(65536), ["data/large"] = ("x"):rep(65537) } }, function(run, g)
      os.execute("mkfifo " .. g.dir .. "/data/pipe")
      assert.equal("cannot read data/pipe: the path is not a regular file", run { path = "data/pipe" }.why)
      assert.equal("cannot read /dev/zero: the path is not a regular file", run { path = "/dev/zero" }.why)
      assert.equal(65536, #run { path = "data/fit" }.text)
      assert.equal("cannot read data/large: the content is larger than 16 MiB", run { path = "data/large" }.why)
      assert.equal(0, g:status().gauges.fs_bytes)
    end)
  end)

  it("shows nothing of this process by a grant of /proc, by whichever of its threads", function()
    with({ code = reading, allow = { read = { "/proc" } }, env = { SECRET = "hidden" } }, function(run, g)
      assert.truthy(run { path = "/proc/loadavg" }.text)
      assert.truthy(run { path = "/proc/1/status" }.text)
      for name in require "lfs".dir("/proc/" .. g.pid .. "/task") do
        if name:find "%d" then
          for _, path in ipairs { name .. "/environ", g.pid .. "/task/" .. name .. "/environ", name .. "/task/" .. g.pid .. "/maps" } do
            local got = run { path = "/proc/" .. path }
            assert.is_nil(got.text, path)
            assert.matches("the path is a kernel file, such as those in /proc$", got.why)
          end
        end
      end
    end)
  end)

  it("reads the one file that a grant names, and not through a link in its place", function()
    with({ code = reading, allow = { read = { "one.txt" } }, files = { ["one.txt"] = "1", ["two.txt"] = "2" } }, function(run, g)
      assert.equal("1", run { path = "one.txt" }.text)
      assert.matches("no grant", run { path = "two.txt" }.why)
      assert.matches("no grant", run { path = "one.txt.bak" }.why)
      uv.fs_unlink(g.dir .. "/one.txt")
      uv.fs_symlink("two.txt", g.dir .. "/one.txt")
      assert.is_nil(run { path = "one.txt" }.text)
    end)
  end)
end)

describe("fs.write", function()
  it("replaces a file whole, and leaves nothing beside it", function()
    with({ code = writing, allow = { write = { "data/out" } }, files = { ["data/out/a"] = "old", ["data/b"] = "old" } }, function(run, g)
      uv.fs_chmod(g.dir .. "/data/out/a", 384) -- 0600
      assert.is_true(run { path = "data/out/a", text = "new" }.done)
      assert.equal("new", read(g.dir .. "/data/out/a"))
      assert.equal(384, uv.fs_stat(g.dir .. "/data/out/a").mode & 511)
      assert.is_true(run { path = "data/out/fresh", text = "f" }.done)
      local names = {}
      for name in require "lfs".dir(g.dir .. "/data/out") do names[#names + 1] = name end
      table.sort(names)
      assert.same({ ".", "..", "a", "fresh" }, names)
      assert.equal('tools/run.lua may not write data/b: no grant allows it (moonpool.yaml: scripts: {grants: {"tools/run.lua": {write: ["data/b"]}}})',
        run { path = "data/b" }.why)
      assert.equal("old", read(g.dir .. "/data/b"))
    end)
  end)

  it("replaces a link instead of its target, and does not write through folders that are links", function()
    with({ code = writing, allow = { write = { "data" } }, files = { ["outside/a"] = "old", ["data/x"] = "" } }, function(run, g)
      uv.fs_symlink("../outside/a", g.dir .. "/data/link")
      uv.fs_symlink("../outside", g.dir .. "/data/folder")
      assert.is_true(run { path = "data/link", text = "new" }.done)
      assert.equal("new", read(g.dir .. "/data/link"))
      assert.equal("cannot write data/folder/a: the path leads out of the granted folder", run { path = "data/folder/a", text = "new" }.why)
      assert.equal("old", read(g.dir .. "/outside/a"))
    end)
  end)

  it("appends where it is asked to, and not through a link that leads out", function()
    local code = [[local done, why = fs.write(args.path, args.text, { append = true }) return { done = done, why = why }]]
    with({ code = code, allow = { write = { "data" } }, files = { ["data/x"] = "1", ["out"] = "old" } }, function(run, g)
      uv.fs_symlink("../out", g.dir .. "/data/link")
      run { path = "data/x", text = "2" }
      run { path = "data/new", text = "3" }
      assert.equal("12", read(g.dir .. "/data/x"))
      assert.equal("3", read(g.dir .. "/data/new"))
      assert.matches("leads out", run { path = "data/link", text = "2" }.why)
      assert.equal("old", read(g.dir .. "/out"))
    end)
  end)

  it("has an error of its own for each mistake of the script", function()
    local code = [[local ok, why = pcall(fs.write, "data/a", { 1 })
      local _, option = pcall(fs.write, "data/a", "x", { apend = true })
      return { why = tostring(why), option = tostring(option) }]]
    with({ code = code, allow = { write = { "data" } } }, function(run)
      assert.matches("fs.write needs a string, got a table", run {}.why)
      assert.matches("no option 'apend'", run {}.option)
    end)
  end)
end)

describe("the other functions of fs", function()
  it("lists a folder whole or not at all", function()
    local files = {}
    for i = 1, 200 do files["data/" .. ("x"):rep(90) .. i] = "" end
    local code = [[local names, why = fs.list "data" return { count = names and #names, why = why }]]
    for limit, wanted in pairs { [20480] = { count = 200 }, [16384] = { why = "cannot list data: the content is larger than 16 MiB" } } do
      with({ code = code, allow = { read = { "data" } }, files = files, constants = { fs_file = limit } }, function(run) assert.same(wanted, run {}) end)
    end
  end)

  it("lists, looks, makes and removes, within the grants", function()
    local code = [[
      local names = fs.list "data"
      local info = fs.stat "data/a"
      local there, gone = fs.exists "data/a", fs.exists "data/none"
      local nothing, refused = fs.exists "/etc/passwd"
      local made = fs.mkdir "data/new/deep"
      fs.write("data/new/deep/x", "1")
      local full, why = fs.remove "data/new/deep"
      fs.remove "data/new/deep/x"
      local removed = fs.remove "data/new/deep"
      local root, root_why = fs.remove "data"
      return { names = names, type = info.type, size = info.size, is_old = os.time() - info.modified < 100, there = there, gone = gone,
        nothing = nothing == nil, refused = refused, made = made, full = full, why = why, removed = removed, root = root, root_why = root_why }]]
    with({ code = code, allow = { read = { "data" }, write = { "data" } }, files = { ["data/b/x"] = "", ["data/a"] = "12345" } }, function(run, g)
      local got = run {}
      assert.same({ "a", "b/" }, got.names)
      assert.equal("file", got.type)
      assert.equal(5, got.size)
      assert.is_true(got.is_old)
      assert.is_true(got.there)
      assert.is_false(got.gone)
      assert.is_true(got.nothing)
      assert.matches("may not read /etc/passwd", got.refused)
      assert.is_true(got.made)
      assert.is_nil(got.full)
      assert.equal("cannot remove data/new/deep: Directory not empty", got.why)
      assert.is_true(got.removed)
      assert.is_nil(got.root)
      assert.is_nil(uv.fs_stat(g.dir .. "/data/new/deep"))
    end)
  end)

  it("makes the granted folder itself where it is missing", function()
    with({ code = [[local made, why = fs.mkdir "data/out" return { made = made, why = why }]], allow = { write = { "data" } } }, function(run, g)
      assert.is_true(run {}.made)
      assert.equal("directory", uv.fs_stat(g.dir .. "/data/out").type)
    end)
  end)
end)

describe("files and calls", function()
  it("are ended when a call is cancelled, and no file or descriptor stays", function()
    local code = [[while true do fs.write("data/a", ("x"):rep(1 << 20)) call:progress(1) end]]
    local g <close> = granted.start { code = code, allow = { write = { "data" } }, files = { ["data/a"] = "" } }
    local me = g:client "2026-07-28"
    local streams = {}
    for i = 1, 10 do streams[i] = granted.begin(me) end
    g:wait_status(function(now) return now.gauges.pool_jobs > 0 end)
    for _, stream in ipairs(streams) do stream:close() end
    g:wait_status(function(now) return now.gauges.pool_jobs == 0 and now.gauges.fs_bytes == 0 end)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("are bounded: those that run, and those that wait for a thread", function()
    local code = [[while true do
        local done, why = fs.write("data/a", ("x"):rep(args.n))
        if not done then return { why = why } end
      end]]
    with({ code = code, allow = { write = { "data" } }, files = { ["data/a"] = "" }, constants = { fs_held = 65536 } }, function(run, g)
      assert.equal("cannot write data/a: too many bytes are being read and written at once (128 MiB)", run { n = 65537 }.why)
      assert.equal(0, g:status().gauges.fs_bytes)
    end)
    -- The number of bytes of a file is known only once it is read, and only then compared with the limit.
    with({ code = reading, allow = { read = { "data" } }, files = { ["data/a"] = ("x"):rep(200000) }, constants = { fs_held = 65536 } }, function(run, g)
      for _ = 1, 2 do assert.matches("too many bytes are being read and written at once", run({ path = "data/a" }).why, 1, true) end
      assert.equal(0, g:status().gauges.fs_bytes)
    end)
    with({ code = code, allow = { write = { "data" } }, files = { ["data/a"] = "" },
      constants = { pool_queue = 1, pool_threads = 1 } }, function(_, g, me)
      local streams = {}
      for i = 1, 3 do streams[i] = granted.begin(me, { n = 4096 }) end -- one file operation runs, one waits, the third is refused
      g:wait_status(function(now) return now.counters.refused.pool >= 1 end)
      for _, stream in ipairs(streams) do stream:close() end
    end)
  end)

  it("may not wait while scripts load", function()
    local gateway = require "spec.helpers.gateway"
    local dir = gateway.prepare {
      scripts = { ["tools/a.lua"] = "local text = fs.read 'data/a'\nreturn function() return text end" }, files = { ["data/a"] = "x" },
      config = { scripts = { allow = { read = "data" } } },
    }
    local code, out, err = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })
    assert.equal(78, code)
    assert.matches("tools/a.lua:1: may not wait here", out .. err)
  end)

  it("stops with work under way", function()
    local code = [[while true do fs.write("data/a", ("x"):rep(4 << 20)) end]]
    local g <close> = granted.start { code = code, allow = { write = { "data" } }, files = { ["data/a"] = "" }, limits = { drain = "50ms" }, workers = 2 }
    local me = g:client "2026-07-28"
    local stream = granted.begin(me)
    g:wait_status(function(now) return now.gauges.pool_jobs > 0 end)
    assert.equal(0, (g:stop()))
    stream:close()
    me:close()
  end)
end)
