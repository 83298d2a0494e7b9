-- lane: first
-- The archive for other systems than Debian: its binary needs libc and libm alone, of glibc 2.34, runs from any path,
-- and finds what the system trusts.
local uv = require "luv"
local certificates = require "spec.helpers.certificates"
local errand = require "spec.helpers.errand"
local gateway = require "spec.helpers.gateway"
local packages = require "spec.helpers.packages"
local shell = require "spec.helpers.shell"

local run, write = shell.run, shell.write

describe("the portable archive", function()
  local why = packages.missing "portable"
  if why then return pending(why) end
  local scratch, binary, archive

  setup(function()
    scratch = gateway.new_folder()
    archive = packages.find("portable", scratch)
    run(("mkdir '%s/another place' && tar -xf %s -C '%s/another place'"):format(scratch, archive, scratch))
    binary = run(("ls '%s/another place/'moonpool-*/bin/moonpool"):format(scratch)):match "[^\n]+"
  end)
  teardown(function() run(("rm -rf '%s'"):format(scratch)) end)

  it("has a binary that needs no library but libc and libm", function()
    local out = run(("readelf -d '%s'"):format(binary))
    local needed = {}
    for name in out:gmatch "%(NEEDED%)[^\n]*%[([^\n]*)%]" do needed[#needed + 1] = name end
    table.sort(needed)
    assert.same({ "libc.so.6", "libm.so.6" }, needed)
    assert.is_nil(out:find("R[UN]*PATH"), out)
  end)

  it("has a binary that uses nothing of glibc after 2.34", function()
    local versions = 0
    for word in run(("readelf -V '%s'"):format(binary)):gmatch "GLIBC_(%w[%w._]*)" do
      local minor = word:match "^2%.(%d+)"
      assert.is_true(minor ~= nil and tonumber(minor) <= 34, "GLIBC_" .. word)
      versions = versions + 1
    end
    assert.is_true(versions > 3)
  end)

  it("has manuals, examples, types, completions, and the licence of each part", function()
    local top = binary:match "^(.*)/bin/moonpool$"
    for _, path in ipairs { "share/man/man1/moonpool.1.gz", "share/moonpool/examples/hello/moonpool.yaml", "share/moonpool/types/moonpool.d.lua",
      "share/doc/moonpool/examples/hello/moonpool.yaml", "share/bash-completion/completions/moonpool", "README.md", "LICENSE",
      "share/licenses/curl", "share/licenses/h2o", "share/licenses/libssl-dev", "share/licenses/lua" } do
      assert.truthy(uv.fs_stat(top .. "/" .. path), path)
    end
    for line in run("tar -tvf " .. archive):gmatch "[^\n]+" do assert.matches("^[-dl]rw?x?r?%-?x?.* 0/0 ", line) end
  end)

  it("runs from another path, and names all libraries as linked in", function()
    local out, code = run(("'%s' --version --all"):format(binary))
    assert.equal(0, code, out)
    local linked = out:match "linked in:\n(.-)of this system:\n"
    for _, name in ipairs { "h2o", "lua", "sqlite", "curl", "OpenSSL", "zlib", "libyaml", "PCRE2" } do
      assert.truthy(linked:find("  " .. name .. " ", 1, true), out)
    end
    out = out:gsub("  libpq +%d[%d.]*\n$", "") -- is loaded when it is first used, and not on each system
    assert.matches("\nof this system:\n  glibc +%d[%d.]*\n$", out)
  end)

  local code = [[local res, why = http.get(args.url) return { status = res and res.status, why = why }]]

  -- What the tool gets from `url`, of a portable binary on a system whose certificates a line of shell puts in place.
  local function get(url, before)
    local wrapper = scratch .. "/moonpool"
    write(wrapper, ("#!/bin/sh\nexec unshare --mount sh -c '%s && exec \"$0\" \"$@\"' '%s' \"$@\"\n"):format(before, binary))
    run("chmod 755 " .. wrapper)
    return gateway.with_binary(wrapper, function()
      local g <close> = errand.start { net = { url:match "//(.-)/" }, code = code }
      local me <close> = g:client "2026-07-28"
      return errand.run(me, { url = url })
    end)
  end

  it("trusts what the system trusts, by a folder of hashes, as Debian has it, or by a file, as Fedora has it", function()
    if select(2, run "unshare --mount true") ~= 0 then return pending "mounting needs root, and a root folder that is mounted" end
    local ca = scratch .. "/ca.pem"
    write(ca, certificates.here().own)
    local s <close> = gateway.start { tls = true }
    local url = ("https://localhost:%d/"):format(s.port)
    local empty = "mount -t tmpfs none /etc/ssl/certs && (! test -d /etc/pki || mount -t tmpfs none /etc/pki)"
    local folder = empty .. " && cp " .. ca .. " /etc/ssl/certs/$(openssl x509 -hash -noout -in " .. ca .. ").0"
    assert.is_nil(get(url, empty).status)
    local got = get(url, folder)
    assert.equal(404, got.status, got.why)
    got = get(url, empty .. " && cp " .. ca .. " /etc/ssl/certs/ca-certificates.crt")
    assert.equal(404, got.status, got.why)
  end)
end)
