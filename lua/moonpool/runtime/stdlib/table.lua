-- table.move, insert, remove and concat for scripts. The standard functions loop in C, where a task cannot be
-- preempted, over any range or __len. So long lists and lists with metamethods are handled in Lua.

local tables = {}

local move, insert, remove, concat = table.move, table.insert, table.remove, table.concat
local metatable_of = debug.getmetatable
local pack = table.pack

local LONG = 100000
local JOINED = 2000       -- elements that C joins at once: with numbers among them, 1000 elements take a third of a millisecond

--- table.move(from, first, last, at [, to])
function tables.move(from, first, last, at, to)
  to = to == nil and from or to
  if type(from) ~= "table" or type(to) ~= "table" or math.type(first) ~= "integer" or math.type(last) ~= "integer" or math.type(at) ~= "integer"
    or last < first or not math.ult(last - first, math.maxinteger) or at > math.maxinteger - (last - first)
    or (last - first < LONG and not metatable_of(from) and not metatable_of(to)) then
    if last and first and math.type(first) == "integer" and math.type(last) == "integer" and last >= first and not math.ult(last - first, LONG) then
      error("bad argument #3 to 'move' (too many elements to move)", 2)
    end
    return move(from, first, last, at, to)
  end
  if at > last or at <= first or to ~= from then
    for i = 0, last - first do to[at + i] = from[first + i] end
  else
    for i = last - first, 0, -1 do to[at + i] = from[first + i] end
  end
  return to
end

-- True if C may move the items after position `at`: they are few. The list has no metamethods.
local function is_near(list, at) return math.type(at) ~= "integer" or #list - at < LONG end

--- table.insert(list, [at,] value)
function tables.insert(list, ...)
  if type(list) ~= "table" or not metatable_of(list) and (select("#", ...) < 2 or is_near(list, (...))) then return insert(list, ...) end
  local given = pack(...)
  local size = #list + 1
  local at = given[1]
  if given.n == 1 then
    list[size] = at
    return
  end
  if given.n ~= 2 then error("wrong number of arguments to 'insert'", 2) end
  if math.type(at) ~= "integer" or at < 1 or at > size then error("bad argument #2 to 'insert' (position out of bounds)", 2) end
  for i = size, at + 1, -1 do list[i] = list[i - 1] end
  list[at] = given[2]
end

--- table.remove(list [, at])
function tables.remove(list, ...)
  local at = (...)
  if type(list) ~= "table" or not metatable_of(list) and is_near(list, at) then return remove(list, ...) end
  local size = #list
  if at == nil then at = size end
  if math.type(at) ~= "integer" or (at ~= size and (at < 1 or at > size + 1)) then error("bad argument #2 to 'remove' (position out of bounds)", 2) end
  local value = list[at]
  while at < size do
    list[at] = list[at + 1]
    at = at + 1
  end
  list[at] = nil
  return value
end

-- Joins a short list in C. An error is reported at the line of the script that called table.concat.
local function join(...)
  local ok, text = pcall(concat, ...)
  if not ok then error(text, 3) end
  return text
end

--- table.concat(list [, separator [, first [, last]]])
function tables.concat(list, separator, first, last)
  local from, to = first or 1, last
  local is_long = type(list) == "table" and not metatable_of(list)
  if is_long then
    to = to or #list
    is_long = math.type(from) == "integer" and math.type(to) == "integer" and to > from and not math.ult(to - from, JOINED)
  end
  if not is_long then
    local text = join(list, separator, first, last)
    return text -- not a tail call, because `join` counts stack levels
  end
  local pieces = {}
  for at = from, to, JOINED do
    local piece = join(list, separator, at, math.min(to, at > to - JOINED and to or at + JOINED - 1))
    pieces[#pieces + 1] = piece
  end
  local text = tables.concat(pieces, separator)
  return text
end

return tables
