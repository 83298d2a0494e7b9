-- Names of several things in one file: the folders, the file's name (unless it is init or the like), and the things'
-- own names.
local gateway = require "spec.helpers.gateway"

local function tools(...)
  local parts = {}
  for _, name in ipairs { ... } do parts[#parts + 1] = ("%s = tool { 'It.', function() return %q end }"):format(name, name) end
  return "return { " .. table.concat(parts, ", ") .. " }"
end

describe("several things in one file", function()
  local g, c
  setup(function()
    g = gateway.start { workers = 1, scripts = {
      ["tools/git.lua"] = tools("log", "show"), ["tools/hg.lua"] = tools("log", "show"),
      ["tools/note/tools.lua"] = tools "add", ["tools/deep/er/init.lua"] = tools "one", ["tools/deep/er/two.lua"] = tools "one",
      ["tools/tools.lua"] = tools "top", ["tools/single.lua"] = "return tool { 'It.', function() return 'it' end }",
      ["tools/folder/init.lua"] = "return tool { 'It.', function() return 'it' end }",
      ["prompts/mail.lua"] = "return { hello = prompt { 'Hello.', 'hello' }, bye = prompt { 'Bye.', 'bye' } }",
      ["prompts/old/prompts.lua"] = "return { hello = prompt { 'Hello.', 'hello' } }",
      ["resources/docs.lua"] = "return { one = resource { 'One.', uri = 'docs://one', 'one' } }",
    } }
    c = g:client "2026-07-28"
  end)
  teardown(function()
    c:close()
    g:stop()
  end)

  local function names(method, member)
    local list = {}
    for i, entry in ipairs(c:result(method)[member]) do list[i] = entry.name end
    return table.concat(list, " ")
  end

  it("have the file's name before their own, unless it is init or that of its kind", function()
    assert.equal("deep_er_one deep_er_two_one folder_init git_log git_show hg_log hg_show note_add single top", names("tools/list", "tools"))
    assert.equal("show", c:result("tools/call", { name = "hg_show" }).content[1].text)
    assert.equal("mail_bye mail_hello old_hello", names("prompts/list", "prompts"))
    assert.equal("docs_one", names("resources/list", "resources"))
  end)
end)
