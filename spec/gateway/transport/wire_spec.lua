-- Plays the conversations of spec/transcripts/wire against a gateway of their own: one per revision, with every byte of
-- HTTP that matters. Such a transcript is prose, then blocks of lines that begin with who speaks on which connection:
--   client> POST /mcp             a request: its line, headers, an empty line, the body
--   client< 200                   the answer's status, the headers that matter, an empty line, the whole body
--   client< data: {…}             the next event of the stream that is open on this connection, comments left out
--   client< (end)                 the stream ends
--   client> (close)               the client hangs up
-- $name matches any text at its first use, and that text from then on; $port, $version are known. Bytes are compared,
-- not JSON; and messages are held against the official schema of the revision, where that is here.
-- proves: HTTP byte for byte 2024-11-05 sse
-- proves: HTTP byte for byte 2025-03-26.. http
local uv = require "luv"
local cluster = require "spec.helpers.cluster"
local client = require "spec.helpers.client"
local official = require "spec.helpers.official"()

local FOLDER = "spec/transcripts/wire"

local scripts = {
  ["tools/add.lua"] = "--- Add two numbers.\n---@param a number\n---@param b number\nreturn function(a, b) return a + b end",
  ["tools/count.lua"] = [[return tool { "Count, and say so.", input = { to = t.integer { max = 9 } }, read_only = true, title = "Counter",
    function(args, call)
      for i = 1, args.to do call:progress(i, args.to, "at " .. i) end
      call:log("info", "counted")
      return { counted = args.to }
    end }]],
  ["tools/refuse.lua"] = 'return tool { "Never does it.", function() fail "not today" end }',
}

local function transcripts()
  local names, entries = {}, assert(uv.fs_scandir(FOLDER))
  for name in uv.fs_scandir_next, entries do
    if name:find "%.txt$" then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  return names
end

-- The blocks of a transcript: { line =, on =, by = ">" | "<", lines = {…} }. Lines without a speaker are prose.
local function read_blocks(name)
  local blocks, block, number, prose = {}, nil, 0, ""
  for line in io.lines(FOLDER .. "/" .. name) do
    number = number + 1
    local on, by, text = line:match "^(%w+)([<>]) ?(.*)$"
    if not on then
      assert(line == "" or #blocks == 0, ("%s:%d: prose stands on top"):format(name, number))
      prose, block = prose .. line, nil
    elseif block and block.on == on and block.by == by then
      table.insert(block.lines, text)
    else
      block = { line = number, on = on, by = by, lines = { text } }
      blocks[#blocks + 1] = block
    end
  end
  return blocks, prose
end

local function magic(text)
  return (text:gsub("%W", "%%%0"))
end

-- The text, with known $names replaced by their values.
local function fill(text, known)
  return (text:gsub("%$(%l+)", known))
end

-- True if `found` equals the transcript; new $names become known.
local function fits(wanted, found, known)
  local pattern, names, at = "^", {}, 1
  for before, name, after in wanted:gmatch "()%$(%l+)()" do
    pattern = pattern .. magic(wanted:sub(at, before - 1)) .. (known[name] and magic(known[name]) or "([%w._-]+)")
    if not known[name] then
      names[#names + 1] = name
    end
    at = after
  end
  local found_names = table.pack(found:match(pattern .. magic(wanted:sub(at)) .. "$"))
  for i, name in ipairs(names) do
    known[name] = found_names[i]
  end
  return found_names[1] ~= nil
end

-- The lines of the head, and the body after the empty line.
local function parts_of(lines)
  for i, line in ipairs(lines) do
    if line == "" then
      return table.move(lines, 1, i - 1, 1, {}), table.concat(lines, "\n", i + 1)
    end
  end
  return lines, nil
end

local play = {}

play[">"] = function(self, block)
  local connection = self.connections[block.on]
  if block.lines[1] == "(close)" then
    connection:close()
    self.connections[block.on] = nil
    return
  end
  if not connection or connection:is_closed_by_peer() then
    connection = client.connect(self.g)
    self.connections[block.on] = connection
  end
  local head, body = parts_of(block.lines)
  local method, path = head[1]:match "^(%u+) (%S+)$"
  local headers = {}
  for i = 2, #head do
    local name, value = head[i]:match "^([^:]+): (.*)$"
    headers[#headers + 1] = { name, fill(value, self.known) }
  end
  local message = official and body and official.json.decode(body)
  if message and message.method then
    self.asked[official.json.encode(message.id or official.json.null)] = message.method
  end
  connection:send { method = method, path = fill(path, self.known), headers = headers, body = body and fill(body, self.known) }
end

local function check(self, block, wanted, found)
  if not fits(wanted, found, self.known) then
    error(("%s:%d: the transcript says\n  %s\nbut it was\n  %s"):format(self.name, block.line, wanted, found), 0)
  end
end

local function check_message(self, block, text)
  if official and text:find "^{" then
    local message = official.json.decode(text)
    local method = message.id ~= nil and self.asked[official.json.encode(message.id)] or nil
    local complaint = official.complaint(self.name:match "^[%d-]+", message, method)
    assert(not complaint, ("%s:%d: %s"):format(self.name, block.line, complaint))
  end
end

local function check_head(self, block, head, response)
  check(self, block, head[1], tostring(response.status))
  for i = 2, #head do
    local name, value = head[i]:match "^([^:]+): (.*)$"
    check(self, block, head[i], name .. ": " .. (response.headers[name:lower()] or "(absent)"))
    assert(value)
  end
end

local function event_text(event)
  local lines = {}
  if event.event ~= "message" then
    lines[1] = "event: " .. event.event
  end
  lines[#lines + 1] = event.id and "id: " .. event.id
  lines[#lines + 1] = "data: " .. tostring(event.data)
  return table.concat(lines, "\n")
end

play["<"] = function(self, block)
  local connection = self.connections[block.on]
  local first = block.lines[1]
  if first == "(end)" then
    connection:wait_end()
    assert(#self.connections[block.on].responses == 0)
    for _, event in ipairs(connection.events) do
      assert(event.given or event.comment, self.name .. ":" .. block.line .. ": the stream said more")
    end
  elseif first:find "^%d%d%d$" then
    local head, body = parts_of(block.lines)
    local response = connection:read_head()
    check_head(self, block, head, response)
    if not response.sse then
      response = connection:read_response()
      check(self, block, body or "", response.body)
      check_message(self, block, response.body)
    end
  else
    local event = connection:wait_event(function(event)
      return not event.comment
    end)
    check(self, block, table.concat(block.lines, "\n"), event_text(event))
    check_message(self, block, event.data or "")
  end
end

describe("the conversation in", function()
  for _, name in ipairs(transcripts()) do
    it(name .. " goes as it is written", function()
      local blocks, prose = read_blocks(name)
      assert.is_true(#prose > 80, "a transcript begins with what it is about")
      assert.is_true(#blocks > 0)
      local g <close> = cluster.front { scripts = scripts }
      local self = { name = name, g = g, connections = {}, asked = {}, known = { port = tostring(g.port), version = g:status().version } }
      for _, block in ipairs(blocks) do
        play[block.by](self, block)
      end
      for _, connection in pairs(self.connections) do
        connection:messages()
        assert.same({}, connection.responses, name .. ": an answer was left over")
        connection:close()
      end
      assert.has_nothing_left(g)
    end)
  end
end)
