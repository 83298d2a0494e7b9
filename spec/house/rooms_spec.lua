-- The house rules that a reader can check by reading #include lines: a room includes only the doors of rooms below it,
-- and each foreign library has one room.
local lfs = require "lfs"

local ladder = { base = 1, json = 2, net = 3, rpc = 4, script = 5, gateway = 6, cli = 7 }

-- Headers of foreign libraries, and the only room that may include them.
local foreign = {
  { "^h2o[./]", "net" }, { "^h2o$", "net" }, { "^lua%.h$", "script" }, { "^lualib%.h$", "script" }, { "^lauxlib%.h$", "script" },
  { "^yaml%.h$", "gateway" }, { "^pcre2%.h$", "script" }, { "^curl/", "net" },
}

local MOST_LINES = 500

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

-- Every C file of core/: { path, room (nil for core/main.c), text }.
local function sources(folder, room, list)
  list = list or {}
  for name in lfs.dir(folder) do
    local path = folder .. "/" .. name
    if name:sub(1, 1) == "." then -- luacheck: ignore 542
    elseif lfs.attributes(path, "mode") == "directory" then
      sources(path, room or name, list)
    elseif name:find "%.[ch]$" then
      list[#list + 1] = { path = path, room = room, text = read(path) }
    end
  end
  return list
end

local house = sources "core"

-- Calls `check(included, is_quoted)` for each #include line; what it gives is a complaint.
local function complaints(check)
  local list = {}
  for _, source in ipairs(house) do
    local n = 0
    for line in (source.text .. "\n"):gmatch "(.-)\n" do
      n = n + 1
      local open, included = line:match '^%s*#%s*include%s*(["<])([^">]+)[">]'
      local complaint = included and check(source, included, open == '"')
      if complaint then
        list[#list + 1] = ("%s:%d: includes %s: %s"):format(source.path, n, included, complaint)
      end
    end
  end
  return table.concat(list, "\n")
end

-- The room that a quoted include leads into: "json/json.h" into json, "text.h" stays where it is.
local function room_of(source, included)
  return included:match "^([^/]+)/" or source.room
end

describe("the rooms of core/", function()
  it("are the seven of the ladder, each with one door", function()
    for _, source in ipairs(house) do
      assert(source.room == nil or ladder[source.room], source.path .. " is in no room of the ladder")
      assert(source.room or source.path == "core/main.c", source.path .. " stands outside the rooms")
    end
    for room in pairs(ladder) do
      local door = ("core/%s/%s.h"):format(room, room)
      assert(lfs.attributes(door), "there is no " .. door)
    end
  end)

  it("include other rooms by their door only", function()
    assert.equal("", complaints(function(source, included, is_quoted)
      local room = room_of(source, included)
      local is_door = room and included == ("%s/%s.h"):format(room, room)
      if is_quoted and ladder[room] and room ~= source.room and not is_door then
        return ("the door of that room is %s/%s.h"):format(room, room)
      elseif is_quoted and room and not ladder[room] then
        return "no such room"
      end
    end))
  end)

  it("include only rooms below them", function()
    assert.equal("", complaints(function(source, included, is_quoted)
      local room = room_of(source, included)
      if is_quoted and source.room and ladder[room] and ladder[room] > ladder[source.room] then
        return ("%s is above %s"):format(room, source.room)
      end
    end))
  end)

  it("are opened by main.c through cli alone", function()
    assert.equal("", complaints(function(source, included, is_quoted)
      if is_quoted and source.path == "core/main.c" and included ~= "cli/cli.h" then
        return "main.c sees cli/cli.h"
      end
    end))
  end)

  it("keep each foreign library in one room", function()
    assert.equal("", complaints(function(source, included, is_quoted)
      for _, rule in ipairs(foreign) do
        if not is_quoted and included:find(rule[1]) and source.room ~= rule[2] then
          return ("only core/%s may"):format(rule[2])
        end
      end
    end))
  end)

  it("have files that a reader holds in the head", function()
    local long = {}
    for _, source in ipairs(house) do
      local _, lines = source.text:gsub("\n", "")
      if lines > MOST_LINES then
        long[#long + 1] = ("%s has %d lines, %d is the most"):format(source.path, lines, MOST_LINES)
      end
    end
    assert.equal("", table.concat(long, "\n"))
  end)
end)
