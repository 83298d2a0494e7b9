-- Hints about syntax errors, for authors who know JavaScript or Python better than Lua.

local open_blocks = require "moonpool.registry.open_blocks"
local problem = require "moonpool.runtime.diagnostic"
local suggest = require "moonpool.runtime.suggest"

local step = "Lua has no %s: write x = x %s 1"
local comment = "a comment begins with --"
local blocks = "Lua writes if … then … end, while … do … end, for … do … end: no braces, no colon"
local colon = "Lua writes then or do where a block begins, and end where it ends"
local types = "Lua has no types in code: '---@param name string' above a function says them to editors"
local functions = "a function is function(x) … end: no braces, no arrow"
local pairs_of = "a table is { name = 1, [\"other-name\"] = 2 }"
local protected = "Lua has no try: local ok, value = pcall(f) gives true and the value, or false and the error"
local declare = "Lua writes local"
local loop = "a loop is for i = 1, n do … end, or for i, x in ipairs(list) do … end"
local waits = "nothing needs async or await: http.get and sleep wait by themselves"
local bring = "local x = require \"x\" gives what lib/x.lua returns"
local classes = "Lua has no classes: a table with functions does it"
local raise = "error \"…\" raises a bug, fail \"…\" an error that the model reads"

-- Rules for the line of the error, without strings and comments: { pattern, hint, the tokens that the parser stopped at
-- (nil: any) }.
local rules = {
  { "%f[%w_]if%s*%b()%s*{", blocks }, { "%f[%w_]while%s*%b()%s*{", blocks },
  { "^%s*for%s*%(", loop }, { "^%s*for%s.-%sof%s", loop }, { "^%s*for%s.-%sin%s.-:%s*$", loop },
  { "!=", "Lua writes ~=", "!" }, { "!", "Lua writes not x", "!" },
  { "||", "Lua writes or", "|" }, { "&&", "Lua writes and", "&" },
  { "=>", functions, "= > => >=" }, { "===", "Lua writes ==", "=" },
  { "^[}%s]*e?l?s?e?if%s[^=]-[^=~<>]=[^=]", "Lua compares with ==; = assigns", "=" },
  { "^%s*while%s[^=]-[^=~<>]=[^=]", "Lua compares with ==; = assigns", "=" },
  { "function[^()]*%([^)]*=", "a parameter has no default: write x = x or 1 in the function", "=" },
  { "^%s*[%w_.]+%s*=[^=]+[^=~<>]=[^=]", "an assignment is a statement of its own: write y = 1, and then x = y", "=" },
  { "^%s*local%s+[%w_]+%s*:", types, ":" }, { "@", "Lua has no decorators: call the function that wraps", "@" },
  { "%(.*,%s*%)", "a comma before ')' is one too many", ")" },
  { "return%s.-%sif%s[^e]*$", "write if condition then return value end", "if" },
  { "%+%+", step:format("++", "+"), "+" }, { "%+=", step:format("+=", "+"), "+" }, { "%-=", step:format("-=", "-"), "-" },
  { "%*=", step:format("*=", "*"), "*" }, { "/=", step:format("/=", "/"), "/" }, { "%.%.=", step:format("..=", ".."), ".." },
  { "%?%.", "Lua has no ?.: write a and a.b", "?" }, { "%?%?", "Lua has no ??: write a or b", "?" },
  { "%?", "Lua has no ? : — write condition and a or b", "?" },
  { "`", "a text is \"…\" or, over several lines, [[…]]; (\"%s\"):format(x) fills it", "`" },
  { "^%s*#", comment, "#" }, { "%S%s+#%s*%a", comment, "#" }, { "//", comment, "//" }, { "/%*", comment, "/" },
  { "%f[%w_]const%s+[%a_{%[]", declare }, { "%f[%w_]let%s+[%a_{%[]", declare }, { "%f[%w_]var%s+[%a_{%[]", declare },
  { "%f[%w_]def%s+[%a_]", "a function is function name(x) … end" }, { "%f[%w_]elif%f[^%w_]", "Lua writes elseif" },
  { "%f[%w_]catch%f[^%w_]", protected }, { "%f[%w_]except%f[^%w_]", protected },
  { "^%s*finally%f[^%w_]", "local _ <close> = closing(f) runs f however the block ends" },
  { "%f[%w_]try%s*[{:]", protected }, { "%f[%w_]async%s", waits }, { "%f[%w_]await%s", waits },
  { "^%s*import%s", bring }, { "^%s*from%s+[%w_.]+%s+import", bring }, { "^%s*export%s", "a file ends with 'return …'" }, { "^%s*class%s", classes },
  { "^%s*new%s+[%a_]", "call the function: Lua has no 'new'" }, { "^%s*throw%s", raise }, { "^%s*raise%s", raise },
  { "%f[%w_]lambda%s", "a function is function(x) return … end" }, { "%f[%w_]typeof%s", "type(x) gives the type's name" },
  { "^%s*delete%s", "t.name = nil takes it out" }, { "^%s*switch%s*%(", "Lua has no switch: write if … elseif … else … end" },
  { "%f[%w_]is%s+None%f[^%w_]", "write x == nil" }, { "%f[%w_]is%s+not%s", "write x ~= nil" },
  { "%.%.%.[%a_]", "Lua has no spread: table.move(from, 1, #from, at, to) copies a list" },
  { "%sif%s.-%selse%s", "Lua has no such expression: write condition and a or b", "if" },
  { "%f[%w_]function%s*[%w_.:]*%s*%b()%s*{", functions, "{" }, { "^[}%s]*else%s*{", blocks, "{" },
  { ":%s*$", colon, ":" },
  { ":", pairs_of, ":" },
  { "%[", "a list is { 1, 2 }", "[" },
  { "//%s*%a[%w']*%s+%a", comment .. "; // divides and rounds down" },
}

