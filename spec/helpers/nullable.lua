-- For `./dev lint`: writes a copy of core/ in which clang's analyzer sees each read of a pointer that is MP_NULLABLE.
--   lua5.4 spec/helpers/nullable.lua FOLDER
-- By itself the analyzer follows what functions return and what is copied to a variable, but neither `call->stream->x`
-- nor a parameter. So in the copy each read of a member of such a name, each call of one, and each such parameter
-- passes a variable: MP_SEEN below. All that is not MP_NULLABLE is _Nonnull there, but for variables: what those hold
-- is known from what was assigned. A parameter that its function assigns to is such a variable in the copy. Lines keep
-- their numbers.
local nullable = {}

-- What each copied file begins with. A read is `*&member` with a copy on the way: it stays assignable, and arrays and
-- numbers of the same name pass, too. The type of the member decides, and not its name.
local prelude = table.concat({
  "#define MP_SEEN(x) (*({ __auto_type seen_ = &(x); __auto_type value_ = *seen_; (void)value_; seen_; }))",
  "#define MP_SEEN_CALL(x) ({ __auto_type seen_ = (x); mp_seen_call((void *)seen_); seen_; })",
  "#define MP_SEEN_PARAMETER(x) __auto_type seen_##x = x; (void)seen_##x",
  -- these do not return, and lauxlib.h does not say so
  "struct lua_State;",
  "int luaL_error(struct lua_State *L, const char *_Nonnull format, ...) __attribute__((noreturn));",
  "int luaL_argerror(struct lua_State *L, int argument, const char *_Nonnull why) __attribute__((noreturn));",
  "void mp_seen_call(void *_Nonnull function);",
}, "\n") .. "\n"

local keywords = {}
for word in ("return if while for switch sizeof typeof __typeof__ do else case"):gmatch "%S+" do keywords[word] = true end

local operators = { "^%->", "^%.%.%.", "^<<=", "^>>=", "^[-+*/%%&|^<>=!]=", "^&&", "^||", "^%+%+", "^%-%-", "^<<", "^>>", "^." }

