-- Functions of scripts refuse what they do not take. The functions and the number of their arguments are those of
-- lua/types/moonpool.d.lua, so that a new function is tried, too.
local gateway = require "spec.helpers.gateway"

-- { name, number of arguments } of each function that the types declare; methods of calls as "call:name".
local function declared()
  local list = {}
  for line in io.lines "lua/types/moonpool.d.lua" do
    local name, parameters = line:match "^function ([%w_.:]+)%((.-)%) end"
    if name and not parameters:find("...", 1, true) then
      name = name:gsub("^Call:", "call:")
      if not name:find "^%u" then list[#list + 1] = { name, select(2, parameters:gsub("[%w_]+", "")) } end
    end
  end
  for name, count in pairs { elicit = 2, elicit_url = 2, sample = 1, roots = 0 } do list[#list + 1] = { "ask." .. name, count } end
  for _, name in ipairs { "string", "number", "integer", "boolean", "null", "any" } do list[#list + 1] = { "t." .. name, 1 } end
  return list
end

describe("a function of scripts", function()
  it("raises an error for an argument more, with the place and a hint", function()
    local list = declared()
    assert.is_true(#list > 100, #list)
    local code = { "return tool { 'X.', function(_, call) local out = {}" }
    for i, row in ipairs(list) do
      code[i + 1] = ("out[%d] = select(2, pcall(function() return (%s(%strue)) end))"):format(i, row[1], ("nil, "):rep(row[2]))
    end
    code[#code + 1] = "for i = 1, #out do out[i] = tostring(out[i]) end return { all = out } end }"
    local g <close> = gateway.start { workers = 1, scripts = { ["tools/x.lua"] = table.concat(code, "\n") }, config = { scripts = { path = "scripts", allow = {
      net = { "example.com:443" }, read = { "/tmp" }, write = { "/tmp" }, run = { "ls" }, env = { "HOME" }, store = { "k:*" } } } } }
    local c <close> = g:client "2026-07-28"
    local answer = c:call("tools/call", { name = "x", arguments = { [" "] = nil } })
    local all = answer.result.structuredContent and answer.result.structuredContent.all or {}
    local silent = {}
    for i, row in ipairs(list) do
      local wanted = ("scripts/tools/x.lua:%d: %s takes %s, got %d"):format(i + 1, row[1], row[2] == 0 and "no argument" or row[2] == 1 and "1 argument"
        or row[2] .. " arguments", row[2] + 1)
      if (all[i] or ""):sub(1, #wanted) ~= wanted then silent[#silent + 1] = wanted .. ", but: " .. tostring(all[i]) end
    end
    assert.equal("", table.concat(silent, "\n"))
  end)
end)
