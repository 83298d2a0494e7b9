-- docs/dev/call-plans.md says why a call takes the general way: its tables have each reason of mp_general, and no others.
local lfs = require "lfs"

local GATE <const>, PAGE <const> = "core/lib/shortcut/shortcut.h", "docs/dev/call-plans.md"

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

-- The texts of all files below `folder` whose names end with `ending`, by their paths.
local function files(folder, ending, list)
  list = list or {}
  for name in lfs.dir(folder) do
    local path = folder .. "/" .. name
    if name:sub(1, 1) == "." then -- luacheck: ignore 542
    elseif lfs.attributes(path, "mode") == "directory" then
      files(path, ending, list)
    elseif name:sub(-#ending) == ending then
      list[path] = read(path)
    end
  end
  return list
end

-- reason -> true, for the constants of the enum.
local reasons = {}
for reason in read(GATE):match("MP_PLAIN,(.-)} mp_general;"):gmatch "MP_GENERAL_([%u_]+)" do reasons[reason] = true end

-- The rows of the tables whose first column is the reason: { line, reasons, who decides }.
local rows, is_inside = {}, false
for line in read(PAGE):gmatch "[^\n]*" do
  local first, who = line:match "^| ([^|]*) | [^|]* | ([^|]*) |"
  if first == "reason" then
    is_inside = true
  elseif not line:find "^|" then
    is_inside = false
  elseif is_inside and first then
    local row = { line = line, reasons = {}, who = who }
    for reason in first:gmatch "`([%u_]+)`" do table.insert(row.reasons, reason) end
    table.insert(rows, row)
  end
end

describe("the reasons why a call takes the general way", function()
  it("are in the page, which has no others", function()
    local wrong, told = {}, {}
    for _, row in ipairs(rows) do
      if #row.reasons == 0 then wrong[#wrong + 1] = "no reason: " .. row.line end
      for _, reason in ipairs(row.reasons) do
        told[reason] = true
        if not reasons[reason] then wrong[#wrong + 1] = ("%s has no %s: %s"):format(GATE, reason, row.line) end
      end
    end
    for reason in pairs(reasons) do
      if not told[reason] then wrong[#wrong + 1] = ("%s does not say what %s is"):format(PAGE, reason) end
    end
    assert.is_true(#rows > 20, "the tables of the page were not found")
    assert.equal("", table.concat(wrong, "\n"))
  end)

  it("are given by the quick ways", function()
    local unused, sources = {}, table.concat((function()
      local texts = {}
      for _, text in pairs(files("core/lib/shortcut", ".c")) do texts[#texts + 1] = text end
      return texts
    end)())
    for reason in pairs(reasons) do
      if not sources:find("MP_GENERAL_" .. reason .. "%f[^%u_]") then unused[#unused + 1] = reason end
    end
    assert.equal("", table.concat(unused, " "))
  end)

  it("are decided by files that there are", function()
    local known, missing = files("lua/moonpool", ".lua", files("core", ".c")), {}
    local function is_there(name)
      for path in pairs(known) do
        if path:sub(-#name - 1) == "/" .. name then return true end
      end
    end
    for _, row in ipairs(rows) do
      local count = 0
      for name in row.who:gmatch "`([^`]+)`" do
        count = count + 1
        if not is_there(name) then missing[#missing + 1] = name end
      end
      if count == 0 then missing[#missing + 1] = "nobody decides: " .. row.line end
    end
    assert.equal("", table.concat(missing, "\n"))
  end)
end)
