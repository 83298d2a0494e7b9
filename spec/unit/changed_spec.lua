-- `./dev test --changed`: which specs a change concerns.
local changed = require "spec.helpers.changed"

-- The choice for changed files, and for a diff, among files of these texts.
local function choose(paths, diff, files)
  local specs, helpers = {}, {}
  for path in pairs(files) do
    if path:find "_spec%.lua$" then specs[#specs + 1] = path end
    if path:find "^spec/helpers/" then helpers[#helpers + 1] = path end
  end
  local list = {}
  for path in pairs(changed.choose(paths, changed.names(diff or ""), specs, helpers, function(path) return files[path] or "" end)) do
    list[#list + 1] = path
  end
  table.sort(list)
  return list
end

describe("the specs that a change concerns", function()
  it("are those that have changed, and always those of the house, the documentation and the configuration", function()
    local files = { ["spec/unit/a_spec.lua"] = "", ["spec/unit/b_spec.lua"] = "", ["spec/house/rules_spec.lua"] = "", ["spec/gateway/cli/docs_spec.lua"] = "",
      ["spec/gateway/cli/config_pages_spec.lua"] = "" }
    assert.same({ "spec/gateway/cli/config_pages_spec.lua", "spec/gateway/cli/docs_spec.lua", "spec/house/rules_spec.lua", "spec/unit/a_spec.lua" },
      choose({ "spec/unit/a_spec.lua" }, "", files))
  end)

  it("are those that load a changed helper, also by another one", function()
    local files = { ["spec/helpers/low.lua"] = "", ["spec/helpers/high.lua"] = 'local low = require "spec.helpers.low"', ["spec/helpers/lower.lua"] = "",
      ["spec/unit/a_spec.lua"] = 'require "spec.helpers.high"', ["spec/unit/b_spec.lua"] = 'require "spec.helpers.low"',
      ["spec/unit/c_spec.lua"] = 'require "spec.helpers.lower"' }
    assert.same({ "spec/unit/a_spec.lua", "spec/unit/b_spec.lua" }, choose({ "spec/helpers/low.lua" }, "", files))
    assert.same({ "spec/unit/a_spec.lua" }, choose({ "spec/helpers/high.lua" }, "", files))
  end)

  it("are those whose path has the noun of a changed file, or else the noun without its last word", function()
    local files = { ["spec/gateway/start/upgrade_older_spec.lua"] = "", ["spec/gateway/start/upgraded_spec.lua"] = "",
      ["spec/unit/old_upgrade_spec.lua"] = "" }
    assert.same({ "spec/gateway/start/upgrade_older_spec.lua" }, choose({ "core/gateway/upgrade_older.c" }, "", files))
    assert.same({ "spec/gateway/start/upgrade_older_spec.lua", "spec/unit/old_upgrade_spec.lua" },
      choose({ "core/gateway/upgrade_new_side.c" }, "", files))
    assert.same({ "spec/gateway/start/upgrade_older_spec.lua" }, choose({ "core/gateway/upgrade/older.c" }, "", files))
    assert.same({ "spec/gateway/start/upgrade_older_spec.lua", "spec/unit/old_upgrade_spec.lua" },
      choose({ "core/gateway/upgrade/new_side.c" }, "", files))
    assert.same({}, choose({ "core/gateway/new.c" }, "", files))
    assert.same({ "spec/unit/old_upgrade_spec.lua" }, choose({ "lua/moonpool/upgrade/old.lua" }, "", files))
  end)

  it("are those that mention the file, its module, or a name or text of a changed line, also of one that is gone", function()
    local files = { ["spec/unit/1_spec.lua"] = "docs/how-to/a.md", ["spec/unit/2_spec.lua"] = 'require "moonpool.rpc.x"',
      ["spec/unit/3_spec.lua"] = "list_wait", ["spec/unit/4_spec.lua"] = "the older process ended, and", ["spec/unit/5_spec.lua"] = "call done",
      ["spec/unit/6_spec.lua"] = "nothing" }
    local diff = '--- a/lua\n+++ b/nothing_else\n@@ -1 +1 @@ nothing_more\n+local a = list_wait\n-  log("older process ended  %s", "%d call done\\n")\n'
    assert.same({ "spec/unit/3_spec.lua", "spec/unit/4_spec.lua", "spec/unit/5_spec.lua" }, choose({}, diff, files))
    assert.same({ "spec/unit/1_spec.lua" }, choose({ "docs/how-to/a.md" }, "", files))
    assert.same({ "spec/unit/2_spec.lua" }, choose({ "lua/moonpool/rpc/x.lua" }, "", files))
  end)

  it("are not chosen by a text that many mention", function()
    local files = {}
    for i = 1, 26 do files[("spec/unit/%02d_spec.lua"):format(i)] = "tools_list" end
    files["spec/unit/00_spec.lua"] = "tools_call"
    assert.same({ "spec/unit/00_spec.lua" }, choose({}, "+ tools_list(tools_call)", files))
  end)
end)
