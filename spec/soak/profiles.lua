-- Profiles of a second, one after the other, of a gateway under load beside processes that want all processors:
-- `./dev soak profiles` with a hundred, and a few in the suite.
--   local report = profiles.run { profiles = 100 }
-- No call is ended by a profile: each gets its result.
local children = require "spec.helpers.children"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local profile = require "spec.helpers.profile"
local uv = require "luv"
local wire = require "spec.helpers.wire"

local profiles = {}

local PATIENCE <const>, TOKEN <const> = 60, ("o"):rep(32)

-- Processes that compute until they are closed, two for each processor.
local function busy()
  local all = {}
  for i = 1, 2 * #uv.cpu_info() do
    local process, pid
    process, pid = uv.spawn("/bin/sh", { args = { "-c", "while :; do :; done" } }, function()
      children.alive[pid] = nil
      process:close()
    end)
    assert(process, pid)
    children.alive[pid] = true
    all[i] = pid
  end
  return setmetatable(all, { __close = function()
    for _, pid in ipairs(all) do uv.kill(pid, "sigkill") end
    uv.run "nowait"
  end })
end

--- `options`: profiles, and callers (20 without it). Gives { profiles, samples, calls, ended, why }: `ended` calls had
--- no result, one for the reason `why`; `aborted` of them for their processor time.
function profiles.run(options)
  local g <close> = gateway.start {
    workers = 2, config = { admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = TOKEN } } } },
    -- about 2 ms
    scripts = { ["tools/count.lua"] = 'return tool { "Counts.", function() local x = 0 for i = 1, 200000 do x = x + i end return x end }' },
  }
  local others <close> = busy()
  assert(#others > 0)
  local connections, report = {}, { profiles = 0, samples = 0, calls = 0, ended = 0 }
  for i = 1, options.callers or 20 do connections[i] = client.connect(g) end
  local message = wire.message(1, "tools/call", { name = "count", arguments = {}, _meta = wire.meta() })
  local headers = wire.mirrored(message)
  headers.Accept, headers["Content-Type"] = wire.both, "application/json"
  local function round()
    for _, connection in ipairs(connections) do connection:send { method = "POST", path = "/mcp", headers = headers, body = message } end
    for _, connection in ipairs(connections) do
      local body = connection:read_response(PATIENCE).body
      report.calls = report.calls + 1
      if not body:find('"text":"20000100000"', 1, true) then report.ended, report.why = report.ended + 1, body end
    end
  end
  while report.profiles < options.profiles do
    local run <close> = profile.begin(g, TOKEN, { seconds = 1 })
    local is_over = false
    repeat
      round()
      for _, event in ipairs(run.reader:messages()) do
        is_over = is_over or type(event) == "table" and event.event == "profile ended"
      end
    until is_over
    for _, stack in ipairs((run:read())) do report.samples = report.samples + stack.count end
    report.profiles = report.profiles + 1
    if options.say and report.profiles % 10 == 0 then options.say(("%d profiles, %d calls, %d ended"):format(report.profiles, report.calls, report.ended)) end
  end
  report.aborted = client.request(g, { path = "/status", headers = { Authorization = "Bearer " .. TOKEN } }, { admin = true }):json().counters.tool_aborted.cpu
  for _, connection in ipairs(connections) do connection:close() end
  return report
end

return profiles
