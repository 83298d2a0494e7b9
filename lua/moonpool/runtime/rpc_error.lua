-- JSON-RPC errors, and functions that make them. The codes are rows of core/mcp/error.def.

local errors = {}
for name, code in pairs(require "moonpool.error_codes") do errors[name] = code end

--- The range of codes that JSON-RPC reserves, as a text for error messages.
errors.reserved = "-32768 to -32000"

--- True if JSON-RPC reserves the code for itself and for MCP, so that scripts must not define it.
function errors.is_reserved(code) return code >= -32768 and code <= -32000 end

local defined = {}
for _, code in pairs(errors) do
  if math.type(code) == "integer" then defined[code] = true end
end

--- True if MCP reserves the code for itself and does not define it.
function errors.is_undefined(code) return code <= -32020 and code >= -32099 and not defined[code] end

--- An error as dispatch returns it to C. `kind` is a name in error.def.
function errors.new(kind, message, data)
  return { code = errors[kind], message = message, data = data }
end

--- Makes the error of a rate limit: the client may try again after `seconds`. Over HTTP the answer's status is 429.
function errors.busy(message, seconds)
  local err = errors.new("too_often", message, { reason = "rate_limited", retryAfter = seconds })
  err.retry_after = seconds
  return err
end

return errors
