-- moonpool profile: where the time of a running gateway's workers goes, or what allocates, from the admin listener's
-- event stream.

local characters = require "moonpool.runtime.characters"
local events = require "moonpool.workbench.client.events"
local files = require "moonpool.workbench.format.files"
local flame = require "moonpool.workbench.format.flame"
local json = require "moonpool.json"
local stderr = require "moonpool.workbench.format.stderr"
local duration = require "moonpool.workbench.format.duration"
local wire = require "moonpool.wire"

local LATER_S <const> = 60 -- the gateway ends the profile, this many seconds before the request would end
local ROWS <const> = 15 -- lines of the table

-- The body of the request and the seconds of the profile; or nil, what is wrong and a hint.
local function question_of(args)
  local asked = { seconds = duration(args["for"] or "30s"), tool = args.tool, memory = args.memory and true or nil }
  if not asked.seconds or asked.seconds > 300 then return nil, "--for is a time from 1s to 5m: '" .. args["for"] .. "'", "as in 30s or 2m" end
  for option, most in pairs { worker = 65535, hz = 1000, process = 99999999 } do
    local text = args[option]
    local number = text and text:find "^%d+$" and #text <= 8 and math.tointeger(text)
    if text and not (number and number <= most) then return nil, ("--%s is a number, at most %d: '%s'"):format(option, most, text) end
    asked[option] = number
  end
  return asked
end

local FORMS <const> = { svg = true, folded = true, json = true }

-- The stacks of all workers, with those that are equal put together; the one with the most samples comes first.
local function merged(list)
  local by_key, out = {}, {}
  for _, stack in ipairs(list) do
    local key = table.concat(stack.frames, "\n")
    local one = by_key[key]
    if not one then
      one = { frames = stack.frames, count = 0 }
      by_key[key], out[#out + 1] = one, one
    end
    one.count = one.count + stack.count
  end
  table.sort(out, function(a, b) return a.count > b.count or a.count == b.count and table.concat(a.frames, "\n") < table.concat(b.frames, "\n") end)
  return out
end

-- A line for each stack, as flame graph tools read them: the frames with ';' in between, and the count.
local function folded(stacks)
  local out = {}
  for _, stack in ipairs(stacks) do
    local frames = {}
    for i, name in ipairs(stack.frames) do frames[i] = name:gsub("[;%c]", "?") end
    out[#out + 1] = table.concat(frames, ";") .. " " .. stack.count .. "\n"
  end
  return table.concat(out)
end

-- The parts of the phases, or of the lines at the top of the stacks: a list of { name, count }.
local function ranked(stacks, name_of)
  local counts, out = {}, {}
  for _, stack in ipairs(stacks) do
    local name = name_of(stack)
    if name and not counts[name] then out[#out + 1] = name end
    if name then counts[name] = (counts[name] or 0) + stack.count end
  end
  table.sort(out, function(a, b) return counts[a] > counts[b] or counts[a] == counts[b] and a < b end)
  for i, name in ipairs(out) do out[i] = { name, counts[name] } end
  return out
end

local function print_table(title, rows, all)
  if not rows[1] then return end
  io.stdout:write(title, "\n")
  for i = 1, math.min(#rows, ROWS) do
    io.stdout:write(("  %5.1f %%  %s\n"):format(100 * rows[i][2] / all, characters.shown(rows[i][1])))
  end
end

local function print_summary(stacks)
  local all = 0
  for _, stack in ipairs(stacks) do all = all + stack.count end
  if all == 0 then return end
  print_table("phases", ranked(stacks, function(stack) return stack.frames[1] end), all)
  print_table("lines", ranked(stacks, function(stack) return stack.frames[3] and stack.frames[#stack.frames] end), all)
end

--- Waits for the profile, then prints or writes it. `request` is that of the admin listener, without its path.
return function(args, request)
  local asked, wrong, hint = question_of(args)
  if not asked then return stderr.misuse(wrong, hint) end
  local form = args.out and args.out:match "%.(%a+)$"
  if args.out and not FORMS[form] then return stderr.misuse("--out is a file that ends in .svg, .folded or .json: '" .. args.out .. "'") end
  local began, ended, list = nil, nil, {}
  local path = "/api/profile" .. (asked.process and "?process=" .. asked.process or "")
  asked.process = nil
  request.url, request.body = request.url .. path, json.encode(asked)
  request.seconds = asked.seconds + LATER_S
  request.on_bytes = events(function(data)
    local event = json.decode(data)
    if type(event) ~= "table" then return end
    if event.event == "stack" then
      list[#list + 1] = { frames = event.frames, count = event.count }
    elseif event.event == "profile began" then
      began = event
      stderr.note(("profile of %s for %d s, of %d %s of process %d. Ctrl-C ends it without a result."):format(args.memory and "memory" or "time",
        event.seconds, event.workers, event.workers == 1 and "worker" or "workers", event.pid))
    elseif event.event == "profile ended" then
      ended = event
    end
  end)
  local status, body = wire.fetch(request)
  if status == 401 then return stderr.wrong(stderr.no_token(args.address, args.token)) end
  if status and status ~= 200 then
    local answer = json.decode(body)
    return stderr.wrong(type(answer) == "table" and answer.error or (body:gsub("\n$", "")))
  end
  if not status and not began then return stderr.wrong(stderr.unreached(args.address, body)) end
  if not ended then return stderr.wrong("the profile has no end: " .. (status and "the gateway has closed the connection" or body)) end
  local unit = began.unit == "samples" and "samples" or "times 512 KiB"
  local stacks = merged(list)
  local note = ("%s, %.1f s, %d %s%s"):format(args.tool and "tool " .. args.tool or "all calls", ended.ms / 1000, ended.samples, unit,
    ended.lost > 0 and (", %d lost"):format(ended.lost) or "")
  stderr.note(("%s: %s"):format(characters.shown(ended.why), note))
  if ended.samples == 0 then stderr.note "no samples: the workers had nothing to do, or no call was like --tool" end
  if ended.lost > 0 then stderr.note "  hint: sample one tool" end
  if ended.workers_without_answer > 0 then stderr.note(("%d workers did not answer: see stuck in moonpool status"):format(ended.workers_without_answer)) end
  if not args.out then
    print_summary(stacks)
    return 0
  end
  local text
  if form == "svg" then
    text = flame(stacks, unit, note)
  elseif form == "folded" then
    text = folded(stacks)
  else
    text = json.encode { unit = began.unit, hz = began.hz, ms = ended.ms, samples = ended.samples, lost = ended.lost, stacks = json.array(stacks) } .. "\n"
  end
  local fine, why = files.write(args.out, text, "wb")
  if not fine then return stderr.wrong("cannot write " .. why) end
  stderr.note("wrote " .. args.out)
  return 0
end
