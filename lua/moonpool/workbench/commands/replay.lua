-- moonpool replay: runs recorded calls against the scripts on disk, in a child that reaches nothing outside, and prints
-- what differs.

local canonical = require "moonpool.runtime.canonical"
local characters = require "moonpool.runtime.characters"
local codes = require "moonpool.error_codes"
local json = require "moonpool.json"
local line_diff = require "moonpool.workbench.format.line_diff"
local link = require "moonpool.workbench.client.link"
local records = require "moonpool.workbench.client.records"
local stderr = require "moonpool.workbench.format.stderr"
local sorted = require "moonpool.runtime.sorted_keys"

local BAD_CONFIG <const> = 78
local MAX_LINES <const> = 400        -- lines of one difference that are shown
local FAILS <const> = 3              -- exit code for the gate of a reload (core/gateway/reload/replay_gate.c)

-- -- what differs -------------------------------------------------------------------------------------------------------

-- Appends the lines of a value of JSON, a line for each member.
local function put_lines(lines, value, indent, name)
  local head = indent .. (name and name .. ": " or "")
  if type(value) ~= "table" or next(value) == nil then
    if type(value) == "string" and value:find "\n" then
      lines[#lines + 1] = head
      for text in (value .. "\n"):gmatch "(.-)\n" do lines[#lines + 1] = indent .. "  " .. text end
    else
      local text = canonical(value):gsub("^(\"internal error) %x%x%x%x\"$", "%1\"")    -- the id differs each time
      lines[#lines + 1] = head .. text
    end
  elseif value[1] ~= nil then
    if name then lines[#lines + 1] = head end
    for _, part in ipairs(value) do put_lines(lines, part, indent .. "  ", "-") end
  else
    if name then lines[#lines + 1] = head end
    for _, key in ipairs(sorted(value)) do put_lines(lines, value[key], indent .. (name and "  " or ""), tostring(key)) end
  end
end

local subjects = { "method", "url", "upstream", "name", "database", "path", "key", "stream" }

local function put_event(lines, event)
  local args, words = {}, { event.kind }
  for name, value in pairs(event.args) do args[name] = value end
  for _, name in ipairs(subjects) do
    local value = args[name]
    if type(value) == "string" or type(value) == "number" then
      words[#words + 1] = tostring(value)
      args[name] = nil
    end
  end
  if type(args.argv) == "table" then
    for _, word in ipairs(args.argv) do words[#words + 1] = tostring(word) end
    args.argv = nil
  end
  lines[#lines + 1] = table.concat(words, " "):gsub("\n", "\\n")
  for _, name in ipairs(sorted(args)) do
    if args[name] ~= json.null and next(type(args[name]) == "table" and args[name] or { 1 }) ~= nil then put_lines(lines, args[name], "    ", name) end
  end
end

-- The lines of the outside calls. Those of tasks that ran side by side have no order among each other.
local function event_lines(events)
  local tasks, order = {}, {}
  for _, event in ipairs(events) do
    local task = event.task or 1
    if not tasks[task] then
      tasks[task] = {}
      order[#order + 1] = tasks[task]
    end
    put_event(tasks[task], event)
  end
  if #order > 1 then table.sort(order, function(a, b) return table.concat(a, "\n") < table.concat(b, "\n") end) end
  local lines = {}
  for _, list in ipairs(order) do table.move(list, 1, #list, #lines + 1, lines) end
  return lines
end

local function answer_lines(of)
  local lines = { of.outcome }
  local result = of.result or of.error
  if type(result) == "table" then
    local shown = {}
    for name, value in pairs(result) do
      if name ~= "resultType" and name ~= "_meta" then shown[name] = value end
    end
    put_lines(lines, shown, "", nil)
  end
  return lines
end

local function is_same(before, after)
  if #before ~= #after then return false end
  for i, text in ipairs(before) do
    if text ~= after[i] then return false end
  end
  return true
end

local function difference(before, after)
  if is_same(before, after) then return nil end
  local lines = line_diff(before, after)
  for i = #lines, MAX_LINES + 1, -1 do lines[i] = nil end
  return lines
end

local fails = { failed = true, error = true }

--- What differs between a record and its replay: { result, events, fails }, or nil. `fails`: the call failed where it
--- did not before, though the record had every answer that the scripts wanted.
local function compare(record, played)
  local found = { result = difference(answer_lines(record), answer_lines(played)), events = difference(event_lines(record.events), event_lines(played.events)) }
  if not found.result and not found.events then return nil end
  found.refused = played.refused > 0 and played.refused or nil
  found.fails = fails[played.outcome] and not fails[record.outcome] or nil
  return found
end

-- -- reports ------------------------------------------------------------------------------------------------------------

local function print_lines(title, lines)
  if not lines then return end
  print("    " .. title)
  for _, text in ipairs(lines) do print("      " .. characters.shown(text)) end
end

-- A line for the report of a reload, which is in the log and in /status: without anything of the call's arguments and
-- results.
local function tell_shortly(row)
  if row.state == "ok" or row.state == "skipped" then return end
  local word = row.state == "fails" and (row.doubt and "fails" or "FAILS") or row.state       -- core/gateway/reload/replay_gate.c looks for "FAILS"
  local why = row.why and ": " .. row.why or row.doubt and " (" .. row.doubt .. ")" or row.change and ": " .. row.change or ""
  if row.denied then why = why .. ": " .. row.denied end
  print(characters.shown(("%s %s %s%s"):format(word, row.tool or "?", row.id or "", why)))
end

local function tell(row, args)
  if args.gate ~= nil then return tell_shortly(row) end
  if args.json ~= nil then
    print(json.encode(row))
    return
  end
  local words = { ok = "same   ", differs = "DIFFERS", fails = "FAILS  ", skipped = "skipped", wrong = "WRONG  " }
  print(characters.shown(("%s %s  %s  %s%s"):format(words[row.state], row.tool or "", row.id or "", row.time or "", row.why and "  " .. row.why or "")))
  if not row.difference then return end
  print_lines("result", row.difference.result)
  print_lines("outside", row.difference.events)
  if row.difference.time then print("    time: " .. row.difference.time) end
  if row.denied then print("    " .. characters.shown(row.denied)) end
  local refused = row.difference.refused
  if refused then print(("    %d %s refused: the record has no answer"):format(refused, refused == 1 and "was" or "were")) end
  if row.hidden then print("    the record hides secrets (" .. characters.shown(table.concat(row.hidden, ", ")) .. "): this may be why") end
end

local function hidden_of(record)
  local list = {}
  for _, place in ipairs(type(record.hidden) == "table" and record.hidden or {}) do list[#list + 1] = tostring(place) end
  return #list > 0 and list or nil
end

local function text_of(value) return type(value) == "string" and value:sub(1, 200) or nil end

-- The reason that the failure of a call is no fault of the scripts; nil if it may be.
local function doubt_of(record, found)
  if found.refused then return "it asks outside what the record has no answer for" end
  if record.exact ~= true then return "the record hides secrets that the script got" end
end

local function play_one(ask, record, is_quiet)
  local row = { tool = text_of(record.tool), id = text_of(record.id), time = text_of(record.time), hidden = hidden_of(record) }
  local played, why, is_gone, code = ask("moonpool/replay", { record = record, quiet = is_quiet })
  if not played and (is_gone or code == codes.invalid_params) then
    row.state, row.why = "wrong", why
  elseif not played then      -- the call went over a limit
    row.state, row.change, row.difference = "fails", why, { result = { "- " .. (text_of(record.outcome) or "?"), "+ " .. why } }
    local asked = ask("moonpool/replay", {})
    row.doubt = doubt_of(record, { refused = asked and asked.refused > 0 and asked.refused or nil })
  elseif played.skipped then
    row.state, row.why = "skipped", played.skipped
  else
    row.difference = compare(record, played)
    row.state = not row.difference and "ok" or row.difference.fails and "fails" or "differs"
    row.change = row.state == "fails" and ("%s now, %s before"):format(played.outcome, text_of(record.outcome) or "?") or nil
    if played.late then
      row.state, row.change = "fails", ("%.3g s now, %.3g s before: slower by more than its time limit, %.3g s"):format(
        played.late.seconds, played.late.before, played.late.limit)
      row.difference = row.difference or {}
      row.difference.time = row.change
      row.difference.refused = played.refused > 0 and played.refused or nil
    end
    row.doubt = row.state == "fails" and doubt_of(record, row.difference) or nil
    row.denied = row.difference and played.denied and table.concat(played.denied, ", ")
  end
  return row, is_gone
end

local function play_all(ask, list, args)
  local count = { ok = 0, differs = 0, fails = 0, skipped = 0, wrong = 0 }
  for _, record in ipairs(list) do
    local row, is_gone = play_one(ask, record, args.gate ~= nil)
    count[row.state] = count[row.state] + 1
    if row.state == "fails" and not row.doubt then count.sure = (count.sure or 0) + 1 end
    tell(row, args)
    if is_gone then return count, true end
  end
  return count, false
end

return function(args)
  io.stdout:setvbuf "line"
  local list, why, hint, misused = records.read(args)
  if not list then return stderr.wrong(why, hint, misused) end
  if #list == 0 then return stderr.wrong("there are no recorded calls", "moonpool record keeps some, or `record:` in the configuration") end
  local child, trouble = link.child { "--replay", "--log-level", args["log-level"] or "error", args.config }
  if not child then return stderr.wrong(trouble) end
  local count, is_gone = play_all(link.asker(child, "replay", link.able), list, args)
  local code = child.close()
  if code == BAD_CONFIG then return code end
  local total = count.ok + count.differs + count.fails + count.skipped + count.wrong
  if args.json == nil then
    local parts = {}
    for _, pair in ipairs { { "differs", "differ" }, { "fails", "fail now" }, { "skipped", "skipped" }, { "wrong", "not replayed" } } do
      if count[pair[1]] > 0 then parts[#parts + 1] = ("%d %s"):format(count[pair[1]], pair[2]) end
    end
    if list.torn then parts[#parts + 1] = ("%d torn and left out"):format(list.torn) end
    local said = #parts == 0 and "all answered as recorded" or table.concat(parts, ", ")
    if args.gate ~= nil and count.fails + count.differs + count.wrong > 0 then print "hint: moonpool replay --last 100 shows the calls and what differs" end
    print(("%s%d %s, %s"):format(args.gate ~= nil and "replayed " or "", total, total == 1 and "call" or "calls", said))
  end
  if args.gate ~= nil and not is_gone then return count.sure and FAILS or 0 end
  return count.ok + count.skipped == total and list.trouble == nil and 0 or 1
end
