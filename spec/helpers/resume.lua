-- Streams that a client leaves and resumes with Last-Event-ID, for the specs of S-27 to S-31.
local resume = {}

resume.scripts = {
  ["tools/steps.lua"] = [[return tool { "Counts.", input = { n = t.integer, ms = t.number { default = 0 } }, function(args, call)
    for i = 1, args.n do
      call:progress(i, args.n, args.ms)
      sleep(args.ms / 1000)
    end
    log.info("counted", { n = args.n })
    return "counted to " .. args.n
  end }]],
  ["tools/ask.lua"] = [[return tool { "Asks.", function(_, call)
    call:progress(1)
    sleep(0.2)
    local yes, why = call:elicit("sure", "Sure?", { name = t.string })
    return yes and yes.name or why
  end }]],
  ["tools/away.lua"] = [[return tool { "Lets its client go.", input = { seconds = t.number { default = 0.05 } }, function(args, call)
    local away = call:detach(args.seconds)
    call:progress(1)
    sleep(0.1)
    return "away: " .. tostring(away)
  end }]],
}

-- A call of `steps` that asks for progress notifications.
function resume.steps(me, n, ms)
  return me:open("tools/call", { name = "steps", arguments = { n = n, ms = ms }, _meta = { progressToken = "steps" .. n } })
end

-- The progress event of step `i`.
function resume.step(i)
  return function(event)
    return type(event.json) == "table" and event.json.method == "notifications/progress" and event.json.params.progress == i
  end
end

-- Resumes the stream after the event `id`, on a connection of its own.
function resume.after(me, id)
  return me:get_stream { ["Last-Event-ID"] = id }
end

-- Every event with an id, up to the end of the stream.
function resume.all(stream, seconds)
  stream.connection:wait_end(seconds)
  local events = {}
  for _, event in ipairs(stream.connection.events) do
    if event.id then
      events[#events + 1] = event
    end
  end
  return events
end

-- An event as one word: its step, "priming", or the text of a result.
function resume.word(event)
  local json = event.json
  if event.data == "" then
    return "priming"
  elseif type(json) ~= "table" then
    return "not JSON: " .. tostring(event.data)
  elseif json.result then
    return json.result.content[1].text
  end
  return json.params and json.params.progress or json.method or (json.error and json.error.code)
end

function resume.words(events)
  local words = {}
  for i, event in ipairs(events) do
    words[i] = resume.word(event)
  end
  return words
end

return resume
