-- The Debian package: its files, its installation by dpkg, and a gateway that runs from the installed files. `./dev
-- package` builds it.
local cjson = require "cjson"
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local packages = require "spec.helpers.packages"
local page_player = require "spec.helpers.page"
local write = require "spec.helpers.shell".write

local here = uv.cwd()

local function has_program(name) return (gateway.run_program("/bin/sh", { "-c", "command -v " .. name })) == 0 end

local function sh(line, options)
  options = options or {}
  options.seconds = options.seconds or 300 -- packing the symbols takes a loaded machine minutes
  local code, out, err = gateway.run_program("/bin/sh", { "-c", line }, options)
  return code, out .. err
end

local function must(line, options)
  local code, text = sh(line, options)
  assert.equal(0, code, line .. "\n" .. text)
  return text
end

local function exists(path) return uv.fs_lstat(path) ~= nil end

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

describe("the Debian package", function()
  local reason = packages.missing "deb"
  if reason then return pending(reason) end

  local deb, dbgsym, listed, scratch

  setup(function()
    scratch = gateway.new_folder()
    deb = packages.find("deb", scratch)
    dbgsym = deb:gsub("/moonpool_", "/moonpool-dbgsym_")
    listed = must("dpkg-deb -c " .. deb)
  end)

  teardown(function() gateway.run_program("/bin/rm", { "-rf", scratch }) end)

  it("holds the binary, the manual, completions, docs, examples, a unit and a configuration", function()
    for _, path in ipairs {
      "usr/bin/moonpool", "usr/share/man/man1/moonpool.1.gz", "usr/share/man/man5/moonpool.yaml.5.gz", "usr/share/man/man7/moonpool-lua.7.gz",
      "usr/share/bash-completion/completions/moonpool", "usr/share/zsh/vendor-completions/_moonpool",
      "usr/share/fish/vendor_completions.d/moonpool.fish", "usr/share/doc/moonpool/README.md", "usr/share/doc/moonpool/SECURITY.md",
      "usr/share/doc/moonpool/docs/writing-tools.md",
      "usr/share/doc/moonpool/changelog.gz", "usr/share/doc/moonpool/changelog.Debian.gz", "usr/share/doc/moonpool/copyright",
      "usr/share/moonpool/examples/hello/moonpool.yaml", "usr/share/moonpool/types/moonpool.d.lua", "usr/lib/systemd/system/moonpool.service",
      "usr/lib/systemd/system/moonpool.socket",
      "usr/lib/sysusers.d/moonpool.conf", "usr/lib/tmpfiles.d/moonpool.conf", "etc/logrotate.d/moonpool",
      "etc/moonpool/moonpool.yaml", "etc/moonpool/scripts/tools/hello.lua",
    } do
      assert.truthy(listed:find(" ./" .. path .. "\n", 1, true), path .. " is missing in\n" .. listed)
    end
    assert.truthy(listed:find("./usr/share/doc/moonpool/examples -> ../../moonpool/examples\n", 1, true), listed)
    for _, part in ipairs { "node_modules", "/docs/dev", "%.key\n", "notes%.db" } do assert.is_nil(listed:find(part), part) end
    for line in listed:gmatch "[^\n]+" do assert.matches("^%S+ root/root ", line) end
  end)

  it("holds nothing that whoever follows a page writes into the examples: keys, tokens, databases", function()
    local install, count = read(here .. "/CMakeLists.txt"):match "\ninstall%(DIRECTORY examples .-\n[^ ]", 0
    for name in read(here .. "/.gitignore"):gmatch "\n/examples/[^\n]-([^/\n]+)/?%f[\n]" do
      local is_left_out = false
      for pattern in install:gmatch 'PATTERN "?([^%s"]+)"? EXCLUDE' do
        is_left_out = is_left_out or ("\n" .. name):find("\n" .. pattern:gsub("[%.%-]", "%%%0"):gsub("%*", ".*") .. "$") ~= nil
      end
      assert.is_true(is_left_out, name)
      count = count + 1
    end
    assert.is_true(count >= 8)
    local known = { [""] = true }
    for path in must("git ls-files examples", { cwd = here }):gmatch "[^\n]+" do known[path] = true end
    for path in listed:gmatch " %./usr/share/moonpool/(examples/[^\n]*[^/\n])\n" do assert.is_true(known[path], path) end
  end)

  it("has pages and examples whose links lead to what it holds", function()
    local root, broken, count = scratch .. "/links", {}, 0
    must(("mkdir %s && dpkg-deb -x %s %s"):format(root, deb, root))
    for path in must(("find %s/usr/share -name '*.md'"):format(root)):gmatch "[^\n]+" do
      count = count + 1
      for _, link in ipairs(page_player.broken_links(path)) do broken[#broken + 1] = link:sub(#root + 1) end
    end
    assert.same({}, broken)
    assert.is_true(count >= 50, count .. " pages")
  end)

  it("has manual pages that can be read, and no page is missing without an error", function()
    local root = scratch .. "/pages"
    must(("dpkg-deb -x %s %s"):format(deb, root))
    local parts <const> = { ["man1/moonpool.1.gz"] = "moonpool%-lua", ["man5/moonpool.yaml.5.gz"] = "limits%.answers", ["man7/moonpool-lua.7.gz"] = "tool" }
    for page, part in pairs(parts) do
      assert.matches(part, (must(("gzip -dc %s/usr/share/man/%s"):format(root, page)):gsub("\\&", ""):gsub("\\", "")))
    end
    -- Builds as on a machine without scdoc; scdoc that is installed afterwards is found without a new build folder.
    local configure = ("cmake -S %s -B %s/without -DMOONPOOL_PACKAGE=ON"):format(here, scratch)
    local code, text = sh(configure .. " -DSCDOC=", { seconds = 120 })
    assert.not_equal(0, code)
    assert.truthy(text:find("apt-get install scdoc", 1, true), text)
    must(configure, { seconds = 120 })
  end)

  it("has a package of symbols beside it, for the binary with this build id", function()
    local root = scratch .. "/symbols"
    must(("mkdir %s && dpkg-deb -x %s %s && dpkg-deb -x %s %s"):format(root, deb, root, dbgsym, root))
    local id = must(("readelf -n %s/usr/bin/moonpool"):format(root)):match "Build ID: (%x+)"
    local symbols = ("%s/usr/lib/debug/.build-id/%s/%s.debug"):format(root, id:sub(1, 2), id:sub(3))
    assert.equal(id, must("readelf -n " .. symbols .. " 2>&1"):match "Build ID: (%x+)")
    assert.matches("%.debug_info", must("readelf -S " .. symbols .. " 2>&1"))
    assert.matches("Depends: moonpool %(= [^)]+%)", must("dpkg-deb -I " .. dbgsym))
  end)

  it("is the same bytes whenever and by whomever the files of a build are packed", function()
    if not packages.is_built_here() then return pending "packages are built on Debian 12" end
    local again = scratch .. "/again"
    local env = { TZ = "Asia/Tokyo", LANG = "tr_TR.UTF-8", TMPDIR = scratch, USER = "ann" }
    must("umask 077; sleep 1; packaging/deb build/release " .. again, { cwd = here, env = env })
    for _, file in ipairs { deb, dbgsym } do must(("cmp %s %s/%s"):format(file, again, file:match "[^/]+$")) end
  end)

  it("has neither the day nor the folder of its build in it", function()
    local root = scratch .. "/built"
    must(("mkdir %s && dpkg-deb -x %s %s && dpkg-deb -x %s %s"):format(root, deb, root, dbgsym, root))
    local day = must "date -u -d @$(cmake/version.sh --seconds) +%Y-%m-%d"
    for _, page in ipairs { "man1/moonpool.1", "man5/moonpool.yaml.5", "man7/moonpool-lua.7" } do
      assert.equal(day, must(([[gzip -dc %s/usr/share/man/%s.gz | sed -n 's/^\.TH .* "\(....-..-..\)".*/\1/p']]):format(root, page)))
    end
    must(("objcopy --decompress-debug-sections $(find %s -name '*.debug') %s/symbols"):format(root, root))
    for _, file in ipairs { "usr/bin/moonpool", "symbols" } do
      assert.equal("0\n", (select(2, sh(("grep -caF '%s/' %s/%s"):format(here, root, file)))), file)
    end
  end)

  it("comes with the list of what is linked in, and with the hashes of all files", function()
    must("cd " .. scratch .. "/package && grep deb SHA256SUMS | sha256sum --check --strict")
    local list = cjson.decode(read(deb .. ".spdx.json"))
    assert.equal("SPDX-2.3", list.spdxVersion)
    local known = {}
    for _, of in ipairs(list.packages) do known[of.name] = of end
    assert.equal(must("sha256sum " .. deb):match "^%x+", known.moonpool.checksums[1].checksumValue)
    -- the package may come from another system than this one, whose static libraries are others
    local root = scratch .. "/listed"
    must(("mkdir %s && dpkg-deb -x %s %s"):format(root, deb, root))
    local linked, count = must(root .. "/usr/bin/moonpool --version --all"):match "linked in:\n(.-)of this system", 0
    for name, version in linked:gmatch "(%S+) +(%S+), patches" do
      count = count + 1
      assert.equal(version, known[name].versionInfo)
      assert.matches("^%x+$", known[name].checksums[1].checksumValue)
      assert.not_equal("NOASSERTION", known[name].licenseConcluded)
    end
    local hiredis = linked:match "hiredis +(%S+)\n"
    assert.equal(hiredis, known.hiredis.versionInfo:match "^[%d.]+")
    assert.equal("BSD-3-Clause", known.hiredis.licenseConcluded)
    assert.equal(#list.packages, count + 2)
    assert.equal(count + 2, #list.relationships)
  end)

  it("satisfies lintian", function()
    if not has_program "lintian" then return pending "lintian is not installed" end
    local code, text = sh("lintian --allow-root --fail-on error,warning " .. deb .. " " .. dbgsym, { seconds = 300 })
    assert.equal(0, code, text)
  end)

  it("is installed, upgraded, removed and purged by dpkg", function()
    if uv.getuid() ~= 0 then return pending "dpkg needs root" end
    if not has_program "systemd-sysusers" then return pending "systemd-sysusers is not installed" end
    local root = scratch .. "/root"
    must(("mkdir -p %s/var/lib/dpkg/info %s/var/lib/dpkg/updates %s/etc && touch %s/var/lib/dpkg/status"):format(root, root, root, root))
    local function dpkg(words)
      return must(("dpkg --root=%s --force-script-chrootless --force-depends --force-confdef --force-confold --log=/dev/null %s"):format(root, words))
    end
    local yaml, hello = root .. "/etc/moonpool/moonpool.yaml", root .. "/etc/moonpool/scripts/tools/hello.lua"
    dpkg("-i " .. deb)
    assert.matches("\nmoonpool:[^\n]*/var/lib/moonpool:/usr/sbin/nologin", "\n" .. read(root .. "/etc/passwd"))
    assert.is_true(exists(root .. "/etc/systemd/system/multi-user.target.wants/moonpool.service"))
    assert.is_true(exists(yaml) and exists(hello))

    -- The installed binary serves the installed configuration; only the ports and the state folder differ.
    local copy = scratch .. "/etc"
    must(("cp -r %s/etc/moonpool %s"):format(root, copy))
    must(("%s/usr/bin/moonpool check %s"):format(root, yaml))
    write(copy .. "/moonpool.yaml", (read(yaml):gsub("127%.0%.0%.1:%d+", "127.0.0.1:0"):gsub("/var/lib/moonpool", scratch)))
    gateway.with_binary(root .. "/usr/bin/moonpool", function()
      local g <close> = gateway.start { dir = copy }
      local c <close> = g:client "2026-07-28"
      assert.equal("Hello, Ann!", c:result("tools/call", { name = "hello", arguments = { name = "Ann" } }).content[1].text)
      -- `systemctl reload` runs this. It reports what is wrong, and fails then.
      local reload = read(here .. "/packaging/moonpool.service"):match "\nExecReload=/usr/bin/(moonpool reload /etc/moonpool/moonpool.yaml)\n"
      local function reloaded()
        return sh((reload:gsub("^moonpool", root .. "/usr/bin/moonpool"):gsub("/etc/moonpool/moonpool.yaml", "--admin 127.0.0.1:" .. g.admin_port)))
      end
      assert.equal(0, (reloaded()))
      write(copy .. "/scripts/tools/hello.lua", "return tool {\n")
      local code, text = reloaded()
      assert.equal(1, code)
      assert.matches("hello.lua:", text)
    end)

    -- An upgrade with other conffiles: the file that the operator changed stays, the other is replaced.
    local newer = scratch .. "/newer"
    must(("dpkg-deb -R %s %s"):format(deb, newer))
    write(newer .. "/DEBIAN/control", (read(newer .. "/DEBIAN/control"):gsub("Version: [^\n]+", "Version: 99.0-1")))
    write(newer .. "/etc/moonpool/moonpool.yaml", read(yaml) .. "# newer\n")
    write(newer .. "/etc/moonpool/scripts/tools/hello.lua", read(hello) .. "-- newer\n")
    must(("dpkg-deb --root-owner-group -b %s %s/newer.deb"):format(newer, scratch))
    write(yaml, read(yaml) .. "# mine\n")
    write(root .. "/etc/moonpool/scripts/tools/own.lua", "return tool { 'Mine.', function() return 1 end }\n")
    dpkg("-i " .. scratch .. "/newer.deb")
    assert.matches("# mine\n$", read(yaml))
    assert.matches("# newer\n$", read(yaml .. ".dpkg-dist"))
    assert.matches("%-%- newer\n$", read(hello))

    assert.equal("750\n750\n", must(("stat -c %%a %s/var/lib/moonpool %s/var/log/moonpool"):format(root, root)))
    must(("mkdir -p %s/var/lib/moonpool %s/var/log/moonpool && touch %s/var/lib/moonpool/store.db"):format(root, root, root))
    dpkg "-r moonpool"
    assert.is_false(exists(root .. "/usr/bin/moonpool"))
    assert.is_true(exists(yaml) and exists(root .. "/var/lib/moonpool/store.db"))
    dpkg "-P moonpool"
    assert.equal("own.lua\n", must(("cd %s && find etc/moonpool -type f -printf '%%f\\n'"):format(root))) -- the operator's script stays
    must(("rm -r %s/etc/moonpool"):format(root))
    local left = must(("cd %s && find . -not -type d -not -path './var/lib/dpkg/*' | sort"):format(root))
    local of_users = { passwd = true, group = true, shadow = true, gshadow = true, [".pwd.lock"] = true } -- the user `moonpool` still exists
    for line in left:gmatch "[^\n]+" do assert.truthy(of_users[line:match "^%./etc/([^/]-)%-?$"], left) end
    assert.is_false(exists(root .. "/var/lib/moonpool"))
  end)
end)
