-- Transcripts: conversations written once for all revisions and transports. spec/transcripts/README.md has the format.
--   transcript.names() -> { "tools", … }
--   transcript.read("tools") -> { name, title, about, scripts, config, capabilities, … }
--   transcript.plays(it) -> { { revision, transport }, … }: where the transcript is played
--   transcript.steps(it, revision, transport) -> { step, … }: the messages to send and expect
local uv = require "luv"
local library = require "spec.helpers.library"()

local transcript = { folder = "spec/transcripts" }

transcript.revisions = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" }

local LEGACY, MODERN = { "sse", "http", "stdio" }, { "http", "stdio" }

function transcript.names()
  local names, entries = {}, assert(uv.fs_scandir(transcript.folder))
  for name in uv.fs_scandir_next, entries do
    names[#names + 1] = name:match "^(.*)%.txt$"
  end
  table.sort(names)
  return names
end

-- -- conditions -----------------------------------------------------------------------------------------------------------

-- A condition: "2025-06-18..", "..2025-03-26", "2025-03-26", "http", "!stdio", or several. It holds if one of the
-- revisions and one of the transports match.
function transcript.holds(condition, revision, transport)
  local revisions, transports, denied
  for word in condition:gmatch "%S+" do
    local from, dots, to = word:match "^([%d-]*)(%.?%.?)([%d-]*)$"
    if from then
      local first, last = from, dots == "" and from or to
      revisions = revisions or (revision >= first and (last == "" or revision <= last))
    elseif word:sub(1, 1) == "!" then
      denied = denied or word == "!" .. transport
    else
      assert(word == "sse" or word == "http" or word == "stdio", "no condition: " .. word)
      transports = transports or word == transport
    end
  end
  return revisions ~= false and transports ~= false and not denied
end

-- Lines about HTTP itself are for Streamable HTTP, unless a condition says otherwise.
local function is_for(line, kind, revision, transport)
  local conditions = (line.section or "") .. " " .. (line.condition or "")
  if kind and kind:find "^H" and not conditions:find "%l" and transport ~= "http" then return false end
  return (not line.section or transcript.holds(line.section, revision, transport))
    and (not line.condition or transcript.holds(line.condition, revision, transport))
end

-- -- files ----------------------------------------------------------------------------------------------------------------

local function decode(text, where)
  local value, why = library.json.decode(text)
  if value == nil then error(("%s: %s in %s"):format(where, why, text), 0) end
  return value
end

local heads = {}

function heads.capabilities(it, text, where) it.capabilities = decode(text, where) end
function heads.config(it, text, where) it.config = decode(text, where) end
function heads.handshake(it, text) it.handshake = text ~= "none" end
function heads.only(it, text) it.only = text end
function heads.counts(it, text) it.counts = text end

-- A script whose path contains {001..103} stands for one script per number, which replaces $n in it.
local function unroll(it)
  local paths = {}
  for path in pairs(it.scripts) do paths[#paths + 1] = path end
  for _, path in ipairs(paths) do
    local from, to = path:match "{(%d+)%.%.(%d+)}"
    if from then
      for i = math.tointeger(from), math.tointeger(to) do
        local number = ("%0" .. #from .. "d"):format(i)
        it.scripts[path:gsub("{.*}", number)] = it.scripts[path]:gsub("%$n", number)
      end
      it.scripts[path] = nil
    end
  end
end

-- Raw lines: { number, condition | nil, text, section condition | nil }.
function transcript.read(name)
  local it = { name = name, path = transcript.folder .. "/" .. name .. ".txt", scripts = {}, lines = {}, handshake = true, about = {} }
  local number, script, section = 0, nil, nil
  for line in io.lines(it.path) do
    number = number + 1
    local where = it.path .. ":" .. number
    local comment = line:match "^#%s?(.*)$"
    local head, value = line:match "^(%l+): (.*)$"
    local path = line:match "^script (%S+)$"
    local title = line:match "^== (.*)$"
    if script and (line:find "^  " or line == "") then
      it.scripts[script] = it.scripts[script] .. line:sub(3) .. "\n"
    elseif comment then
      if #it.lines == 0 and not script then table.insert(it.about, comment) end
    elseif path then
      script = path
      it.scripts[script] = ""
    elseif title then
      script, section = nil, title:match "%[([^%]]*)%]$"
    elseif head and heads[head] then
      heads[head](it, value, where)
    elseif line ~= "" then
      script = nil
      local condition, rest = line:match "^%[([%w%.! -]+)%]%s*(.*)$"
      table.insert(it.lines, { number = number, condition = condition, text = rest or line, section = section })
    end
  end
  unroll(it)
  it.title = assert(it.about[1], it.path .. " begins with what it is about"):match "^(.-)[:.]" or it.about[1]
  assert(#it.lines > 0, it.path .. " says nothing")
  return it
end

function transcript.plays(it)
  local plays = {}
  for _, revision in ipairs(transcript.revisions) do
    for _, transport in ipairs(revision == "2026-07-28" and MODERN or LEGACY) do
      if not it.only or transcript.holds(it.only, revision, transport) then plays[#plays + 1] = { revision = revision, transport = transport } end
    end
  end
  return plays
end

-- -- steps ----------------------------------------------------------------------------------------------------------------

-- Decodes JSON that may have a comma before a closing bracket, because the revision decides which lines precede the
-- bracket.
local function value_of(text, where)
  if text == "" then return nil end
  return decode((text:gsub(",%s*([%]}])", "%1")), where)
end

-- Splits off the id at the start of a message: a number, a "string", or a $name; returns the id and the remaining text.
local function split_id(text)
  for _, pattern in ipairs { '^(%-?%d+)%f[%s]%s*(.*)$', '^("[^"]*")%s+(.*)$', "^(%$%l+)%f[%s]%s*(.*)$" } do
    local id, rest = text:match(pattern)
    if id then return id, rest end
  end
  return nil, text
end

-- Parses a message: [id] method [params] | id result | [id] error code "text" [data].
local function read_message(text, where)
  local id, rest = split_id(text)
  local message = { id = id and value_of(id:find "^%$" and '"' .. id .. '"' or id, where) }
  local code, told = rest:match "^error (%-?%d+) (.*)$"
  if code then
    local pair = value_of("[" .. told:gsub('^("[^"]*")%s+', "%1,") .. "]", where)
    local any = pair[2] == "..." or nil
    message.error = { code = math.tointeger(code), message = pair[1], data = not any and pair[2] or nil, ["..."] = any }
  elseif rest:find "^{" then
    message.result = value_of(rest, where)
  else
    local method, params = rest:match "^([%w/_]+)%s*(.*)$"
    if not method then error(where .. ": no message: " .. text, 0) end
    message.method, message.params = method, value_of(params, where)
  end
  return message
end

-- Maps the first word of a line to a function that makes its step.
local kinds = {}

kinds["C:"] = function(text, where)
  local does, what = text:match "^%((%l+)%s*(.-)%)$"
  if does then return { does = does, what = what ~= "" and what or nil } end
  return { does = "say", message = read_message(text, where) }
end
kinds["C="] = function(text) return { does = "say", raw = text } end
kinds["S:"] = function(text, where) return { does = "hear", message = read_message(text, where) } end
kinds["G:"] = function(text, where) return { does = "hear", message = read_message(text, where), apart = true } end

kinds["H>"] = function(text, _, last)
  local method, path = text:match "^(%u+) (/%S*)$"
  if method then return { does = "request", method = method, path = path, headers = {} } end
  local name, value = text:match "^([%w-]+): (.*)$"
  last.headers = last.headers or {}
  table.insert(last.headers, { assert(name, text), value ~= "(absent)" and value })
end

kinds["H<"] = function(text, _, last)
  last.head = last.head or {}
  table.insert(last.head, text)
end

function transcript.steps(it, revision, transport)
  local steps, open = {}, nil
  local function finish()
    if not open then return end
    local where = it.path .. ":" .. open.number
    local last = steps[#steps]
    local step = kinds[open.kind](open.text, where, last)
    if step then
      step.where = where
      steps[#steps + 1] = step
    end
    open = nil
  end
  for _, line in ipairs(it.lines) do
    local kind, text = line.text:match "^(%u[:=<>]) ?(.*)$"
    local here = is_for(line, kind, revision, transport)
    if kind then
      assert(kinds[kind], it.path .. ":" .. line.number .. ": no such line")
      finish()
      if here then open = { kind = kind, text = text, number = line.number } end
    elseif here and open then
      open.text = open.text .. (open.kind == "C=" and "" or " ") .. line.text:match "^%s*(.*)$"
    end
  end
  finish()
  return steps
end

return transcript
