-- One request: its era, its method, its answer.

local access = require "moonpool.access"
local call_library = require "moonpool.call"
local host = require "moonpool.host"
local era = require "moonpool.era"
local errors = require "moonpool.errors"
local suggest = require "moonpool.suggest"

local eras = era.compose(require "moonpool.methods")
local fallback = eras[era.newest_legacy]

local before_initialize = { initialize = true, ping = true }
local level_key = "io.modelcontextprotocol/logLevel"
local none = setmetatable({}, { __newindex = function() error("params of a request without any are shared", 2) end })

-- Methods of a gateway that runs specs, beside those of every era.
local special = {
  ["moonpool/specs"] = function(call, params, row) return require "moonpool.specs".answer(call, params, row) end,
  ["moonpool/explain"] = function(_, params) return require "moonpool.explain".answer(params) end,
}

local function unknown(name, methods)
  local hint = suggest.hint(name, methods)
  return nil, errors.new("unknown_method", "unknown method '" .. name:sub(1, 128) .. "'" .. (hint and ": " .. hint or ""))
end

--- Answers a request: a result (a table or bytes), or nil and an error. `revision` and `name`, the method's, are the call's.
return function(call, params, revision, name)
  local row = eras[revision] or fallback
  if row.stateless then
    local meta = params and params._meta
    local level = meta and meta[level_key]
    if level ~= nil and not call_library.level(level) then                             -- O-3
      return nil, errors.new("invalid_params", "_meta[\"" .. level_key .. "\"] must be one of " .. table.concat(call_library.levels, ", "))
    end
  elseif not call.initialized and not before_initialize[name] then                     -- L-5
    return nil, errors.new("invalid_request", "the session is not initialized: send initialize first", { reason = "not_initialized" })
  end
  if access.has_private then access.follow_as(call) end
  local method = row.methods[name]
  if not method and host.has_specs and special[name] then return special[name](call, params, row) end
  if not method then return unknown(name, row.methods) end
  params = params or none
  if method.up then method.up(params) end
  local result, err, told = method.run(call, params, row)
  if result and told ~= true then
    local down = (told and eras[told].methods[name] or method).down
    if down then down(result) end
  end
  if err then
    if err.retry_after then host.put_off(call, err.retry_after) end
    access.challenge(call, err)
  end
  return result, err
end
