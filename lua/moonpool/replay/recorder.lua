-- Records calls: their arguments, principal and result, and what their libraries got from outside, each as one line of
-- JSON. While no call is recorded, none of this is in the way of others.

local dispatch = require "moonpool.methods.dispatch"
local environment = require "moonpool.lib.env"
local hooks = require "moonpool.replay.hooks"
local host = require "moonpool.host"
local json = require "moonpool.json"
local line = require "moonpool.replay.line"
local packed = require "moonpool.replay.packed"
local principal = require "moonpool.access.principal"
local redact = require "moonpool.runtime.redact"
local registry = require "moonpool.registry.registry"
local outside_hooks = require "moonpool.runtime.outside_hooks"

local recorder = {}

local MAX_EVENTS <const> = 4096
local MAX_VALUES <const> = 4096         -- values of one clock or generator in a record

-- Why a call cannot be replayed.
local UPSTREAM <const> = "a tool of an upstream: what it answers is recorded where a script calls it, by upstream \"NAME\""
local TASK <const> = "the call became an MCP task, whose result comes later"
local SECRETS <const> = "it has more secrets than can be looked for in its texts"
local AGAIN <const> = "the request repeats a call with answers to its questions"

local monotonic = host.time.now         -- the hooks of records replace it

local active, count = {}, 0             -- mark of a call -> its record
local take_away                         -- removes the hooks; nil while they are not in place

local function current()
  local call = host.call.current()
  return call and active[host.call.mark(call)]
end

-- Counts the bytes of a value about as its JSON has them. False if the record is over its limit.
local function fits(record, value, depth)
  local kind = type(value)
  if kind == "string" then
    record.room = record.room - #value - 8
  elseif kind == "table" and depth < 64 then
    record.room = record.room - 8
    for name, part in next, value do
      if record.room < 0 then return false end
      if type(name) == "string" then record.room = record.room - #name end
      fits(record, part, depth + 1)
    end
  else
    record.room = record.room - 16
  end
  return record.room >= 0
end

local function cut(record)
  record.is_cut, record.room = true, -1
  return record
end

local function noted(record, event, ...)
  if record.is_cut or record.is_over then return ... end
  local results = packed.results(record, ...)
  if not fits(record, results, 1) then
    cut(record)
  else
    event.results = results
  end
  return ...
end

