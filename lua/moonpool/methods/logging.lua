-- logging/setLevel: what a session wants to hear (O-2).

local host = require "moonpool.host"
local call_library = require "moonpool.call"
local errors = require "moonpool.errors"

return {
  ["logging/setLevel"] = function(call, params)
    local level = call_library.level(params.level)
    if not level then
      return nil, errors.new("invalid_params", "params.level must be one of " .. table.concat(call_library.levels, ", "))
    end
    host.set_log_level(call, level)
    return {}
  end,
}
