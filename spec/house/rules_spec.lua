-- A rule's number in a comment is worth something only where it can be looked up.

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local function files()
  local list = io.popen "find core lua scripts examples spec -path spec/clients -prune -o -type f -print"
  return list:lines()
end

-- Curves look like rules.
local others = { ["P-256"] = true, ["P-384"] = true, ["P-521"] = true }

describe("a rule that is cited", function()
  local said = {}
  for id in read("docs/rules.md"):gmatch "%*%*(%u%u?%-%d+)%*%*" do said[id] = true end

  it("stands in docs/rules.md", function()
    local missing = {}
    for path in files() do
      for id in read(path):gmatch "%f[%w](%u%u?%-%d%d?%d?)%f[^%w]" do
        if not said[id] and not others[id] then missing[#missing + 1] = path .. ": " .. id end
      end
    end
    assert.are.same({}, missing)
  end)
end)
