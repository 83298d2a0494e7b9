-- Dispatches a request: finds the rules of its revision and its method, runs the method, and converts the result to the revision.

local access = require "moonpool.access.access"
local call_library = require "moonpool.protocol.call"
local host = require "moonpool.host"
local era = require "moonpool.protocol.era"
local errors = require "moonpool.runtime.rpc_error"
local suggest = require "moonpool.runtime.suggest"

local dispatch = {}

--- Methods that belong to no revision: name -> function(call, params, row). A gateway started for the workbench adds some.
dispatch.special = {}

local eras = era.compose(require "moonpool.methods")
local fallback = eras[era.newest_stateful]

local before_initialize = { initialize = true, ping = true }
local level_key = "io.modelcontextprotocol/logLevel"
local none = setmetatable({}, { __newindex = function() error("params of a request without any are shared", 2) end })

local function unknown(name, methods)
  local hint = suggest.hint(name, methods)
  return nil, errors.new("unknown_method", "unknown method '" .. name:sub(1, 128) .. "'" .. (hint and ": " .. hint or ""))
end

--- Answers a request. Returns a result (a table, or json.raw bytes); or nil and an error. `revision` and `name` are those of the call.
function dispatch.answer(call, params, revision, name)
  local row = eras[revision] or fallback
  if row.stateless then
    local meta = params and params._meta
    local level = meta and meta[level_key]
    if level ~= nil and not call_library.level(level) then                             -- (O-3)
      return nil, errors.new("invalid_params", "_meta[\"" .. level_key .. "\"] must be one of " .. table.concat(call_library.levels, ", "))
    end
  elseif not call.initialized and not before_initialize[name] then                     -- (L-5)
    return nil, errors.new("invalid_request", "the session is not initialized: send initialize first", { reason = "not_initialized" })
  end
  if access.has_private then access.follow_as(call) end
  local method = row.methods[name]
  if not method and dispatch.special[name] then return dispatch.special[name](call, params, row) end
  if not method then return unknown(name, row.methods) end
  params = params or none
  if method.convert_params then method.convert_params(params) end
  local result, err, converted = method.run(call, params, row)
  if result and converted ~= true then
    local convert = (converted and eras[converted].methods[name] or method).convert_result
    if convert then convert(result) end
  end
  if err then
    if err.retry_after then host.put_off(call, err.retry_after) end
    access.challenge(call, err)
  end
  return result, err
end

return dispatch
