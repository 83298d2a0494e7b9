-- Every way of saving a file, fifty times each: one reload for each save, of the final content, never of half a file.
-- Rules B-92, B-85, B-86.
local cjson = require "cjson"
local lfs = require "lfs"
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local TIMES <const> = 50

-- A text of equal length for every number, so that the file sizes are equal too.
local function tool(n) return ([[return tool { "Number %04d.", function() return "%04d" end }]]):format(n, n) end

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

local ways = {
  ["written over"] = function(path, n) write(path, tool(n)) end,
  ["truncated, then written in pieces"] = function(path, n)
    local file <close> = assert(io.open(path, "wb"))
    for piece in tool(n):gmatch ".?.?.?.?.?.?.?.?.?.?.?.?" do
      file:write(piece)
      file:flush()
    end
  end,
  ["put in place of the old"] = function(path, n)
    write(path .. "~", tool(n))
    assert(os.rename(path .. "~", path))
  end,
  ["moved away and written anew, as vim does"] = function(path, n)
    assert(os.rename(path, path .. "~"))
    write(path, tool(n))
    assert(os.remove(path .. "~"))
  end,
  ["saved twice at once"] = function(path, n)
    write(path, tool(n + 5000))
    write(path, tool(n))
  end,
  ["saved with an earlier time"] = function(path, n)
    write(path, tool(n))
    assert(lfs.touch(path, 1e9 - n, 1e9 - n))
  end,
  ["saved with the same time and size"] = function(path, n)
    write(path, tool(n))
    assert(lfs.touch(path, 1e9, 1e9))
  end,
}

