-- Warnings of `moonpool check` about time limits: a `timeout` above limits.call.time, which ends the call first.

local host = require "moonpool.host"
local problem = require "moonpool.runtime.diagnostic"
local registry = require "moonpool.registry.registry"

local words = { tools = "tool", resources = "resource", templates = "resource", prompts = "prompt" }

local function text_of(path)
  for _, script in ipairs(host.script.list) do
    if script.path == path then return script.text end
  end
  return ""
end

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
  local text = text_of(thing.path)
  list[#list + 1] = problem.text(host.script.root .. "/" .. thing.path, line_of(thing, text),
    ("'timeout' of the %s '%s' is %g s, and limits.call.time ends each call after %g s"):format(word, name, thing.timeout, most),
    ("set limits.call.time to %gs in moonpool.yaml, or lower 'timeout'"):format(math.ceil(thing.timeout))
      .. (word == "tool" and "; a tool with 'task' may run longer in the background" or ""), text)
end

--- Appends the warnings to `list`.
return function(list)
  for _, kind in ipairs { "tools", "resources", "templates", "prompts" } do
    local things, names = registry.everything(kind)
    for _, name in ipairs(names) do check(things[name], name, words[kind], list) end
  end
end
