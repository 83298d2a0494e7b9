-- The plan of the code (spec/helpers/plan.lua): how many boxes, floors and arrows back a folder may have at most, and
-- pictures that are not stale.
local lfs = require "lfs"
local plan = dofile "spec/helpers/plan.lua"

-- Of each module of core/, and of folders in it: boxes, floors, arrows back. These numbers only go down: a folder that
-- grows above them is split by its nouns. A new file of a folder that has its noun may raise the first one; its commit
-- says why.
local most = {
  admin = { 34, 8, 20 },
  base = { 16, 5, 0 }, -- limit.h: what a limit without a key is
  cli = { 7, 5, 5 },
  config = { 27, 14, 14 },
  data = { 28, 9, 5 }, -- store_outbox.c: changes for the process that owns the store
  gateway = { 15, 7, 2 },
  ["gateway/certificates"] = { 3, 3, 0 },
  ["gateway/listeners"] = { 3, 3, 0 },
  ["gateway/reload"] = { 5, 3, 0 },
  ["gateway/start"] = { 3, 3, 0 },
  ["gateway/upgrade"] = { 11, 6, 1 },
  json = { 7, 4, 0 },
  lib = { 43, 10, 1 }, -- redis.c, postgres.c: libraries of scripts; postgres_values.c; seat.c: what their scripts share; nodes.c: records of the cluster
  ["lib/modules"] = { 5, 1, 0 },
  ["lib/shortcut"] = { 11, 3, 6 }, -- shortcut.h: the gate before the three ways
  ["lib/upstream"] = { 7, 3, 2 },
  ["lib/work"] = { 16, 5, 2 }, -- policy.c: the way of a call through policies; listening.h: what libraries give to jobs
  loop = { 8, 6, 2 },
  mcp = { 7, 3, 1 },
  net = { 7, 3, 5 },
  ["net/client"] = { 10, 4, 1 }, -- dial.c, wire.c: connections that do not speak HTTP; inner.c, inner_answer.c: requests to other processes
  ["net/curl"] = { 4, 4, 0 },
  ["net/http2"] = { 5, 3, 1 },
  ["net/server"] = { 19, 8, 3 },
  ["net/tls"] = { 4, 4, 1 },
  nodes = { 1, 1, 0 },
  os = { 14, 5, 3 }, -- pages.h, slabs.h, sockets.h: memory in pages, and listening sockets; descriptors.c: how many may be open
  postgres = { 5, 4, 1 },
  redis = { 4, 4, 0 }, -- subscription.c: a connection that follows a channel
  rpc = { 16, 12, 3 }, -- inside.h: what only this module asks of its processes; places.c is below these now
  ["rpc/auth"] = { 5, 3, 0 }, -- acme.c: what certificate authorities ask for
  ["rpc/call"] = { 14, 6, 2 },
  ["rpc/observe"] = { 4, 3, 1 },
  ["rpc/request"] = { 8, 3, 0 },
  ["rpc/session"] = { 9, 4, 0 }, -- kept.c, revive.c: what survives a restart of a session, and how it goes on
  ["rpc/stream"] = { 4, 3, 0 },
  ["rpc/transport"] = { 12, 4, 1 },
  telemetry = { 18, 6, 3 },
  trace = { 6, 4, 3 },
  upstream = { 14, 8, 6 },
  ["upstream/catalogue"] = { 2, 1, 0 },
  ["upstream/channel"] = { 7, 4, 1 },
  ["upstream/pending"] = { 3, 3, 2 },
  ["upstream/transport"] = { 7, 4, 1 },
  vm = { 26, 10, 10 },
  ["vm/json"] = { 9, 4, 3 },
  ["vm/strings"] = { 5, 3, 2 },
}

