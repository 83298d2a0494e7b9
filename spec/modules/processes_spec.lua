-- The processes of a gateway, and ids that carry the number of the process that made them.
local processes = require "modules".processes

describe("an id", function()
  it("is 36 hex digits, from which its process and those that have its key read the number", function()
    local one, two, stranger = processes.new(), processes.new(), processes.new()
    two:join(one, "/run/x", { { number = one:number() } })
    local misread = 0
    for _ = 1, 200 do
      local id = two:id()
      assert.matches("^%x+$", id)
      assert.equal(36, #id)
      assert.equal(two:number(), two:number_of(id))
      assert.equal(two:number(), one:number_of(id))
      if stranger:number_of(id) ~= two:number() then misread = misread + 1 end
    end
    assert.is_true(misread > 190, misread)
  end)

  it("of one process has no digit that is more frequent, or that its neighbours predict", function()
    local one, counts, follows, last, rounds = processes.new(), {}, {}, nil, 20000
    for i = 1, 36 do counts[i], follows[i] = {}, {} end
    for _ = 1, rounds do
      local id = one:id()
      for i = 1, 36 do
        local digit = tonumber(id:sub(i, i), 16)
        local step = last and (digit - tonumber(last:sub(i, i), 16)) % 16 or 0
        counts[i][digit] = (counts[i][digit] or 0) + 1
        follows[i][step] = (follows[i][step] or 0) + 1
      end
      last = id
    end
    for _, what in ipairs { counts, follows } do
      for i = 1, 36 do
        local chi = 0
        for digit = 0, 15 do chi = chi + ((what[i][digit] or 0) - rounds / 16) ^ 2 / (rounds / 16) end
        -- chi-square with 15 degrees of freedom: random digits exceed this value once in 10^8
        assert.is_true(chi < 70, ("position %d: chi-square %.1f"):format(i, chi))
      end
    end
  end)

  it("is none with another length or other characters", function()
    local one = processes.new()
    local id = one:id()
    for _, text in ipairs { "", id:sub(2), id .. "0", id:sub(1, 32), "g" .. id:sub(2), "A" .. id:sub(2), " " .. id:sub(2), id:sub(1, 35) .. "\0" } do
      assert.is_nil(one:number_of(text), text)
    end
    assert.truthy(one:number_of(("0"):rep(36)))
  end)
end)

describe("the processes of a gateway", function()
  it("are one at first, which is the newest", function()
    local one = processes.new()
    assert.is_true(one:number() > 0 and one:number() < 65536)
    assert.same({}, (one:list()))
    assert.same({ one:number(), true }, { one:newest() })
    assert.is_nil(one:path(1, "mcp"))
    assert.same({ false, false }, { one:has(one:number()) })
  end)

  it("come and go", function()
    local one = processes.new()
    one:add { number = 7, version = "1.0.7" }
    one:add { number = 8, version = "1.0.8" }
    one:add { number = 8, version = "again" }
    assert.same({ { [7] = "1.0.7", [8] = "1.0.8" }, 2 }, { one:list() })
    assert.same({ true, true }, { one:has(8) })
    one:remove(7)
    one:remove(9)
    assert.same({ { [8] = "1.0.8" }, 1 }, { one:list() })
    assert.same({ false, true }, { one:has(7) })
    one:newest(8)
    assert.same({ 8, false }, { one:newest() })
    one:remove(8)
    assert.same({ false, false }, { one:has(8) })
  end)

  it("know one that starts, and do not count it until it serves", function()
    local one = processes.new()
    one:expect(7)
    assert.same({ true, true }, { one:has(7) })
    assert.same({ {}, 0 }, { one:list() })
    one:remove(8)
    assert.same({ true, true }, { one:has(7) })
    one:remove(7)
    assert.same({ false, false }, { one:has(7) })
    one:expect(8)
    one:add { number = 8, version = "2" }
    assert.same({ { [8] = "2" }, 1 }, { one:list() })
    one:remove(8)
    assert.same({ false, false }, { one:has(8) })
  end)

  it("have numbers that differ, and are at most 33 beside their own", function()
    local one = processes.new()
    for number = 1, 100 do one:add { number = number } end
    local _, count = one:list()
    assert.equal(33, count)
    local others = {}
    for number = 1, 33 do others[number] = { number = number } end
    for _ = 1, 50 do
      local two = processes.new()
      two:join(one, "/run/x", others)
      assert.is_true(two:number() > 33)
      assert.same({ two:number(), true }, { two:newest() })
    end
  end)

  it("have sockets in one folder, whose paths no system refuses", function()
    local one = processes.new()
    assert.equal("/run/moonpool/hop/513.mcp.sock", one:path(513, "mcp", "/run/moonpool/hop"))
    -- the folder of the first call stays, whatever later calls name
    assert.equal("/run/moonpool/hop/65535.admin.sock", one:path(65535, "admin", "/elsewhere"))
    local long = processes.new()
    assert.equal(100, #long:path(65535, "admin", "/" .. ("x"):rep(82)))
    long = processes.new()
    assert.is_nil(long:path(65535, "admin", "/" .. ("x"):rep(83)))
  end)
end)
