-- Runs a recorded call against the scripts of this process, with the answers of the record alone (outside.lua).

local auth = require "moonpool.access.auth"
local canonical = require "moonpool.runtime.canonical"
local client_request = require "moonpool.calls.client_request"
local characters = require "moonpool.runtime.characters"
local errors = require "moonpool.runtime.rpc_error"
local host = require "moonpool.host"
local json = require "moonpool.json"
local line = require "moonpool.replay.line"
local outside = require "moonpool.replay.outside"
local packed = require "moonpool.replay.packed"
local principal = require "moonpool.access.principal"
local redact = require "moonpool.runtime.redact"
local registry = require "moonpool.registry.registry"

local player = {}

local MAX_EVENTS <const> = 8192
local MAX_DENIED <const> = 4         -- scripts and kinds of grants that a report names for one call

-- The members that a line must have to be a record of a call, with their types.
local kinds = { tool = "string", outcome = "string", arguments = "table", events = "table", values = "table", variables = "table" }

local function wrong_in(record)
  if type(record) ~= "table" or record.moonpool ~= "record 1" then return "the line is no record of a call" end
  for name, kind in pairs(kinds) do
    if type(record[name]) ~= kind then return "'" .. name .. "' of the record must be a " .. kind end
  end
  for _, event in ipairs(record.events) do
    local is_event = type(event) == "table" and type(event.kind) == "string" and type(event.args) == "table"
    if not is_event or event.results ~= nil and type(event.results) ~= "table" then
      return "an event of the record has no kind, arguments or results"
    end
  end
  return nil
end

local function principal_of(given)
  if given == "anonymous" then return principal.anonymous end
  if given == nil or given == "local" then return principal.lone end
  if type(given) ~= "table" then return nil, "its principal is no object" end
  local facts = {}
  for _, name in ipairs { "id", "scopes", "claims", "issuer", "subject", "client" } do
    if given[name] ~= json.null then facts[name] = given[name] end
  end
  return principal.new(facts, auth.declared())
end

local STANDING <const> = 1000      -- how often a call may read a clock before real time counts for it

-- The seconds by which a clock has gone on from its last recorded value: those that the call has slept since, so that
-- two replays give the same. A loop that reads the clock more than STANDING times gets real time, too, and ends.
local function ahead(state, kind)
  local since = state.clocks[kind] or { readings = 0, slept = state.seconds_slept }
  state.clocks[kind], since.readings = since, since.readings + 1
  if since.readings == STANDING then since.cpu = os.clock() end
  local slept = kind == "cpu" and 0 or state.seconds_slept - since.slept
  return slept + (since.cpu and os.clock() - since.cpu or 0)
end

