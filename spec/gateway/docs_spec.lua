-- The pages of docs/ and the first one: their blocks that begin with a path are files that load together, without a doubt; what is YAML
-- is a configuration; what they say of an example holds.
local example = require "spec.helpers.example"
local gateway = require "spec.helpers.gateway"

local function has(text, part) assert.truthy(text:find(part, 1, true), part .. " is not in: " .. text) end

-- The files of a page, by their paths. A block may hold several.
local function files_of(page)
  local files, count = {}, 0
  for block in example.read(page):gmatch "```lua\n(.-)```" do
    local at = {}
    for here, path in block:gmatch "()%-%- (scripts/%S+%.lua)[^\n]*\n" do
      if here == 1 or block:sub(here - 1, here - 1) == "\n" then at[#at + 1] = { here, path } end
    end
    for i, one in ipairs(at) do
      files[one[2]], count = block:sub(one[1], at[i + 1] and at[i + 1][1] - 1 or #block), count + 1
    end
  end
  return files, count
end

local function in_folder(files, f)
  local dir = gateway.prepare { files = files }
  local function moonpool(...) return gateway.exec({ ... }, { cwd = dir }) end
  f(moonpool, dir)
  gateway.run_program("/bin/rm", { "-r", dir })
end

describe("the page", function()
  for page, least in pairs { ["docs/writing-tools.md"] = 10, ["docs/policy.md"] = 3 } do
    it(page .. " has files that load", function()
      local files, count = files_of(page)
      assert.is_true(count >= least, count .. " files")
      in_folder(files, function(moonpool)
        local code, out, err = moonpool "check"
        assert.same({ 0, "" }, { code, (err:gsub("[^\n]* warn  policy for no tool [^\n]*\n", "")) })
        for path in pairs(files) do
          local tool = path:match "^scripts/tools/(.+)%.lua$"
          if tool then has(out, "tool  " .. tool) end
        end
      end)
    end)
  end

  it("docs/writing-tools.md has tools that answer", function()
    in_folder((files_of "docs/writing-tools.md"), function(moonpool)
      assert.equal("12\n", (select(2, moonpool("call", "area", "width=3", "height=4"))))
      assert.equal("3 paid in cash\n", (select(2, moonpool("call", "pay", "how=cash", "amount=3", "from=[1,2]"))))
      local code, _, err = moonpool("call", "pay", "how=card", "amount=3", "from=[1,2]")
      assert.equal(1, code)
      has(err, "'code'")
    end)
  end)

  it("docs/testing.md has specs that pass and fail as it says", function()
    local page = example.read "docs/testing.md"
    local files = files_of "docs/testing.md"
    files["moonpool.yaml"] = "scripts: {allow: {net: [shop.example]}}\n"
    files["scripts/tools/refund.lua"] = [[return tool { "Refund.", input = { id = t.integer }, output = { paid = t.integer }, function(args, call)
      local sure, why = call:elicit("sure", "Refund?", { confirm = t.boolean })
      if not sure then return nil, WHY end
      return try(http.post("https://shop.example/refunds", { json = { order = args.id } })):json()
    end }]]
    local told = page:match "```\n%$ moonpool test\n(.-)```"
    local tool = files["scripts/tools/refund.lua"]
    files["scripts/tools/refund.lua"] = tool:gsub("WHY", "why")
    in_folder(files, function(moonpool)
      local code, out = moonpool "test"
      assert.same({ 1, told }, { code, out })
    end)
    files["scripts/tools/refund.lua"] = tool:gsub("WHY", "'left as it was', why")
    in_folder(files, function(moonpool) assert.equal(0, (moonpool "test")) end)
  end)

  it("docs/permissions.md has a configuration, and says a refusal as it is", function()
    local page = example.read "docs/permissions.md"
    local files = {
      ["moonpool.yaml"] = page:match "```yaml\n(.-)```",
      ["scripts/tools/report.lua"] = "--- Report.\nreturn function() return fs.read 'data/b.csv' end\n",
      ["scripts/tools/orders/a.lua"] = "--- A.\nreturn function() return 1 end\n", ["scripts/lib/git.lua"] = "return {}\n",
    }
    in_folder(files, function(moonpool)
      local code, _, err = moonpool "check"
      assert.same({ 0, "" }, { code, err })
    end)
    files["moonpool.yaml"] = ""
    in_folder(files, function(moonpool)
      has(select(3, moonpool("call", "report")), page:match "```\n(tools/report.-)\n```")
    end)
  end)
end)

describe("the first page", function()
  it("has a tool in full that does what it says", function()
    local block = example.read "README.md":match "```lua\n(return tool {.-)```"
    in_folder({ ["scripts/tools/convert.lua"] = block, ["moonpool.yaml"] = "" }, function(moonpool)
      assert.equal("100\n", (select(2, moonpool("call", "convert", "degrees=212"))))
      assert.same({ 1, "", "nothing is that hot\n" }, { moonpool("call", "convert", "degrees=1e7") })
    end)
  end)

  it("has commands of the workbench that work as typed, one after the other", function()
    local page = example.read "README.md"
    local commands = {}
    for line in page:match "### The workbench\n\n```sh\n(.-)```":gmatch "[^\n]+" do commands[#commands + 1] = line:gsub("%s+# .*", "") end
    assert.is_true(#commands >= 6)
    local spec = page:match "```lua\n(%-%- scripts/tools/greet_spec.-)```"
    local dir = gateway.new_folder()
    local g
    for _, line in ipairs(commands) do
      if line:find "moonpool test" then
        local file <close> = assert(io.open(dir .. "/scripts/tools/greet_spec.lua", "wb"))
        file:write(spec)
      end
      if line:find("127.0.0.1:7300", 1, true) then
        g = g or gateway.start { scripts_path = dir .. "/scripts" }
        line = line:gsub("127%.0%.0%.1:7300", "127.0.0.1:" .. g.port)
      end
      local code, out, err = gateway.run_program("/bin/sh", { "-c", (line:gsub("^moonpool", example.program())) }, { cwd = dir })
      assert.equal(0, code, line .. "\n" .. out .. err)
    end
    assert.is_empty_house(g)
    g:stop()
    gateway.run_program("/bin/rm", { "-r", dir })
  end)
end)
