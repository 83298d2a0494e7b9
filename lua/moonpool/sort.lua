-- table.sort for scripts. The standard one calls its order function where a task can neither wait nor take turns: so with
-- one, or one in metatables, a merge sort in Lua does it. Without, nothing of a script runs, and the standard one does.

local sort = table.sort

local RUN = 8       -- sorted by insertion

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

-- Merges from[first .. middle - 1] and from[middle .. last], into the same places of `into`.
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

local function is_less(a, b) return a < b end

return function(t, before)
  if before == nil then
    if type(t) ~= "table" or type(t[1]) ~= "table" then return sort(t) end
    before = is_less
  end
  if type(t) ~= "table" or type(before) ~= "function" then return sort(t, before) end     -- which says what is wrong
  local n = #t
  insert_runs(t, n, before)
  if n <= RUN then return end
  local from, into, width = t, {}, RUN
  while width < n do
    for first = 1, n, 2 * width do
      merge(from, into, first, math.min(first + width, n + 1), math.min(first + 2 * width - 1, n), before)
    end
    from, into, width = into, from, 2 * width
  end
  if from ~= t then table.move(from, 1, n, 1, t) end
end
