-- table.sort for scripts. The standard table.sort is one C call that cannot be preempted, and a task cannot park inside
-- its order function. So C sorts only short runs of numbers or of short strings, and Lua merges the runs. Lists with
-- metatables, or with an order function, are sorted only by Lua.

local sort = table.sort
local move = table.move
local metatable_of = debug.getmetatable

local RUN = 8                   -- items of a run that is sorted by insertion
local C_RUN = 512               -- items of a run that C sorts: some milliseconds for the worst order
local C_BYTES = 64 * 1024       -- limit of the bytes of the strings in a run that C sorts

local function insert_runs(t, n, before)
  for first = 1, n, RUN do
    for i = first + 1, math.min(first + RUN - 1, n) do
      local value, at = t[i], i
      while at > first and before(value, t[at - 1]) do
        t[at] = t[at - 1]
        at = at - 1
      end
      t[at] = value
    end
  end
end

local function sort_runs(t, n)
  for first = 1, n, C_RUN do
    local last = math.min(first + C_RUN - 1, n)
    local run = move(t, first, last, 1, {})
    sort(run)
    move(run, 1, last - first + 1, first, t)
  end
end

-- Merges the sorted runs from[first .. middle - 1] and from[middle .. last] into into[first .. last].
local function merge(from, into, first, middle, last, before)
  local left, right = first, middle
  for at = first, last do
    if left < middle and (right > last or not before(from[right], from[left])) then
      into[at] = from[left]
      left = left + 1
    else
      into[at] = from[right]
      right = right + 1
    end
  end
end

-- Merges two sorted runs by the operator `<`, without an order function.
local function merge_plain(from, into, first, middle, last)
  local left, right = first, middle
  local one, other = from[left], from[right]
  for at = first, last do
    if left < middle and (right > last or one <= other) then
      into[at], left = one, left + 1
      one = from[left]
    else
      into[at], right = other, right + 1
      other = from[right]
    end
  end
end

local function merge_runs(t, n, width, merge_two, before)
  local from, into = t, {}
  while width < n do
    for first = 1, n, 2 * width do
      merge_two(from, into, first, math.min(first + width, n + 1), math.min(first + 2 * width - 1, n), before)
    end
    from, into, width = into, from, 2 * width
  end
  if from == t then return end
  for i = 1, n do t[i] = from[i] end
end

-- True if C may sort runs of the list: all items are numbers, or all are strings and a run of them has at most C_BYTES
-- bytes.
local function suits_c(t, n)
  local kind = type(t[1])
  if metatable_of(t) or (kind ~= "number" and kind ~= "string") then return false end
  local longest = C_BYTES // math.min(n, C_RUN)
  for i = 1, n do
    local value = t[i]
    if type(value) ~= kind or kind == "string" and #value > longest then return false end
  end
  return true
end

local function is_less(a, b) return a < b end

return function(t, before)
  if type(t) ~= "table" or before ~= nil and type(before) ~= "function" then return sort(t, before) end     -- the standard function raises the error
  local n = #t
  if n < 2 then return end
  if before == nil then
    if suits_c(t, n) then
      if n <= C_RUN then return sort(t) end
      sort_runs(t, n)
      return merge_runs(t, n, C_RUN, merge_plain)
    end
    before = is_less
  end
  insert_runs(t, n, before)
  if n > RUN then merge_runs(t, n, RUN, merge, before) end
end
