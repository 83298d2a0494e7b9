-- docs/reference/libraries.md and moonpool-lua(7) equal the output of ./dev api, and contain every name of the types.
local api = require "spec.helpers.api"

describe("the page of every name", function()
  local text = api.build()

  it("is as ./dev api writes it", function()
    local file <close> = assert(io.open(api.path, "rb"))
    assert.equal(text, file:read "a")
  end)

  it("is a manual page, too", function()
    local file <close> = assert(io.open(api.man_path, "rb"))
    assert.equal(api.man(), file:read "a")
  end)

  it("has every function of the types", function()
    local missing = {}
    for line in io.lines "lua/types/moonpool.d.lua" do
      local name = line:match "^function ([%w_.:]+)%("
      if name and not text:find("[`:.]" .. name:match "[%w_]+$" .. "%(") then missing[#missing + 1] = name end
    end
    assert.same({}, missing)
  end)
end)
