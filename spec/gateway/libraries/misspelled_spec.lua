-- A misspelled member of a library, or method of what a library returns, is an error of Lua; the log has the name that
-- was meant. The names are those of lua/types/moonpool.d.lua: a new library is covered without a line here.
local gateway = require "spec.helpers.gateway"

local function types()
  local file <close> = assert(io.open "lua/types/moonpool.d.lua")
  return file:read "a"
end

-- The expressions that call a misspelled name, by the right name.
local function misspelled()
  local calls = {}
  for library, name in types():gmatch "\nfunction ([%l%d]+)%.([%w_]+)%(" do
    if library ~= "t" then calls[#calls + 1] = { text = library .. "." .. name .. "x()", name = name } end
  end
  for name in types():gmatch "\nfunction %u%w*:([%w_]+)%(" do calls[#calls + 1] = { text = "({}):" .. name .. "x()", name = name } end
  for name in types():gmatch "\n%-%-%-@field ([%w_]+) fun%(self" do calls[#calls + 1] = { text = "({}):" .. name .. "x()", name = name } end
  return calls
end

describe("a misspelled name", function()
  it("of each library and of each object is answered by the right one in the log", function()
    local calls, lines = misspelled(), { "return {" }
    assert.is_true(#calls > 90, #calls)
    for i, one in ipairs(calls) do lines[i + 1] = ('n%d = tool { "T.", function() return %s end },'):format(i, one.text) end
    lines[#lines + 1] = "} -- names upstream, so that its module is loaded, too"
    local g <close> = gateway.start { scripts = { ["tools/all.lua"] = table.concat(lines, "\n") } }
    local me <close> = g:client "2026-07-28"
    for i in ipairs(calls) do assert.is_nil(me:call("tools/call", { name = "all_n" .. i, arguments = {} }).error) end
    local hints = {}
    g:wait_log("tool failed", { name = "all_n" .. #calls })
    for _, line in ipairs(g:log_lines()) do
      local at = (line.fields.why or ""):match "^scripts/tools/all.lua:(%d+): "
      if at then hints[tonumber(at)] = line.fields.hint end
    end
    local complaints = {}
    for i, one in ipairs(calls) do
      local hint = hints[i + 1]
      if not hint or not hint:find("did you mean '", 1, true) then complaints[#complaints + 1] = one.text .. ": " .. tostring(hint) end
    end
    assert.equal("", table.concat(complaints, "\n"))
    assert.equal("did you mean 'open'?", (function()
      for i, one in ipairs(calls) do
        if one.text == "redis.openx()" then return hints[i + 1] end
      end
    end)())
  end)

  it("has no hint where no name is near", function()
    local g <close> = gateway.start { scripts = {
      ["tools/a.lua"] = 'return tool { "T.", function() return redis.quite_another() end }',
      ["tools/b.lua"] = 'return tool { "T.", function() local mine = {} return mine.opn() end }',
    } }
    local me <close> = g:client "2026-07-28"
    for _, name in ipairs { "a", "b" } do
      me:call("tools/call", { name = name, arguments = {} })
      assert.is_nil(g:wait_log("tool failed", { name = name }).fields.hint)
    end
  end)

  it("of an option of store.lock is answered, too", function()
    local g <close> = gateway.start { scripts = {
      ["tools/a.lua"] = 'return tool { "T.", function() return store.lock("k", { tll = 5 }, function() end) end }',
      ["tools/b.lua"] = 'return tool { "T.", function() return store.set("k", 1, { lokc = 5 }) end }',
    } }
    local me <close> = g:client "2026-07-28"
    for name, right in pairs { a = "ttl", b = "lock" } do
      me:call("tools/call", { name = name, arguments = {} })
      local line = g:wait_log("tool failed", { name = name })
      assert.truthy(line.fields.hint:find("did you mean '" .. right .. "'?", 1, true), line.text)
    end
  end)
end)
