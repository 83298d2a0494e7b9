-- Hints about unknown names and methods: names from JavaScript and Python, and what a moonpool script uses instead.

local foreign_names = {}

local null = "Lua's word is nil; in JSON it is json.null"
local exception = "error \"…\" raises a bug, fail \"…\" an error that the model reads"

local functions = {
  null = null, None = null, undefined = null, Null = null, NULL = null,
  True = "Lua writes true", False = "Lua writes false", TRUE = "Lua writes true", FALSE = "Lua writes false",
  this = "Lua has no 'this': in a function declared with ':', as in function list:add(x), it is self",
  self = "self is there in functions declared with ':', as in function list:add(x)",
  call = "it is the handler's last parameter: function(args, call)",
  args = "it is the handler's first parameter: function(args, call)",
  console = "log.info \"…\" or print(…) writes to the log",
  range = "a loop over numbers is for i = 1, n do … end",
  len = "#x is the length of a text or a list",
  str = "tostring(x) makes a text", String = "tostring(x) makes a text",
  int = "math.tointeger(x) makes an integer, x // 1 rounds down", float = "tonumber(x) makes a number",
  parseInt = "tonumber(text) makes a number, math.tointeger an integer", parseFloat = "tonumber(text) makes a number",
  Number = "tonumber(text) makes a number", isNaN = "only NaN differs from itself: x ~= x",
  typeof = "type(x) gives the type's name", isinstance = "type(x) == \"table\" asks for a type", repr = "json.encode(x) shows a table",
  Math = "the library is math, as in math.floor(x)", JSON = "json.encode and json.decode",
  Object = "pairs(t) goes over names and values, as in for name, value in pairs(t) do … end",
  Array = "a list is { 1, 2 }; ipairs(list) goes over it", list = "a list is { 1, 2 }", dict = "a table is { name = 1 }",
  Map = "a table is { name = 1 }", Set = "a set is a table: set[x] = true",
  enumerate = "for i, x in ipairs(list) do … end goes over a list", zip = "for i, x in ipairs(a) do … b[i] … end",
  map = "for i, x in ipairs(list) do made[i] = f(x) end", filter = "for _, x in ipairs(list) do if … then made[#made + 1] = x end end",
  sum = "a loop adds: for _, x in ipairs(list) do sum = sum + x end", sorted = "table.sort(list) sorts it in its place",
  min = "math.min(a, b)", max = "math.max(a, b)", abs = "math.abs(x)", round = "math.floor(x + 0.5)",
  Date = "time.now(), time.format(seconds), or os.date", datetime = "time.now(), time.format(seconds), or os.date",
  setTimeout = "sleep(seconds) waits, and nothing else is held up", fetch = "http.get(url)", requests = "http.get(url)", axios = "http.get(url)",
  process = "env \"NAME\" reads a variable, exec { … } runs a program", subprocess = "exec { \"git\", \"log\" } runs a program",
  module = "a file in lib/ ends with 'return { … }'", exports = "a file in lib/ ends with 'return { … }'",
  import = "local x = require \"x\" gives what lib/x.lua returns",
  Promise = "parallel { … } runs functions side by side", await = "nothing needs await: http.get and sleep wait by themselves",
  asyncio = "parallel { … } runs functions side by side", async = "nothing needs async: http.get and sleep wait by themselves",
  raise = exception, throw = exception, Exception = exception, Error = exception, ValueError = exception,
  try_ = "pcall(f) gives true and its values, or false and the error", catch = "pcall(f) gives true and its values, or false and the error",
  except = "pcall(f) gives true and its values, or false and the error", finally = "local _ <close> = closing(f) runs f however the block ends",
  lambda = "a function is function(x) return … end", def = "a function is function name(x) … end",
  open = "fs.read \"path\" reads a file that is granted", input = "call:elicit asks the user", f = "(\"%s has %d\"):format(name, count) fills a text",
  unpack = "it is table.unpack", setfenv = "Lua 5.4 has no such function: _ENV is a variable", getfenv = "Lua 5.4 has no such function: _ENV is a variable",
  elif = "Lua writes elseif", switch = "if … elseif … else … end", const = "Lua writes local", let = "Lua writes local", var = "Lua writes local",
  new = "call the function: Lua has no 'new'", pass = "leave the block empty",
}

-- Names that may also be a variable whose declaration is missing: the hint is given only for a call, as in `name(…)`.
local are_called = {}
for _, name in ipairs {
  "list", "map", "filter", "sum", "sorted", "min", "max", "abs", "round", "open", "input", "zip", "dict", "str", "int", "float", "range", "len", "repr",
} do are_called[name] = "%f[%w_]" .. name .. "%s*%(" end
are_called.f = "%f[%w_]f[\"']"

