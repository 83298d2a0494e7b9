-- A gateway with store.file that is killed under load, again and again: clients open and end sessions, and read streams
-- of calls, while it is killed. Every session whose `initialize` was answered is there afterwards, none that was ended
-- with an answer; streams go on, no event comes twice, and a call that ran gets one error.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local resume = require "spec.helpers.resume"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local restarts = {}

local OPENING <const>, ENDING <const>, STREAMS <const> = 64, 16, 8 -- requests and calls that run when the gateway is killed
local STEPS <const> = 100 -- that a call has told of by then, each after 3 ms: the file has the call, and lacks its last ones
local MOST_VIOLATIONS <const> = 20

local function violate(report, text, ...)
  report.violation_count = report.violation_count + 1
  if #report.violations < MOST_VIOLATIONS then report.violations[#report.violations + 1] = text:format(...) end
end

local function headers(session)
  return { Accept = wire.both, ["Content-Type"] = "application/json", ["Mcp-Session-Id"] = session }
end

local function post(connection, message, session)
  return connection:send { method = "POST", path = "/mcp", headers = headers(session), body = message }
end

-- The answer that came before the gateway ended; nil if none did.
local function answer_of(connection)
  local ok, response = pcall(connection.read_response, connection, 5)
  connection:close()
  return ok and response or nil
end

-- Kills the gateway once a number of the connections have an answer.
local function kill(g, connections, most)
  local answered = math.random(0, most)
  wait.for_fact("some answers", 20, function()
    local count = 0
    for _, connection in ipairs(connections) do count = count + (connection:has_begun() and 1 or 0) end
    return count >= answered
  end)
  g:kill()
  g.stopped = true
end

-- Every session of the list is there, and no other. `was_late`: the killed gateway has said that the disk was slow, and
-- that sessions may be lost.
local function check(report, g, sessions, was_late)
  local connection = client.connect(g)
  for id in pairs(sessions) do
    local response = connection:request { method = "POST", path = "/mcp", headers = headers(id), body = wire.message(1, "ping") }
    if response.status == 404 and was_late then
      report.late, sessions[id] = report.late + 1, nil
    elseif response.status ~= 200 then
      violate(report, "round %d: a session is gone: %d", report.rounds, response.status)
    end
  end
  connection:close()
end

-- Resumes the streams, in the new process.
local function check_streams(report, streams)
  for _, it in ipairs(streams) do
    local events = resume.all(resume.after(it.me, it.last), 20)
    local words = resume.words(events)
    local at = it.step
    for i, word in ipairs(words) do
      if i == #words then
        if word ~= -32603 then violate(report, "round %d: a stream ended with %s", report.rounds, tostring(word)) end
      elseif word ~= at + 1 then
        -- what was sent in the last 10 ms may be lost, and is at the end
        violate(report, "round %d: after step %d came %s", report.rounds, at, tostring(word))
      else
        at = word
      end
    end
    if #words == 0 then violate(report, "round %d: a call got no answer", report.rounds) end
    it.me:close()
  end
end

-- `options`: rounds, sessions, say.
function restarts.run(options)
  local report = { rounds = 0, violations = {}, violation_count = 0, opened = 0, ended = 0, late = 0 }
  local g = gateway.start {
    scripts = resume.scripts, files = { ["data/.keep"] = "" },
    config = { store = { file = "data/store.db" }, sessions = { max = 100000, per_principal = 100000 } },
  }
  local sessions, count = {}, 0
  local function add(id) sessions[id], count = true, count + 1 end
  while count < options.sessions do add((wire.initialize(g, "2025-11-25"))) end
  for _ = 1, options.rounds do
    report.rounds = report.rounds + 1
    local streams = {}
    for i = 1, STREAMS do
      local me = g:client "2025-11-25"
      add(me.session)
      local stream = resume.steps(me, 100000, 3)
      streams[i] = { me = me, stream = stream }
    end
    for _, it in ipairs(streams) do it.stream:wait_event(resume.step(STEPS)) end
    local opening, ending, all = {}, {}, {}
    for i = 1, OPENING do
      opening[i] = post(client.connect(g), wire.initialize_message("2025-11-25", i))
      all[#all + 1] = opening[i]
    end
    for id in pairs(sessions) do
      if #ending == ENDING then break end
      local is_read = false
      for _, it in ipairs(streams) do is_read = is_read or it.me.session == id end
      if not is_read then
        ending[#ending + 1] = { id = id, connection = client.connect(g):send { method = "DELETE", path = "/mcp", headers = headers(id) } }
        all[#all + 1] = ending[#ending].connection
      end
    end
    kill(g, all, OPENING + #ending)
    for _, connection in ipairs(opening) do
      local response = answer_of(connection)
      if response and response.status == 200 then
        add(response.headers["mcp-session-id"])
        report.opened = report.opened + 1
      end
    end
    local over, unknown = {}, {}
    for _, one in ipairs(ending) do
      local response = answer_of(one.connection)
      sessions[one.id], count = nil, count - 1
      local list = response and response.status == 204 and over or unknown
      list[#list + 1] = one.id
    end
    report.ended = report.ended + #over
    for _, it in ipairs(streams) do
      it.step, it.last = 0, nil
      for _, event in ipairs(it.stream.connection.events) do
        if event.id and event.data ~= "" then it.step, it.last = event.json.params.progress, event.id end
      end
      it.stream:close()
    end
    local was_late = g:log():find("store not saved", 1, true) ~= nil
    g = gateway.start { dir = g.dir }
    check(report, g, sessions, was_late)
    local connection = client.connect(g)
    for _, id in ipairs(over) do
      local response = connection:request { method = "DELETE", path = "/mcp", headers = headers(id) }
      if response.status == 204 and was_late then
        report.late = report.late + 1
      elseif response.status ~= 404 then
        violate(report, "round %d: a session that was ended is back: %d", report.rounds, response.status)
      end
    end
    for _, id in ipairs(unknown) do connection:request { method = "DELETE", path = "/mcp", headers = headers(id) } end
    connection:close()
    for _, it in ipairs(streams) do it.me.gateway = g end
    check_streams(report, streams)
    if options.say and report.rounds % 10 == 0 then options.say(restarts.describe(report)) end
  end
  g:stop()
  gateway.run_program("/bin/rm", { "-r", g.dir })
  return report
end

function restarts.describe(report)
  return ("%d kills: %d sessions opened and %d ended with an answer while it was killed, %d lost or back where the log had told of a slow disk, "
    .. "%d violations\n%s"):format(report.rounds, report.opened, report.ended, report.late, report.violation_count, table.concat(report.violations, "\n"))
end

return restarts