-- A value of a kind whose recorded values are used up: a clock continues from its last recorded value, and so does a
-- random generator.
local function further(state, kind, list, real, ...)
  if kind == "clock" or kind == "time" or kind == "monotonic" or kind == "cpu" then
    local is_date = kind == "clock" or kind == "time"
    local value = #list > 0 and list[#list] or is_date and state.time
    if not value then return real(...) end
    return math.type(value) == "integer" and value + ahead(state, kind) // 1 | 0 or value + ahead(state, kind)
  elseif kind == "bytes" then
    state.drawn = (state.drawn or 0) + 1
    local n, text = ..., ""
    while math.type(n) == "integer" and n <= 65536 and #text < n do
      text = text .. host.digest.sum("sha256", tostring(state.record.id) .. state.drawn .. "," .. #text)
    end
    return text:sub(1, n)
  end
  return real(...)
end

local function value_from(state)
  local at = {}
  return function(kind, real, ...)
    local list = state.record.values[kind]
    if type(list) ~= "table" then return further(state, kind, {}, real, ...) end
    at[kind] = (at[kind] or 0) + 1
    local got = list[at[kind]]
    if kind == "bytes" then
      got = got and packed.unpack(state, { got })
      if type(got) == "string" and #got == ... then return got end
    elseif type(got) == "number" then
      return got
    end
    return further(state, kind, list, real, ...)
  end
end

-- Finds the answer of the record for each use of a library. A recorded answer is given once, in the order of the
-- record.
local function through_of(state)
  local waiting = {}
  for i, event in ipairs(state.record.events) do
    local key = event.kind .. " " .. canonical(event.args)
    waiting[key] = waiting[key] or { at = 1 }
    table.insert(waiting[key], i)
  end
  return function(kind, args)
    local event = { kind = kind, task = packed.task(state), args = packed.pack(state, args) }
    if kind == "http read" then event.args.stream = type(args.stream) == "table" and { ["$handle"] = args.stream.number } or nil end
    event = line.event(state.hide, event)
    local key = kind .. " " .. canonical(event.args)
    local list = waiting[key]
    local recorded = list and state.record.events[list[list.at]]
    if #state.events < MAX_EVENTS then state.events[#state.events + 1] = { kind = kind, task = event.task, args = event.args } end
    if not recorded or not recorded.results then
      state.refused = state.refused + 1
      if #state.events <= MAX_EVENTS then state.events[#state.events].is_refused = true end
      return outside.refused(kind)
    end
    list.at = list.at + 1
    return packed.unpack(state, recorded.results)
  end
end

-- Answers the questions of a handler as the client of the recorded call did.
local function asker(through)
  return function(open, found, whys)
    for key, asked in pairs(open) do
      local answer, refused = through("question", { method = asked.method, params = asked.params })
      if answer == nil or answer == false then
        whys[key] = answer == false and "unsupported" or refused and refused.message or "refused"
      else
        found[key], whys[key] = asked.read(answer)
      end
    end
  end
end

local MOST_LATE_SLEEPS <const> = 1000      -- a call that is late and sleeps on and on may never end: then it is ended

-- Counts the time that the call would have slept: in each of its tasks for itself, since they run side by side. `most`:
-- the seconds after which it is late.
local function sleeper(state, call, most)
  local slept, late_sleeps = {}, 0
  return function(seconds)
    local task = packed.task(state)
    slept[task] = (slept[task] or 0) + math.max(seconds, 0)
    state.seconds_slept = math.max(state.seconds_slept, slept[task])
    late_sleeps = late_sleeps + (slept[task] > most and 1 or 0)
    if late_sleeps == MOST_LATE_SLEEPS then outside.set_deadline(call, 0.001) end
  end
end

-- The time that the recorded call took, in seconds. A record without it is of a call within its limit.
local function seconds_before(record, limit) return type(record.seconds) == "number" and math.max(record.seconds, 0) or limit end

-- If the replay was slower than the recorded call by more than the call's time limit: { seconds, before, limit }. Only
-- the processor time of its Lua and its sleeps count. The recorded time alone is not compared with the limit: a client
-- may have chosen it, by an argument for example.
local function lateness(state, limit, cpu)
  local seconds, before = cpu + state.seconds_slept, seconds_before(state.record, limit)
  return seconds > before + limit and { seconds = seconds, before = before, limit = limit } or nil
end

-- The state of the last replay that began.
local last

--- How many uses of libraries the last replay was refused, which may have been ended by a limit since; or 0.
function player.refused() return last and last.refused or 0 end

local function seconds_of(text)
  if type(text) ~= "string" then return nil end
  local at = require "moonpool.lib.time".parse(text)
  return at and math.floor(at)
end

--- Replays one call: { outcome, result | error, events, refused }, without secrets; or nil and an error if the line is
--- no record, or cannot be replayed. `late`: { seconds, before, limit } if it is too slow now. `eras`: by revision, what
--- answers its requests; `row`: the one for a record of an unknown revision.
function player.answer(call, record, row, eras)
  local wrong = wrong_in(record)
  if wrong then return nil, errors.new("invalid_params", wrong) end
  if record.cut then return { skipped = "the call was larger than 256 KiB: only its beginning is kept", resultType = "complete" } end
  if type(record.skipped) == "string" then return { skipped = characters.shown(record.skipped:sub(1, 200)), resultType = "complete" } end
  local who, why = principal_of(record.principal)
  if not who then return nil, errors.new("invalid_params", "the principal of the record: " .. tostring(why)) end
  local tool = registry.thing("tools", record.tool)
  local state = {
    mark = host.call.mark(call), record = record, hide = redact.new(), events = {}, refused = 0, variables = record.variables, time = seconds_of(record.time),
    seconds_slept = 0, clocks = {}, denied = {},
  }
  last = state
  local limit = math.min(tool and tool.timeout or math.huge, host.limits.call_seconds)
  state.through, state.value, state.slept = through_of(state), value_from(state), sleeper(state, call, seconds_before(record, limit) + limit)
  function state.lacks() state.refused = state.refused + 1 end
  function state.denies(kind, path)
    local text = ("%s asks for what no grant allows: %s (scripts.grants of moonpool.yaml)"):format(path, kind)
    if not state.denied[text] and #state.denied < MAX_DENIED then table.insert(state.denied, text) end
    state.denied[text] = true
  end
  row = eras[record.revision] or row        -- what a wrong argument is answered with differs by revision
  client_request.forget(call)
  if record.outcome ~= "asked" then client_request.through(call, asker(state.through)) end
  host.call.set_principal(call, who)
  host.call.allow_cpu(call, seconds_before(record, limit))
  outside.playing = state
  local cpu = os.clock()
  local _ <close> = setmetatable({}, { __close = function()
    outside.playing = nil
    host.call.set_principal(call, nil)
  end })
  local ok, result, err = pcall(row.methods["tools/call"].run, call, { name = record.tool, arguments = record.arguments }, row)
  outside.playing = nil
  local late = lateness(state, limit, os.clock() - cpu)
  if not ok then result, err = nil, { message = tostring(result) } end
  local plain = json.decode(json.encode(result or err or json.null))
  local made = line.without_secrets(state.hide, tool and tool.input, {
    arguments = {}, events = {}, result = result and plain or nil, error = not result and plain or nil,
  })
  if made.result then made.result.requestState = nil end
  return { outcome = line.outcome(result, err), result = made.result, error = made.error, events = json.array(state.events), refused = state.refused,
    denied = #state.denied > 0 and { table.unpack(state.denied) } or nil, late = late, resultType = "complete" }
end

return player
