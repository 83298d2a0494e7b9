-- The library `trace` of scripts: steps of their own in the trace of the call that runs. Where the call is not
-- recorded, a span holds nothing.

local failure = require "moonpool.runtime.outcome"
local host = require "moonpool.host"
local members = require "moonpool.runtime.members"
local problem = require "moonpool.runtime.diagnostic"

local trace = {}

local MAX_NAME <const> = 128

members.of_object { set = true, event = true }      -- of the span that trace.span gives its function, made by C

local form = "as in trace.span(\"price\", function(span) … end)"

-- Ends a span. A question to the client unwinds with an error value, and is no failure.
local closer = { __close = function(self, err)
  if err ~= nil and not failure.is_input(err) then host.trace.fail(self.span) end
  host.trace.finish(self.span)
end }

local function gave(span, ...)
  local value, why = ...
  if value == nil and why ~= nil then host.trace.fail(span) end
  return ...
end

--- Runs f(span) as a step with a name, and returns what `f` returns. An error, and nil with a reason, mark the step as
--- failed.
function trace.span(name, f)
  if type(name) ~= "string" or name == "" or #name > MAX_NAME then
    problem.raise(2, "trace.span needs a name of 1 to " .. MAX_NAME .. " bytes", form)
  end
  if type(f) ~= "function" then problem.raise(2, "trace.span needs a function, got a " .. type(f), form) end
  local span = host.trace.begin(name)
  if not span then return f(host.trace.idle()) end
  local _ <close> = setmetatable({ span = span }, closer)
  return gave(span, f(span))
end

--- The id of the trace, 32 hexadecimal digits; nil where the call is not recorded.
function trace.id() return host.trace.id() end

return trace