local function through(kind, args, real)
  local record = current()
  if not record or record.is_cut or record.is_over then return real() end
  local event = { kind = kind, task = packed.task(record), args = packed.pack(record, args) }
  if #record.events >= MAX_EVENTS or not fits(record, event.args, 1) then
    cut(record)
    return real()
  end
  -- added before the answer, so that events are in the order in which the script asked
  record.events[#record.events + 1] = event
  return noted(record, event, real())
end

local function value(kind, real, ...)
  local record = current()
  local got = real(...)
  if record and not record.is_cut and not record.is_over then
    local list = record.values[kind] or json.array {}
    record.values[kind] = list
    if #list < MAX_VALUES and record.room > 0 then
      list[#list + 1] = packed.pack(record, got)
      record.room = record.room - 20
    end
  end
  return got
end

-- A variable that is read while a call runs. Secrets are not recorded.
local function variable(word, name, real)
  local record, got = current(), real()
  if record and word == "env" and not record.is_over and fits(record, got or "", 1) then record.variables[name] = got or json.null end
  return got
end

local function install()
  if take_away then return end
  local restore = hooks.install(through, value)
  local restore_methods = dispatch.wrap_method("tools/call", function(run)
    return function(call, params, era)
      local record = active[host.call.mark(call)]
      if not record then return run(call, params, era) end
      local result, err, converted = run(call, params, era)
      record.is_over = true
      local ok, text = pcall(json.encode, result or err or json.null)
      if ok and #text <= record.room then
        if result then record.result = json.decode(text) else record.error = json.decode(text) end
      else
        cut(record)
      end
      return result, err, converted
    end
  end)
  outside_hooks.env = variable
  take_away = function()
    outside_hooks.env = nil
    restore_methods()
    restore()
  end
end

-- Runs `f` without another task in between: hooks that two tasks put in place or take away at once would stay behind.
local function at_once(f, ...)
  local ok, why = host.script.briefly(f, tostring, ...)
  if not ok then error(why, 0) end
end

local function enter(record)
  active[record.id], count = record, count + 1
  install()
end

local function leave(record)
  active[record.id] = nil
  count = count - 1
  if count == 0 then
    local restore = take_away
    take_away = nil
    restore()
  end
end

local function outcome_of(record)
  if not record.error and type(record.result) ~= "table" then return "cancelled" end
  return line.outcome(record.result, record.error)
end

local order = { __order = {
  "moonpool", "id", "time", "seconds", "tool", "revision", "principal", "outcome", "exact", "hidden", "cut", "skipped", "arguments", "events",
  "result", "error", "values", "variables",
} }

local function who(p)
  local text = principal.pack(p)
  local facts = json.decode(text:sub(2))
  if type(facts) ~= "table" then return text end
  return { id = facts.id, scopes = facts.scopes, claims = facts.claims, issuer = facts.issuer, subject = facts.subject, client = facts.client }
end

-- True if the script has got a value that the record hides, so that a replay may differ.
local function is_given(hidden)
  for _, where in ipairs(hidden) do
    if where:find "^arguments" or where:find "%.answer" or where:find "^env" or where:find "^principal" then return true end
  end
  return false
end

-- Keeps a line that says why the call has no other one.
local function put_skipped(record, why)
  host.record.put(json.encode(setmetatable({
    moonpool = "record 1", id = record.id, time = record.time, tool = record.tool, revision = record.revision, outcome = "skipped",
    exact = false, skipped = why, arguments = json.object {}, events = json.array {}, values = json.object {}, variables = json.object {},
  }, order)), "skipped")
end

local function write(record, tool)
  local hide = redact.new()
  for text in pairs(environment.secrets) do hide:hide(text) end
  local made = line.without_secrets(hide, tool, record)
  if hide.is_full then return put_skipped(record, SECRETS) end
  if made.result then made.result.requestState = nil end
  local text = json.encode(setmetatable({
    moonpool = "record 1", id = record.id, time = record.time, seconds = record.seconds, tool = record.tool, revision = record.revision,
    principal = made.principal,
    outcome = outcome_of(record), exact = not is_given(hide.hidden) and not record.is_cut, hidden = #hide.hidden > 0 and json.array(hide.hidden) or nil,
    cut = record.is_cut, arguments = json.object(made.arguments), events = made.events, result = made.result, error = made.error,
    values = json.object(record.values), variables = json.object(made.variables),
  }, order))
  host.record.put(text, record.is_cut == true)
end

-- Why the call cannot be replayed; nil if it can: it runs a script, and is no answer to questions.
local function why_skipped(tool, params)
  if tool.upstream then return UPSTREAM end
  if params.task ~= nil then return TASK end
  return (params.requestState ~= nil or params.inputResponses ~= nil) and AGAIN or nil
end

--- Answers a call as `answer` does, and records it.
function recorder.answer(answer, call, params, revision, method)
  local tool = type(params) == "table" and type(params.name) == "string" and registry.thing("tools", params.name)
  if not tool or not host.record.claim(tool.name) then return answer(call, params, revision, method) end
  local skipped = why_skipped(tool, params)
  if skipped then
    put_skipped({ id = host.call.mark(call), time = os.date "!%Y-%m-%dT%H:%M:%SZ", tool = tool.name, revision = revision }, skipped)
    return answer(call, params, revision, method)
  end
  local record = {
    id = host.call.mark(call), time = os.date "!%Y-%m-%dT%H:%M:%SZ", tool = tool.name, revision = revision, principal = who(call.principal),
    events = {}, values = {}, variables = {}, room = host.record.room(), began = monotonic(),
  }
  record.arguments = type(params.arguments) == "table" and packed.pack(record, params.arguments) or json.object {}
  if not fits(record, record.arguments, 1) then
    cut(record)
    record.arguments = json.object {}
  end
  at_once(enter, record)
  local _ <close> = setmetatable({}, { __close = function()
    record.is_over, record.seconds = true, math.ceil((monotonic() - record.began) * 1000) / 1000
    at_once(leave, record)
    local ok, why = pcall(write, record, tool)
    if not ok then host.log.write("warn", "call not recorded", { tool = record.tool, why = tostring(why):sub(1, 200) }) end
  end })
  return answer(call, params, revision, method)
end

return recorder
