-- The bound of each C function that scripts can call, and the milliseconds of processor time for which the worst known
-- call holds the worker without a turn for other tasks, in a release build of an ordinary machine (2 GHz or more). The
-- one source of truth: a function that is not here or in the spec of its library, or a row that names nothing, fails
-- spec/gateway/limits/bounds_spec.lua, as does a worst case that takes longer.
--
-- "The memory of a call" is limits.call.memory (64 MiB); a text has at most that, and most functions make none above a
-- quarter of it.
-- Rows that begin with "instruction" are no functions: steps of Lua itself that nothing interrupts.

local lfs = require "lfs"

local bounds = { rows = {}, names = {} }

-- `names`: separated by line ends. `worst`: { code that prepares, code that is measured }, each as Lua text.
local function row(names, ms, bound, ...)
  local made = { ms = ms, bound = bound, worst = { ... } }
  for name in names:gmatch "[^\n]+" do
    name = name:match "^%s*(.-)%s*$"
    if name ~= "" then
      made.name = made.name or name
      assert(not bounds.names[name], name .. " stands twice")
      bounds.names[name] = made
    end
  end
  table.insert(bounds.rows, made)
end

-- A worst case of a function that the gateway alone calls, with what clients and upstreams may send.
local function own(prepare, code)
  local names = [[local loaded = package.loaded
    local host, json, keys, events = loaded["moonpool.host"], loaded["moonpool.json"], loaded["moonpool.keys"], loaded["moonpool.events"] ]]
  return { names .. prepare, code, is_own = true }
end

-- Expands a family: "string." and its names, separated by spaces.
local function family(prefix, names, ...)
  row((names:gsub("%S+", function(name) return prefix .. name .. "\n" end)), ...)
end

local text = "local s = ('x'):rep(16777216)"
local long = text .. " s = s .. s "
-- code that makes a long text of digits, which Lua's functions read as a number
local digits = "local s = ('1'):rep(16777216) s = s .. s "
local numbers = "local t = {} for i = 1, 2000000 do t[i] = i end "
local emptied = numbers .. "for i = 1, #t do t[i] = nil end "

-- -- Lua's libraries ---------------------------------------------------------------------------------------------------

family("", "assert error ipairs pairs rawlen type rawequal", 5, "some steps; rawequal compares two texts once",
  { text .. " local r = ('x'):rep(16777215) .. 'y'", "return rawequal(s, r)" },
  { text, "for _ in ipairs {} do end for _ in pairs {} do end return type(assert(rawlen(s))), pcall(error, s)" })
row("rawget", 60, "a long text is read once, where it is first a key", { text .. " s = s .. s", "return rawget({ x = 1 }, s) == nil" })
row("tostring", 40, "a number, or a name and 14 digits, for which each object that has had a text is kept in a table that grows by doubling; what "
  .. "__tostring does is Lua and has 5 ms", { "", "return tostring({})" },
  { "local t = {} for i = 1, 262144 do t[i] = {} tostring(t[i]) end", "return tostring({})" })
row("next", 20, "one step over a table that was emptied: as many places as the memory of the call holds; reads a long text once", { emptied, "return next(t)" },
  { text, "return not pcall(next, { x = 1 }, s)" })
