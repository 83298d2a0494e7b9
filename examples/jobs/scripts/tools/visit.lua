--- Count a visit.
---@param page string  Which page
return function(page)
  return ("visit %d of %s"):format(try(store.incr("visits:" .. page)), page)
end
