-- Lists in pages. A cursor holds the last name a client has seen, sealed: it needs no memory here, is good on every worker
-- and after a reload, and no client can make one up (K-1, K-2).

local host = require "moonpool.host"

local page = { size = 100 }

local function purpose(method, owner) return "cursor " .. method .. (owner and "\0" .. owner or "") end

--- A cursor behind `name` of the list that `method` gives; with an owner, for nobody else.
function page.cursor(method, name, owner) return host.seal(name, purpose(method, owner)) end

--- The name inside such a cursor, or nil.
function page.open(method, cursor, owner) return type(cursor) == "string" and host.unseal(cursor, purpose(method, owner)) or nil end

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