--- The hint for the unknown name `name`, or nil. `line` is the source line that contains the name, if known.
function foreign_names.hint(name, line)
  if line and line:find "//" and not line:find("%f[%w_]" .. name:gsub("%W", "%%%0") .. "%f[^%w_].-//") then
    return "a comment begins with --; // divides and rounds down"
  end
  if are_called[name] and not (line and line:find(are_called[name])) then return nil end
  return functions[name]
end

local over_list = "for i, x in ipairs(list) do … end goes over a list"
local joined, added = "table.concat(list, \", \") joins a list", "list[#list + 1] = x adds to a list"
local has, trimmed = "text:find(part, 1, true) finds a part", "text:match \"^%s*(.-)%s*$\" is without the white space around it"

local methods = {
  push = added, append = added, forEach = over_list, map = over_list, filter = over_list, reduce = over_list, join = joined,
  pop = "table.remove(list) takes the last one", shift = "table.remove(list, 1) takes the first one", length = "#x is the length",
  split = "for part in text:gmatch \"[^,]+\" do … end goes over the parts", strip = trimmed, trim = trimmed,
  toUpperCase = "text:upper()", toLowerCase = "text:lower()", includes = has, indexOf = has, startsWith = "text:sub(1, #start) == start",
  startswith = "text:sub(1, #start) == start", endsWith = "text:sub(-#ending) == ending", endswith = "text:sub(-#ending) == ending",
  replace = "text:gsub(pattern, with)", replaceAll = "text:gsub(pattern, with)", slice = "text:sub(first, last)", substring = "text:sub(first, last)",
  keys = "for name, value in pairs(t) do … end", items = "for name, value in pairs(t) do … end", values = "for name, value in pairs(t) do … end",
  execute = "db:exec(sql, { … }) changes rows, db:query(sql, { … }) returns them", run = "db:exec(sql, { … })", all = "db:query(sql, { … }) returns all rows",
  fetchall = "db:query(sql, { … }) returns all rows", fetchone = "db:one(sql, { … }) returns the first row", rows = "db:query(sql, { … }) returns all rows",
  prepare = "db:query(sql, { … }): statements are prepared and kept by themselves", json = "answer:json() decodes the body",
  toString = "tostring(x)", toFixed = "(\"%.2f\"):format(x)", hasOwnProperty = "t.name ~= nil",
}

--- The hint for the unknown method `name`, or nil: how Lua writes it.
function foreign_names.method(name) return methods[name] end

local encode, decode = "json.encode(value)", "json.decode(text)"
local wait, seconds = "sleep(seconds)", "time.now() gives seconds since 1970, time.monotonic() measures"
local read, write = "fs.read(path)", "fs.write(path, text)"

-- Members of libraries that other languages have.
local members = {
  json = { stringify = encode, dumps = encode, dump = encode, serialize = encode, parse = decode, loads = decode, load = decode, deserialize = decode },
  http = { fetch = "http.get(url)", del = "http.delete(url)", open = "http.stream(url)" },
  math = { round = "math.floor(x + 0.5)", trunc = "x // 1 rounds down; math.tointeger(x) makes an integer", pow = "x ^ y", sum = "a loop adds the items" },
  time = { sleep = wait, wait = wait, time = seconds, clock = seconds, date = "time.format(seconds)", strftime = "os.date(format, seconds)" },
  os = { sleep = wait, environ = "env \"NAME\" reads a variable that is granted", system = "exec { \"git\", \"log\" } runs a program that is granted" },
  fs = {
    readFile = read, readFileSync = read, open = read, load = read, writeFile = write, writeFileSync = write, save = write, delete = "fs.remove(path)",
    unlink = "fs.remove(path)", readdir = "fs.list(path)", ls = "fs.list(path)", append = "fs.write(path, text, { append = true })",
  },
  string = { join = joined, size = "#text", length = "#text", concat = "a .. b", contains = has, capitalize = "text:sub(1, 1):upper() .. text:sub(2)" },
  table = {
    push = added, append = added, add = added, length = "#list", getn = "#list", size = "#list", join = joined, contains = "a loop compares each item",
    keys = methods.keys, copy = "table.move(list, 1, #list, 1, {})", merge = "a loop over pairs(t) copies the fields",
  },
  log = { warning = "log.warn(\"…\")", log = "log.info(\"…\")", err = "log.error(\"…\")", critical = "log.error(\"…\")", trace = "log.debug(\"…\")" },
  store = { put = "store.set(key, value)", save = "store.set(key, value)", load = "store.get(key)", remove = "store.delete(key)", keys = "store.list(prefix)" },
}

--- The hint for the name `name`, which the library `library` of scripts does not have: how Lua writes it; or nil.
function foreign_names.member(library, name) return members[library] and members[library][name] or library == "string" and methods[name] or nil end

return foreign_names
