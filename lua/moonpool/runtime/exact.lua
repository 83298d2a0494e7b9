-- Functions of scripts that refuse arguments which they do not take: Lua would drop them in silence.

local members = require "moonpool.runtime.members"
local problem = require "moonpool.runtime.diagnostic"

local exact = {}

-- What a script may have meant by one argument more.
local hints = {
  ["time.format"] = "os.date(format, seconds) writes other forms",
  ["time.parse"] = "it reads RFC 3339 alone; text:match with a pattern reads other forms",
  ["json.encode"] = "it has no options: the text is compact",
}

local function refuse(name, most, count)
  problem.raise(2, ("%s takes %s, got %d"):format(name, most == 0 and "no argument" or most == 1 and "1 argument" or most .. " arguments", count),
    hints[name] or "remove the rest; a call as the last argument gives all its values, in parentheses the first alone")
end

--- A function that does what `f`, the function `name` of scripts, does with up to `most` arguments, and raises an error
--- for more that are not nil. `most`: the number of parameters by default; a function with any number is returned as it
--- is. `own`: arguments that do not count, 1 for a method's self.
function exact.of(name, f, most, own)
  if type(f) ~= "function" then return f end
  local info = debug.getinfo(f, "u")
  own = own or 0
  if not most then
    if info.isvararg then return f end
    most = info.nparams - own
  end
  local all = most + own
  return function(...)
    local count = select("#", ...)
    if count > all then
      while count > all and (select(count, ...)) == nil do count = count - 1 end
      if count > all then refuse(name, most, count - own) end
    end
    return f(...)
  end
end

--- A copy of the table `functions` with each function made so; `library` is put before their names. `counts`: for
--- functions of C, the number of their arguments by name.
function exact.all(library, functions, counts)
  local made = {}
  members.of_library(library:match "^(.-)%.?$", functions)
  for name, value in next, functions do made[name] = exact.of(library .. name, value, counts and counts[name]) end
  return made
end

return exact
