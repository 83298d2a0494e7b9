-- crowd.lua: what many upstreams cost each other, for bench/upstreams.lua: one of five that hangs, and many sessions
-- with programs of their own.
local uv = require "luv"
local beneath = require "bench.beneath"
local gateway = require "spec.helpers.gateway"
local process = require "spec.helpers.process"
local under = require "bench.load"

local crowd = {}

local MODERN <const>, LEGACY <const> = "2026-07-28", "2025-11-25"
local WORKERS <const>, UPSTREAMS <const>, STUCK <const> = 2, 5, 8

--- Rounds of load on one of five upstreams, in turn with all well and with another one stopped, to which calls wait:
--- lists of p99 in µs, { well, hung }.
--- `request_for(g, revision, tool)` makes the request.
function crowd.hang(rounds, seconds, request_for)
  local below, entries = {}, {}
  for i = 1, UPSTREAMS do
    below[i] = beneath.start(MODERN, 1)
    entries["u" .. i] = { url = below[i].url, list_wait = "10s" }
  end
  local g = gateway.start { workers = WORKERS, config = { upstreams = entries, scripts = { path = "scripts", watch = false } } }
  local request = request_for(g, MODERN, "u1_search")
  local well, hung, c = {}, {}, g:client(MODERN)
  for round = 1, rounds do
    well[round] = select(3, under.run(g.port, g.pid, request, 8, seconds)).p99
    uv.kill(below[UPSTREAMS].pid, "sigstop")
    local stuck = {}
    for i = 1, STUCK do stuck[i] = c:open("tools/call", { name = ("u%d_search"):format(UPSTREAMS), arguments = { query = "x" } }) end
    hung[round] = select(3, under.run(g.port, g.pid, request, 8, seconds)).p99
    uv.kill(below[UPSTREAMS].pid, "sigcont")
    for _, stream in ipairs(stuck) do
      assert(stream:answer(60))
      stream:close()
    end
  end
  c:close()
  g:stop()
  for _, one in ipairs(below) do one.stop() end
  return { well = well, hung = hung }
end

-- The number of programs of upstreams below a process, without their keepers.
local function programs_of(pid, path)
  local count = 0
  for _, one in ipairs(process.below(pid)) do
    if uv.fs_readlink("/proc/" .. one .. "/exe") == path then count = count + 1 end
  end
  return count
end

--- Each of `sessions` sessions, which all have programs of their own, calls each of `upstreams` programs and stays: {
--- most = programs at once, ok, busy }.
--- Those for which there is no room wait for a second. An outcome other than a result or "busy" is an error.
function crowd.programs(sessions, upstreams)
  local folder, entries = beneath.folder(LEGACY), {}
  for i = 1, upstreams do entries[("s%02d"):format(i)] = { command = beneath.command(folder), list_wait = "30s", open = "1s" } end
  local g = gateway.start { workers = WORKERS, config = {
    upstreams = entries, scripts = { path = "scripts", watch = false }, sessions = { max = 2 * sessions, per_principal = 2 * sessions },
  } }
  local found, clients = { most = 0, ok = 0, busy = 0 }, {}
  for i = 1, sessions do clients[i] = g:client(LEGACY, { capabilities = { elicitation = {} } }) end
  for i = 1, upstreams do
    local streams = {}
    for k, c in ipairs(clients) do streams[k] = c:open("tools/call", { name = ("s%02d_search"):format(i), arguments = { query = "x" } }) end
    for k, stream in ipairs(streams) do
      if k % 10 == 0 then found.most = math.max(found.most, programs_of(g.pid, beneath.command(folder)[1])) end
      local answer = stream:answer(120)
      local data = answer.error and answer.error.data
      assert(answer.result or data and data.outcome == "not_run" and data.reason == "busy", answer.error and answer.error.message)
      local kind = answer.result and "ok" or "busy"
      found[kind] = found[kind] + 1
      stream:close()
    end
    for _, c in ipairs(clients) do c.connections = { c.kept } end
  end
  for _, c in ipairs(clients) do c:close() end
  g:stop()
  beneath.remove(folder)
  return found
end

return crowd
