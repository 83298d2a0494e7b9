-- The circuit of an upstream in the running gateway, in words, from the JSON of /status: for moonpool explain.

local characters = require "moonpool.runtime.characters"
local json = require "moonpool.json"
local records = require "moonpool.workbench.client.records"

local circuit = {}

local words = { closed = "closed", open = "open", probing = "half-open: one request tries whether it is back" }

local function described(one)
  local text = words[one.circuit] or "unknown"
  if one.circuit_since then text = text .. (", since %s"):format(one.circuit_since) end
  local count = one.failures_in_row or 0
  if count > 0 then text = text .. (", after %d failure%s in a row"):format(count, count == 1 and "" or "s") end
  if one.circuit ~= "closed" and one.error then text = text .. (" (%s, at %s)"):format(characters.shown(one.error), one.error_at) end
  if one.circuit == "open" then
    text = text .. ((one.retry_ms or 0) > 0 and ("; the next request in %d s tries it"):format((one.retry_ms + 999) // 1000) or "; the next request tries it")
  end
  return text
end

--- A function that gives the state of the circuit of an upstream by its name. It asks the gateway at the first call.
--- `args`: address, host and token of the admin listener, of which the address may be missing.
function circuit.reader(args)
  local found, why
  local function ask()
    local body
    body, why = records.ask(args, "GET", "/status")
    local status = body and json.decode(body)
    found = type(status) == "table" and type(status.upstreams) == "table" and status.upstreams or {}
  end
  return function(name)
    if not found then ask() end
    if why then return ("unknown: %s. `moonpool upstreams %s` shows it where a gateway can be asked"):format(why, name) end
    local one = found[name]
    return one and described(one) or "unknown: the gateway that runs has no upstream of this name"
  end
end

return circuit
