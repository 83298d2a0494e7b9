-- Messages of upstreams that belong to no call, and gaps in the streams that carry them. C hands them to the worker
-- that holds the stream. A question outside a call is answered with an error at once, since no client can be asked it
-- (X-36); C drops those over 256 in a minute.
--   event   { kind = "message" | "gap" | "ended" | "lost", upstream, key, serial, channel, method?, id?, bytes?, stream_id?, status? }, as
--           host.upstream.observed gives it

local bus = require "moonpool.runtime.bus"
local errors = require "moonpool.runtime.rpc_error"
local failure = require "moonpool.runtime.outcome"
local host = require "moonpool.host"
local json = require "moonpool.json"
local message = require "moonpool.upstream.message"
local single_task = require "moonpool.runtime.single_task"

local observer = {}

local MAX_S = 120        -- seconds that the task may take that reads observations

local handlers = {}      -- method, or "gap", "ended" or "lost" -> f(event, params)

--- Sets the function for notifications of a method, or for "gap", "ended" or "lost": f(event, params). It may wait for
--- a short time.
function observer.on(what, f) handlers[what] = f end

local function params_of(event)
  local note = event.bytes and json.decode(event.bytes)
  local params = type(note) == "table" and note.params
  return type(params) == "table" and params or {}
end

-- Answers a question that belongs to no call.
local function refuse_question(event)
  local answer
  if event.method == "ping" then
    answer = message.answer(event.id, json.object {})
  else
    answer = message.answer(event.id, nil, errors.new("unknown_method", "no call is running that '" .. tostring(event.method) .. "' could belong to"))
  end
  event.channel:send(answer)
end

local function take(event)
  if event.kind == "message" and event.id then return refuse_question(event) end
  local handler = handlers[event.kind == "message" and event.method or event.kind]
  if handler then handler(event, params_of(event)) end
end

--- Takes a notification that came on the stream of a request and is about the whole channel: its lists, or a resource.
--- `of`: { upstream, key } of the channel.
function observer.note(of, event)
  if not (event.method:find "/list_changed$" or event.method == "notifications/resources/updated") then return end
  local one = { kind = "message", method = event.method, bytes = event.bytes, upstream = of.upstream, key = of.key }
  host.job.begin(function() take(one) end, MAX_S)
end

local has_more = false                       -- observations have come since the task that reads them began

local begin_reading = single_task.new(function()
  has_more = false
  for event in host.upstream.observed do
    local ok, why = xpcall(take, failure.handler, event)
    if not ok then
      host.log.write("error", "notification of an upstream failed", { upstream = event.upstream, method = event.method, why = failure.reason(why) })
    end
    event.channel:release()
  end
end, function() return has_more end, MAX_S)    -- one may have arrived after the last look

bus.on("observed", function()
  has_more = true
  begin_reading()
end)

return observer
