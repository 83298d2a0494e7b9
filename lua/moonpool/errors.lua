-- JSON-RPC errors: one row per code, and the way to make one.

local errors = {
  resource_not_found = -32002,
  invalid_request = -32600,
  unknown_method = -32601,
  invalid_params = -32602,
  internal = -32603,
  header_mismatch = -32020,
  missing_capability = -32021,
  url_required = -32042,
  too_often = -32000,
}

--- An error as dispatch gives it to C.
function errors.new(kind, message, data)
  return { code = errors[kind], message = message, data = data }
end

--- Too much was asked for: it may be asked for again in so many seconds. HTTP says it with 429.
function errors.busy(message, seconds)
  local err = errors.new("too_often", message, { reason = "rate_limited", retryAfter = seconds })
  err.retry_after = seconds
  return err
end

return errors
