-- Numbers with a limit that threads share: however they meet, what they hold together is never above it.
local account = require "modules".account

describe("threads that take shares of one account at the same time", function()
  for _, case in ipairs { { share = 1, most = 3 }, { share = 7, most = 20 }, { share = 5, most = 4 }, { share = 1, most = 0 } } do
    it(("hold at most %d, by shares of %d"):format(case.most, case.share), function()
      local most, left, refused = account.rush(8, 20000, case.share, case.most)
      assert.is_true(most <= case.most, most)
      assert.equal(0, left)
      if case.share > case.most then assert.equal(8 * 20000, refused) end
    end)
  end
end)
