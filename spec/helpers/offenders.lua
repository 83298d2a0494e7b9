-- Handlers that never end or allocate all memory, in many variants: for the spec that ends them, and the benchmark of
-- the calls beside them.
local offenders = {}

--- Returns the source of a tool with this body.
function offenders.tool(body) return "return tool { 'T.', function(_, call) " .. body .. " end }" end

-- Bodies of handlers that never end.
offenders.endless = {
  loop = "while true do end",
  jumps = "::again:: goto again",
  caught = "while true do pcall(function() while true do end end) end",
  caught_twice = "while true do xpcall(function() while true do end end, function() while true do end end) end",
  inner = "coroutine.wrap(function() while true do end end)()",
  inner_caught = "while true do pcall(coroutine.wrap(function() while true do end end)) end",
  many_inner = "while true do coroutine.resume(coroutine.create(function() for i = 1, 100 do end end)) end",
  index = "local t = setmetatable({}, { __index = function() while true do end end }) return t.x",
  sorting = "local t = {} for i = 1, 100 do t[i] = i end table.sort(t, function() while true do end end)",
  replacing = "return (('x'):gsub('x', function() while true do end end))",
  telling = "return tostring(setmetatable({}, { __tostring = function() while true do end end }))",
  closing = "local c <close> = closing(function() while true do end end) while true do end",
  returning = "local function f() return f() end return f()",
}

-- Bodies of handlers that allocate without end.
offenders.hungry = {
  tables = "local t = {} while true do t[#t + 1] = {} end",
  doubling = "local s = 'x' while true do s = s .. s end",
  caught = "local t = {} while true do pcall(function() while true do t[#t + 1] = ('x'):rep(1000) .. #t end end) end",
  coroutines = "local t = {} while true do t[#t + 1] = coroutine.create(function() end) end",
  closures = "local t = {} while true do local n = #t t[n + 1] = function() return n end end",
  concat = "local t = {} for i = 1, 1e6 do t[i] = ('x'):rep(100) end return #table.concat(t)",
  nesting = "local t = {} while true do t = { t } end",
  formats = "local s = ('x'):rep(1000) while true do s = string.format('%s%s', s, s) end",
  upvalues = "local list = nil while true do local before = list list = function() return before end end",
  packing = "local t = {} while true do t[#t + 1] = table.pack(table.unpack({}, 1, 100)) end",
}

-- Patterns whose matching time is exponential: in Lua's own matcher and in PCRE2.
offenders.patterns = {
  find = "return tostring(string.find(('a'):rep(10000), '.-.-.-[bc]$'))",
  match = "return tostring(string.match(('a'):rep(10000), '(.-)(.-)(.-)[bc]$'))",
  gmatch = "return tostring(string.gmatch(('a'):rep(10000), '.-.-.-[bc]$')())",
  gsub = "return (string.gsub(('a'):rep(10000), '.-.-.-[bc]$', ''))",
  again = "while true do pcall(string.find, ('a'):rep(10000), '.-.-.-[bc]$') end",
  regex_again = "local r = try(regex.new '^(a+)+$') while true do r:test(('a'):rep(50000) .. '!') end",
}

return offenders
