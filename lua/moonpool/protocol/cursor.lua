-- Cursors of paged lists. A cursor holds the name of the last entry that the client got, encrypted: the gateway keeps
-- no state for it, every worker accepts it, also after a reload, and no client can forge one (K-1, K-2).

local host = require "moonpool.host"

local page = { size = 100 }

local function purpose(method, owner) return "cursor " .. method .. (owner and "\0" .. owner or "") end

--- A cursor that continues after `name` in the list of `method`. With `owner`, only requests with the same owner can
--- use it; without, the cursor of a name is the same in each worker and after each reload, so that a page that did not
--- change keeps its bytes.
function page.cursor(method, name, owner) return host.seal.make(name, purpose(method, owner), owner == nil) end

--- The name inside a cursor for the same method and owner, or nil.
function page.open(method, cursor, owner) return type(cursor) == "string" and host.seal.open(cursor, purpose(method, owner)) or nil end

--- The index of the first entry for which is_behind(name) is true, in a list where it is true of all later ones, too.
function page.first_behind(names, is_behind)
  local low, high = 1, #names + 1
  while low < high do
    local middle = (low + high) // 2
    if is_behind(names[middle]) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

--- The index of the first entry after `name` in a sorted list. The name itself need not be in the list any more.
function page.behind(names, name)
  return page.first_behind(names, function(other) return other > name end)
end

return page
