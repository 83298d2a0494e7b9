-- No symbol of libc is replaced: the binary defines none that libc exports, so that libraries call libc's, whatever its
-- version.
local binary = os.getenv "MOONPOOL" or "build/debug/moonpool"
-- a sanitizer replaces many symbols of libc
local it_plain = os.getenv "ASAN_OPTIONS" and pending or os.getenv "TSAN_OPTIONS" and pending or it

-- The global symbols that a file defines: name to nm's letter. Of a stripped one, those that it exports.
local function defined(file, options)
  local found = {}
  local nm <close> = assert(io.popen(("nm %s --defined-only --extern-only '%s' 2>/dev/null"):format(options, file)))
  for line in nm:lines() do
    local letter, name = line:match "^%x+ (%a) ([^%s@]+)"
    if name then found[name] = letter end
  end
  return found
end

-- A variable of libc that the binary uses is copied into it by the loader: "B stdin@@GLIBC_2.2.5", or "V environ".
local function copies(file)
  local found = {}
  local relocations <close> = assert(io.popen(("readelf --relocs --wide '%s' 2>/dev/null"):format(file)))
  for line in relocations:lines() do
    local name = line:match "_COPY%s+%x+%s+([%w_]+)"
    if name then found[name] = true end
  end
  return found
end

describe("the binary", function()
  it_plain("defines no symbol that libc exports", function()
    local ldd <close> = assert(io.popen(("ldd '%s'"):format(binary)))
    local libc = assert(ldd:read("a"):match "(/%S*libc%.so%.6)", "no libc.so.6")
    local theirs, copied, replaced = defined(libc, "-D"), copies(binary), {}
    assert.truthy(theirs.getaddrinfo)
    for _, options in ipairs { "", "-D" } do
      local ours = defined(binary, options)
      assert.truthy(options == "" or ours.lua_newstate, "no symbols in " .. binary)
      for name in pairs(ours) do
        if theirs[name] and not copied[name] then replaced[#replaced + 1] = name end
      end
    end
    table.sort(replaced)
    assert.equal("", table.concat(replaced, " "))
  end)
end)
