-- The version of a checkout grows with each commit, and `--version --all` names each library.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local postgres = require "spec.helpers.postgres"

local function run(command)
  local pipe <close> = assert(io.popen(command .. " 2>&1"))
  local out = pipe:read "a"
  return out, pipe:close()
end

local script = assert(uv.fs_realpath "cmake/version.sh")

-- A repository with cmake/version.sh in it; `sh(command)` runs a command there and returns its output without the line
-- end.
local function repository()
  local folder = assert(uv.fs_mkdtemp((os.getenv "TMPDIR" or "/tmp") .. "/version.XXXXXX"))
  local function sh(command)
    local out = run(("cd '%s' && export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null && %s"):format(folder, command))
    return (out:gsub("\n$", ""))
  end
  sh(("mkdir cmake && cp '%s' cmake && echo 'cmake/version.sh export-subst' >.gitattributes"):format(script))
  sh "git init -q . && git config user.name a && git config user.email a@b"
  return folder, sh
end

local function is_newer(new, old)
  return (select(2, run(("dpkg --compare-versions '%s' gt '%s'"):format(new, old)))) == true
end

describe("the version of a checkout", function()
  local folder, sh
  local function commit(when) sh(("git add -A && GIT_COMMITTER_DATE='%s +0200' git commit -q --allow-empty -m x"):format(when)) end

  before_each(function() folder, sh = repository() end)
  after_each(function() run(("rm -rf '%s'"):format(folder)) end)

  it("grows with each commit, also for dpkg, and says that files are changed", function()
    commit "2026-11-26 12:00:00"
    local first = sh "cmake/version.sh 0.1.0"
    assert.matches("^0%.1%.0%+20261126100000%.g%x%x%x%x%x%x%x%x$", first)
    commit "2026-11-26 12:00:01"
    local second = sh "cmake/version.sh 0.1.0"
    assert.matches("^0%.1%.0%+20261126100001%.g%x+$", second)
    assert.is_true(is_newer(second, first))
    assert.is_true(is_newer(first, "0.1.0-1"))
    sh "mkdir core scratch && touch scratch/new.c"
    assert.equal(second, sh "cmake/version.sh 0.1.0")
    sh "touch core/new.c"
    assert.equal(second .. ".dirty", sh "cmake/version.sh 0.1.0")
    sh "rm core/new.c"
    assert.equal(second, sh "cmake/version.sh 0.1.0")
    sh "echo '# changed' >>cmake/version.sh"
    assert.equal(second .. ".dirty", sh "cmake/version.sh 0.1.0")
  end)

  it("is the tag's at a tag, and newer than it behind the tag", function()
    commit "2026-11-26 12:00:00"
    sh "git tag v0.2.0"
    assert.equal("0.2.0", sh "cmake/version.sh 0.1.0")
    commit "2026-11-26 13:00:00"
    assert.is_true(is_newer(sh "cmake/version.sh 0.2.0", "0.2.0"))
  end)

  it("is known to an archive that git makes, and to a shallow clone", function()
    commit "2026-11-26 12:00:00"
    commit "2026-11-26 13:00:00"
    local version = sh "cmake/version.sh 0.1.0"
    sh "mkdir archive && git archive HEAD | tar -x -C archive"
    assert.equal(version, sh "cd archive && cmake/version.sh 0.1.0")
    sh "git clone -q --depth 1 file://$PWD clone"
    assert.equal(version, sh "cd clone && cmake/version.sh 0.1.0")
    sh "git tag v0.3.0 && mkdir tagged && git archive HEAD | tar -x -C tagged"
    assert.equal("0.3.0", sh "cd tagged && cmake/version.sh 0.1.0")
  end)

  it("is the base without git, also inside of another repository", function()
    commit "2026-11-26 12:00:00"
    sh "mkdir -p other/cmake && cp cmake/version.sh other/cmake"
    assert.equal("0.1.0", sh "cd other && cmake/version.sh 0.1.0")
  end)

  it("writes the header only if the version has changed", function()
    commit "2026-11-26 12:00:00"
    sh "cmake/version.sh 0.1.0 .git/header && touch -d 2001-01-01 .git/header && cmake/version.sh 0.1.0 .git/header"
    assert.matches("^2001", sh "stat -c %y .git/header")
    commit "2026-11-26 13:00:00"
    sh "cmake/version.sh 0.1.0 .git/header"
    assert.equal(('#define MOONPOOL_VERSION "%s"'):format(sh "cmake/version.sh 0.1.0"), sh "tail -n 1 .git/header")
  end)
end)

describe("moonpool --version", function()
  it("names the version alone, and with --all each library that dependencies.txt pins and each of the system", function()
    local plain = run(gateway.binary .. " --version")
    assert.matches("^moonpool %d+%.%d+%.%d+[%w.+]*\n$", plain)
    assert.equal(plain, (run(gateway.binary .. " version")))
    local all = run(gateway.binary .. " --version --all")
    assert.equal(all, (run(gateway.binary .. " version --all")))
    assert.equal(plain, all:match "^[^\n]+\n")
    local pinned = 0
    for line in io.lines "cmake/dependencies.txt" do
      local name, version = line:match "^(%l%w*)%s+(%S+)"
      if name and name ~= "curl" then -- curl is pinned for the portable binary alone
        pinned = pinned + 1
        assert.truthy(all:find(("\n  %-10s %s, patches: %%d+\n"):format(name, (version:gsub("%p", "%%%0")))), name .. "\n" .. all)
      end
    end
    assert.equal(3, pinned)
    for _, name in ipairs { "OpenSSL", "zlib", "libyaml", "PCRE2", "libcurl", "glibc", postgres.has_libpq() and "libpq" or nil } do
      assert.truthy(all:find("\n  " .. name .. " +%d+%.%d+[^\n]*\n"), name .. "\n" .. all)
    end
  end)
end)
