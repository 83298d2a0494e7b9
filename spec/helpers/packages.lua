-- What `./dev package` makes, for the specs that try it: built once for each commit, on Debian 12 alone. Elsewhere they
-- try what was built there and is in build/package, as spec/clean-room puts it.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local shell = require "spec.helpers.shell"

local packages = {}

local here <const> = uv.cwd()
local patterns <const> = { deb = "moonpool_%s-1_*.deb", portable = "moonpool-%s-linux-*.tar.xz" }

--- True if the packages can be built on this system.
function packages.is_built_here()
  return select(2, shell.run "grep -q '^VERSION_CODENAME=bookworm' /etc/os-release && command -v dpkg-deb dpkg-shlibdeps scdoc gzip") == 0
end

-- The path of the package of this commit in build/package, if it is there; and false if files are changed: such a
-- package has the same version whatever the changes are, so it may be of earlier ones.
local function present(kind)
  local version = shell.run("cmake/version.sh $(sed -n 's/^project(moonpool VERSION \\([0-9.]*\\).*/\\1/p' CMakeLists.txt)"):match "%S+"
  local found = shell.run("ls " .. here .. "/build/package/" .. patterns[kind]:format(version)):match "^(/%S+)\n$"
  return found, not version:find "dirty"
end

--- Why there is no such package to try; nil if there is one, or can be.
function packages.missing(kind)
  if not packages.is_built_here() and not present(kind) then
    return "packages are built on Debian 12, and none of this commit is in build/package"
  end
end

--- The path of the package `kind`, deb or portable, in `folder`, to which all of build/package is copied.
function packages.find(kind, folder)
  local found, is_clean = present(kind)
  if not found or not is_clean and packages.is_built_here() then
    local env = {}
    for _, name in ipairs { "CCACHE_DIR", "CCACHE_BASEDIR", "CCACHE_NOHASHDIR", "CMAKE_C_COMPILER_LAUNCHER", "MOONPOOL_SOURCES" } do
      env[name] = os.getenv(name)
    end
    local line = "./dev package " .. (kind == "deb" and "" or kind)
    local code, out, err = gateway.run_program("/bin/sh", { "-c", line }, { cwd = here, seconds = 900, env = env })
    assert(code == 0, out .. err)
    found = assert(present(kind), line .. " made none of this commit")
  end
  local out, code = shell.run(("flock build/package.lock cp -r build/package '%s/'"):format(folder))
  assert(code == 0, out)
  return folder .. "/package/" .. found:match "[^/]+$"
end

return packages
