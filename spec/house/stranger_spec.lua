-- What somebody meets who has just cloned this: `./dev` without root, and a folder whose name has spaces.
-- spec/clean-room tries the rest.
local uv = require "luv"
local shell = require "spec.helpers.shell"

local run, write = shell.run, shell.write

describe("a stranger's ./dev", function()
  local folder

  before_each(function()
    folder = assert(uv.fs_mkdtemp((os.getenv "TMPDIR" or "/tmp") .. "/a stranger.XXXXXX"))
    run(("mkdir '%s/bin' && cp dev '%s'"):format(folder, folder))
  end)
  after_each(function() run(("rm -rf '%s'"):format(folder)) end)

  -- Runs a job of ./dev as a user who is not root and has no programs but dirname, sed, tr and these: name -> text of a
  -- shell script.
  local function dev(job, programs)
    for name, text in pairs(programs) do write(folder .. "/bin/" .. name, "#!/bin/sh\n" .. text .. "\n") end
    for _, name in ipairs { "dirname", "sed", "tr" } do run(("ln -sf $(command -v %s) '%s/bin'"):format(name, folder)) end
    run(("chmod +x '%s'/bin/*"):format(folder))
    return run(("cd '%s' && PATH=\"$PWD/bin\" ./dev %s </dev/null"):format(folder, job))
  end
  local user = "echo 1000"
  local function packages(...) return "printf 'ii  %s\\n' " .. table.concat({ ... }, " ") end

  it("names the packages that are missing, and does nothing else, where neither root nor sudo is at hand", function()
    local out, code = dev("run", { id = user, ["dpkg-query"] = packages("gcc", "libc6-dev:amd64", "cmake", "make", "patch") })
    assert.equal(1, code)
    local before, line = out:match "^(.-)\n\n    (apt%-get install [^\n]*)\n\n$"
    assert.equal("dev: some packages are missing, and installing them needs root:", before, out)
    assert.matches(" ninja%-build ", line)
    assert.matches(" curl$", line)
    assert.is_nil(line:find(" gcc ", 1, true))
    assert.is_nil(line:find("libc6-dev", 1, true))
    assert.is_nil(uv.fs_stat(folder .. "/build"))
  end)

  it("asks for no root where nothing is missing", function()
    local all = {}
    for names in run("cat dev"):gmatch '\npackages_%l+="([^"]*)"' do
      for name in names:gmatch "%S+" do all[#all + 1] = name end
    end
    local out, code = dev("api", { id = user, ["dpkg-query"] = packages(table.unpack(all)), mkdir = "echo went on; exit 9" })
    assert.equal("went on\n", out)
    assert.equal(9, code)
  end)

  it("builds in a folder whose name has spaces", function()
    local place = folder .. "/moon pool"
    run(("mkdir '%s' && git ls-files -z --recurse-submodules | xargs -0 cp --parents -t '%s'"):format(place, place))
    run(("mkdir '%s/build' && ln -s \"$PWD/build/dependencies\" '%s/build/dependencies'"):format(place, place))
    local out, code = run(("cd '%s' && cmake --preset release -G Ninja && ninja -C build/release CMakeFiles/moonpool.dir/core/main.c.o manuals"):format(place))
    assert.equal(0, code, out)
    assert.truthy(uv.fs_stat(place .. "/build/release/man/moonpool.1.gz"))
  end)

  it("has no file with the marks of a merge that was not ended", function()
    local out = run "git grep -nIE '^(<{7}|>{7}|[|]{7})( |$)' || true"
    assert.equal("", out)
  end)
end)
