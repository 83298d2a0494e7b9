-- Every rule number that a comment cites is in docs/dev/protocol-rules.md, known-bugs.md or sign-in.md.

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local function files()
  local list = io.popen "find core lua scripts examples spec \\( -path spec/clients -o -name node_modules \\) -prune -o -type f -print"
  return list:lines()
end

-- Names of elliptic curves look like rule numbers.
local others = { ["P-256"] = true, ["P-384"] = true, ["P-521"] = true }

describe("a rule that is cited", function()
  local said = {}
  for _, page in ipairs { "docs/dev/protocol-rules.md", "docs/dev/known-bugs.md", "docs/dev/sign-in.md" } do
    for id in read(page):gmatch "%*%*(%u%u?%-%d+)%*%*" do said[id] = true end
  end

  it("is in docs/dev/protocol-rules.md, known-bugs.md or sign-in.md", function()
    local missing = {}
    for path in files() do
      for id in read(path):gmatch "%f[%w](%u%u?%-%d%d?%d?)%f[^%w]" do
        if not said[id] and not others[id] then missing[#missing + 1] = path .. ": " .. id end
      end
    end
    assert.are.same({}, missing)
  end)
end)
