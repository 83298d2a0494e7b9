-- Names with `*`.
local glob = require "moonpool.runtime.glob"

describe("a pattern of names", function()
  for _, case in ipairs {
    { "gh_*", { "gh_", "gh_a", "gh_a*" }, { "gh", "agh_b", "GH_a" } },
    { "*", { "", "x" }, {} },
    { "a", { "a" }, { "aa", "" } },
    { "*_read", { "x_read", "_read", "a_read_read" }, { "_reads", "read" } },
    { "a*b*c", { "abc", "aXbYc", "abbc", "a/b/c" }, { "ac", "acb", "abcd" } },
    { "a*a", { "aa", "aba" }, { "a" } },
    { "a.c", { "a.c" }, { "abc" } },
    { "%a*", { "%a", "%ab" }, { "ba" } },
    { "a**b", { "ab", "axb" }, { "a" } },
  } do
    it("'" .. case[1] .. "' fits what it says", function()
      local fits = glob(case[1])
      for _, text in ipairs(case[2]) do assert.is_true(fits(text), text) end
      for _, text in ipairs(case[3]) do assert.is_false(fits(text), text) end
    end)
  end
end)
