-- B-126: the scripts' string.find, match, gmatch, gsub, rep, format and table.concat give the results and errors of
-- Lua's own functions, within a bounded number of steps.
local module = require("modules").string
local ours = module.open()
local theirs = { find = string.find, match = string.match, gmatch = string.gmatch, gsub = string.gsub, rep = string.rep,
  format = string.format, concat = table.concat }

local function lineless(why) return (tostring(why):gsub("string_spec%.lua:%d+:", "string_spec.lua:?:")) end

-- The results of a call, or its error, as one text.
local function outcome(library, name, ...)
  local function run(...)
    local list = table.pack(library[name](...))
    return list
  end
  local ok, list = pcall(run, ...)
  if not ok then return "error: " .. lineless(list) end
  for i = 1, list.n do list[i] = math.type(list[i]) == "float" and list[i] .. "f" or tostring(list[i]) end
  return table.concat(list, "\1", 1, list.n)
end

-- All matches of gmatch, up to an error.
local function all(library, ...)
  local list = {}
  local ok, why = pcall(function(...)
    for a, b, c in library.gmatch(...) do
      list[#list + 1] = tostring(a) .. "\1" .. tostring(b) .. "\1" .. tostring(c)
      if #list > 200 then break end
    end
  end, ...)
  return table.concat(list, "\2") .. (ok and "" or "\2error: " .. lineless(why))
end

local function same(name, ...)
  local mine, wanted
  if name == "gmatch" then
    mine, wanted = all(ours, ...), all(theirs, ...)
  else
    mine, wanted = outcome(ours, name, ...), outcome(theirs, name, ...)
  end
  if mine ~= wanted then
    local shown = table.pack(...)
    for i = 1, shown.n do shown[i] = type(shown[i]) == "string" and ("%q"):format(shown[i]) or tostring(shown[i]) end
    error(("%s(%s)\n  gives %q\n  not   %q"):format(name, table.concat(shown, ", "), mine, wanted), 2)
  end
end

local function each(text, pattern, init)
  same("find", text, pattern, init)
  same("match", text, pattern, init)
  same("gmatch", text, pattern, init)
end

local function double(...) return ... and (...) .. (...) end

local replacements = { "", "<%0>", "%1", "%2-%1", "%%", "%", "%x", "%9", "x", 7, 1.5, { a = "A", b = false, ab = 3, [1] = "one", c = {} }, double,
  function() end, function() return false end, function() return {} end, function(...) return select("#", ...) end,
  setmetatable({}, { __index = function(_, key) return "[" .. tostring(key) .. "]" end }) }

describe("patterns", function()
  it("are Lua's in the classic cases", function()
    local texts = { "", "a", "hello world", "key = value", " x ", "THE (quick) fox", "a,b,,c", "((a)b)c)", "\0a\0b", "x\0", "aaab", "a-b-c",
      "%d[x]", "2024-01-02", "line\r\nnext\n", "\xff\xfeé", "^a$", "abcabcabc" }
    local patterns = { "", "a", ".", ".-", ".*", ".+", "^", "$", "^$", "^a", "a$", "^a*$", "%a+", "%s*", "(%w+)%s*=%s*(%w+)", "%((%a+)%)", "%b()",
      "%f[%w]%w+", "%f[%z]", "%f[\0]", "()", "()a()", "(a)(%1)", "(.)%1", "((a)(b))", "[^,]*", "[^,]+", "[a-c]", "[]]", "[^]]", "[%]]", "[a-]", "[-a]",
      "[%a-z]", "[a-%%]", "[%d%s]", "[^%s%d]+", "[^\0]", "\0", "%z", "%Z", "%", "%%", "a%", "[", "[a", "[^", "[]", "[^]", "[%", "[a-", "(", ")", "()(", "(()",
      "%1", "(%1)", "(a)%2", "%0", "%b", "%bx", "%f", "%fa", "%f[", "a**", "a?-", "-", "*", "?", "+", "a-", "a?", "^*", "^^a", "$a", "a$b", "a^", "%w$",
      "%g+", "%p", "%c", "%x+", "%u%l", "%U", "%.", "(.-)%s", "(.-)\r?\n", "^%s*(.-)%s*$", ".-b", "a*b", "[ab]-b", "%a-%d", "\xff", "[\x80-\xff]+",
      ("("):rep(32) .. "a" .. (")"):rep(32), ("("):rep(33) .. "a", ("a?"):rep(198), ("a?"):rep(199), ("a?"):rep(200), ("a*"):rep(300), ("a-"):rep(250),
      ("(a)"):rep(3), ("()"):rep(32), ("()"):rep(33), ("%a?"):rep(210), ("[%a]*"):rep(10) }
    for _, text in ipairs(texts) do
      for _, pattern in ipairs(patterns) do
        each(text, pattern)
        for _, by in ipairs(replacements) do same("gsub", text, pattern, by) end
      end
    end
    each(("a"):rep(250), ("a?"):rep(250))
    each(("a"):rep(250), ("a?"):rep(199) .. "a")
    each(("a"):rep(250), ("a?"):rep(200) .. "b")
    each("aa", ("a-"):rep(199) .. "$")
    each("aa", ("a-"):rep(200) .. "$")
    each("aaa", ("a*"):rep(199) .. "$")
    each("aaa", ("a*"):rep(200) .. "$")
  end)

  it("know the same classes, byte by byte", function()
    for byte = 0, 255 do
      local letter = string.char(byte)
      for class = 0, 255 do
        local pattern = "%" .. string.char(class)
        same("find", letter, pattern .. "$")
        if class ~= 0x5d then same("find", letter, "[^" .. pattern .. "]") end
      end
    end
  end)

  it("begin where Lua begins", function()
    for _, init in ipairs { 0, 1, 2, 3, 4, 5, 6, 100, -1, -3, -4, -100, math.maxinteger, math.mininteger, 2.0, "2", 2.5, "x", {}, false } do
      for _, pattern in ipairs { "", "b", "^b", "^", "$", "()", ".-", "%f[%w]", "c$" } do
        each("abc", pattern, init)
        same("find", "abc", pattern, init, true)
        same("gsub", "abc", pattern, "x", init)
      end
    end
    each("", "", 2)
    each(1234, 23)
  end)

  it("are refused with Lua's words", function()
    for _, name in ipairs { "find", "match", "gmatch", "gsub" } do
      same(name)
      same(name, "a")
      same(name, nil, "a")
      same(name, {}, "a")
      same(name, "a", {})
      same(name, "a", "a", {})
      same(name, "a", "a", nil, {})
      same(name, "a", "a", "a", "x")
      same(name, "a", "a", true)
    end
  end)

  it("with no special byte find what they say, anywhere", function()
    local text = ("abcabd"):rep(20) .. "\0abce"
    for _, pattern in ipairs { "abce", "abd", "a", "\0", "\0a", "]", "a]", "e", "ea", "", text, text .. "x", ")", "a)" } do
      for init = 1, #text + 2 do each(text, pattern, init) end
      same("gsub", text, pattern, "-")
    end
  end)

  it("do what Lua's do, for 200,000 random pairs", function()
    local seed = tonumber(os.getenv "SEED") or os.time()
    math.randomseed(seed)
    local pieces = { "a", "b", "c", ".", "%a", "%w", "[ab]", "[^a]", "%f[a]", "%bab", "%b()", "(", ")", "()", "%1", "%2", "[%w-]", "[b-c]", "%A",
      "[a", "%", "^", "$", "]", "\0", "x", "(a)", "(.-)", "(b*)", "%z", "%.", "-", "[]a]", "[^]" }
    local suffixes = { "", "", "", "*", "+", "-", "?" }
    local bytes = { "a", "a", "a", "b", "b", "c", "(", ")", "\0", "x", "-", "." }
    local function random_of(list) return list[math.random(#list)] end
    for i = 1, 200000 do
      local pattern, text = {}, {}
      if math.random(6) == 1 then pattern[1] = "^" end
      for _ = 1, math.random(0, 5) do pattern[#pattern + 1] = random_of(pieces) .. random_of(suffixes) end
      if math.random(8) == 1 then pattern[#pattern + 1] = "$" end
      for n = 1, math.random(0, 12) do text[n] = random_of(bytes) end
      local p, s = table.concat(pattern), table.concat(text)
      local init = math.random(4) == 1 and math.random(-3, 15) or nil
      local ok, why = pcall(function()
        each(s, p, init)
        same("gsub", s, p, random_of(replacements), math.random(3) == 1 and math.random(0, 3) or nil)
      end)
      if not ok then error(("seed %d, pair %d: %s"):format(seed, i, why)) end
    end
  end)
end)

-- Like `library`, but each call runs in a coroutine, which is resumed whenever its matching yields.
local function driven(library)
  local function run(f, ...)
    local co, args = coroutine.create(function(...) return select(1, f(...)) end), table.pack(...) -- no tail call: errors name a line
    while true do
      local before = library.turns()
      local got = table.pack(coroutine.resume(co, table.unpack(args, 1, args.n)))
      if not got[1] then error(got[2], 0) end
      if coroutine.status(co) == "dead" then return table.unpack(got, 2, got.n) end
      assert(library.turns() == before + 1 and got.n == 1)
      args = { n = 0 }
    end
  end
  local through = { turns = library.turns, taken = library.taken }
  for _, name in ipairs { "find", "match", "gsub" } do
    through[name] = function(...) return run(library[name], ...) end
  end
  function through.gmatch(...)
    local following = library.gmatch(...)
    return function() return run(following) end
  end
  return through
end

describe("a match that others have turns in", function()
  local before
  setup(function() before = ours end)
  teardown(function() ours = before end)

  local pieces = { "a", "b", ".", "%a", "[ab]", "[^a]", "%f[a]", "%bab", "%b()", "(", ")", "()", "%1", "%2", "[%w-]", "[b-c]", "[a", "%", "(a)", "(.-)",
    "(b*)", "(.)", "[]a]", "[^]" }
  local suffixes = { "", "", "*", "+", "-", "?" }
  local bytes = { "a", "a", "a", "b", "b", "c", "(", ")", "\0", "x" }
  local function random_of(list) return list[math.random(#list)] end

  for _, every in ipairs { 0, 1, 7 } do
    it(("gives what it gives alone: one every %d steps"):format(every), function()
      local seed = tonumber(os.getenv "SEED") or os.time()
      math.randomseed(seed)
      local library = module.open(nil, nil, every)
      ours = driven(library)
      local turns = library.turns()
      for i = 1, 2000 do
        local pattern, text = {}, {}
        if math.random(6) == 1 then pattern[1] = "^" end
        for _ = 1, math.random(0, 5) do pattern[#pattern + 1] = random_of(pieces) .. random_of(suffixes) end
        if math.random(8) == 1 then pattern[#pattern + 1] = "$" end
        for n = 1, math.random(0, 20) do text[n] = random_of(bytes) end
        local p, s = table.concat(pattern), table.concat(text)
        local ok, why = pcall(function()
          each(s, p, math.random(4) == 1 and math.random(-3, 15) or nil)
          same("gsub", s, p, random_of(replacements), math.random(3) == 1 and math.random(0, 3) or nil)
        end)
        if not ok then error(("seed %d, pair %d: %s"):format(seed, i, why)) end
      end
      assert.truthy(library.turns() - turns > 2000)
    end)
  end

  it("gives it for long texts too, and takes as many steps", function()
    local library = module.open(nil, nil, 100)
    local alone = module.open()
    ours = driven(library)
    local text = ("key = value, (a (b) c) [x] 2024-01-02 "):rep(300)
    for _, pattern in ipairs { "(%w+)%s*=%s*(%w+)", "%b()", "%f[%w]%w+", "()%d+()", "(.)%1", "[^,]*", "x", "^(.-)%s*$", "([%a]+) ([%(=])",
      "%d-$", "e, (.-)[x]", "" } do
      each(text .. "end", pattern)
      for _, by in ipairs { "<%0>", double, { key = "lock" }, string.upper } do
        local steps, wanted = library.taken(), alone.taken()
        same("gsub", text, pattern, by)
        local _ = alone.gsub(text, pattern, by)
        assert.equal(alone.taken() - wanted, library.taken() - steps)
      end
    end
  end)

  it("may be given up, and its garbage collected; one iterator serves several at once", function()
    local library = module.open(nil, nil, 3)
    for i = 1, 200 do
      local co = coroutine.create(function() return library.gsub(("ab"):rep(400), i % 2 == 0 and "(a)(b)" or "%w", i % 3 == 0 and double or "xyz") end)
      for _ = 1, i do assert(coroutine.resume(co)) end
      if i % 50 == 0 then collectgarbage() end
      assert.equal(i % 4 == 0, i % 4 == 0 and coroutine.close(co))
    end
    collectgarbage()
    local each_word = library.gmatch(("abcdefgh "):rep(20), "(%a-) ")
    local ends, all_ended = {}, 0
    for i = 1, 5 do
      ends[i] = coroutine.wrap(function()
        for word in each_word do assert.equal("abcdefgh", word) end
        return "end"
      end)
    end
    while all_ended < 5 do
      for i = 1, 5 do
        if ends[i] and ends[i]() == "end" then ends[i], all_ended = false, all_ended + 1 end
      end
    end
  end)

  it("is over its budget as it is alone", function()
    local library = module.open(100000, nil, 50)
    local text = ("a"):rep(2000)
    local co = coroutine.wrap(function() return pcall(library.find, text, ".-.-.-[bc]$") end)
    local ok, why
    repeat ok, why = co() until ok ~= nil
    assert.is_false(ok)
    assert.truthy(why:find("the pattern '.-.-.-[bc]$' took too long on a text of 2000 bytes", 1, true), why)
  end)

  it("has none where it cannot be left", function()
    local library = module.open(nil, nil, 0)
    local before_turns = library.turns()
    assert.equal("abc", library.match("xx abc", "%a+$"))
    coroutine.wrap(function() table.sort({ 1, 2, 3 }, function(a, b) return library.find("xxxx", ".-y") ~= nil or a < b end) end)()
    assert.equal(before_turns, library.turns())
  end)
end)

describe("a pattern's budget", function()
  local hard = { ".-.-.-b", ".-.-.-b$", ".-.-.-[bc]", ".*.*.*.*[bc]", "(.-)(.-)(.-)%1%2x", "a-a-a-a-[bc]", "a?a*a*a*a*[bc]", "[a]*[a]*[a]*[a]*[b]" }

  it("ends what would not end, and says which pattern and how long a text", function()
    for n, pattern in ipairs(hard) do
      for _, length in ipairs { 400, 1500, 10000 } do
        local text = ("a"):rep(length)
        for _, name in ipairs(n == 1 and { "find", "match", "gsub", "gmatch" } or { "find" }) do
          local began = os.clock()
          local ok, why = pcall(function()
            if name == "gmatch" then return ours.gmatch(text, pattern)() end
            return ours[name](text, pattern, name == "gsub" and "" or nil)
          end)
          local took = os.clock() - began
          if not ok then
            assert.truthy(why:find(("string_spec.lua:%d+: the pattern '%s' took too long on a text of %d bytes\n  hint: "):gsub("%%d%+", "\1")
              :format(pattern, length):gsub("[%^$()%%.%[%]*+%-?]", "%%%0"):gsub("\1", "%%d+")), why)
          else
            assert.truthy(length == 400, pattern .. " at " .. length)
          end
          assert.truthy(took < 2, ("%s(%d, %q) took %.3f s"):format(name, length, pattern, took))
        end
      end
    end
  end)

  it("shows only the first bytes of a pattern, and no bytes that a terminal would obey", function()
    local small = module.open(1000)
    local _, why = pcall(small.find, ("a"):rep(100), ".-.-.-\27[bc]" .. ("é"):rep(100))
    assert.truthy(why:find("the pattern '.-.-.-?[bc]é", 1, true), why)
    assert.truthy(utf8.len(why))
    assert.truthy(why:find "é%.%.%.' took too long on a text of 100 bytes")
  end)

  it("is one call's: the next has its own, and the steps that were taken are reported", function()
    local small = module.open(1000)
    for _ = 1, 3 do
      local before = small.taken()
      assert.is_false(pcall(small.find, ("a"):rep(100), ".-.-.-[bc]"))
      assert.truthy(small.taken() - before >= 800) -- eight steps for each byte
      assert.equal(3, small.find("abc", "[cd]"))
    end
    local count = 0
    for _ in small.gmatch(("ab "):rep(2000), "%a+") do count = count + 1 end
    assert.equal(2000, count)
    local before = small.taken()
    assert.is_false(pcall(small.gsub, ("ab "):rep(2000), "%a+", "x"))
    assert.is_false(pcall(small.gsub, ("ab "):rep(2000), "%a+", function() return "x" end))
    assert.truthy(small.taken() - before <= 2100)
  end)

  it("lets a text of a few megabytes be worked through", function()
    local text = ("some words, and more\n"):rep(50000)
    assert.equal(theirs.find(text, "nothing%s"), ours.find(text, "nothing%s"))
    assert.equal(text:gsub("%s+", ""), (ours.gsub(text, "%s+", "")))
    assert.equal(#text, #ours.match(text, ".*"))
    assert.equal(#text, #ours.match(text, "^(.-)$"))
    local lines = 0
    for _ in ours.gmatch(text, "([^\n]*)\n") do lines = lines + 1 end
    assert.equal(50000, lines)
  end)
end)

describe("gsub's function", function()
  it("may wait, as often as it likes, also for texts that outgrow the first buffer", function()
    local text = ("word "):rep(3000)
    local co = coroutine.wrap(function() return "end", ours.gsub(text, "(w)o(%w)", function(a, b) return coroutine.yield(a, b) end) end)
    local n, a, b = 0, co()
    while a ~= "end" do
      assert.same({ "w", "r" }, { a, b })
      n = n + 1
      if n % 100 == 0 then collectgarbage() end
      a, b = co(n % 3 ~= 0 and ("<%d>"):format(n) or nil)
    end
    local i = 0
    assert.equal((text:gsub("wor", function() i = i + 1 return i % 3 ~= 0 and ("<%d>"):format(i) or nil end)), b)
  end)

  it("may fail, leave for ever, and come back to itself", function()
    assert.same({ pcall(theirs.gsub, "abc", ".", function() error "x" end) }, { pcall(ours.gsub, "abc", ".", function() error "x" end) })
    local co = coroutine.create(function() ours.gsub("abc", ".", coroutine.yield) end)
    assert.same({ true, "a" }, { coroutine.resume(co) })
    assert.is_true(coroutine.close(co))
    local function nest(depth) return (ours.gsub("ab", ".", function(c) return depth > 0 and c .. nest(depth - 1) or c end)) end
    local function model(depth) return (theirs.gsub("ab", ".", function(c) return depth > 0 and c .. model(depth - 1) or c end)) end
    assert.equal(model(6), nest(6))
    co = coroutine.wrap(function() return ours.gsub("abc", ".", function() coroutine.yield() return {} end) end)
    co()
    assert.has_error(co, "invalid replacement value (a table)")
  end)
end)

describe("rep, format and concat", function()
  it("are Lua's", function()
    for _, n in ipairs { -1, 0, 1, 2, 3, 7, 8, 100 } do
      for _, text in ipairs { "", "a", "ab", "abc", ("x"):rep(1000) } do
        for _, between in ipairs { "", ",", ", " } do same("rep", text, n, between) end
        same("rep", text, n)
      end
    end
    same("rep")
    same("rep", "x")
    same("rep", "x", 1.5)
    same("rep", "x", 2, {})
    same("rep", "xy", math.maxinteger, "z")

    local named = setmetatable({}, { __tostring = function() return "named" end })
    for _, format in ipairs { "", "%%", "%s", "%5s|", "%-8.2s|", "%.3s", "%q", "%d", "%5.1f", "%x", "%c", "%i", "%a", "%g", "%", "%y", "%10", "%s %s", "%123s",
      "%s%", "%-+ #0s", "x%sy%%z" } do
      same("format", format)
      for _, value in ipairs { "text", "a\0b", 7, 1.5, true, false, named, "12", ("long"):rep(100), 1 / 0, math.mininteger, "q\"\n\r\0001\\" } do
        same("format", format, value)
        same("format", format, value, "more")
      end
    end
    same("format", "%s", setmetatable({}, { __tostring = function() return 1 end }))
    same("format", "%s", setmetatable({}, { __tostring = function() error "no" end }))
    same("format", "%d", "x")
    same("format", {})
    same("format")

    local lists = { {}, { 1 }, { "a", "b", 3, 4.5 }, { "a", {}, "c" }, { "a", nil, "c" }, { ("x"):rep(1000), ("y"):rep(1000) },
      setmetatable({}, { __index = function(_, i) return "i" .. i end, __len = function() return 3 end }),
      setmetatable({}, { __len = function() return "x" end }) }
    for _, list in ipairs(lists) do
      for _, between in ipairs { "", ", ", 7 } do
        same("concat", list, between)
        for i = -1, 5 do
          for j = -1, 5 do same("concat", list, between, i, j) end
        end
      end
      same("concat", list)
      same("concat", list, "", math.maxinteger)
      same("concat", list, "", math.maxinteger, math.maxinteger)
    end
    same("concat", lists[7], ",", math.maxinteger - 1, math.maxinteger)
    same("concat", lists[7], ",", math.mininteger, math.mininteger + 1)
    same("concat")
    same("concat", 1)
    same("concat", "x")
    same("concat", {}, {})
    same("concat", {}, "", "x")
  end)

  it("turn a value into text once", function()
    local count = 0
    local value = setmetatable({}, { __tostring = function() count = count + 1 return "v" end })
    assert.equal("v and v", ours.format("%s and %s", value, value))
    assert.equal(2, count)
  end)

  it("refuse at once what would be too long", function()
    local small = module.open(nil, 1000)
    local long = ("x"):rep(600)
    local loud = setmetatable({}, { __tostring = function() return long end })
    assert.equal(1000, #small.rep("x", 1000))
    assert.equal(999, #small.rep("x", 500, "y"))
    assert.has_error(function() small.rep("x", 1001) end, "the string would be 1001 bytes, more than the limit of 1000")
    assert.has_error(function() small.rep("xy", 1 << 40) end, "the string would be 2199023255552 bytes, more than the limit of 1000")
    assert.has_error(function() ours.rep("x", 64 * 1024 * 1024 + 1) end)
    assert.equal("", ours.rep("", math.maxinteger))

    assert.equal(605, #small.format("%s%.5s", long, long))
    assert.equal(600, #small.format("%s", loud))
    assert.error_matches(function() small.format("%s%s", long, long) end, "the string would be %d+ bytes or so, more than the limit of 1000")
    assert.error_matches(function() small.format("%s%s", loud, loud) end, "the string would be %d+ bytes or so, more than the limit of 1000")
    assert.error_matches(function() small.format("%q", ("\0"):rep(600)) end, "the string would be %d+ bytes or so, more than the limit of 1000")

    assert.equal(1000, #small.concat({ long, ("y"):rep(399) }, ","))
    assert.has_error(function() small.concat({ long, ("y"):rep(400) }, ",") end,
      "the string would be 1001 bytes or more, more than the limit of 1000")
    assert.error_matches(function() small.gsub(long, "x", "yy") end, "the string would be %d+ bytes or more, more than the limit of 1000")
  end)

  it("do not walk a list for ever", function()
    local endless = setmetatable({}, { __index = function() return "" end, __len = function() return math.maxinteger end })
    assert.has_error(function() ours.concat(endless) end, "a list of 9223372036854775807 elements is too long to be joined at once")
  end)
end)
