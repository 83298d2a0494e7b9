-- parallel { f, g, … }: runs functions concurrently; the call waits for all of them.

local host = require "moonpool.host"
local copied = require "moonpool.runtime.copied"
local failure = require "moonpool.runtime.outcome"
local problem = require "moonpool.runtime.diagnostic"

local MAX_FUNCTIONS = 64

--- Returns the results of the functions in order, each { value, why }. An error of one cancels the others and is raised
--- here.
return function(functions)
  functions = copied(functions)
  if type(functions) ~= "table" or #functions == 0 or #functions > MAX_FUNCTIONS then
    problem.raise(2, "parallel takes a list of 1 to " .. MAX_FUNCTIONS .. " functions", "as in parallel { function() … end, function() … end }")
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
  if host.task.parallel(bodies) then return results end
  error(broken and broken[1] or "a function of parallel did not end", 0)
end
