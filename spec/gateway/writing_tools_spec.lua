-- docs/writing-tools.md: its blocks that begin with a path are files that load together, without a doubt.
local gateway = require "spec.helpers.gateway"
local example = require "spec.helpers.example"

describe("the page about writing tools", function()
  it("has files that load", function()
    local files, count = {}, 0
    for block in example.read("docs/writing-tools.md"):gmatch "```lua\n(.-)```" do
      files[assert(block:match "^%-%- (scripts/%S+%.lua)\n", block)], count = block, count + 1
    end
    assert.is_true(count >= 9)
    local dir = gateway.prepare { files = files }
    local code, out, err = gateway.exec({ "check" }, { cwd = dir })
    assert.same({ 0, "" }, { code, err })
    for path in pairs(files) do
      local tool = path:match "^scripts/tools/(.+)%.lua$"
      if tool then assert.truthy(out:find("tool  " .. tool, 1, true), path) end
    end
    assert.equal("12\n", (select(2, gateway.exec({ "call", "area", "width=3", "height=4" }, { cwd = dir }))))
    gateway.run_program("/bin/rm", { "-r", dir })
  end)
end)
