-- Assertions of the house, for luassert.
local assert = require "luassert"
local say = require "say"
local cjson = require "cjson.safe"
local client = require "spec.helpers.client"
local wait = require "spec.helpers.wait"

-- Gauges that say nothing of what clients left behind: what is stored stays for its time.
local steady = { lua_bytes = true, vms = true, connections = true, store_entries = true, store_bytes = true }

-- All questions go by one connection, which is the only one that may be open.
local function left_behind(g, connection)
  if not g:is_alive() then
    return "the gateway has ended"
  end
  local status = connection:request({ path = "/status" }):json()
  local fds = g:fds() - 1
  if status.pid and status.pid ~= g.pid then
    return "another process answers"
  end
  for family, value in pairs(status.gauges) do
    if not steady[family] then
      for label, n in pairs(type(value) == "table" and value or { [""] = value }) do
        if n ~= 0 then
          return ("gauge %s%s is %s in %s"):format(family, label ~= "" and "{" .. label .. "}" or "", n, cjson.encode(status.gauges))
        end
      end
    end
  end
  if fds > g.baseline_fds then
    return ("%d descriptors, %d when it started"):format(fds, g.baseline_fds)
  end
  local close_waits = g:close_waits() -- last: where many connections have been, looking takes long
  if close_waits > 0 then
    return close_waits .. " sockets are in CLOSE-WAIT"
  end
end

-- Within a second nothing is left of any client: gauges 0, descriptors as at the start, no CLOSE-WAIT, the same process.
local function is_empty_house(state, arguments)
  local g, seconds = arguments[1], arguments[2] or 1
  local left, connection
  local ok, why = pcall(wait.for_fact, "an empty house", seconds, function()
    if g:is_alive() and (not connection or connection:is_closed_by_peer()) then
      connection = client.connect(g, { admin = true })
    end
    left = left_behind(g, connection)
    return not left
  end)
  if connection then
    connection:close()
  end
  left = left or why
  state.failure_message = not ok and ("not an empty house after %g s: %s"):format(seconds, tostring(left)) or nil
  return ok
end

say:set("assertion.empty_house.positive", "Expected an empty house")
say:set("assertion.empty_house.negative", "Expected a house with something left in it")
assert:register("assertion", "empty_house", is_empty_house, "assertion.empty_house.positive", "assertion.empty_house.negative")

return assert
