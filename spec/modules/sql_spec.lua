-- V1: the functions and modules that scripts' SQL may use are a list. Everything in the linked SQLite is on one of the
-- two lists, so this spec fails with a newer SQLite that has a new function until it is added to a list.
local sql = require("modules").sql

local function names(kind, restricted)
  return assert(sql.query(("select distinct name from pragma_%s_list order by 1"):format(kind), restricted))
end

describe("the lists of what SQL may use", function()
  for _, kind in ipairs { "function", "module", "pragma" } do
    it("decide about every " .. kind .. " of the linked SQLite", function()
      local list = names(kind)
      assert.is_true(#list > 10, "SQLite lists its " .. kind .. "s")
      for _, name in ipairs(list) do
        assert.not_equal("unknown", sql.judge(kind, name), kind .. " " .. name .. " is on no list of core/data/sql_rules.c")
      end
    end)
  end

  it("deny what they do not have, and what is dangerous", function()
    assert.equal("unknown", sql.judge("function", "brand_new"))
    for kind, denied in pairs {
      ["function"] = { "fts3_tokenizer", "FTS3_Tokenizer", "load_extension", "json_patch" },
      module = { "fts3", "FTS4", "fts3tokenize", "dbstat", "sqlite_dbpage", "pragma_writable_schema" },
      pragma = { "writable_schema", "trusted_schema", "temp_store_directory", "journal_mode", "max_page_count", "hard_heap_limit" },
    } do
      for _, name in ipairs(denied) do assert.equal("denied", sql.judge(kind, name), name) end
    end
  end)
end)

describe("a restricted connection", function()
  it("does not have denied functions and modules even without an authorizer", function()
    for _, call in ipairs { "fts3_tokenizer('simple')", "fts3_tokenizer('evil', x'0102030405060708')", "load_extension('x')", "load_extension('x', 'y')",
      "sqlite_log(1, 'x')", "json_patch('{}', '{}')" } do
      local list, why = sql.query("select " .. call, true)
      assert.is_nil(list, call)
      assert.truthy(why:find("not available to scripts", 1, true), why)
    end
    for _, module in ipairs { "fts3", "fts4", "fts3tokenize", "fts4aux" } do
      local list, why = sql.query(("create virtual table x using %s(a)"):format(module), true)
      assert.is_nil(list, module)
      assert.truthy(why:find("no such module", 1, true), why)
    end
    for _, name in ipairs(names("module", true)) do assert.equal("allowed", sql.judge("module", name), name) end
  end)

  -- Our functions against SQLite's own: both connections run each query.
  it("has instr, replace and the trims with SQLite's results", function()
    local texts = { "''", "'a'", "'abcabc'", "'ééxé'", "x'c3a9c3'", "x''", "x'616263'", "null", "12.5", "'  a b  '", "'aaa'", "char(0, 97, 0)" }
    local parts = { "''", "'a'", "'b'", "'é'", "'bc'", "x'62'", "x'a9'", "null", "2", "' '", "'ab é'", "'aa'", "char(0)" }
    local asked = 0
    local function same(expression)
      asked = asked + 1
      local wanted = ("select quote(%s) || typeof(%s)"):format(expression, expression)
      assert.same(sql.query(wanted, false), sql.query(wanted, true), expression)
    end
    for _, text in ipairs(texts) do
      for _, name in ipairs { "trim", "ltrim", "rtrim" } do same(("%s(%s)"):format(name, text)) end
      for _, part in ipairs(parts) do
        same(("instr(%s, %s)"):format(text, part))
        if part ~= "char(0)" then -- SQLite's trims end their second argument at NUL; ours remove NUL
          for _, name in ipairs { "trim", "ltrim", "rtrim" } do same(("%s(%s, %s)"):format(name, text, part)) end
        end
        for _, by in ipairs { "''", "'xyz'", "null" } do same(("replace(%s, %s, %s)"):format(text, part, by)) end
      end
    end
    assert.is_true(asked > 900)
  end)
end)
