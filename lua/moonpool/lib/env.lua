-- The functions `env` and `secret` of scripts: they read granted environment variables of the gateway.

local host = require "moonpool.host"
local grants = require "moonpool.runtime.grants"
local problem = require "moonpool.runtime.diagnostic"
local outside_hooks = require "moonpool.runtime.outside_hooks"

-- stand_ins: functions, by "env" and "secret", that replace the environment while a spec fakes it. Each returns a
-- value; or nil, why, and true if the variable counts as not set. secrets: the texts that scripts have read by
-- `secret`, as keys, so that no record has them.
local environment = { stand_ins = {}, secrets = {} }

--- env(name[, default]) and secret(name) of one script file. `granted` is what grants.of(path) gives.
function environment.library(granted, file)
  local function read(word, name)
    if type(name) ~= "string" or not name:find "^[%a_][%w_]*$" then
      problem.raise(2, word .. " needs the name of a variable", "as in " .. word .. " \"ORDERS_URL\"")
    end
    if not grants.matches(granted.env, name) then
      host.log.write("warn", word .. " refused", { file = file, name = name, why = "no grant", grant = grants.yaml("env", name, file) })
      return nil, grants.refusal("env", name, file)
    end
    local stand_in = environment.stand_ins[word]
    if stand_in then return stand_in(name) end
    local value
    if outside_hooks.env then
      value = outside_hooks.env(word, name, function() return host.env.get(name) end)
    else
      value = host.env.get(name)
    end
    if not value then return nil, "the environment variable " .. name .. " is not set", true end
    return value
  end

  local function env(name, default)
    local value, why, absent = read("env", name)
    if value then return value end
    if absent and default ~= nil then return default end
    return nil, why
  end

  local function secret(name)
    local value, why = read("secret", name)
    if not value then return nil, why end
    environment.secrets[value] = true
    return host.secret.new(value)
  end
  return env, secret
end

return environment
