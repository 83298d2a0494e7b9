-- The scripts that obtain the libraries linked in: by hash, from the mirror of the machine's apt or from a folder, and
-- with words where that fails.
local uv = require "luv"
local shell = require "spec.helpers.shell"

local run, write = shell.run, shell.write

local ARCHIVE, HASH, VERSION
for line in io.lines "cmake/dependencies.txt" do
  local version, archive, hash = line:match "^lua%s+(%S+)%s+%S+%s+%S+%s+%S+%s+%S+%s+(%S+)%s+(%x+)$"
  if version then VERSION, ARCHIVE, HASH = version, archive, hash end
end
local cached = assert(uv.fs_realpath "build/dependencies/" .. "/" .. ARCHIVE)

describe("the sources of a library", function()
  local folder
  -- sources.sh in a checkout of its own, with an apt that knows the mirror MIRROR (none: it knows none).
  local function sources(before, mirror)
    write(folder .. "/bin/apt-get", ("#!/bin/sh\n%s\n"):format(mirror and ("echo \"'" .. mirror .. "/dists/trixie/InRelease' x 0 \"") or ":"))
    run(("chmod +x '%s/bin/apt-get'"):format(folder))
    return run(("cd '%s' && unset MOONPOOL_SOURCES && export PATH=\"$PWD/bin:$PATH\" && %s cmake/sources.sh lua"):format(folder, before or ""))
  end
  local function place(out) return (out:match "(/[^\n]*/build/dependencies/lua%-[^\n]+)\n$") end

  before_each(function()
    folder = assert(uv.fs_mkdtemp((os.getenv "TMPDIR" or "/tmp") .. "/sources.XXXXXX"))
    run(("chmod 755 '%s' && mkdir '%s/bin' '%s/given' && cp -r cmake '%s'"):format(folder, folder, folder, folder))
  end)
  after_each(function() run(("rm -rf '%s'"):format(folder)) end)

  it("come from the folder that MOONPOOL_SOURCES names, patched, and are unpacked once", function()
    run(("cp '%s' '%s/given'"):format(cached, folder))
    local out, code = sources "MOONPOOL_SOURCES=given"
    assert.equal(0, code, out)
    local where = assert(place(out), out)
    assert.matches("lua%-" .. VERSION:gsub("%p", "%%%0") .. "%-%x+$", where)
    local text = run(("cat '%s/src/ldo.c'"):format(where))
    assert.truthy(text:find("luaD_errerr", 1, true))
    assert.equal(where .. "\n", (sources "MOONPOOL_SOURCES=/nowhere"))
  end)

  it("come from the mirror of the machine's apt", function()
    local pool = folder .. "/mirror/pool/main/l/lua5.4"
    run(("mkdir -p '%s' && cp '%s' '%s'"):format(pool, cached, pool))
    local out, code = sources("", "copy:" .. folder .. "/mirror")
    assert.equal(0, code, out)
    assert.truthy(place(out), out)
    assert.truthy(out:find("fetching " .. ARCHIVE, 1, true), out)
  end)

  it("are never taken from another file: the error names the archive, its hash and what to do", function()
    local missing, code = sources "MOONPOOL_SOURCES=given"
    assert.equal(1, code)
    assert.equal(("dependencies: MOONPOOL_SOURCES=given has no %s (SHA-256 %s)\n"):format(ARCHIVE, HASH), missing)
    write(folder .. "/given/" .. ARCHIVE, "another file")
    assert.equal(("dependencies: given/%s is another file: its SHA-256 has to be %s\n"):format(ARCHIVE, HASH), (sources "MOONPOOL_SOURCES=given"))
    local pool = folder .. "/mirror/pool/main/l/lua5.4"
    run(("mkdir -p '%s' && cp '%s/given/%s' '%s'"):format(pool, folder, ARCHIVE, pool))
    for _, mirror in ipairs { "copy:" .. folder .. "/mirror", "copy:" .. folder .. "/none", false } do
      local out, ended = sources("", mirror or nil)
      assert.equal(1, ended)
      assert.truthy(out:find(("%s (SHA-256 %s) cannot be had"):format(ARCHIVE, HASH), 1, true), out)
      assert.truthy(out:find("build with MOONPOOL_SOURCES=FOLDER", 1, true), out)
    end
  end)

  it("are fetched again where the kept archive is broken", function()
    run(("mkdir -p '%s/build/dependencies' && echo x >'%s/build/dependencies/%s' && cp '%s' '%s/given'"):format(folder, folder, ARCHIVE, cached, folder))
    local out, code = sources "MOONPOOL_SOURCES=given"
    assert.equal(0, code, out)
  end)

  it("are made anew when a patch changes, and not at all when one does not apply", function()
    run(("cp '%s' '%s/given'"):format(cached, folder))
    local before = place((sources "MOONPOOL_SOURCES=given"))
    run(("echo >>'%s/cmake/patches/lua/01-index-by-comparison.patch'"):format(folder))
    local after = place((sources "MOONPOOL_SOURCES=given"))
    assert.not_equal(before, after)
    run(("sed -i 's/hasjumps/hasnone/' '%s/cmake/patches/lua/01-index-by-comparison.patch'"):format(folder))
    local out, code = sources "MOONPOOL_SOURCES=given"
    assert.equal(1, code)
    assert.truthy(out:find("01-index-by-comparison.patch does not apply to " .. ARCHIVE, 1, true), out)
    assert.equal("", (run(("ls -d '%s'/build/dependencies/lua-*.* | grep '\\.[0-9]*$' | grep -v 'lua-%s-[0-9a-f]*$'"):format(folder, VERSION))))
  end)
end)

