-- `env` and `secret` of scripts: environment variables of the gateway, by name, those that are granted.

local host = require "moonpool.host"
local grants = require "moonpool.grants"
local problem = require "moonpool.problem"

local environment = {}

local function is_granted(texts, name)
  for _, text in ipairs(texts) do
    local prefix = text:match "^(.*)%*$"
    if text == name or prefix and name:sub(1, #prefix) == prefix then return true end
  end
  return false
end

--- env(name[, default]) and secret(name) of one script file. `granted` is what grants.of(path) gives.
function environment.library(granted, file)
  local function read(word, name)
    if type(name) ~= "string" or not name:find "^[%a_][%w_]*$" then
      problem.raise(2, word .. " needs the name of a variable", "as in " .. word .. " \"ORDERS_URL\"")
    end
    if not is_granted(granted.env, name) then
      host.log("warn", word .. " refused", { file = file, name = name, why = "no grant" })
      return nil, grants.refusal("env", name, file)
    end
    local value = host.getenv(name)
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
    return host.secret(value)
  end
  return env, secret
end

return environment
