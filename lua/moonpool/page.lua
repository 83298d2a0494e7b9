-- Lists in pages. A cursor holds the last name a client has seen, sealed: it needs no memory here, is good on every worker
-- and after a reload, and no client can make one up (K-1, K-2).

local host = require "moonpool.host"

local page = { size = 100 }

--- A cursor behind `name` of the list that `method` gives.
function page.cursor(method, name) return host.seal(name, "cursor " .. method) end

--- The name inside a cursor of that list, or nil.
function page.open(method, cursor) return type(cursor) == "string" and host.unseal(cursor, "cursor " .. method) or nil end

--- Where the names behind `name` begin in a sorted list, whether it is still there or not.
function page.behind(names, name)
  local low, high = 1, #names + 1
  while low < high do
    local middle = (low + high) // 2
    if names[middle] <= name then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

return page
