-- lane: first
-- `./dev repository`: apt takes the package from it, because it is signed with the key that the source names, and
-- refuses what was changed.
local gateway = require "spec.helpers.gateway"
local packages = require "spec.helpers.packages"
local shell = require "spec.helpers.shell"

local run, write = shell.run, shell.write

describe("a repository for apt", function()
  local why = packages.missing "deb"
  if why then return pending(why) end
  if select(2, run "command -v gpg gpgconf apt-get dpkg-scanpackages") ~= 0 then return pending "gpg, apt or dpkg-dev is not installed" end
  local scratch, deb

  local function must(line)
    local out, code = run(line)
    assert.equal(0, code, line .. "\n" .. out)
    return out
  end
  local function gpg(line) return ("GNUPGHOME=%s/gpg %s"):format(scratch, line) end
  local function repository(key) return run(gpg(("MOONPOOL_KEY='%s' flock build/package.lock packaging/repository %s/apt"):format(key, scratch))) end

  -- apt with no source but this one, and with no state but that in the scratch folder.
  local function apt(line)
    local options = "-o Dir::Etc::SourceList=$PWD/list -o Dir::Etc::SourceParts=/dev/null -o Dir::State=$PWD/state -o Dir::State::status=$PWD/status"
      .. " -o Dir::Cache=$PWD/cache -o Dir::Etc::Trusted=/dev/null -o Dir::Etc::TrustedParts=/dev/null -o APT::Sandbox::User=root"
      .. " -o APT::Update::Error-Mode=any"
    return run(("cd %s && apt-get -q %s %s"):format(scratch, options, line))
  end

  setup(function()
    scratch = gateway.new_folder()
    deb = packages.find("deb", scratch)
    must(("cd %s && mkdir -m 700 gpg && mkdir -p state/lists/partial none/partial cache/archives/partial && touch status"):format(scratch))
    for _, name in ipairs { "packages@example.org", "other@example.org" } do
      must(gpg("gpg --batch --quiet --passphrase '' --quick-generate-key " .. name .. " ed25519 sign 1d"))
    end
    write(scratch .. "/list", ("deb [signed-by=%s/apt/moonpool.asc] copy:%s/apt stable main\n"):format(scratch, scratch))
  end)
  teardown(function()
    run(gpg "gpgconf --kill all")
    run("rm -rf " .. scratch)
  end)

  it("serves the packages to apt", function()
    local out, code = repository "packages@example.org"
    assert.equal(0, code, out)
    out, code = apt "update"
    assert.equal(0, code, out)
    out, code = apt "download moonpool moonpool-dbgsym"
    assert.equal(0, code, out)
    assert.equal(must("sha256sum <" .. deb), must(("cat %s/moonpool_*.deb | sha256sum"):format(scratch)))
  end)

  it("keeps the versions of before", function()
    local older = scratch .. "/older"
    must(("dpkg-deb -R %s %s && sed -i 's/^Version: .*/Version: 0.0.1-1/' %s/DEBIAN/control"):format(deb, older, older))
    must(("dpkg-deb --root-owner-group -Znone -b %s %s/apt/pool/main/m/moonpool/moonpool_0.0.1-1_all.deb"):format(older, scratch))
    assert.equal(0, select(2, repository "packages@example.org"))
    assert.equal(0, select(2, apt "update"))
    assert.equal(0, select(2, apt "download moonpool=0.0.1-1"))
  end)

  it("is refused by apt where its list was changed, or the key is another", function()
    must(("cp -r %s/apt %s/kept"):format(scratch, scratch))
    must(("cd %s/apt/dists/stable/main && sed -i 's/^Version: /Version: 9/' binary-*/Packages && gzip -9nkf binary-*/Packages"):format(scratch))
    -- in an empty folder, so that apt has no list from an earlier update
    local out, code = apt "update -o Dir::State::Lists=$PWD/none"
    assert.not_equal(0, code, out)
    assert.truthy(out:find "Failed to fetch", out) -- the reason has other words in each apt
    must(("rm -r %s/apt && mv %s/kept %s/apt && cp %s/apt/moonpool.asc %s/first.asc"):format(scratch, scratch, scratch, scratch, scratch))
    assert.equal(0, select(2, repository "other@example.org"))
    must(("cp %s/first.asc %s/apt/moonpool.asc"):format(scratch, scratch))
    out, code = apt "update"
    assert.not_equal(0, code, out)
    assert.truthy(out:find "NO_PUBKEY" or out:find "not signed" or out:find "signature", out)
  end)

  it("is not made without a key, or without a package, and says what to do", function()
    local out, code = repository "nobody@example.org"
    assert.equal(1, code)
    assert.equal("repository: gpg has no secret key 'nobody@example.org': set MOONPOOL_KEY to one, which gpg --quick-generate-key makes\n", out)
    out, code = run("packaging/repository")
    assert.equal(2, code)
    assert.equal("repository: say into which folder\n", out)
  end)
end)
