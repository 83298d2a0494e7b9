-- What a call can do that needs no C of its own: log to the client, and ask what the client can do.

local host = require "moonpool.host"
local failure = require "moonpool.failure"
local problem = require "moonpool.problem"
local suggest = require "moonpool.suggest"

local call = {}

-- RFC 5424, least first: the order is the number that C keeps (O-1).
call.levels = { "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency" }
local number = { warn = 3 }
for i, name in ipairs(call.levels) do number[name] = i - 1 end

--- The number of a level, or nil. `warn` is a script's name for warning, not the protocol's.
function call.level(name)
  return name ~= "warn" and number[name] or nil
end

local level_key = "io.modelcontextprotocol/logLevel"

-- The least level this client wants: what its request says, or its session; nil is none.
local function threshold(self)
  local meta = self.meta
  local wanted = meta and meta[level_key]
  if wanted ~= nil then return call.level(wanted) end
  return host.log_level(self)
end

--- call:log(level, data [, logger]): a message to the client, if it wants that level.
local function log(self, level, data, logger)
  local n = number[level]
  if not n then
    problem.raise(2, "there is no log level '" .. tostring(level) .. "'", suggest.listed(level, call.levels, "levels"))
  end
  local least = threshold(self)
  if not least or n < least then return end
  self:send { jsonrpc = "2.0", method = "notifications/message", params = { level = call.levels[n + 1], data = data == nil and "" or data, logger = logger } }
end

--- Capability names ("sampling", "elicitation.url", "extensions.<id>") as the tree that requiredCapabilities is.
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
    -- `elicitation: {}` means forms
    if not found and name == "form" and type(capabilities) == "table" and not capabilities.url then found = true end
    if not found then return false end
    if next(below) and not has(below, found) then return false end
  end
  return true
end

--- Whether the client has these capabilities.
function call.able(self, names) return has(call.tree(names), self.capabilities) end

--- Ends the call unless the client has every capability of `tree`.
function call.demand(self, tree, names)
  if not has(tree, self.capabilities) then failure.missing(tree, names) end
end

--- call:require("sampling", …)
local function require_capabilities(self, ...)
  local names = { ... }
  call.demand(self, call.tree(names), names)
end

--- call:detach([seconds]): lets the client's connection go; it comes back for the rest.
local function detach(self, seconds)
  seconds = seconds == nil and 1 or seconds
  if type(seconds) ~= "number" or not (seconds >= 0 and seconds <= 86400) then
    problem.raise(2, "detach wants the seconds until the client comes back, 0 to a day, not " .. tostring(seconds), "call:detach(0.5)")
  end
  return host.detach(self, seconds * 1000)
end

host.call_methods.log = log
host.call_methods.detach = detach
host.call_methods.require = require_capabilities

return call
