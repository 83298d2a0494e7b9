-- logging/setLevel: sets the least severe level of log messages that a session receives (O-2).

local host = require "moonpool.host"
local call_library = require "moonpool.protocol.call"
local errors = require "moonpool.runtime.rpc_error"

return {
  ["logging/setLevel"] = function(call, params)
    local level = call_library.level(params.level)
    if not level then
      return nil, errors.new("invalid_params", "params.level must be one of " .. table.concat(call_library.levels, ", "))
    end
    host.session.set_log_level(call, level)
    return {}
  end,
}
