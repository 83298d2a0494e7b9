-- line_diff(before, after): the lines of two lists that differ, each with "- " or "+ " before it, and the lines around them with "  ".

-- cells of the table that compares the lines that differ; above it all these lines are printed
local MAX_CELLS <const> = 4000000
local AROUND <const> = 2

-- The lengths of the longest common subsequences of the tails of both lists.
local function lengths_of(before, after, first, last_before, last_after)
  local table_of = {}
  for i = last_before + 1, first, -1 do
    local row, below = {}, table_of[i + 1]
    for k = last_after + 1, first, -1 do
      if i > last_before or k > last_after then
        row[k] = 0
      elseif before[i] == after[k] then
        row[k] = below[k + 1] + 1
      else
        row[k] = math.max(below[k], row[k + 1])
      end
    end
    table_of[i] = row
  end
  return table_of
end

return function(before, after)
  local out, first = {}, 1
  while before[first] ~= nil and before[first] == after[first] do first = first + 1 end
  local last_before, last_after = #before, #after
  while last_before >= first and last_after >= first and before[last_before] == after[last_after] do
    last_before, last_after = last_before - 1, last_after - 1
  end
  for i = math.max(1, first - AROUND), first - 1 do out[#out + 1] = "  " .. before[i] end
  local is_small = (last_before - first + 2) * (last_after - first + 2) <= MAX_CELLS
  local lengths = is_small and lengths_of(before, after, first, last_before, last_after)
  local i, k = first, first
  while i <= last_before or k <= last_after do
    if lengths and i <= last_before and k <= last_after and before[i] == after[k] then
      out[#out + 1] = "  " .. before[i]
      i, k = i + 1, k + 1
    elseif i <= last_before and (not lengths or k > last_after or lengths[i + 1][k] >= lengths[i][k + 1]) then
      out[#out + 1] = "- " .. before[i]
      i = i + 1
    else
      out[#out + 1] = "+ " .. after[k]
      k = k + 1
    end
  end
  for n = last_before + 1, math.min(#before, last_before + AROUND) do out[#out + 1] = "  " .. before[n] end
  return out
end
