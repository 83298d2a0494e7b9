-- Methods of a call that are written in Lua: call:log, call:require, call:detach; and the checks of the client's
-- capabilities.

local host = require "moonpool.host"
local failure = require "moonpool.runtime.outcome"
local problem = require "moonpool.runtime.diagnostic"
local show = require "moonpool.runtime.show"
local suggest = require "moonpool.runtime.suggest"

local call = {}

--- The extension of the stateless revision that has MCP tasks.
call.tasks_extension = "io.modelcontextprotocol/tasks"

-- The log levels of RFC 5424, least severe first. C knows a level by its index here, counted from 0 (O-1).
call.levels = { "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency" }
local number = { warn = 3 }
for i, name in ipairs(call.levels) do number[name] = i - 1 end

--- The number of a log level, or nil. `warn` is a name that scripts may use for "warning"; the protocol does not have
--- it.
function call.level(name)
  return name ~= "warn" and number[name] or nil
end

local level_key = "io.modelcontextprotocol/logLevel"

-- The least severe level that the client wants: from its request's _meta, else from its session; nil if it wants no
-- messages.
local function threshold(self)
  local meta = self.meta
  local wanted = meta and meta[level_key]
  if wanted ~= nil then return call.level(wanted) end
  return host.session.log_level(self)
end

--- Sends a log message of level number `n` to the client, if the client wants that level. `unset`: the least level for a
--- client that has set none; nil: it gets nothing.
function call.tell(self, n, data, logger, unset)
  local least = threshold(self) or unset
  if not least or n < least then return end
  self:send { jsonrpc = "2.0", method = "notifications/message", params = { level = call.levels[n + 1], data = data == nil and "" or data, logger = logger } }
end

--- call:log(level, data [, logger]): sends a log message to the client, if the client wants that level.
local function log(self, level, data, logger)
  local n = number[level]
  if not n then
    problem.raise(2, "there is no log level '" .. tostring(level) .. "'", suggest.listed(level, call.levels, "levels"))
  end
  if host.log.wants "debug" then
    host.log.write("debug", "call log", { level = call.levels[n + 1], logger = logger and show(logger), data = show(data), method = self.method })
  end
  call.tell(self, n, data, logger)
end

--- Capability names ("sampling", "elicitation.url", "extensions.<id>") as the tree for the field requiredCapabilities
--- of an error.
function call.tree(names)
  local tree = {}
  for _, name in ipairs(names) do
    local extension = name:match "^extensions%.(.+)$"
    local node = tree
    for part in (extension and "extensions" or name):gmatch "[^.]+" do
      node[part] = node[part] or {}
      node = node[part]
    end
    if extension then node[extension] = {} end
  end
  return tree
end

local function has(tree, capabilities)
  for name, below in pairs(tree) do
    local found = type(capabilities) == "table" and capabilities[name]
    -- an empty `elicitation` capability means forms
    if not found and name == "form" and type(capabilities) == "table" and not capabilities.url then found = true end
    if not found then return false end
    if next(below) and not has(below, found) then return false end
  end
  return true
end

--- True if the client has all of these capabilities.
function call.able(self, names) return has(call.tree(names), self.capabilities) end

--- Ends the call with an error unless the client has every capability of `tree`.
function call.demand(self, tree, names)
  if not has(tree, self.capabilities) then failure.missing(tree, names) end
end

--- call:require("sampling", …): ends the call with an error unless the client has these capabilities.
local function require_capabilities(self, ...)
  local names = { ... }
  call.demand(self, call.tree(names), names)
end

--- call:detach([seconds]): closes the client's connection while the call runs on; the client reconnects after `seconds`
--- for the result.
local function detach(self, seconds)
  seconds = seconds == nil and 1 or seconds
  if type(seconds) ~= "number" or not (seconds >= 0 and seconds <= 86400) then
    problem.raise(2, "detach needs the seconds until the client reconnects, 0 to 86400, not " .. tostring(seconds), "call:detach(0.5)")
  end
  return host.call.detach(self, seconds * 1000)
end

host.call.methods.log = log
host.call.methods.detach = detach
host.call.methods.require = require_capabilities

return call
