-- Warnings of `moonpool check` about time limits: a `timeout` above limits.call.time, which ends the call first.

local host = require "moonpool.host"
local problem = require "moonpool.runtime.diagnostic"
local registry = require "moonpool.registry.registry"

-- The line of the option: the last one before the handler begins, else the first one.
local function line_of(thing, text)
  local handler = type(thing.handler) == "function" and debug.getinfo(thing.handler, "S").linedefined or 0
  local line = problem.find(text, "timeout")
  local next_line = line and problem.find(text, "timeout", line + 1)
  while next_line and next_line <= handler do
    line, next_line = next_line, problem.find(text, "timeout", next_line + 1)
  end
  return line
end

-- A tool with `task` may run in the background, where limits.call.time does not end it.
local function check(thing, name, word, list)
  local most = host.limits.call_seconds
  if not thing.timeout or thing.timeout <= most or thing.task then return end
  list[#list + 1] = problem.of_script(thing.path, line_of(thing, problem.script_text(thing.path) or ""),
    ("'timeout' of the %s '%s' is %g s, and limits.call.time ends each call after %g s"):format(word, name, thing.timeout, most),
    ("set limits.call.time to %gs in moonpool.yaml, or lower 'timeout'"):format(math.ceil(thing.timeout))
      .. (word == "tool" and "; a tool with 'task' may run longer in the background" or ""))
end

--- Appends the warnings to `list`.
return function(list)
  registry.each(function(word, name, thing) check(thing, name, word, list) end)
end
