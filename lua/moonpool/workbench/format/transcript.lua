-- Transcripts: conversations in the format of spec/transcripts. This writes recorded calls as one, and reads those that
-- `moonpool test --play` plays.

local files = require "moonpool.workbench.format.files"
local json = require "moonpool.json"

local transcript = {}

local MAX_BYTES <const> = 64 << 20

-- -- writing -------------------------------------------------------------------------------------------------------------

-- A copy in which each text is changed by `f`.
local function changed(value, f)
  if type(value) == "string" then return f(value) end
  if type(value) ~= "table" then return value end
  local made = setmetatable({}, debug.getmetatable(value))
  for name, part in next, value do made[name] = changed(part, f) end
  return made
end

local function with_dollars(text) return (text:gsub("%$", "$$")) end
local function without_dollars(text) return (text:gsub("%$%$", "$")) end

-- A copy as a pattern: "$" matches itself, and a hidden text matches any text.
local function as_pattern(value) return changed(value, function(text) return (with_dollars(text):gsub("%*%*%*", "...")) end) end

--- The result without the members that transcripts leave out.
function transcript.without_usual(result)
  local made = setmetatable({}, debug.getmetatable(result))
  for name, part in next, result do
    if name ~= "_meta" and not (name == "resultType" and part == "complete") then made[name] = part end
  end
  return made
end

--- The first lines of a file.
function transcript.head(what)
  return ("# Recorded calls: %s. Play them with `moonpool test --play`.\n\nonly: 2026-07-28\n"):format((what:gsub("%c", " ")))
end

--- The lines of a recorded call, which is number `n`; nil if they would not show the answer.
function transcript.call(record, n)
  if record.cut or type(record.result) ~= "table" and type(record.error) ~= "table" then return nil end
  local asked = ("\nC: %d tools/call %s\n"):format(n, json.encode(changed({ name = record.tool, arguments = record.arguments }, with_dollars)))
  if type(record.result) == "table" then return asked .. ("S: %d %s\n"):format(n, json.encode(as_pattern(transcript.without_usual(record.result)))) end
  local message = type(record.error.message) == "string" and record.error.message or "..."
  return asked .. ("S: %d error %d %s\n"):format(n, math.tointeger(record.error.code) or 0, json.encode(as_pattern(message)))
end

-- -- reading -------------------------------------------------------------------------------------------------------------

-- The lines of messages, each joined with those that go on with it: { kind, text, number }; or nil, why.
local function messages_of(text, name)
  local list, number = {}, 0
  for line in (text .. "\n"):gmatch "([^\n]*)\n" do
    number = number + 1
    local kind, rest = line:match "^(%u[:=<>]) ?(.*)$"
    if kind == "C:" or kind == "S:" then
      list[#list + 1] = { kind = kind, text = rest, number = number }
    elseif kind or line:find "^%[" or line:find "^script " or line:find "^handshake:" or line:find "^config:" then
      return nil, ("%s:%d: only lines of 'C:' and 'S:' can be played: %s"):format(name, number, line:sub(1, 60))
    elseif line ~= "" and not line:find "^#" and not line:find "^== " and not line:find "^%l+: " then
      if not list[1] then return nil, ("%s:%d: the line is no part of a transcript: %s"):format(name, number, line:sub(1, 60)) end
      list[#list].text = list[#list].text .. " " .. line
    end
  end
  return list
end

local function decode(text) return json.decode((text:gsub(",%s*([%]}])", "%1"))) end

local function step_of(message, name)
  local function wrong(why) return nil, ("%s:%d: %s"):format(name, message.number, why) end
  local id, rest = message.text:match "^(%d+)%s+(.*)$"
  if not id then return wrong "a message that is played begins with its id, a number" end
  if message.kind == "C:" then
    local method, params = rest:match "^([%w/_]+)%s*(.*)$"
    if not method then return wrong "there is no method" end
    local value = params == "" and json.object {} or decode(params)
    if type(value) ~= "table" then return wrong "the params are no JSON" end
    return { id = id, method = method, params = changed(value, without_dollars), number = message.number }
  end
  local code, told = rest:match "^error (%-?%d+) (.*)$"
  if code then
    local words = json.decode(told:match '^(".*")' or "")
    if type(words) ~= "string" then return wrong "the message of the error is no text" end
    return { id = id, is_answer = true, error = { code = math.tointeger(code), message = words } }
  end
  local result = decode(rest)
  if type(result) ~= "table" then return wrong "the result is no JSON" end
  return { id = id, is_answer = true, result = result }
end

--- The requests of a file with their answers: { { method, params, result | error, number }, … }; or nil, why.
function transcript.read(path)
  local text, why = files.read(path, MAX_BYTES)
  if not text then return nil, why end
  local messages, wrong = messages_of(text, path)
  if not messages then return nil, wrong end
  local list, by_id = {}, {}
  for _, message in ipairs(messages) do
    local step
    step, wrong = step_of(message, path)
    if not step then return nil, wrong end
    if not step.is_answer then
      list[#list + 1], by_id[step.id] = step, step
    elseif not by_id[step.id] or by_id[step.id].result or by_id[step.id].error then
      return nil, ("%s:%d: there is no request %s that waits for an answer"):format(path, message.number, step.id)
    else
      by_id[step.id].result, by_id[step.id].error = step.result, step.error
    end
  end
  for _, step in ipairs(list) do
    if not step.result and not step.error then return nil, ("%s:%d: the request has no answer"):format(path, step.number) end
  end
  return list
end

-- -- comparing -----------------------------------------------------------------------------------------------------------

local fits

-- Compares texts: "..." matches any text, "$name" the text that it matched first, and "$$" a dollar.
local function text_fits(pattern, text, known)
  local name = pattern:match "^%$(%l+)$"
  if name then
    if known[name] == nil then known[name] = text end
    return known[name] == text
  end
  if type(text) ~= "string" then return false end
  pattern = pattern:gsub("%$%$", "$")
  if not pattern:find("...", 1, true) then return pattern == text end
  local parts, from = {}, 1
  while true do
    local at = pattern:find("...", from, true)
    parts[#parts + 1] = pattern:sub(from, at and at - 1 or -1)
    if not at then break end
    from = at + 3
  end
  if text:sub(1, #parts[1]) ~= parts[1] then return false end
  local at = #parts[1] + 1
  for i = 2, #parts - 1 do
    local begin, finish = text:find(parts[i], at, true)
    if not begin then return false end
    at = finish + 1
  end
  local last = parts[#parts]
  return #text - #last + 1 >= at and text:sub(#text - #last + 1) == last
end

local function list_fits(pattern, list, known)
  local count = #pattern
  local is_open = pattern[count] == "..."
  if is_open then count = count - 1 end
  if #list < count or not is_open and #list ~= count then return false end
  for i = 1, count do
    if not fits(pattern[i], list[i], known) then return false end
  end
  return true
end

--- True if `value` matches `pattern`. `known`: the values of names so far.
function fits(pattern, value, known)
  if type(pattern) == "string" then return text_fits(pattern, value, known) end
  if type(pattern) ~= "table" or type(value) ~= "table" then return pattern == value end
  if pattern[1] ~= nil or value[1] ~= nil then return list_fits(pattern, value, known) end
  for name, part in next, pattern do
    if name ~= "..." and (value[name] == nil or not fits(part, value[name], known)) then return false end
  end
  for name in next, value do
    if pattern[name] == nil and not pattern["..."] then return false end
  end
  return true
end

transcript.fits = fits

return transcript