describe("each patch of a library", function()
  it("says what it mends and where it is from", function()
    local files = run "ls cmake/patches/*/*.patch"
    local count = 0
    for path in files:gmatch "[^\n]+" do
      count = count + 1
      local file <close> = assert(io.open(path, "rb"))
      local head = file:read "a":match "^(.-)\n%-%-%- a/"
      assert(head and head:find "^%u" and head:find "%.\nOrigin: [^\n]+", path .. " lacks what it mends, or its origin")
    end
    assert.is_true(count > 10)
  end)
end)

describe("the comparison with the suites", function()
  it("says what is newer than what was looked at, and fails then", function()
    local folder <const> = assert(uv.fs_mkdtemp((os.getenv "TMPDIR" or "/tmp") .. "/newer.XXXXXX"))
    run(("chmod 755 '%s' && mkdir '%s/bin' && cp -r cmake '%s'"):format(folder, folder, folder))
    write(folder .. "/bin/apt-get", ("#!/bin/sh\necho \"'copy:%s/mirror/dists/x/InRelease' x 0 \"\n"):format(folder))
    run(("chmod +x '%s/bin/apt-get'"):format(folder))
    local function publish(suite, packages)
      local at = ("%s/mirror/dists/%s/main/source"):format(folder, suite)
      run(("mkdir -p '%s'"):format(at))
      write(at .. "/Sources", packages)
      run(("xz -f '%s/Sources'"):format(at))
    end
    local function compare() return run(("cd '%s' && PATH=\"$PWD/bin:$PATH\" cmake/newer.sh"):format(folder)) end
    publish("bookworm", "Package: h2o-tools\nVersion: 9\n\nPackage: h2o\nBinary: h2o\nVersion: 2.2.5+dfsg2-7\n")
    publish("trixie", "Package: lua5.4\nVersion: 5.4.7-1\n\nPackage: sqlite3\nVersion: 3.46.1-7+deb13u2\n\n"
      .. "Package: curl\nVersion: 8.14.1-2+deb13u5\n")
    local out, code = compare()
    assert.equal(0, code, out)
    publish("trixie-security", "Package: sqlite3\nVersion: 3.46.1-7+deb13u10\n")
    out, code = compare()
    assert.equal(1, code)
    assert.truthy(out:find("trixie has sqlite3 3.46.1-7+deb13u10; look at what it fixes since 3.46.1-7+deb13u2", 1, true), out)
    publish("bookworm", "Package: other\nVersion: 1\n")
    out, code = compare()
    assert.equal(1, code)
    assert.truthy(out:find("bookworm has no source package h2o that could be read", 1, true), out)
    run(("rm -rf '%s'"):format(folder))
  end)
end)