describe("scripts that are saved in every way, fifty times,", function()
  it("are reloaded once each time, with the saved contents (B-92)", function()
    local names, scripts = {}, {}
    for name in pairs(ways) do names[#names + 1] = name end
    table.sort(names)
    for i in ipairs(names) do scripts[("tools/way%d.lua"):format(i)] = tool(0) end
    local plain <close> = gateway.start { scripts = scripts }
    local linked <close> = gateway.start { config = { scripts = { path = "served" } }, before = function(dir)
      for _, folder in ipairs { "/..one", "/..one/tools", "/..two", "/..two/tools" } do assert(lfs.mkdir(dir .. folder)) end
      write(dir .. "/..one/tools/one.lua", tool(0))
      assert(lfs.link("..one", dir .. "/served", true))
    end }
    local c <close> = plain:client "2026-07-28"
    local l <close> = linked:client "2026-07-28"
    local known = { [plain] = 1, [linked] = 1 } -- for each gateway, its generation after the previous saves

    -- How often each file was reloaded, and how, in the generations after `known` up to `last`: { way1 = "~", way3 =
    -- "-+" }.
    local function reloads_of(g, last)
      local changes, found = {}, {}
      wait.for_fact("the log line of every reload", 10, function()
        changes = {}
        for _, line in ipairs(g:log_lines()) do
          local generation = line.event == "reloaded" and tonumber(line.fields.generation) or 0
          if generation > known[g] and generation <= last then changes[#changes + 1] = line.fields.changes end
        end
        return #changes == last - known[g]
      end)
      for _, text in ipairs(changes) do
        for mark, name in text:gmatch "([-+~]) (%w+)" do found[name] = (found[name] or "") .. mark end
      end
      return found
    end

    -- Asserts that each save caused one reload of its file, and that there was no other reload. On a busy disk the
    -- files of one round come in several reloads, and a save in two steps may be seen between its steps.
    local function assert_reloaded(g, client, n, allowed)
      local list
      wait.for_fact(function() return n .. " in " .. cjson.encode(list) end, 20, function()
        list = client:result("tools/list").tools
        for name in pairs(allowed) do
          local one
          for _, tool_of in ipairs(list) do one = tool_of.name == name and tool_of or one end
          if not one or one.description ~= ("Number %04d."):format(n) then return false end
        end
        return true
      end)
      assert.equal(200, g:admin("/reload", "POST").status) -- waits for the reload before it, and changes nothing itself
      local now = g:status().scripts
      assert.is_true(now.ok, now.errors)
      local found = reloads_of(g, now.generation)
      for name, marks in pairs(allowed) do assert.truthy(marks[found[name]], ("round %d: %s was reloaded as %q"):format(n, name, tostring(found[name]))) end
      for name in pairs(found) do assert.truthy(allowed[name], name) end
      known[g] = now.generation
    end

    local once <const> = { ["~"] = true }
    local two_steps <const> = {
      ["moved away and written anew, as vim does"] = { ["~"] = true, ["-+"] = true },
      ["saved twice at once"] = { ["~"] = true, ["~~"] = true },
    }
    local ways_allowed, linked_allowed = {}, { one = once }
    for i, name in ipairs(names) do ways_allowed["way" .. i] = two_steps[name] or once end
    for n = 1, TIMES do
      for i, name in ipairs(names) do ways[name](("%s/scripts/tools/way%d.lua"):format(plain.dir, i), n) end
      -- the folder to which the link points next, as Kubernetes updates config maps
      local set = n % 2 == 1 and "..two" or "..one"
      write(("%s/%s/tools/one.lua"):format(linked.dir, set), tool(n))
      assert(lfs.link(set, linked.dir .. "/next", true))
      assert(os.rename(linked.dir .. "/next", linked.dir .. "/served"))
      assert_reloaded(plain, c, n, ways_allowed)
      assert_reloaded(linked, l, n, linked_allowed)
    end
    for _, g in ipairs { plain, linked } do
      assert.equal(known[g], g:status().scripts.generation)
      assert.is_nil(g:log():match "[^\n]*refused[^\n]*")
    end
  end)
end)

describe("a file that is written in two pieces", function()
  local function write_slowly(path, text, last)
    local file = assert(io.open(path, "wb"))
    file:write(text:sub(1, #text // 2))
    file:flush()
    uv.sleep(300) -- three times the delay of a reload after a change: the situation under test
    file:write(text:sub(#text // 2 + 1))
    return last(file)
  end

  it("with a pause in between is reloaded once, with both pieces (B-92)", function()
    local g <close> = gateway.start { scripts = { ["tools/one.lua"] = tool(0), ["tools/linked.lua"] = tool(0) }, before = function(dir)
      write(dir .. "/outside.lua", tool(0))
      assert(os.remove(dir .. "/scripts/tools/linked.lua"))
      assert(lfs.link("../../outside.lua", dir .. "/scripts/tools/linked.lua", true))
    end }
    for n, path in ipairs { "/scripts/tools/one.lua", "/outside.lua", "/scripts/tools/new.lua" } do
      write_slowly(g.dir .. path, tool(n), io.close)
      local status = g:wait_status(function(now) return now.scripts.generation > n or now.scripts.ok == false end)
      assert.equal(n + 1, status.scripts.generation, status.scripts.errors)
    end
    write_slowly(g.dir .. "/scripts/tools/one.lua~", tool(4), function(file)
      assert(os.rename(g.dir .. "/scripts/tools/one.lua~", g.dir .. "/scripts/tools/one.lua"))
      file:close()
    end)
    g:wait_status(function(now) return now.scripts.generation == 5 end)
    assert.is_nil(g:log():find "refused")
  end)

  it("is read after two seconds even if its writer does not close it", function()
    local g <close> = gateway.start { scripts = { ["tools/one.lua"] = tool(0) } }
    local file <close> = assert(io.open(g.dir .. "/scripts/tools/one.lua", "wb"))
    file:write(tool(1))
    file:flush()
    g:wait_status(function(now) return now.scripts.generation == 2 end, 10)
    write(g.dir .. "/scripts/tools/other.lua", tool(2)) -- a writer that keeps the file open delays nothing else
    g:wait_status(function(now) return now.scripts.generation == 3 end, 10)
    assert.is_nil(g:log():find "refused")
  end)
end)

describe("a set of scripts with an error", function()
  local broken = {
    { "syntax error", "return tool {" },
    { "runtime error at load", "\nlocal x = nil + 1", 2 },
    { "missing module", "local x = require 'nowhere' return tool { 'X.', function() return x end }" },
    { "endless loop at load", "while true do end" },
    { "1 GB at load", "local t = {} for i = 1, 1 << 30 do t[i] = ('x'):rep(1 << 20) .. i end return t", false },
    { "empty file", "", false },
    { "binary chunk", string.dump(load "return 5") },
    { "half a file", 'return tool { "Half.", function() return "ha' },
  }

  it("of any of eight kinds leaves the old set serving, and is logged once, with its place (B-85)", function()
    local g <close> = gateway.start { scripts = { ["tools/one.lua"] = tool(1) }, config = { scripts = { watch = "false" } } }
    local c <close> = g:client "2026-07-28"
    local answers = 0
    local path = g.dir .. "/scripts/tools/bad.lua"
    for i, case in ipairs(broken) do
      write(path, case[2])
      local asking = g:connect { admin = true }
      asking:send { method = "POST", path = "/reload" }
      local meanwhile, over = 0
      repeat -- the old script answers meanwhile
        assert.equal("0001", c:result("tools/call", { name = "one" }).content[1].text, case[1])
        meanwhile = meanwhile + 1
        over = pcall(asking.read_head, asking, 0.01)
      until over
      if case[1] == "endless loop at load" then assert.is_true(meanwhile > 5, meanwhile) end -- loading may take 2 s
      answers = answers + meanwhile
      local response = asking:read_response(10)
      asking:close()
      assert.equal(422, response.status, case[1])
      local place = case[3] == false and "scripts/tools/bad.lua" or ("scripts/tools/bad.lua:%d:"):format(case[3] or 1)
      assert.truthy(response.body:find(place, 1, true), response.body)
      assert.equal(1, g:status().scripts.generation)
      assert.equal(422, g:admin("/reload", "POST").status) -- a second request: the same answer, and no further line in the log
      local told -- one line for each refused reload; a thread of its own writes the log
      wait.for_fact(function() return i .. " refusals in the log:\n" .. g:log() end, 20, function()
        told = select(2, g:log():gsub("warn  not reloaded", ""))
        return told >= i
      end)
      assert.equal(i, told, case[1])
    end
    assert.is_true(answers >= #broken)
    c:close()
  end)
end)

describe("two hundred reloads between two sets of scripts", function()
  it("list one whole set at any time, never without an entry of both (B-86)", function()
    local function each(n)
      return ('return tool { "Set %d.", function() return "%d" end }'):format(n, n)
    end
    local g <close> = gateway.start { config = { scripts = { path = "served", watch = "false" } }, before = function(dir)
      for n, names in ipairs { { "t1", "t2" }, { "t2", "t3" } } do
        assert(lfs.mkdir(dir .. "/set" .. n))
        assert(lfs.mkdir(dir .. "/set" .. n .. "/tools"))
        for _, name in ipairs(names) do write(("%s/set%d/tools/%s.lua"):format(dir, n, name), each(n)) end
      end
      assert(lfs.link("set1", dir .. "/served", true))
    end }
    local callers, seen = {}, {}
    for i = 1, 4 do callers[i] = g:client(i % 2 == 0 and "2026-07-28" or "2025-11-25") end
    local function list_of(answer)
      local names = {}
      for _, one in ipairs(answer.result.tools) do names[#names + 1] = one.name .. " " .. one.description:match "%d" end
      return table.concat(names, ", ")
    end
    for n = 1, 200 do
      assert(lfs.link("set" .. n % 2 + 1, g.dir .. "/next", true))
      assert(os.rename(g.dir .. "/next", g.dir .. "/served"))
      local running = {}
      local asking = g:connect { admin = true }
      asking:send { method = "POST", path = "/reload" }
      for i, c in ipairs(callers) do running[i] = { c:open "tools/list", c:open("tools/call", { name = "t2" }) } end
      assert.equal(200, asking:read_response().status)
      for _, pair in ipairs(running) do
        local list = list_of(pair[1]:answer())
        seen[list] = (seen[list] or 0) + 1
        assert.matches("^[12]$", pair[2]:answer().result.content[1].text)
        pair[1]:close()
        pair[2]:close()
      end
      asking:close()
    end
    local whole = { ["t1 1, t2 1"] = true, ["t2 2, t3 2"] = true }
    for list in pairs(seen) do assert.is_true(whole[list], list) end
    assert.equal(201, g:status().scripts.generation)
    for _, c in ipairs(callers) do
      if c.delete then c:delete() end
      c:close()
    end
    g:wait_status(function(status) return status.gauges.vms == 2 end)
    assert.has_nothing_left(g)
  end)
end)
