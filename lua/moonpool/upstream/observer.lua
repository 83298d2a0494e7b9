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

local is_reading, has_more = false, false    -- a task reads observations; more have come since it began
local begin_reading

local function read()
  has_more = false
  local _ <close> = setmetatable({}, { __close = function()
    is_reading = false
    if has_more then begin_reading() end      -- an observation may have arrived after the last look
  end })
  for event in host.upstream.observed do
    local ok, why = xpcall(take, failure.handler, event)
    if not ok then
      host.log.write("error", "notification of an upstream failed", { upstream = event.upstream, method = event.method, why = failure.reason(why) })
    end
    event.channel:release()
  end
end

function begin_reading() is_reading = host.job.begin(read, MAX_S) ~= nil end

bus.on("observed", function()
  if is_reading then has_more = true else begin_reading() end
end)

return observer
