-- Finds pointers in C that may be NULL and are not MP_NULLABLE: their comment says so, the code compares them with
-- NULL, sets a member to NULL, or returns NULL.
local nullable = require "spec.helpers.nullable"
local null_rules = {}

-- Phrases with NULL that are not about a pointer of the declaration: about the end of a list, a text without bytes,
-- SQL's NULL. They are removed from a comment before it is read.
local other_matters = {
  "ends? with NULL", "NULL%-terminated", "ends with a NULL path", "[Nn]ever NULL", "need not be NULL", "must not be NULL", "not NULL",
  "[%w_.>-]*ptr ?=?=? NULL", "ptr is NULL", "ptr`? to NULL", "'n' NULL", "`?loop == NULL`?", "`loop` is NULL", "this to NULL", "%f[%w]NULL, FALSE",
}

--- The sentences of a comment that say that something may be NULL.
function null_rules.sentences(comment)
  local text, found = comment:gsub("^/%*+", ""):gsub("%*/$", ""):gsub("\n%s*%*", "\n"):gsub("%s+", " "), {}
  for _, pattern in ipairs(other_matters) do text = text:gsub(pattern, "") end
  for sentence in (text .. ". "):gmatch "(.-)[.;] " do
    if sentence:find "%f[%w]NULL%f[%W]" then found[#found + 1] = sentence end
  end
  return found
end

-- The text without comments and literals, of the same length, and the comments: first, last and text of each.
local function blank(text)
  local comments, at, parts = {}, 1, {}
  while at <= #text do
    local from, to = text:find('["\'/#]', at)
    if not from then break end
    parts[#parts + 1] = text:sub(at, from - 1)
    local mark, is_comment = text:sub(from, from), text:find("^/%*", from)
    if is_comment then
      to = select(2, text:find("*/", from + 2, true))
      comments[#comments + 1] = { first = from, last = to, text = text:sub(from, to) }
    elseif text:find("^//", from) then
      to = (text:find("\n", from, true) or #text + 1) - 1
    elseif mark == "#" then
      if from > 1 and not text:sub(math.max(1, from - 20), from - 1):find "\n[ \t]*$" then
        to = from
      else
        to = from
        repeat
          to = (text:find("\n", to + 1, true) or #text + 1)
        until text:sub(to - 1, to - 1) ~= "\\"
        to = to - 1
        local opened = text:sub(from, to):find("/*", 1, true)
        if opened then to = from + opened - 2 end
      end
    elseif mark ~= "/" then
      to = from
      repeat
        to = text:find("[\\" .. mark .. "]", to + 1)
        if text:sub(to, to) == "\\" then to = to + 1 end
      until text:sub(to, to) == mark and text:sub(to - 1, to - 1) ~= "\\" or text:sub(to - 2, to) == "\\\\" .. mark
    end
    local piece = text:sub(from, to)
    parts[#parts + 1] = (mark == "/" and not is_comment and not piece:find "^//") and piece or piece:gsub("[^\n]", " ")
    at = to + 1
  end
  parts[#parts + 1] = text:sub(at)
  return table.concat(parts), comments
end

-- What the innermost block around `at` in `code` is: "function", "struct", "other" (initializers, enums, blocks of
-- code), or "file" if there is none.
-- `places` has the blocks that are open at places.at, from which the search goes on.
local function place_of(code, places, at)
  local stack = places.stack
  while places.at < at do
    local from = code:find("[{}]", places.at)
    if not from or from >= at then
      places.at = at
      break
    end
    if code:sub(from, from) == "}" then
      stack[#stack] = nil
    else
      local before = code:sub(math.max(1, from - 200), from - 1)
      local kind = "other"
      if #stack == 0 and before:find "%)%s*$" then kind = "function" end
      if before:find "%f[%w_]struct%s*[%w_]*%s*$" or before:find "%f[%w_]union%s*[%w_]*%s*$" then kind = "struct" end
      stack[#stack + 1] = kind
    end
    places.at = from + 1
  end
  return stack[#stack] or "file"
end

-- The declaration that begins behind `at`: up to its ";", or to the "{" of its body, or to the "=" of its value. A
-- comment before an empty line is not about one declaration.
local function declaration_behind(code, at)
  if code:find("^[ \t]*\n[ \t]*\n", at) then return "" end
  local first = code:find("%S", at)
  if not first then return "" end
  local depth = 0
  for i = first, #code do
    local c = code:sub(i, i)
    if c == "(" then depth = depth + 1 end
    if c == ")" then depth = depth - 1 end
    if depth <= 0 and c:find "[;{}=,]" then return code:sub(first, i - 1), i end
  end
  return code:sub(first), #code
end

-- The declaration on the comment's line, before it. A comment within a list of parameters belongs to the parameter
-- before it.
local function declaration_before(code, at)
  local whole = code:sub(math.max(1, at - 800), at - 1)
  if not whole:match("\n?([^\n]*)$"):find "%S" then return end
  whole = whole:gsub("[%s;,={]+$", "")
  local depth = 0
  for i = #whole, 1, -1 do
    local c = whole:sub(i, i)
    if c == ")" or c == "]" then depth = depth + 1 end
    if c == "(" or c == "[" then depth = depth - 1 end
    if depth < 0 or (depth == 0 and c:find "[;{},]") then return whole:sub(i + 1):match "^%s*(.*)$" end
  end
  return whole
end

-- The parameters of a declaration: from their names to their texts.
local function parameters_of(declaration)
  local list, found = declaration:match "(%b())[^()]*$", {}
  if not list then return found end
  for one in (list:sub(2, -2) .. ","):gmatch "([^,]*)," do
    local name = one:match "%(%*[%w_ ]-([%w_]+)%)" or one:match "([%w_]+)%s*%[?[%w_]*%]?%s*$"
    if name then found[name] = one end
  end
  return found
end

-- True if the sentence says of the parameter `name` that it may be NULL, and not of the result.
local function speaks_of(sentence, name)
  local quoted = "`" .. name .. "`"
  for _, pattern in ipairs { ",? %(?w?h?i?c?h? ?may be NULL", " is NULL", " NULL", ",? or NULL" } do
    if sentence:find(quoted .. pattern) then return true end
  end
  return sentence:find("NULL " .. quoted, 1, true) ~= nil
end

-- The sentence, if the mark is missing. It may name a parameter; otherwise any mark of the declaration will do.
local function missing(declaration, sentence)
  local named = false
  for word, text in pairs(parameters_of(declaration)) do
    if text:find("*", 1, true) and speaks_of(sentence, word) then
      named = true
      if text:find("MP_NULLABLE", 1, true) then return nil end
    end
  end
  if named or not declaration:find("MP_NULLABLE", 1, true) then return sentence:match "^%s*(.-)%s*$" end
end

--- The declarations in `text`, a file of C, whose comment says NULL where there is no mark: lines "PATH:LINE: what the
--- comment says".
function null_rules.unmarked(path, text)
  local code, comments = blank(text)
  local found, places = {}, { at = 1, stack = {} }
  for _, comment in ipairs(comments) do
    local place = place_of(code, places, comment.first)
    local declaration = declaration_before(code, comment.first) or declaration_behind(code, comment.last + 1)
    local is_own = place == "file" or place == "struct" or declaration:find "^static "
    local is_type = declaration:find "^typedef struct" or declaration:find "^struct[%s%w_]*$" or declaration:find "^enum"
    if is_own and not is_type and declaration:find("*", 1, true) then
      for _, sentence in ipairs(null_rules.sentences(comment.text)) do
        local why = missing(declaration, sentence)
        if why then
          local line = select(2, text:sub(1, comment.first):gsub("\n", "")) + 1
          found[#found + 1] = ("%s:%d: %s [%s]"):format(path, line, why, (declaration:gsub("%s+", " ")))
          break
        end
      end
    end
  end
  return found
end

-- Names of members that need no mark: those of structs of libraries, and `ptr` of an mp_str, which is NULL where the
-- text has no bytes.
local foreign = {}
for name in ("ptr _pending_as_client _pending_as_server _req_body _queue anchor tag problem context adjust argv caller"):gmatch "%S+" do
  foreign[name] = true
end

-- The names of the pointers without the mark among the parameters of the list that ends at list[last].
local function unmarked_parameters(list, last)
  local names = {}
  for _, one in ipairs(nullable.split_parameters(list, last)) do
    local at, is_pointer, is_marked = one[2], false, false
    for i = one[1], one[2] do
      local text = list[i].text
      is_pointer = is_pointer or text == "*"
      is_marked = is_marked or text == "MP_NULLABLE"
      if text == ")" and list[i + 1].text == "(" then at = i - 1 end -- (*name)(…)
    end
    while list[at] and list[at].kind ~= "name" do at = at - 1 end
    if is_pointer and not is_marked then names[list[at].text] = true end
  end
  return names
end

-- Adds the names of the static variables of a file that are pointers without the mark.
local function add_statics(list, names)
  for i, token in ipairs(list) do
    if token.text == "*" and list[i + 1] and list[i + 1].kind == "name" and list[i + 2] and list[i + 2].text:find "^[;=]$" then
      local at = i
      while list[at] and not list[at].text:find "^[;{}]$" and list[at].kind ~= "directive" do
        if list[at].text == "static" then names[list[i + 1].text] = true end
        at = at - 1
      end
    end
  end
end

--- The pointers in `list`, the tokens of a file, that it compares with NULL, or the members that it sets to NULL, and
--- that are not MP_NULLABLE: lines "PATH:LINE: name". A parameter that its function assigns to is a variable, which
--- needs no mark. `marked`: the names of all members with the mark.
function null_rules.compared(path, list, marked)
  local found, bodies, body_end = {}, nullable.bodies(list), nil
  local statics, names = {}, {}
  add_statics(list, statics)
  for i, token in ipairs(list) do
    if bodies[i] then
      body_end, names = bodies[i], unmarked_parameters(list, i - 1)
      for name in pairs(names) do
        if nullable.assigns(list, i, body_end, name) then names[name] = nil end
      end
    elseif i == body_end then
      names = {}
    elseif token.text == "NULL" and list[i - 1].text:find "^[!=]?=$" and list[i - 2].kind == "name" then
      local name, before, is_set = list[i - 2].text, list[i - 3].text, list[i - 1].text == "="
      local is_member = before == "->" or before == "."
      local is_wrong = is_member and not marked[name] and not foreign[name]
      if is_wrong or (not is_member and before ~= "*" and (statics[name] or (names[name] and not is_set))) then
        found[#found + 1] = ("%s:%d: %s"):format(path, token.line, name)
      end
    end
  end
  return found
end

-- True if the return statement that begins at list[at] may return NULL by itself: `return NULL;`, `return x ? NULL :
-- y;`.
local function returns_null(list, at)
  local i = at
  while list[i].text ~= ";" do
    if list[i].text == "NULL" and list[i - 1].text:find "^[:?]$" or (list[i].text == "NULL" and i == at + 1) then return true end
    i = i + 1
  end
  return false
end

-- The name of the function whose parameter list ends at list[last], if its result is a pointer without the mark.
local function unmarked_result(list, last)
  local parameters = nullable.split_parameters(list, last)
  local at = parameters[#parameters][1] - 2 -- before the "("
  return list[at - 1].text == "*" and list[at].text or nil
end

--- The functions in `list`, the tokens of a file, that return NULL and whose result is not MP_NULLABLE: lines
--- "PATH:LINE: name".
function null_rules.returned(path, list)
  local found, bodies, body_end, name = {}, nullable.bodies(list), nil, nil
  for i, token in ipairs(list) do
    if bodies[i] then
      body_end, name = bodies[i], unmarked_result(list, i - 1)
    elseif i == body_end then
      name = nil
    elseif name and token.text == "return" and returns_null(list, i) then
      found[#found + 1] = ("%s:%d: %s"):format(path, token.line, name)
      name = nil
    end
  end
  return found
end

return null_rules
