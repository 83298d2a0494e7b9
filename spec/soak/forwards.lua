-- Calls in flight at an upstream over HTTP, round after round: `./dev soak forwards` with 1,000 for a minute, and a few
-- in the suite.
--   local report = forwards.run { at_once = 1000, seconds = 60 }
-- The gateway opens no more connections to the upstream than calls were in flight at once.
local client = require "spec.helpers.client"
local upstream = require "spec.helpers.upstream"
local uv = require "luv"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local forwards = {}

local PATIENCE <const> = 60
local REVISION <const> = "2026-07-28"

local function answer_all(connections)
  for _, connection in ipairs(connections) do
    local response = connection:read_response(PATIENCE)
    if response.status ~= 200 or not response.body:find("released", 1, true) then error("an answer is " .. response.status .. ": " .. response.body, 0) end
  end
end

--- `options`: at_once, and rounds or seconds. Gives { rounds, calls, accepted }.
function forwards.run(options)
  local u <close> = upstream.start { transport = "http", revision = REVISION }
  local g <close> = upstream.gateway({ one = u }, {
    entries = upstream.plain({ one = u }, { one = { calls = 10000, waiting = 10000, timeout = "5m" } }), config = { limits = { calls_in_flight = 10000 } },
  })
  local c <close> = g:client(REVISION)
  c:result("tools/list", {})
  local connections, rounds, began = {}, 0, uv.hrtime()
  for i = 1, options.at_once do connections[i] = client.connect(g) end
  local message = wire.message(1, "tools/call", { name = "hold", arguments = {}, _meta = wire.meta() })
  local headers = wire.mirrored(message)
  headers.Accept, headers["Content-Type"] = wire.both, "application/json"
  local function is_over()
    return options.rounds and rounds >= options.rounds or options.seconds and (uv.hrtime() - began) / 1e9 >= options.seconds
  end
  repeat
    for _, connection in ipairs(connections) do connection:send { method = "POST", path = "/mcp", headers = headers, body = message } end
    wait.for_fact("all calls to be in flight", PATIENCE, function() return #u.held >= options.at_once end)
    u:release()
    answer_all(connections)
    rounds = rounds + 1
  until is_over()
  for _, connection in ipairs(connections) do connection:close() end
  return { rounds = rounds, calls = rounds * options.at_once, accepted = u.web.accepted }
end

return forwards
