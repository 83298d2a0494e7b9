-- Memory of core/net in whole pages, and the small blocks that lie in it: no block overlaps another one, none changes
-- when memory is returned.
local net = require("modules").net

describe("blocks that are taken and given back in a random order, while memory is returned", function()
  for _, kind in ipairs { "pages", "slabs" } do
    it("keep what was written: " .. kind, function()
      for seed = 1, 5 do
        assert.equal(0, net.blocks(kind, 40, 4000, seed))
        assert.equal(0, net.blocks(kind, 3000, 20000, seed))
      end
    end)
  end

  it("are told from blocks of malloc", function()
    assert.is_true(net.is_page "pages")
    assert.is_false(net.is_page "malloc")
  end)
end)