local keywords = {
  "and", "break", "do", "else", "elseif", "end", "for", "function", "goto", "if", "local", "not", "repeat", "return", "then", "until", "while",
}
local is_keyword = { ["true"] = true, ["false"] = true, ["nil"] = true, ["in"] = true, ["or"] = true }
for _, word in ipairs(keywords) do is_keyword[word] = true end

local function listed(tokens, near)
  for token in tokens:gmatch "%S+" do
    if token == near then return true end
  end
  return false
end

local function by_rule(line, near)
  for _, rule in ipairs(rules) do
    if line:find(rule[1]) and (not rule[3] or near and listed(rule[3], near)) then return rule[2] end
  end
end

-- Rules for a line that ends with "{", where JavaScript begins a block and Lua a table.
local function by_brace(line)
  if not line or not line:find "{%s*$" then return nil end
  if line:find "%f[%w_]function%f[^%w_]" and not line:find "function%s*[%w_.:]*%s*%b().*%S.*%f[%w_]end%f[^%w_]" then return functions end
  if line:find "%f[%w_]try%s*{" then return protected end
  if line:find "^[}%s]*if%s*%b()%s*{" or line:find "^[}%s]*while%s*%b()%s*{" or line:find "^[}%s]*else%f[^%w_].*{" then return blocks end
end

-- Misspelt keywords: the parser stops at x in `retrun x`, and at thne in `if x thne`.
local function misspelt(line, near, what)
  if not near or not (near:find "^[%a_]" or what:find "^syntax error") then return nil end
  local at = line:find(near, 1, true)
  local before = at and line:sub(1, at - 1):match "([%a_][%w_]*)%s*$"
  for _, word in ipairs { before or "", near } do
    local close = #word >= 3 and not is_keyword[word] and suggest.nearest(word, keywords)
    if close then return "did you mean '" .. close .. "'?" end
  end
end

-- The hint about a block that may lack its `end`.
local function unclosed(what, text, line)
  local near, here = what:match "near (.+)$" or "", problem.line(text, line)
  if what:find "^'end' expected" and here:find "%f[%w_]return%f[^%w_].+%S" and near ~= "<eof>" then
    return "return is the last statement of its block: is an operator or a comma missing before " .. near .. "?"
  end
  local is_behind = here:find "^%s*[,)}]" or here:find "%f[%w_]end%s*[,)}]"
  if near ~= "<eof>" and not (near:find "^'[,)}]'$" and is_behind) then return nil end
  if not what:find "^'end' expected" and not what:find "^unexpected symbol" then return nil end
  local bare, n = open_blocks.bare(text), 0
  for one in (bare .. "\n"):gmatch "(.-)\n" do
    n = n + 1
    if n <= line and one:find "%f[%w_]else%s+if%f[^%w_]" then
      return "line " .. n .. ": Lua writes elseif; 'else if' opens a block of its own, which needs an 'end'"
    end
  end
  local found = open_blocks.find(text, line)
  return found and "the block that '" .. found.word .. "' opened at line " .. found.line .. " may not be closed by an 'end'"
end

local MAX_LINE_BYTES = 400 -- bytes of a line that the rules read: the time of some patterns grows with the square of the length

-- A line without its comment and without the content of its strings.
local function plain(line) return (line:sub(1, MAX_LINE_BYTES):gsub("\"[^\"]*\"", '""'):gsub("'[^']*'", "''"):gsub("%-%-.*$", "")) end

--- A hint about the parser's error in line `number` of `text`, or nil.
return function(what, number, text)
  local raw = number and text and problem.line(text, number)
  if not raw then return nil end
  local near = what:match "near '(.*)'$"
  if what:find "^invalid escape sequence" then return "write \\\\ for a backslash, or [[…]] around the text; Lua's patterns have %d, not \\d" end
  if what:find "^unfinished string" then return "a text ends on its line, by the quote it began with; [[…]] may have several lines" end
  if what:find "^malformed number" then return "a number is 1000 or 1e3 or 0xff" end
  if what:find "^'<eof>' expected near 'end'" then return "there is one 'end' too many, or the block it closes was not opened: look above" end
  local line = plain(raw)
  local is_block = line:find "^%s*if%s" or line:find "^%s*while%s" or line:find "^%s*for%s"
  if is_block and what:find "^<name> expected" and line:find "%w%s*:%s" then return colon end
  if (what:find "^<name> expected" or what:find "^function arguments expected") and line:find "%w%s*:%s*[%w\"'{(]" then return pairs_of end
  if near == ":" and what:find "^'%)' expected" then return types end
  if near == "{" and what:find "^'%l+' expected" then return blocks end
  if what:find "^',' expected" and line:find "^%s*for%s" then return loop end
  local hint = by_rule(line, near) or misspelt(line, near, what)
  if hint then return hint end
  if raw:find "%w%-%-%s*;?%s*$" then return step:format("--", "-") .. "; -- begins a comment" end
  for at = number, math.max(1, number - 2), -1 do
    local before = plain(problem.line(text, at))
    local about = by_brace(before) or at < number and (by_rule(before, nil) or before:find ":%s*$" and colon)
    if about then return about end
  end
  local closing, opened = what:match "^'([})%]])' expected %(to close '.' at line (%d+)%) near 'end'"
  if closing then return "a '" .. closing .. "' may be missing, at line " .. opened .. " or below, or there is one 'end' too many" end
  if what:find "^'}' expected" and not what:find "<eof>$" then return "is a comma missing before it?" end
  return unclosed(what, text, number)
end
