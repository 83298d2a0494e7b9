-- table.move, insert and remove for scripts. The standard ones loop where a task cannot take turns, over as many places as a
-- range or a __len says: so what is long, or has metamethods, is done in Lua.

local tables = {}

local move, insert, remove = table.move, table.insert, table.remove
local metatable_of = debug.getmetatable
local pack = table.pack

local LONG = 100000

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

--- table.insert(list, [at,] value)
function tables.insert(list, ...)
  if type(list) ~= "table" or not metatable_of(list) then return insert(list, ...) end
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
  if type(list) ~= "table" or not metatable_of(list) then return remove(list, ...) end
  local size = #list
  local at = (...)
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

return tables
