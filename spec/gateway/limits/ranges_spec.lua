-- Library functions that loop in C, over ranges and lengths that a script chooses (B-128): refused, or ended like any
-- loop; other calls are answered meanwhile.
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local bodies = {
  move = "return table.move({}, 1, 1 << 40, 2)",
  move_down = "return table.move({ 1 }, 2, math.maxinteger, 1)",
  move_lying = "return table.move(setmetatable({}, { __index = function() return nil end }), 1, 1 << 40, 2)",
  insert = "return table.insert(setmetatable({}, { __len = function() return 1 << 40 end }), 1, 'x')",
  remove = "return table.remove(setmetatable({}, { __len = function() return 1 << 40 end }), 1)",
  concat = "return table.concat(setmetatable({}, { __index = function() return '' end }), '', 1, 1 << 40)",
  concat_lying = "return table.concat(setmetatable({}, { __len = function() return 1 << 40 end, __index = function() return '' end }))",
  unpack = "return table.unpack({}, 0, (1 << 31) - 1)",
  unpack_all = "return table.unpack({}, math.mininteger, math.maxinteger)",
  sort = [[return table.sort(setmetatable({}, { __len = function() return (1 << 31) - 2 end, __index = function(_, i) return -i end,
    __newindex = function() end }))]],
  pack = "return #string.pack('c2000000000', '')",
  pack_many = "return #string.pack(('c60000000'):rep(40), table.unpack({ '', '', '', '', '', '', '', '', '', '' }, 1, 40))",
  packsize = "return string.packsize(('c2147483647'):rep(100))",
  unpack_text = "return string.unpack('c2000000000', 'x')",
  rep = "return #string.rep('', 1 << 62, '')",
  utf8_len = "local s = ('x'):rep(1 << 22) while true do utf8.len(s) end",
  utf8_codes = "local s = ('x'):rep(1 << 22) while true do for _ in utf8.codes(s) do end end",
  utf8_codepoint = "local s = ('x'):rep(1 << 22) return utf8.codepoint(s, 1, -1)",
  utf8_char = "return #utf8.char(table.unpack({}, 1, 1 << 24))",
  select = "return select(1 << 40, 1)",
  next_one = "local t = {} for i = 1, 100000 do t[i] = i end while true do for i = 1, 100000 do t[i] = nil end for i = 1, 100000 do t[i] = i end end",
}

local function tool(body) return "return tool { 'T.', function() " .. body .. " end }" end

describe("a library function over a huge range", function()
  local g

  lazy_setup(function()
    local scripts = { ["tools/ok.lua"] = tool "return 'ok'" }
    for name, body in pairs(bodies) do scripts["tools/" .. name .. ".lua"] = tool(body) end
    g = gateway.start { scripts = scripts, workers = 1, config = { limits = { call = { cpu = "300ms", memory = "48MiB" } } } }
  end)
  lazy_teardown(function() local _ <close> = g end) -- luacheck: ignore 211

  local names = {}
  for name in pairs(bodies) do names[#names + 1] = name end
  table.sort(names)

  for _, name in ipairs(names) do
    it(("(%s) ends, and others are answered meanwhile"):format(name), function()
      local c <close> = g:client "2026-07-28"
      local other <close> = g:client "2026-07-28"
      local waited = math.huge
      -- the quickest of five tries counts, and must be quicker than limits.call.cpu: the machine may have other work
      for _ = 1, 5 do
        local stream = c:open("tools/call", { name = name })
        waited = math.min(waited, (wait.timed(function()
          assert.equal("ok", other:call("tools/call", { name = "ok" }).result.content[1].text)
        end)))
        local answer = stream:answer(10)
        assert.truthy(answer.error or answer.result)
        if waited < 0.25 then break end
      end
      assert(waited < 0.25, ("others waited for %.3f s"):format(waited))
    end)
  end
end)