describe("the plan", function()
  local function measured(files)
    local folder = os.tmpname()
    os.remove(folder)
    assert(lfs.mkdir(folder))
    for name, text in pairs(files) do
      if name:find "/" then lfs.mkdir(folder .. "/" .. name:match "^[^/]+") end
      local file <close> = assert(io.open(folder .. "/" .. name, "wb"))
      file:write(text)
    end
    local result = plan.measure(folder)
    os.execute("rm -r " .. folder)
    return { result.boxes, result.floors, #result.back }
  end

  it("counts a file with its header, and a folder, as one box", function()
    assert.same({ 3, 1, 0 }, measured { ["a.c"] = "", ["a.h"] = "", ["b.h"] = "", ["c/d.c"] = "", ["c/e.c"] = "" })
  end)

  it("has an arrow for a call and for a header, and none for a declaration, a comment or a text", function()
    assert.same({ 3, 3, 0 }, measured {
      ["a.c"] = "void mp_a(void)\n{\n    mp_b(1);\n}\n",
      ["b.c"] = '#include "c/c.h"\nint mp_b(int n)\n{\n    return n;\n}\n',
      ["c/c.h"] = "int mp_b(int n);\n/* mp_a() calls it */\n#define WORDS \"mp_a\"\n",
    })
  end)

  it("leaves out the fewest arrows that close circles", function()
    local function calls(own, ...)
      local body = {}
      for i, name in ipairs { ... } do body[i] = "mp_" .. name .. "();" end
      return ("void mp_%s(void)\n{\n%s\n}\n"):format(own, table.concat(body, "\n"))
    end
    assert.same({ 3, 3, 1 }, measured { ["a.c"] = calls("a", "b"), ["b.c"] = calls("b", "c"), ["c.c"] = calls("c", "a") })
    assert.same({ 3, 3, 1 }, measured { ["a.c"] = calls("a", "b", "c"), ["b.c"] = calls("b", "c"), ["c.c"] = calls("c", "b") })
    for _, name in ipairs { "b", "d" } do   -- of a circle of two, the arrow goes that leaves fewer floors, whatever the boxes are called
      assert.same({ 4, 3, 1 }, measured { ["e.c"] = calls("e", name, "c"), ["c.c"] = calls("c", name, "a"), [name .. ".c"] = calls(name, "c"),
        ["a.c"] = calls "a" })
    end
    local large = {}                        -- 20 in a circle: too many for all orders to be compared
    for i = 1, 20 do large[("f%d.c"):format(i)] = calls("f" .. i, "f" .. i % 20 + 1) end
    assert.same({ 20, 20, 1 }, measured(large))
  end)
end)

describe("the folders of a folder", function()
  it("are those with files", function()
    local folder = os.tmpname()
    os.remove(folder)
    for _, name in ipairs { "", "/left", "/left/inside", "/used", "/used/inside" } do assert(lfs.mkdir(folder .. name)) end
    assert(io.open(folder .. "/used/inside/a.c", "wb")):close()
    local folders = plan.folders(folder)
    os.execute("rm -r " .. folder)
    assert.same({ folder .. "/used" }, folders)
  end)
end)

describe("the plan of core/", function()
  it("has no arrow back between modules", function()
    assert.same({}, plan.measure("core").back)
  end)

  it("has bounds for each module", function()
    for _, folder in ipairs(plan.folders "core") do
      assert(most[folder:match "[^/]+$"], folder .. " has no bounds in spec/house/plan_spec.lua: " .. plan.line(folder))
    end
  end)

  for folder, bound in pairs(most) do
    it("is within its bounds in core/" .. folder, function()
      local line, now = plan.line("core/" .. folder)
      local is_within = now.boxes <= bound[1] and now.floors <= bound[2] and #now.back <= bound[3]
      assert(is_within, ("%s: boxes, floors and arrows back are at most %d, %d and %d; `./dev plan core/%s` shows the arrows"):format(line, bound[1],
        bound[2], bound[3], folder))
    end)
  end
end)

describe("the plan of lua/moonpool", function()
  for _, folder in ipairs { "lua/moonpool", table.unpack(plan.folders "lua/moonpool") } do
    it("has no arrow back in " .. folder, function()
      assert.same({}, plan.measure(folder).back)
    end)
  end
end)

describe("the picture", function()
  for _, picture in ipairs(dofile "spec/helpers/plan_picture.lua") do
    it(picture.path .. " is as `./dev plan pictures` writes it", function()
      local file <close> = assert(io.open(picture.path, "rb"))
      assert.equal(picture.make(), file:read "a")
    end)
  end
end)
