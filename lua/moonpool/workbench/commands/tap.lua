-- moonpool tap: prints calls of a running gateway as they begin and end, from the event stream of its admin listener.

local characters = require "moonpool.runtime.characters"
local events = require "moonpool.workbench.client.events"
local json = require "moonpool.json"
local stderr = require "moonpool.workbench.format.stderr"
local sorted = require "moonpool.runtime.sorted_keys"
local wire = require "moonpool.wire"

local FILTERS <const> = { "tool", "principal", "session", "method", "outcome", "arguments", "sample" }
local UNITS <const> = { ms = 1, s = 1000, m = 60000, h = 3600000 }
local LATER_S <const> = 60 -- the gateway ends the tap, this many seconds before the request would end

local function encoded(text)
  return (text:gsub("[^%w%-_.~*]", function(c) return ("%%%02X"):format(c:byte()) end))
end

-- Milliseconds of a time such as 100ms, 2s or 5m; nil if it is none.
local function milliseconds(text)
  local number, unit = text:match "^(%d+)(%a+)$"
  return number and UNITS[unit] and tonumber(number) * UNITS[unit]
end

-- The query of the request; or nil, why, hint.
local function query_of(args)
  local query, seconds = {}, 3600
  for _, name in ipairs(FILTERS) do
    if args[name] then query[#query + 1] = name .. "=" .. encoded(args[name]) end
  end
  if args.slower then
    local ms = milliseconds(args.slower)
    if not ms then return nil, "--slower is a time: '" .. args.slower .. "'", "as in 100ms, 2s or 1m" end
    query[#query + 1] = ("slower=%d"):format(ms)
  end
  if args["for"] then
    local ms = milliseconds(args["for"])
    if not ms or ms < 1000 or ms > 3600000 then return nil, "--for is a time from 1s to 1h: '" .. args["for"] .. "'", "as in 60s or 5m" end
    seconds = ms // 1000
    query[#query + 1] = ("seconds=%d"):format(seconds)
  end
  return query[1] and "?" .. table.concat(query, "&") or "", seconds
end

local function shape(value)
  if type(value) ~= "table" then return type(value) == "string" and value or json.encode(value) end
  local parts = {}
  if value[1] then
    for i, one in ipairs(value) do parts[i] = shape(one) end
    return "[" .. table.concat(parts, ", ") .. "]"
  end
  for _, name in ipairs(sorted(value)) do parts[#parts + 1] = name .. ": " .. shape(value[name]) end
  return "{" .. table.concat(parts, ", ") .. "}"
end

-- One line for people.
local function line_of(event)
  local parts = { event.time and event.time:sub(12, 23) or "            " }
  local function put(text, format)
    if text and text ~= "" then parts[#parts + 1] = (format or "%s"):format(text) end
  end
  if event.event == "dropped" then
    put(event.count, "(%d events were dropped)")
  else
    put(event.event == "answer" and event.outcome or event.event, "%-9s")
    put(event.call)
    put(event.method)
    put(event.name)
    put(event.code, "%d")
    put(event.status, "HTTP %d")
    put(event.ms, "%.2f ms")
    put(event.why, "(%s)")
    put(event.principal)
    put(event.event ~= "answer" and event.client)
    put(event.session, "session %s")
    put(event.event ~= "call" and event.event ~= "answer" and event.address)
    put(event.event ~= "answer" and event.arguments and shape(event.arguments))
  end
  return table.concat(parts, "  ")
end

--- Prints events until the tap ends. `request` is that of the admin listener, without its path.
return function(args, request)
  local query, seconds, hint = query_of(args)
  if not query then return stderr.misuse(seconds, hint) end
  request.url = request.url .. "/api/tap" .. query
  request.seconds = seconds + LATER_S
  local has_begun = false
  local lost                                                -- why an event could not be written: then the tap ends, as its output is lost
  local function put(line)
    local ok, why = io.stdout:write(line, "\n")
    if ok then ok, why = io.stdout:flush() end
    if not ok then
      lost = why
      error(why, 0)
    end
  end
  request.on_bytes = events(function(data)
    local event = json.decode(data)
    has_begun = true
    if args.json then
      put(characters.shown(data))
    elseif event and event.event == "tap opened" then
      stderr.note(("tap open for %d s at most; arguments: %s. Ctrl-C ends it."):format(event.seconds, event.arguments))
    elseif event and event.event == "tap closed" then
      stderr.note("the gateway closed the tap: " .. characters.shown(event.why))
    elseif event then
      put(characters.shown(line_of(event)))
    end
  end)
  local ok, status, body = pcall(wire.fetch, request)
  if lost then return stderr.wrong("cannot write to stdout: " .. lost) end
  if not ok then error(status, 0) end
  if not status and not has_begun then return stderr.wrong(stderr.unreached(args.address, body)) end
  if not status then return stderr.wrong("the tap has ended: " .. body) end
  if status == 200 then return 0 end
  if status == 401 then return stderr.wrong(stderr.no_token(args.address, args.token)) end
  local answer = json.decode(body)
  return stderr.wrong(type(answer) == "table" and answer.error or body:gsub("\n$", ""))
end
