-- The pages for developers name functions, types and files that exist.
local lfs = require "lfs"

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local function text_below(path, parts)
  parts = parts or {}
  if lfs.attributes(path, "mode") ~= "directory" then
    parts[#parts + 1] = read(path)
    return parts
  end
  for name in lfs.dir(path) do
    if name:sub(1, 1) ~= "." then text_below(path .. "/" .. name, parts) end
  end
  return parts
end

-- A function's definition or declaration, or a type.
local function is_defined(name, path)
  for _, text in ipairs(text_below(path)) do
    if text:find("%f[%w_]" .. name .. "%(") or text:find("[%s}]" .. name .. ";") or text:find("struct " .. name .. " {", 1, true) then return true end
  end
  return false
end

local pages = { "docs/dev/architecture.md", "docs/dev/howto.md" }

describe("the pages for developers", function()
  it("name functions and types where they are", function()
    local count, missing = 0, {}
    for _, page in ipairs(pages) do
      for name, path in read(page):gmatch "`([%w_]+)` %(`(core[%w_/.]*)`%)" do
        count = count + 1
        if not (lfs.attributes(path) and is_defined(name, path)) then missing[#missing + 1] = ("%s: %s is not in %s"):format(page, name, path) end
      end
    end
    assert.same({}, missing)
    assert.is_true(count > 30, count)
  end)

  it("name files and folders that exist", function()
    local missing = {}
    for _, page in ipairs(pages) do
      for path in read(page):gmatch "`([%w_]+/[%w_/.%-]+)`" do
        local is_pattern = path:find "%u%u" -- NAME, AREA and DATE are placeholders
        if not is_pattern and not lfs.attributes((path:gsub("/$", ""))) then missing[#missing + 1] = page .. ": " .. path end
      end
    end
    assert.same({}, missing)
  end)
end)
