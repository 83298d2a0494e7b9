-- parallel { f, g, … }: functions run side by side for the call that waits for all of them.

local host = require "moonpool.host"
local failure = require "moonpool.failure"
local problem = require "moonpool.problem"

local MOST = 64

--- What each returned, { value, why }, in order. An error of one ends the others, and is an error here.
return function(functions)
  if type(functions) ~= "table" or #functions == 0 or #functions > MOST then
    problem.raise(2, "parallel takes a list of 1 to " .. MOST .. " functions", "as in parallel { function() … end, function() … end }")
  end
  local results, bodies, broken = {}, {}, nil
  for i, f in ipairs(functions) do
    if type(f) ~= "function" then problem.raise(2, "parallel takes functions: number " .. i .. " is a " .. type(f)) end
    bodies[i] = function()
      local ok, value, why = xpcall(f, failure.handler)
      if ok then results[i] = { value, why } else broken = broken or { value } end
      return ok
    end
  end
  if host.parallel(bodies) then return results end
  error(broken and broken[1] or "a function of parallel did not end", 0)
end
