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

local pages = { "docs/dev/architecture.md", "docs/dev/howto.md", "docs/dev/features.md" }

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

  it("name five to nine places of each of the ten largest features", function()
    local count = 0
    for name, list in read("docs/dev/features.md"):gmatch "## ([^\n]+)([^#]*)" do
      local places = select(2, list:gsub("\n%- `[^`]+`: ", ""))
      assert(places >= 5 and places <= 9, name .. " has " .. places .. " places")
      count = count + 1
    end
    assert.equal(10, count)
  end)
end)

describe("CHANGELOG.md", function()
  it("has at most 120 lines before 0.1.0, each of them short", function()
    local text = read "CHANGELOG.md"
    assert.is_nil(text:match "\n## 0%.")
    assert.is_true(select(2, text:gsub("\n", "")) <= 120)
    for line in text:gmatch "[^\n]+" do assert(utf8.len(line) <= 160, "longer than 160 characters: " .. line) end
  end)
end)
