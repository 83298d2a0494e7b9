-- moonpool record: has the running gateway record calls, and writes them to a file or to stdout as they come. moonpool
-- tap --record writes them as a transcript, which has arguments and results alone.

local json = require "moonpool.json"
local records = require "moonpool.workbench.client.records"
local stderr = require "moonpool.workbench.format.stderr"
local transcript = require "moonpool.workbench.format.transcript"
local duration = require "moonpool.workbench.format.duration"
local wire = require "moonpool.wire"

-- The file for the records; nil, why.
local function open(path, is_new)
  if not path then return io.stdout end
  -- also if the path is a link to a file that does not exist yet
  wire.keep_private()
  local is_made, wrong = wire.create(path, "", true)        -- readable for its owner alone
  if is_new and not is_made then return nil, wrong end
  local file, why = io.open(path, "ab")
  if not file then return nil, why end
  return file
end

-- Recorded calls as lines of a transcript. `written` counts them.
local function as_transcript(lines, written)
  local parts = {}
  for line in lines:gmatch "[^\n]+" do
    local record = json.decode(line)
    local text = type(record) == "table" and transcript.call(record, written.count + 1)
    if text then
      parts[#parts + 1] = text
      written.count = written.count + 1
    end
  end
  return table.concat(parts)
end

local function write(file, lines)
  if lines == "" then return true end
  local ok, why = file:write(lines)
  if ok then ok, why = file:flush() end
  return ok, why
end

local function read_options(args)
  local seconds = duration(args["for"] or "1h")
  if not seconds or seconds < 1 or seconds > 86400 then return nil, "--for is a time from 1s to 1d: '" .. args["for"] .. "'", "as in 10m or 1h" end
  local most = math.tointeger(tonumber(args.most or 1000))
  if not most or most < 1 or most > 1000000 then return nil, "--most is a number from 1 to 1000000: '" .. args.most .. "'", "as in --most 100" end
  return { tool = args.tool or "*", seconds = seconds, most = most }
end

-- Writes the lines that were recorded since `after`: the new serial, and true while the recording is active; or nil,
-- why.
local function follow(args, file, after, written)
  while true do
    local lines, facts = records.page(args, after)
    if not lines then return nil, facts end
    local before = written.count
    if args.record then
      lines = as_transcript(lines, written)
    else
      for _ in lines:gmatch "\n" do written.count = written.count + 1 end
    end
    local ok, why = write(file, lines)
    if not ok then
      written.count = before
      return nil, "cannot write the records: " .. tostring(why)
    end
    written.lost = written.lost + facts.lost
    after = facts.next
    if not facts.more then return after, facts.asked end
  end
end

local only_of_taps = { "principal", "session", "method", "outcome", "slower", "arguments", "sample", "json" }

return function(args)
  for _, name in ipairs(args.record and only_of_taps or {}) do
    if args[name] then
      return stderr.misuse("--record and --" .. name .. " exclude each other", "a transcript is of whole calls: --tool and --for select them")
    end
  end
  local asked, what, hint = read_options(args)
  if not asked then return stderr.misuse(what, hint) end
  if not args.address then
    return stderr.wrong("this configuration has no admin listener", "write 'admin: {listen: 127.0.0.1:7301}' into it, or name one with --admin", 78)
  end
  local file, why = open(args.record or args.out, args.record ~= nil)
  if not file then return stderr.wrong("cannot write the records: " .. why) end
  wire.catch_interrupts()                                   -- from here on an interrupt ends the recording, not this process
  local body, wrong, more = records.ask(args, "POST", "/api/record", json.encode(asked))
  if not body then return stderr.wrong(wrong, more) end
  local after, written = json.decode(body).after, { count = 0, lost = 0 }
  if args.record then
    local ok, trouble = write(file, transcript.head(asked.tool))
    if not ok then
      records.ask(args, "POST", "/api/record/stop")
      return stderr.wrong("cannot write the transcript: " .. tostring(trouble))
    end
  end
  stderr.note(("recording calls of %s for %d s at most; Ctrl-C ends it."):format(asked.tool, asked.seconds))
  local goes_on = true
  local failed
  while goes_on and not failed do
    local is_interrupted = wire.pause(0.25) == "interrupted"
    local now, state = follow(args, file, after, written)
    if not now then
      failed = state
    else
      after, goes_on = now, state and not is_interrupted
    end
  end
  records.ask(args, "POST", "/api/record/stop")
  if not failed then
    local now, state = follow(args, file, after, written)
    failed = not now and state or nil
  end
  stderr.note(("%d %s recorded%s"):format(written.count, written.count == 1 and "call" or "calls",
    written.lost > 0 and (", %d were lost: 200 calls and 8 MiB are kept"):format(written.lost) or ""))
  if failed then return stderr.wrong(failed) end
  return 0
end
