-- Generated tools and generated arguments, sent to a gateway that compares each planned call with the general path
-- (MOONPOOL_PLANS=both):
-- where C takes arguments, tool.check says true and the handler gets the values and the order of the decoder; a
-- difference ends the process.
-- A second gateway without plans must give the same answers. PLAN_FUZZ_SEED repeats a run, PLAN_FUZZ_TOOLS makes a
-- longer one.
local gateway = require "spec.helpers.gateway"

local SEED <const> = tonumber(os.getenv "PLAN_FUZZ_SEED") or os.time()
local TOOLS <const> = tonumber(os.getenv "PLAN_FUZZ_TOOLS") or 24
local CALLS <const> = 40 -- calls of each tool

local NAMES <const> = { "a", "b", "c", "call_me", "é", "long_name_of_a_field", "x", "y" }
local TEXTS <const> = { "", "a", "ab", "abc", "red", "green", "é", "éé", "x y", "a\\nb", "\\\"", "\\\\", "\\/", "\\u00e9", "0", "true", "😀" }
local NUMBERS <const> = {
  "0", "-0", "1", "-1", "2", "10", "0.5", "-0.5", "1.0", "1e2", "-0.0", "9007199254740993", "999999999999999", "9223372036854775807",
  "9223372036854775808", "123456789012345678901234567890", "0.1", "1.5", "2.00",
}

local function pick(list) return list[math.random(#list)] end
local function chance(n) return math.random(n) == 1 end

-- Values as JSON that mostly fit a type.
local fitting = {
  number = function() return pick(NUMBERS) end, integer = function() return pick { "0", "1", "2", "-1", "7", "12", "4" } end,
  string = function() return '"' .. pick(TEXTS) .. '"' end, boolean = function() return pick { "true", "false" } end,
  enum = function() return pick { '"red"', '"green"', '""' } end, pattern = function() return pick { '"a"', '"ab"', '"b"' } end,
  nullable = function() return pick { "null", "1" } end, list = function() return pick { "[]", "[1,2]", "[1.0]" } end,
}

-- A type of `t.` as Lua source, and a function that gives values for it. Types that C does not know are among them.
local function scalar()
  local kind, options = pick { "number", "number", "integer", "integer", "string", "string", "boolean", "enum", "pattern", "nullable" }, {}
  if kind == "enum" then return 't.one_of { "red", "green", "" }', fitting.enum end
  if kind == "pattern" then return 't.string { pattern = "^a", optional = true }', fitting.pattern end
  if kind == "nullable" then return "t.nullable(t.integer)", fitting.nullable end
  if (kind == "number" or kind == "integer") and chance(2) then
    options[#options + 1] = pick { "min = 0", "above = 0", "min = -1, max = 2", "below = 10", "max = 9007199254740992", "step = 0.5" }
    if kind == "integer" then options[1] = options[1]:gsub("step = 0.5", "step = 2") end
  elseif kind == "string" and chance(2) then
    options[#options + 1] = pick { "min = 1", "max = 2", "min = 1, max = 3" }
  end
  if chance(3) then
    options[#options + 1] = "optional = true"
  elseif chance(4) and #options == 0 then
    options[#options + 1] = "default = " .. ({ number = "1.5", integer = "7", string = '"d"', boolean = "true" })[kind]
  end
  return "t." .. kind .. (options[1] and " { " .. table.concat(options, ", ") .. " }" or ""), fitting[kind]
end

local object

-- The fields of an object as Lua source, and { { name, gives value } … }.
local function fields(deep)
  local made, list = {}, {}
  for _, name in ipairs(NAMES) do
    if chance(3) then
      local shape = deep and math.random(6) or 6
      local source, give
      if shape == 1 then
        local inner, inner_list = fields(false)
        source, give = "t.object { " .. inner .. " }", function() return object(inner_list) end
        if chance(2) then source = "t.optional(" .. source .. ")" end
      elseif shape == 2 and chance(3) then
        source, give = "t.list(t.integer)", fitting.list
      else
        source, give = scalar()
      end
      made[#made + 1], list[#list + 1] = ('["%s"] = %s'):format(name, source), { name, give }
    end
  end
  return table.concat(made, ", "), list
end

local SHOW <const> = [[
  local function show(value)
    if type(value) ~= "table" then return math.type(value) and math.type(value) .. ":" .. value or type(value) .. ":" .. tostring(value) end
    local list = {}
    for name, item in pairs(value) do list[#list + 1] = tostring(name) .. "=" .. show(item) end
    table.sort(list)
    return "{" .. table.concat(list, ",") .. "}"
  end]]

local function tool()
  local input, names = fields(true)
  return ("%s\nreturn tool { \"T.\", input = { %s }, function(args%s) return show(args) end }"):format(SHOW, input, chance(2) and ", call" or ""), names
end

local function any_value()
  return pick { pick(NUMBERS), '"' .. pick(TEXTS) .. '"', "true", "null", "[]", '["a"]', '{"a":1}', '{"a":1,"a":2}' }
end

function object(list)
  local members = {}
  for _, field in ipairs(list) do
    if not chance(12) then members[#members + 1] = ('"%s":%s'):format(field[1], chance(20) and any_value() or field[2]()) end
  end
  if chance(20) then members[#members + 1] = ('"%s":%s'):format(pick(NAMES), any_value()) end
  for i = #members, 2, -1 do
    local j = math.random(i)
    members[i], members[j] = members[j], members[i]
  end
  return "{" .. table.concat(members, chance(4) and " , " or ",") .. "}"
end

local HEADERS <const> = {
  Accept = "application/json, text/event-stream", ["Content-Type"] = "application/json", ["MCP-Protocol-Version"] = "2026-07-28",
  ["Mcp-Method"] = "tools/call",
}

local function call(connection, name, arguments)
  local headers = { ["Mcp-Name"] = name }
  for key, header in pairs(HEADERS) do headers[key] = header end
  local body = ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":%s,"_meta":{'
    .. '"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}'):format(name, arguments)
  local response = connection:request { method = "POST", path = "/mcp", headers = headers, body = body }
  return response.status .. " " .. response.body
end

describe("generated arguments for generated tools", function()
  it("get the same answers with plans and without (seed " .. SEED .. ")", function()
    math.randomseed(SEED)
    local scripts, names = {}, {}
    for i = 1, TOOLS do scripts[("tools/t%d.lua"):format(i)], names[i] = tool() end
    local options = { workers = 1, scripts = scripts, config = { scripts = { watch = "false" } } }
    options.env = { MOONPOOL_PLANS = "both" }
    local with <close> = gateway.start(options)
    options.env = { MOONPOOL_PLANS = "off" }
    local without <close> = gateway.start(options)
    local one, other = with:connect(), without:connect()
    for i = 1, TOOLS do
      for _ = 1, CALLS do
        local arguments = object(names[i])
        assert.equal(call(other, "t" .. i, arguments), call(one, "t" .. i, arguments), scripts[("tools/t%d.lua"):format(i)] .. "\n" .. arguments)
      end
    end
    one:close()
    other:close()
    assert.is_true(with:status().counters.calls_planned > TOOLS)
  end)
end)
