-- The size of the binary that is installed: the release build, stripped, which `./dev test` makes; and the share of
-- each library in it, by the linker's map.
local uv = require "luv"

local RELEASE <const> = "build/release/moonpool"
local MOST_BYTES <const>, MOST_OURS <const> = 5000000, 2500000
local LIBRARIES <const> = { "h2o", "lua", "sqlite" }

-- True if a section counts as size. Tables for unwinding belong to all libraries alike, and sections that are not
-- loaded or hold only zeros take no place in the file.
local function counts(section)
  return not (section:find "^%.eh_frame" or section:find "^%.gcc_except" or section:find "^%.bss" or section:find "^%.tbss" or section:find "^%.debug"
    or section:find "^%.comment" or section:find "^%.note" or section == "COMMON" or section:find "^/" or section:find "^%.gnu")
end

-- The bytes of each library, and of all else as "moonpool", in the map's list of what was linked.
local function shares(map)
  local bytes, section = { moonpool = 0 }, nil
  for _, name in ipairs(LIBRARIES) do bytes[name] = 0 end
  local listed = map:match "Linker script and memory map(.*)" or error "no map of the linker"
  for line in listed:gmatch "[^\n]+" do
    section = line:match "^ (%.?[%w_.]+)" or section -- a long name has a line of its own
    local address, size, file = line:match "0x(%x+)%s+0x(%x+) (%S+)$"
    local is_kept = address and section and counts(section) and tonumber(address, 16) ~= 0
    if is_kept and file:find "%.o%)?$" and not file:find "^/usr/" then
      local library = file:match "lib(%w+)%.a%("
      bytes[library or "moonpool"] = bytes[library or "moonpool"] + tonumber(size, 16)
    end
  end
  return bytes
end

describe("the installed binary", function()
  it("is smaller than 5 MB, and what is not of a library smaller than 2.5 MB", function()
    local stat = uv.fs_stat(RELEASE)
    if not stat then pending("there is no " .. RELEASE) return end
    local file <close> = assert(io.open(RELEASE .. ".map", "rb"))
    local bytes = shares(file:read "a")
    local said = { ("%d bytes"):format(stat.size), ("ours %d"):format(bytes.moonpool) }
    local sum = bytes.moonpool
    for _, name in ipairs(LIBRARIES) do
      said[#said + 1] = ("%s %d"):format(name, bytes[name])
      assert(bytes[name] > 100000, "the map shows nothing of " .. name)
      sum = sum + bytes[name]
    end
    said = table.concat(said, ", ")
    print("size of the release build: " .. said)
    assert(sum > 0.8 * stat.size and sum < stat.size, "the shares are not those of this binary: " .. said)
    assert(stat.size < MOST_BYTES, said)
    assert(bytes.moonpool < MOST_OURS, said)
  end)
end)