row([[math.max (Lua's)
  math.min (Lua's)
  string.char (Lua's)
  utf8.char (Lua's)]], 60, "called by the functions in their place, once the texts are counted")
row([[pcall
  xpcall
  debug.traceback (Lua's)]], 40, "moves its arguments, at most 1,000,000 values; a trace has 22 lines; what is called is Lua",
  { "", "return select('#', pcall(function(...) return ... end, table.unpack({}, 1, 400000)))" },
  { "", "return select('#', xpcall(function(...) return ... end, tostring, table.unpack({}, 1, 400000)))" },
  { text, "return xpcall(error, tostring, s) == false" })
row("select", 40, "moves its arguments: at most 1,000,000 values are on a stack", { "", "return select('#', table.unpack({}, 1, 900000))" })
row("tonumber", 100, "reads a text once", { "local s = (' '):rep(16000000) .. '1'", "return tonumber(s)" }, { digits, "return tonumber(s)" },
  { "local s = ('z'):rep(16777216) s = s .. s", "return tonumber(s, 36)" }, { "local s = '0x' .. ('1'):rep(16000000)", "return tonumber(s)" },
  { "local s = ('1'):rep(8000000) .. '.' .. ('1'):rep(8000000) .. 'e-8000000'", "return tonumber(s)" })

family("string.", "byte char len packsize sub", 80, "reads or makes a text once, of the memory of the call, and its numbers; at most 1,000,000 "
  .. "values on a stack; char at most 1 MiB of texts", { digits, "return pcall(string.sub, s, s, s)" }, { digits, "return pcall(string.byte, s, s, s)" },
  { digits .. " local t = {} for i = 1, 10000 do t[i] = s end", "return not pcall(string.char, table.unpack(t))" },
  { "local t = {} for i = 1, 900000 do t[i] = '1' end", "return #string.char(table.unpack(t))" },
  { text, "return select('#', s:byte(1, 900000))" }, { text, "return string.len(s) + #s:sub(2)" }, { "", "return string.packsize(('i1'):rep(30000))" },
  { "", "return #string.char(table.unpack(table.pack(('a'):rep(100000):byte(1, -1))))" })
family("string.", "lower upper reverse rep", 80, "makes one text of at most a quarter of the memory of the call", { text, "return #s:upper()" },
  { text, "return #s:lower()" },
  { text, "return #s:reverse()" }, { digits, "return pcall(string.rep, 'x', s)" }, { "", "return #('x'):rep(16777216)" },
  { "", "return #('xy'):rep(1000, ('z'):rep(16000))" })
family("string.", "find match gmatch gsub", 120, "takes turns every some thousand steps, at most 5,000,000 of them; a plain search reads the text once; a "
  .. "replacement has at most 500,000 times '%'", { text, "for part in s:gmatch '.*' do return #part end" },
  { "local s = ('%1'):rep(500000)", "return #('x'):gsub('()x', s)" }, { "local s = ('%0'):rep(100000)", "return pcall(string.gsub, ('x'):rep(1000), 'y*', s)" },
  { "local s = ('%%'):rep(8000000)", "return not pcall(string.gsub, 'x', 'x', s)" },
  { "local s = ('\\0'):rep(16000000)", "return s:find(('\\0'):rep(4000000) .. 'b', 1, true) == nil" },
  { text, "return s:find('y', 1, true)" }, { long, "return s:find(('x'):rep(100000) .. 'y', 1, true)" }, { text, "return pcall(string.gsub, s, 'x', 'y')" },
  { "local s = ('a'):rep(100000)", "return pcall(string.find, s, '.-.-.-[bc]$')" }, { text, "return pcall(string.match, s, '^(x*)(x*)(x*)y')" })
row("string.gmatch, its iterator", 30, "as string.match", { text, "for part in s:gmatch 'x+' do return #part end" })
family("string.", "format pack unpack", 80, "makes one text of at most a quarter of the memory of the call; %q takes 4 MiB, a format of pack 64 KiB, %f 4,096 "
  .. "numbers above 1e60", { "local s = ('%%'):rep(8000000)", "return #s:format()" },
  { "local t = {} for i = 1, 4096 do t[i] = 1e308 end", "return #('%.99f'):rep(4096):format(table.unpack(t))" },
  { "local t = {} for i = 1, 30000 do t[i] = 1e308 end", "return not pcall(string.format, ('%f'):rep(30000), table.unpack(t))" },
  { digits .. " local t = {} for i = 1, 10000 do t[i] = s end", "return not pcall(string.format, ('%g'):rep(10000), table.unpack(t))" },
  { "local t = {} for i = 1, 30000 do t[i] = 1e60 end", "return #('%.99f'):rep(30000):format(table.unpack(t))" },
  { "local t = {} for i = 1, 30000 do t[i] = 1.1e-308 end", "return #('%.99e'):rep(30000):format(table.unpack(t))" },
  { "local s = ('x'):rep(4000000)", "return #('%s%s%s'):format(s, s, s)" }, { "local s = ('\\n'):rep(4000000)", "return #('%q'):format(s)" },
  { "local s = ('\\0'):rep(400000)", "return #('%q'):format(s)" }, { "local s = ('\\1' .. '1'):rep(360000)", "return #('%q'):format(s)" },
  { "local s = ('\\0'):rep(4000000)", "return not pcall(string.format, '%q', s)" },
  { "", "return #string.pack('c16000000', '')" }, { "", "return select('#', string.unpack(('b'):rep(65000), ('x'):rep(65000)))" },
  { "", "return #string.pack(('s'):rep(4), ('x'):rep(4000000), ('x'):rep(4000000), ('x'):rep(4000000), '')" })
row([[string.format (Lua's)
  string.pack (Lua's)
  string.packsize (Lua's)
  string.unpack (Lua's)
  string.dump (Lua's)]], 80, "called by the functions in its place, once its work is known; dump by the gateway alone")
family("text.", "__add __sub __mul __div __idiv __mod __pow __unm", 50, "arithmetic of texts: reads both once",
  { "local s = '0.' .. ('1'):rep(16000000)", "return s + 1" })

family("table.", "pack unpack", 60, "moves its arguments: at most 1,000,000 values are on a stack", { "", "return #table.pack(table.unpack({}, 1, 900000))" })
row([[table.concat (Lua's)
  table.insert (Lua's)
  table.remove (Lua's)
  table.move (Lua's)
  table.sort (Lua's)]], 30, "in Lua, above 100,000 places to move, 2,000 elements to join, 512 or 64 KiB of texts to sort; "
  .. "table.concat makes at most a quarter of the memory of the call",
  { numbers, "table.insert(t, 1, 0)" }, { numbers, "table.remove(t, 1)" }, { numbers, "return #table.concat(t, ',', 1, 500000)" },
  { numbers, "table.move(t, 1, 500000, 2)" }, { "local t = {} for i = 1, 512 do t[i] = ('a'):rep(126) .. math.random(99) end", "table.sort(t)" },
  { "local t = {} for i = 1, 16 do t[i] = ('x'):rep(1000000) end", "return #table.concat(t)" },
  { "local t = {} for i = 1, 300000 do t[i] = math.random(1000000) end", "table.sort(t)" },
  { "local t = {} for i = 1, 500 do t[i] = ('a'):rep(60000) .. i end", "table.sort(t)" })

family("math.", "abs acos asin atan ceil cos deg exp floor fmod log max min modf rad sin sqrt tan tointeger type ult", 60,
  "one number each, or a text that is read once; max and min read their arguments, at most 1,000,000 and 1 MiB of texts",
  { digits .. " local t = {} for i = 1, 10000 do t[i] = s end", "return not pcall(math.max, table.unpack(t))" },
  { "local t = {} for i = 1, 4 do t[i] = ('\\0'):rep(262144) end", "return math.min(table.unpack(t)) == t[1]" }, { digits, "return math.fmod(s, s)" },
  { "", [[for name in ("abs acos asin atan ceil cos deg exp floor log modf rad sin sqrt tan tointeger type"):gmatch "%a+" do math[name](0.1) end
    return math.fmod(1e308, 3), math.ult(1, 2)]] },
  { "", "return math.min(table.unpack((function() local t = {} for i = 1, 900000 do t[i] = -i end return t end)()))" },
  { "", "return math.max(table.unpack((function() local t = {} for i = 1, 900000 do t[i] = i end return t end)()))" })
family("utf8.", "char codepoint codes len offset", 80, "reads or makes a text once; at most 1,000,000 values on a stack", { long, "return utf8.len(s)" },
  { digits .. " local t = {} for i = 1, 10000 do t[i] = s end", "return not pcall(utf8.char, table.unpack(t))" },
  { "local t = {} for i = 1, 900000 do t[i] = 0x10ffff end", "return #utf8.char(table.unpack(t))" },
  { text, "for _, c in utf8.codes(s) do return c end" },
  { text, "return utf8.offset(s, 16000000)" }, { text, "return select('#', utf8.codepoint(s, 1, 900000))" })
row("utf8.codes, its iterator", 1, "one character", { text, "for _, c in utf8.codes(s) do return c end" })
family("os.", "difftime", 1, "some steps", { "", "return os.difftime(1 << 62, -1)" }, { "", "return os.time { year = 2026, month = 1e6, day = 1e6 }" })
row([[? .math.random^draw
  os.time (Lua's)]], 1, "some steps, behind a function in its place that replays use")
row("instruction os.date", 3, "a format of 1 KiB", { "", "return os.date(('%c'):rep(512))" })
family("coroutine.", "close create isyieldable resume running status wrap yield", 40, "moves its arguments, at most 1,000,000; what runs in it has turns",
  { "", [[local co = coroutine.create(function(...) coroutine.yield(...) end)
    local moved = select("#", coroutine.resume(co, table.unpack({}, 1, 400000)))
    return moved, coroutine.status(co), coroutine.isyieldable(), coroutine.running(), coroutine.close(co)]] },
  { "", "return select('#', coroutine.wrap(function(...) return ... end)(table.unpack({}, 1, 400000)))" })
row("coroutine.wrap, its function", 40, "as coroutine.resume", { "", "return coroutine.wrap(function() return 1 end)()" })
row([[setmetatable (Lua's)
  rawset (Lua's)
  getmetatable (Lua's)
  debug.getmetatable (Lua's)]], 120, "called by the functions in its place; a table that grows moves what it holds (instruction t[k] = v)")

-- -- Lua itself ---------------------------------------------------------------------------------------------------------

row("instruction a .. b", 40, "one text of the memory of the call", { text, "return #(s .. s)" })
row("instruction a < b of texts", 250, "reads both once; zero bytes cost most: 9 ms for each MiB of them",
  { "local s, r = ('\\0'):rep(16777216), ('\\0'):rep(16777215) .. 'x'", "return s < r" })
row("instruction a == b of texts", 5, "reads both once", { text .. " local r = ('x'):rep(16777215) .. 'y'", "return s == r" })
row("instruction t[text]", 60, "a long text is read once, where it is first a key", { text, "local t = {} t[s] = 1 return t[s]" })
row("instruction t[k] = v", 120, "a table that is full moves all it holds: the memory of the call",
  { "local t = {} for i = 1, 1 << 19 do t[i .. ''] = i end", "t.x = 1" }, { "local t = {} for i = 1, 1 << 20 do t[i] = i end", "t[(1 << 20) + 1] = 1" })
row("instruction #t", 1, "some steps", { numbers, "return #t" })
row("instruction garbage collection", 40, "a large table is looked at in one step, and what changed meanwhile in the last of a cycle",
  { numbers, "for i = 1, 200 do local w = {} for j = 1, 2000 do w[j] = {} end end" },
  { "local t = {} for i = 1, 40000 do t[i] = coroutine.wrap(function() coroutine.yield() end) t[i]() end",
    "for i = 1, 200 do local w = {} for j = 1, 2000 do w[j] = {} end end" },
  { "local mt, t, k = {}, {}, {} setmetatable(t, mt) mt.__mode = 'k' for i = 1, 20000 do k[i] = {} end for i = 1, 19999 do t[k[i]] = k[i + 1] end k = nil",
    "for i = 1, 200 do local w = {} for j = 1, 2000 do w[j] = {} end end" })

-- -- JSON -----------------------------------------------------------------------------------------------------------------

row([[json.decode
  json.array
  json.object
  json.raw
  json.array_mt.__newindex
  moonpool.json.raw.__tostring]], 40, "decode takes turns while it reads the text and makes the values; the end of one string or "
  .. "number is found in one step, and "
  .. "its value is made in another; raw is the gateway's own",
  { "local s = '[' .. ('0,'):rep(2000000) .. '0]'", "return #json.decode(s)" }, { "local s = '[' .. ('{},'):rep(200000) .. '0]'", "return #json.decode(s)" },
  { "local s = '[' .. ('\"abcdefgh\",'):rep(300000) .. '0]'", "return #json.decode(s)" },
  { [[local s = '"' .. ('\\n'):rep(8000000) .. '"']], "return #json.decode(s)" },
  { [[local s = '"' .. ('a\\n'):rep(5500000) .. '"']], "return #json.decode(s)" },
  { [[local s = '{"' .. ('\\u00e9'):rep(2700000) .. '":0}']], "return next(json.decode(s))" },
  { [[local s = '"' .. ('é'):rep(8000000) .. '"']], "return #json.decode(s)" },
  { "local s = ('0,'):rep(8000000) s = '[' .. s .. s", "return not json.decode(s)" },
  { "local s = ('1'):rep(16000000) s = s .. '.' .. s", "return json.decode(s)" },
  { "local s = (' '):rep(16000000) s = s .. s .. '1'", "return json.decode(s)" })
row([[json.splice
  json.preserving]], 40, "lua/moonpool's own: splice reads and copies one definition of at most 256 KiB once, with at most 32 edits; preserving is decode",
  own("local s = '{\"name\":\"x\",\"a\":[' .. ('0,'):rep(130000) .. '0]}'", "return json.splice(s, { { 'set', 'name', '\"y\"' } }, true) ~= nil"),
  own("local s = '{\"a\":[' .. ('0,'):rep(990000) .. '0]}'", "return json.preserving(s) ~= nil"),
  own("local s = '{\"a\":\"' .. ('\\\\u00e9'):rep(2600000) .. '\"}'", "return json.preserving(s) ~= nil"))
row([[events.new
  moonpool.events.__gc
  moonpool.events:feed
  moonpool.events:last_id
  moonpool.events:retry]], 40, "lua/moonpool's own: reads once the bytes that the client has at hand, at most 64 KiB",
  own("local e, s = events.new(1 << 20), ('\\n'):rep(65536)", "return e:feed(s) ~= nil"),
  own("local e, s = events.new(1 << 20), ('data:\\n'):rep(10900)", "return e:feed(s) ~= nil"))
row([[json.encode
  json.encoded]], 150, "32 MiB of JSON; tables that were emptied have 50 ms, and 30 ns for each byte that is written",
  { "local t = {} for i = 1, 500000 do t[i] = i end", "return #json.encode(t)" },
  { "local t = {} for i = 1, 100000 do t['k' .. i] = i end", "return #json.encode(t)" }, { text, "return #json.encode(s)" },
  { "local s = ('\\1'):rep(2500000)", "return #json.encode(s)" },
  { "local t = {} for i = 1, 60 do t[i] = ('x'):rep(10000) end for i = 1, 40 do t = { t, t } end", "return pcall(json.encode, t)" },
  { emptied .. "local all = {} for i = 1, 10000 do all[i] = t end", "return pcall(json.encode, all)" },
  { "local t, o = {}, {} for i = 1, 20000 do t['k' .. i] = i o[i] = 'n' .. i end setmetatable(t, { __order = o })", "return #json.encode(t)" })
local use = "local cjson = require 'cjson' "
family("cjson.",
  [[encode decode encode_max_depth decode_max_depth encode_keep_buffer encode_number_precision encode_sparse_array
  encode_invalid_numbers decode_invalid_numbers new]],
  100, "4 MiB of JSON, 100,000 values, depth 1,000",
  { use .. "local t = {} for i = 1, 90000 do t[i] = i + 0.1 end", "return pcall(cjson.encode, t)" },
  { use .. "local s = '[' .. ('1.25e3,'):rep(90000) .. '0]'", "return #cjson.decode(s)" },
  { use .. "local s = '[' .. ('{},'):rep(45000) .. '0]'", "return #cjson.decode(s)" }, { use .. "local s = ('\\1'):rep(690000)", "return #cjson.encode(s)" },
  { use .. "local s = '\"' .. ('\\\\u00e9'):rep(690000) .. '\"'", "return #cjson.decode(s)" },
  { use .. emptied .. "local all = {} for i = 1, 10000 do all[i] = t end", "return pcall(cjson.encode, all)" },
  { use .. "cjson.encode_sparse_array(true, 0) local t = {} for i = 1, 100 do t[i] = { [90000] = 1 } end", "return pcall(cjson.encode, t)" })
row([[lua-cjson encode
  lua-cjson decode
  lua-cjson encode_max_depth
  lua-cjson decode_max_depth
  lua-cjson encode_keep_buffer
  lua-cjson new
  lua-cjson encode_sparse_array
  lua-cjson encode_number_precision
  lua-cjson encode_invalid_numbers
  lua-cjson decode_invalid_numbers
  lua-cjson __gc]], 100, "called by the functions in its place, once the value or the text is counted")

-- -- regular expressions, digests, keys ---------------------------------------------------------------------------------

row([[regex.compile
  moonpool.regex:test
  moonpool.regex:exec
  moonpool.regex.__gc
  moonpool.regex.matcher.__gc]], 100,
    "a pattern of 4,096 bytes, eight caseless ranges beyond ASCII; a text of 4 MiB, 50 ms of the processor and one scan of the text more",
  { "local r, s = regex.new '^(?:(?=\\\\p{L}*+x)|a)*c', ('a'):rep(4000000)", "return r:test(s)" },
  { "local r, s = regex.new 'x', ('a'):rep(4000000)", "return r:gsub(s, 'y')" },
  { "local r, s = regex.new('^[^' .. ('\\\\p{Lu}'):rep(670) .. ']*x'), ('é'):rep(2000000)", "return r:test(s) == nil" },
  { "local r, s = regex.new('^[^' .. ('\\\\p{Lu}'):rep(6) .. ']*x'), ('é'):rep(2000000)", "return r:test(s) ~= nil" },
  { "local r, s = regex.new('^[^' .. ('\\\\p{Lu}'):rep(670) .. ']*x'), ('é'):rep(24000)", "return r:test(s) ~= nil" },
  { "local r, s = regex.new('^[^' .. ('\u{100}-\u{10ffff}'):rep(8) .. ']*x', 'i'), ('é'):rep(2000000)", "return r:test(s) == nil" },
  { "local r, s = regex.new('^[^' .. ('ĀĂĄ'):rep(600) .. ']*x'), ('é'):rep(2000000)", "return r:test(s) == nil" },
  { "local r, s = regex.new '^\\\\X*+x', ('a'):rep(4000000)", "return r:test(s)" }, { "", "return regex.new(('[\\u{80}-\\u{10ffff}]'):rep(8), 'i') ~= nil" })
row([[host.digest.sum
  host.digest.hmac]], 100, "16 MiB", { text, "return #digest.md5(s)" }, { text, "return #digest.sha256(s)" }, { text, "return #digest.hmac('sha512', 'k', s)" },
  { text, "return digest.equal(s, s)" })
row("host.digest.scrypt", 5, "a thread of the pool computes it: 1,024 bytes of a password, 128 MiB of memory",
  own("local s = ('x'):rep(1025)", "return not pcall(host.digest.scrypt, s, s, 1, 1, 1)"))
row([[host.base64.encode
  host.base64.decode]], 50, "768 KiB in one call; what they become is joined once", { "local s = ('x'):rep(12000000)", "return #base64.encode(s)" },
  { "local s = base64.encode(('x'):rep(12000000))", "return #base64.decode(s)" })
row([[host.seal.make
  host.seal.open
  host.auth.token_id
  host.random.bytes
  host.random.id
  host.random.generator]], 10, "1 MiB to seal; 64 KiB of random bytes", { "", "return uuid.v4()" },
  own("local s = ('x'):rep(1 << 20)", "return pcall(host.seal.open, s, 'x')"), own("local s = ('x'):rep(65536)", "return host.auth.token_id(s) ~= nil"))
family("keys.", "base64url unbase64url ec ed25519 equal is_within network private public random rsa sha256 split", 30,
  "a token or a key, which came in a request or a grant's file; RSA has at most 8192 bits",
  own("local s = ('a'):rep(5000) .. '.' .. ('a'):rep(8000) .. '.' .. ('a'):rep(2000)", "return pcall(keys.split, s)"),
  own("local s = '-----BEGIN PUBLIC KEY-----\\n' .. ('a'):rep(65536)", "return pcall(keys.public, s) and pcall(keys.private, s)"),
  own("local s = ('a'):rep(1 << 20)", "return #keys.unbase64url(s) + #keys.sha256(s)"),
  own("local n = '\\xc1' .. ('\\xd3'):rep(1022) .. '\\x01'", "return keys.rsa(n, '\\x01\\x00\\x01') ~= nil"))
row("keys.generate", 5000, "the command line alone")
row([[moonpool.key:algorithm
  moonpool.key:kind
  moonpool.key:pem
  moonpool.key:sign
  moonpool.key:suits
  moonpool.key:verify
  moonpool.key.__gc]], 40, "one signature: RSA has at most 8192 bits, what is signed at most the limits of a token",
  own("local k = keys.rsa('\\xc1' .. ('\\xd3'):rep(1022) .. '\\x01', ('\\xff'):rep(8))",
    "return k:verify('PS512', ('x'):rep(65536), ('\\x11'):rep(1024)) == false"))

-- -- the gateway's own -----------------------------------------------------------------------------------------------------

row([[host.rock.read
  host.rock.c_module]], 10, "looks for one file below scripts.rocks, by a path of at most some hundred bytes", { "", "return pcall(require, 'nowhere')" })
row("host.script.load", 100, "1 MiB, and 50 ms of the processor for scripts' load; a file has 2 s while it loads",
  { [[local locals, lines = {}, {}
    for i = 1, 190 do locals[i] = "local a" .. i .. "\n" end
    for i = 1, 100 do lines[i] = "local function f() " .. table.concat(locals) end
    local s = table.concat(lines) .. ("x=x;"):rep(100000)]], "return load(s)" }, { "local s = 'local t = {' .. ('1,'):rep(400000) .. '}'", "return load(s)" },
  { "local s = ('goto a '):rep(8190) .. '::a::'", "return load(s)" }, { "local s = ('goto a '):rep(32000) .. '::a::'", "return load(s) == nil" },
  { "local s = 'while 1 do ' .. ('if x then break end '):rep(8190) .. 'end'", "return load(s)" })
row("host.cjson.new", 1, "makes the functions of one cjson; loads lua-cjson once", { "", "return require 'cjson'" })
row([[host.log.write
  host.log.wants
  host.session.log_level
  host.session.set_log_level
  host.log.audit]], 40, "a line: 16 fields, of which what is beyond some KiB is cut off", { text, "log.info('x', { s = s })" }, { text, "log.info(s)" },
  { text, "print(s)" })
row([[call:progress
  call:send
  host.call.ask
  host.call.question
  host.job.begin
  host.job.begin_own
  host.topic.publish
  host.bus.broadcast
  host.bus.send_on
  host.bus.relay
  host.call.retry_after
  host.call.count_limited
  host.call.count_question
  host.call.over_output
  host.record.put
  host.record.replace
  host.call.count_listed]], 100, "one message of limits.call.output", { "local s = ('\\1'):rep(1300000)", "call:log('info', s)" },
  { "local t = {} for i = 1, 400000 do t[i] = i end", "call:log('info', t)" }, { "local s = ('x'):rep(4000000)", "call:progress(1, 2, s)" },
  { text, "return pcall(resource_updated, 'x://' .. s)" })
family("host.", [[auth.count_unread auth.doubt_endings auth.enable auth.end_sign_in auth.has_ended auth.know_endings auth.principal_ref
  call.clear_deadline call.count_fault call.detach call.forbid call.forwards
  call.header call.id call.listen
  call.current call.measure call.name_task call.operator call.allow_cpu call.set_deadline call.set_principal call.withdraw env.get
  job.is_allowed job.listen job.note job.schedule job.spawn job.stop record.claim record.room metrics.count metrics.declare metrics.enter metrics.member
  metrics.numbers metrics.observe metrics.prompt metrics.resource metrics.series metrics.tool policy.args policy.resume policy.set_args
  policy.trail policy.turn program.find
  script.edit_distance script.is_late script.protections secret.new secret.reveal semaphore.take session.id session.open session.revived session.set_audience
  session.settle session.subscribe session.unsubscribe task.cancel_at task.current task.event task.is_ending task.is_orphan
  task.parallel time.boot time.clock time.now topic.audiences topic.count trace.begin trace.context trace.fail trace.finish trace.id trace.idle trace.set]], 20,
  "some steps, and texts that came in the request or from the configuration", { "", "return call.id" })
row("moonpool.span:event", 5, "at most 160 bytes in the trace of the call")
row("host.topic.names", 20, "32 KiB of names of topics, read under the lock of the index")
row("host.topic.revived", 20, "once for each upstream after a start: the names of the topics of sessions are read")
row("host.answers.freeze", 5, "one list or text of at most 256 KiB is copied")
row([[host.served.begin
  host.served.is_settled]], 1, "two counters")
row("host.nodes.take", 5, "at most 257 records of some hundred bytes, compared with as many")
row([[host.nodes.leave
  host.nodes.own
  host.nodes.settle
  host.nodes.uid
  host.nodes.answer
  host.nodes.lives]], 1, "the facts of one process")
row("host.store.saved\nhost.store.is_saved", 1, "begins a wait for the thread that writes the file")
row("host.nodes.decide", 20, "looks through 64 requests at most")
row("host.nodes.tell", 20, "begins to send the text to 256 processes at most")
row("host.nodes.renumber", 20, "ends the sessions of the process, some microseconds for each, when another one has its number")
row("host.served.publish", 40, "one row for each tool, when the tools that are served have changed; at most 4 MiB of answers are freed")
row("host.forward.set", 1, "one row for each revision, once")
row("host.forward.suspend", 1, "one flag")
row("host.forward.learn", 10, "names, a key and capabilities, at most 64 KiB; above 16384 routes or 4096 clients all are freed")
row("host.forward.call", 10, "params of at most 64 KiB with other arguments, whose JSON Lua has made; a result of at most 256 KiB is read once")
row("host.policy.begin", 1, "eight functions, once")
row("host.policy.around", 5, "one row for each policy around a thing, when that is loaded; what it returns calls the policies, which are Lua")
row([[moonpool.policy_turn.__close
  moonpool.policy_turn.__index
  moonpool.policy_turn.__pairs]], 5, "a field or a counter; the rest is Lua")
row("host.plan.set_ends", 1, "one row for each revision, once")
row("host.plan.set_rights", 1, "a reference to one text")
row("host.call.mark", 1, "16 and 32 bytes of text")
row("host.call.audit_begin", 1, "texts of 256 bytes, and the arguments as JSON, of which the library in Lua gives at most 64 KiB")
row("host.call.audit_end", 1, "a line of at most 64 KiB of arguments and texts of 256 bytes, queued for a thread that writes")
row("host.call.params", 10, "the params of a call that was planned, at most 64 KiB of JSON; or a copy of their text, at most limits.body")
family("host.", "upstream.channel upstream.catalogue_hash upstream.open_channel upstream.claim upstream.status upstream.describe upstream.take_up "
  .. "upstream.expect",
  20, "some steps, and a row for each upstream of the configuration")
row([[host.upstream.catalogue
  host.upstream.publish]], 60, "a copy and a hash of a list, at most 32 MiB",
  own("local s = ('x'):rep(33000000)", "return host.upstream.publish('one', 'tools', s)"),
  own("local s = ('x'):rep(33000000) host.upstream.publish('one', 'tools', s) s = nil", "return #host.upstream.catalogue('one', 'tools')"))
row("host.upstream.publications", 1, "a counter")
row("host.upstream.count_token", 1, "a counter")
row("host.upstream.count_refused", 1, "a counter")
row([[host.upstream.traits
  host.upstream.hash]], 10, "one pass over a text of at most 256 KiB",
  own("local s = ('\"'):rep(262144)", "return host.upstream.traits(s) ~= nil and #host.upstream.hash(s)"))
row("host.upstream.words", 20, "one pass over a MiB of a page, for the gateway's own words",
  own("local s, w = ('<i'):rep(1 << 19), { '<important>', '<system>', '</system>', '<instructions>' }", "return #host.upstream.words(s, w) == 0"),
  own([[local s, w = ('do not menti '):rep(80000), { 'do not tell', "don't tell", 'do not mention', 'do not inform', 'disregard' }]],
    "return #host.upstream.words(s, w) == 0"),
  own("local s = ('x'):rep((1 << 20) + 65)", "return not pcall(host.upstream.words, s, { 'xy' })"))
row("host.upstream.join", 60, "a copy of a list, at most 32 MiB",
  own("local t = {} for i = 1, 10000 do t[i] = ('x'):rep(3300) end", "return #host.upstream.join(t)"))
row("host.upstream.callers", 20, "a row for each caller, of which 256 are kept")
row([[host.upstream.fetch
  host.upstream.keep]], 20, "a copy of at most 1 MiB", own("local s = ('x'):rep(1 << 20)", "return host.upstream.keep(s, 60, 'me') ~= nil"))
row("moonpool.exchange:make_pending", 20, "at most 256 messages are copied, within limits.call.output")
family("moonpool.", [[channel.__close channel.__gc channel:server_info channel:close channel:failed channel:hold channel:lost channel:next_id channel:opened
  channel:serial channel:listen channel:transport channel:unlisten channel:use exchange.__close exchange.__gc exchange:cancel question.__gc
  question:withdraw catalogue.__gc catalogue_claim.__close journal.__gc]], 10, "some steps, and texts of an upstream's first answer")
row([[moonpool.channel:send
  moonpool.exchange:next
  moonpool.exchange:take
  moonpool.exchange:wake
  moonpool.exchange:reply
  moonpool.exchange:hand_on
  moonpool.question:answer
  host.upstream.observed]], 40, "one message is copied: limits.call.output going up, limits.upstreams.answer coming back (bounds_spec measures whole answers)")
row("moonpool.channel:authorize", 10, "a copy of a token of at most 16 KiB")
row([[host.script.guarded
  host.script.briefly]], 50, "Lua that others wait behind: 2 s of the processor while a script loads, 50 ms in what decides who sees what")
row("host.cjson.new (Lua's)", 10, "finds and loads lua-cjson, once")
row([[host.http.send
  host.http.address
  host.http.close
  host.http.counted
  host.http.read
  host.http.url
  moonpool.http.__gc]], 40, "begins a request; a body of limits.http.body is copied once, an answer comes in pieces",
  { text, "return pcall(http.post, 'http://127.0.0.1:1/', { body = s })" })
row([[host.fs.run
  host.program.run]], 40, "begins an operation of a thread of the pool, or a program; what is written is copied once: 16 MiB, 4 MiB",
  { text, "return pcall(fs.write, 'x', s)" })
row([[host.auth.keep_text
  host.auth.kept_text]], 60, "a copy of one file of at most 16 MiB",
  own("local s = ('x'):rep(16 << 20)", "host.auth.keep_text('keys', s) return #host.auth.kept_text('keys') == #s"))
row("host.fs.read_at_once", 20, "one file of at most 16 MiB, for `moonpool check` alone")
row([[host.sqlite.count
  host.sqlite.leave
  host.sqlite.open
  host.sqlite.count_refused
  host.sqlite.run
  host.sqlite.script
  host.sqlite.tidy
  host.sqlite.undo
  moonpool.databases.__gc
  moonpool.statement.__gc]], 100, "SQL runs in a thread of its database, under limits.sqlite, and ends within 100 ms of processor time after its call "
  .. "(sqlite_stop_spec.lua has the worst statements); parameters and rows are copied once",
  { "local db = sqlite.open ':memory:' local s = ('x'):rep(4000000)", "return #assert(db:query('select ? as a', { s }))[1].a" })
row([[host.redis.connection
  host.redis.load
  host.redis.send
  host.redis.channel
  host.redis.renew
  moonpool.redis.__gc]], 50, "begins to wait for a reply of 16 MiB at most, of which each value counts 64 bytes; a command of 16 MiB is copied once",
  { text, "local cache = assert(redis.open { 'redis://127.0.0.1:1', timeout = 0.1 }) return pcall(cache.set, cache, 'k', s)" })
row([[host.postgres.channel
  host.postgres.lease
  host.postgres.more
  host.postgres.pool
  host.postgres.release
  host.postgres.run
  moonpool.lease.__gc
  moonpool.postgres.__gc]], 50, "begins to wait for a result of 16 MiB at most, whose values are copied once; parameters of 16 MiB are copied once",
  { text, "local db = assert(postgres.open 'postgres://app@127.0.0.1:1/x') return db:row('select $1', { s })" })
row([[moonpool.secret.__concat
  moonpool.secret.__tostring
  moonpool.owning.__gc
  moonpool.principal.__gc
  moonpool.ask.__gc
  moonpool.signal:clear
  moonpool.signal:set
  moonpool.signal:wait
  moonpool.turn.__close]], 20, "some steps; a secret is joined with one text")
row("sleep", 1, "begins to wait", { "", "sleep(0)" })
row("call.__index", 1, "a field", { "", "return call.id" })
row("call.__tostring", 1, "a few words", { "", "return tostring(call)" })

-- -- the rows of libraries ---------------------------------------------------------------------------------------------

--- A spec of a library has the rows of its own functions: each a call of bounds.row, which begins a line. What it gets
--- is what `row` gets here, as text of Lua that needs no local names. Run as a spec, it does nothing.
function bounds.row() end

for name in lfs.dir "spec/gateway/libraries" do
  if name:find "_spec%.lua$" then
    local file <close> = assert(io.open("spec/gateway/libraries/" .. name))
    for call in ("\n" .. file:read "a"):gmatch "\n(bounds%.row%b())" do assert(load(call, "@" .. name, "t", { bounds = { row = row } }))() end
  end
end

return bounds