--- The tokens of a text, each with its kind, text and line. Comments are left out; a preprocessor line is one token.
function nullable.tokens(text)
  local list, at, line, is_start = {}, 1, 1, true
  local function put(kind, value)
    list[#list + 1] = { kind = kind, text = value, line = line }
    line = line + select(2, value:gsub("\n", ""))
  end
  while at <= #text do
    local rest
    local function match(pattern)
      rest = text:match(pattern, at)
      return rest
    end
    if match "^\n" then
      line, is_start = line + 1, true
    elseif match "^[ \t\r\f]+" then -- luacheck: ignore 542
    elseif match "^//[^\n]*" then -- luacheck: ignore 542
    elseif match "^/%*.-%*/" then
      line = line + select(2, rest:gsub("\n", ""))
    elseif is_start and match "^#" then
      local ends = at
      repeat
        ends = text:find("\n", ends, true) or #text + 1
        local continues = text:sub(ends - 1, ends - 1) == "\\"
        ends = ends + 1
      until not continues
      rest = text:sub(at, ends - 2)
      local bare = rest:gsub("/%*.-%*/", " ")
      local opened = bare:find("/*", 1, true)
      if opened then -- a comment that begins behind a directive and ends on a later line
        ends = text:find("*/", at + #rest, true) + 2
        put("directive", bare:sub(1, opened - 1))
        line = line + select(2, text:sub(at, ends - 1):gsub("\n", ""))
        rest = text:sub(at, ends - 1)
      else
        put("directive", rest)
      end
    else
      local kind = "other"
      if match "^[%a_][%w_]*" then
        kind = "name"
      elseif match '^"[^"\\\n]*"' or match "^'[^'\\\n]*'" then
        kind = "literal"
      elseif text:find("^[\"']", at) then
        local quote, ends = text:sub(at, at), at + 1
        while text:sub(ends, ends) ~= quote do ends = ends + (text:sub(ends, ends) == "\\" and 2 or 1) end
        rest, kind = text:sub(at, ends), "literal"
      elseif match "^%.?%d[%w_.]*" then
        if rest:find "[eEpP]$" and not rest:find "^0[xX]%x*[eE]$" then rest = rest .. (text:match("^[+-]%d+", at + #rest) or "") end
        kind = "number"
      else
        for _, operator in ipairs(operators) do
          if match(operator) then break end
        end
      end
      put(kind, rest)
      is_start = false
    end
    at = at + #rest
  end
  return list
end

--- Adds to `names` those that MP_NULLABLE stands before: of members and variables, and of parameters.
function nullable.collect(list, names)
  for i, token in ipairs(list) do
    if token.text == "MP_NULLABLE" and list[i + 1] and list[i + 1].kind == "name" then
      local after = list[i + 2] and list[i + 2].text
      if after ~= "(" then names[list[i + 1].text] = true end
    end
  end
end

-- Where the postfix expression begins whose last token is out[last].
local function start_of(out, last)
  local at = last
  while true do
    local token = out[at]
    if token.text == ")" or token.text == "]" then
      local depth = 0
      repeat
        local text = out[at].text
        if text == ")" or text == "]" then depth = depth + 1 end
        if text == "(" or text == "[" then depth = depth - 1 end
        at = at - 1
      until depth == 0
      local before = out[at]
      local is_chained = before and (before.text == ")" and token.text == "]" or before.text == "]"
        or (before.kind == "name" and not keywords[before.text]) or before.kind == "wrapped")
      if not is_chained then return at + 1 end
    elseif token.kind == "name" or token.kind == "wrapped" then
      local before = out[at - 1]
      if before and (before.text == "->" or before.text == ".") then
        at = at - 2
      else
        return at
      end
    else
      return at + 1
    end
  end
end

-- The static variables of the file with the mark.
local function marked_statics(list)
  local names, is_static = {}, false
  for i, token in ipairs(list) do
    local text = token.text
    if text == ";" or text == "}" or text == "(" or token.kind == "directive" then is_static = false end
    if text == "static" then is_static = true end
    if is_static and text == "MP_NULLABLE" and list[i + 1].kind == "name" and list[i + 2].text:find "^[;=,]" then
      names[list[i + 1].text] = true
    end
  end
  return names
end

-- Macros that have the name of a member among their arguments, and do not read it.
local NAMES_MEMBERS <const> = { offsetof = true, mp_container = true, MP_MEMBER = true, MP_EACH = true, MP_EACH_TAKEN = true }

-- True if the token is in the list of arguments of one of these macros.
local function is_member_name(out, at)
  local depth = 0
  for i = at, 2, -1 do
    local text = out[i].text
    if text == ")" then depth = depth + 1 end
    if text == "(" then depth = depth - 1 end
    if depth < 0 then return NAMES_MEMBERS[out[i - 1].text] end
    if text == ";" or text == "{" then return false end
  end
end

-- Wraps the member expression that ends with the name at the end of `out`.
local function wrap(out, macro)
  local first = start_of(out, #out - 2)
  if out[#out - 1].text == "." and out[first - 1].text == "," and is_member_name(out, first - 1) then return end
  local line, parts = out[first].line, {}
  local at = line
  for i = first, #out do
    parts[#parts + 1] = ("\n"):rep(out[i].line - at)
    parts[#parts + 1] = out[i].text
    at = math.max(at, out[i].line) + select(2, out[i].text:gsub("\n", ""))
    if keywords[out[i].text] or (out[i].kind == "name" and out[i + 1] and out[i + 1].kind == "name") then parts[#parts + 1] = " " end
  end
  for i = #out, first, -1 do out[i] = nil end
  out[first] = { kind = "wrapped", text = macro .. "(" .. table.concat(parts) .. ")", line = line }
end

--- The indices in `list` of the tokens of each parameter of the list that ends at list[last]: pairs of first and last.
function nullable.split_parameters(list, last)
  local depth, at, found, ends = 0, last, {}, last - 1
  repeat
    local text = list[at].text
    if text == ")" or text == "]" then depth = depth + 1 end
    if text == "(" or text == "[" then depth = depth - 1 end
    if (text == "," and depth == 1) or depth == 0 then
      found[#found + 1] = { at + 1, ends }
      ends = at - 1
    end
    at = at - 1
  until depth == 0 or at == 0
  return found
end

-- Marks the nullable parameters of the function whose parameter list ends at list[last].
local function parameters(list, last)
  local found = {}
  for _, one in ipairs(nullable.split_parameters(list, last)) do
    local name = list[one[2]]
    if name.kind == "name" and list[one[2] - 1].text == "MP_NULLABLE" then found[#found + 1] = ("MP_SEEN_PARAMETER(%s);"):format(name.text) end
  end
  return table.concat(found)
end

--- The bodies of the functions in `list`: from the index of each "{" to that of its "}". A body follows the ")" of a
--- parameter list.
function nullable.bodies(list)
  local bodies, depth, parens, first = {}, 0, 0, nil
  for i, token in ipairs(list) do
    if token.text == "(" then
      parens = parens + 1
    elseif token.text == ")" then
      parens = parens - 1
    elseif token.text == "{" then
      if depth == 0 and parens == 0 and i > 1 and list[i - 1].text == ")" then first = i end
      depth = depth + 1
    elseif token.text == "}" then
      depth = depth - 1
      if depth == 0 and first then bodies[first], first = i, nil end
    end
  end
  return bodies
end

--- True if a body, the tokens from list[first] to list[last], assigns a pointer to the variable of this name.
function nullable.assigns(list, first, last, name)
  for i = first, last do
    local before = list[i - 1].text
    if list[i].text == name and list[i + 1].text == "=" and not before:find "^[*.]$" and before ~= "->" then return true end
  end
  return false
end

-- Renames the parameters that are pointers and assigned to, of the function with the body list[first] to list[last].
-- Returns their variables' declarations.
local function cursors(list, first, last, out)
  local declarations = {}
  for _, one in ipairs(nullable.split_parameters(list, first - 1)) do
    local name, words, is_plain = list[one[2]], {}, true
    for i = one[1], one[2] - 1 do
      words[#words + 1] = list[i].text == "MP_NULLABLE" and "" or list[i].text
      is_plain = is_plain and not list[i].text:find "[%[(]"
    end
    if is_plain and name.kind == "name" and (list[one[2] - 1].text == "*" or list[one[2] - 1].text == "MP_NULLABLE")
      and nullable.assigns(list, first, last, name.text) then
      local put = #out
      while out[put].text ~= name.text or out[put].line ~= name.line do put = put - 1 end
      out[put] = { kind = "name", text = name.text .. "_given", line = name.line }
      declarations[#declarations + 1] = ("%s %s = %s_given;"):format(table.concat(words, " "), name.text, name.text)
    end
  end
  return table.concat(declarations)
end

-- True if a declaration of an atomic pointer begins at list[at]: clang refuses nullability of those.
local function declares_atomic(list, at)
  while list[at] and not list[at].text:find "^[;{}]" do
    if list[at].text == "*" and list[at + 1].text == "_Atomic" then return true end
    at = at + 1
  end
  return false
end

--- Returns the text of a copied file. `names`: members that are MP_NULLABLE somewhere.
function nullable.rewrite(path, text, names)
  local list = nullable.tokens(text)
  local out, is_nonnull, bodies, body_end = {}, false, nullable.bodies(list), nil
  local function put(kind, value, line) out[#out + 1] = { kind = kind, text = value, line = line } end
  local function switch(on, line)
    if on ~= is_nonnull then put("directive", "#pragma clang assume_nonnull " .. (on and "begin" or "end"), line) end
    is_nonnull = on
  end
  local last = list[#list].text:find "^#%s*endif" and #list -- the #endif of a guard stays outside
  local is_atomic, statics = false, marked_statics(list)
  for i, token in ipairs(list) do
    local before, after = list[i - 1], list[i + 1]
    if i == last then switch(false, token.line) end
    if token.kind == "directive" then
      if token.text:find "^#%s*include" then switch(false, token.line) end
      put("directive", token.text, token.line)
    else
      if not before or before.kind == "directive" or before.text:find "^[;{}]" then is_atomic = declares_atomic(list, i) end
      switch(not is_atomic, token.line)
      put(token.kind, token.text, token.line)
      if bodies[i] then
        body_end = bodies[i]
        put("mark", cursors(list, i, body_end, out) .. parameters(list, i - 1), token.line)
      elseif i == body_end then
        body_end = nil
      elseif body_end and token.kind == "name" and names[token.text] and (before.text == "->" or before.text == ".")
        and (list[i - 2].kind == "name" or list[i - 2].text == "]" or (list[i - 2].text == ")" and before.text == "->")) then
        wrap(out, after.text == "(" and "MP_SEEN_CALL" or "MP_SEEN")
      elseif body_end and statics[token.text] and before.text ~= "->" and before.text ~= "." and before.text ~= "MP_NULLABLE" then
        out[#out] = { kind = "wrapped", text = (after.text == "(" and "MP_SEEN_CALL(%s)" or "MP_SEEN(%s)"):format(token.text), line = token.line }
      end
    end
  end
  switch(false, list[#list].line)
  local parts, line, is_fresh = { prelude, ('#line 1 "%s"\n'):format(path) }, 1, true
  for _, token in ipairs(out) do
    if token.kind == "directive" then
      parts[#parts + 1] = ('%s#line %d "%s"\n%s\n#line %d "%s"\n'):format(is_fresh and "" or "\n", token.line, path, token.text, token.line, path)
      line, is_fresh = token.line, true
    elseif token.text ~= "" then
      if token.line > line then parts[#parts + 1] = ("\n"):rep(token.line - line) end
      parts[#parts + 1] = token.text .. " "
      line, is_fresh = math.max(line, token.line) + select(2, token.text:gsub("\n", "")), false
    end
  end
  return table.concat(parts) .. "\n"
end

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

--- Writes the copy of the sources below core/ to `folder`.
function nullable.copy(folder)
  local paths, names = {}, {}
  for path in io.popen("find core -type f | sort"):lines() do paths[#paths + 1] = path end
  for _, path in ipairs(paths) do
    if path:find "%.[ch]$" then nullable.collect(nullable.tokens(read(path)), names) end
  end
  os.execute(("rm -rf '%s' && mkdir -p '%s' && find core -type d -exec mkdir -p '%s/{}' ';'"):format(folder, folder, folder))
  for _, path in ipairs(paths) do
    local text = read(path)
    if path:find "%.[ch]$" and not path:find "/klib/" then text = nullable.rewrite(path, text, names) end
    local file <close> = assert(io.open(folder .. "/" .. path, "wb"))
    file:write(text)
  end
end

if arg and arg[0] and arg[0]:find "helpers/nullable%.lua$" then nullable.copy(arg[1]) end
return nullable
