-- The answers to HTTP requests of scripts: status, headers and body; or a stream, whose body is read in pieces.

local events = require "moonpool.events"
local host = require "moonpool.host"
local failure = require "moonpool.runtime.outcome"
local members = require "moonpool.runtime.members"
local null = require "moonpool.runtime.null"
local problem = require "moonpool.runtime.diagnostic"
local weak = require "moonpool.runtime.weak"

local answer = {}

local whole, flowing = members.of_object {}, members.of_object {}
local whole_mt = { __index = whole, __metatable = false, __name = "http answer" }
local flowing_mt = { __index = flowing, __metatable = false, __name = "http stream" }

local lists = setmetatable({}, weak.keys)   -- answer -> { name = { value, … } }
local streams = setmetatable({}, weak.keys) -- stream -> { handle, rest, idle, most_event, failure_text }

-- Parses the head. The values of a header that occurs several times are joined, but not those of Set-Cookie, which may
-- contain commas.
local function read_head(head)
  local all, joined = {}, {}
  for name, value in head:gmatch "([^:\n]+):[ \t]*([^\n]*)" do
    name, value = name:lower(), value:gsub("[ \t]+$", "")
    all[name] = all[name] or {}
    table.insert(all[name], value)
  end
  for name, values in pairs(all) do joined[name] = name == "set-cookie" and values[1] or table.concat(values, ", ") end
  return joined, all
end

--- The value of the header `location`, or nil.
function answer.location(head)
  local _, all = read_head(head)
  return all.location and all.location[1]
end

local function make(mt, status, head, url)
  local headers, all = read_head(head)
  local made = setmetatable({ status = status, headers = headers, url = url }, mt)
  lists[made] = all
  return made
end

--- Makes an answer with its complete body.
function answer.whole(status, head, body, url)
  local made = make(whole_mt, status, head, url)
  made.body = body
  return made
end

--- Makes an answer whose body is read later. `failure_text(what, hint)` makes the error text of a failure.
function answer.stream(status, head, handle, url, plan, failure_text)
  local made = make(flowing_mt, status, head, url)
  streams[made] = { handle = handle, rest = "", idle = plan.idle, most_event = plan.most_event, failure_text = failure_text }
  return made
end

local function decode(text, options)
  local value, why = null.decode(text, options, "json")
  if value == nil and why then return nil, "the response is not JSON: " .. tostring(why) end
  return value
end

--- Returns all values of a header as a list.
function whole:values(name) return { table.unpack((lists[self] or {})[tostring(name):lower()] or {}) } end
flowing.values = whole.values

--- Decodes the body as JSON. `options`: { nulls = false } leaves out members that are null.
function whole:json(options) return decode(self.body, options) end

-- -- streams ----------------------------------------------------------------------------------------------------------

local function own(self, name)
  return streams[self] or problem.raise(3, name .. " is a method of a stream", "as in stream:" .. name .. "()")
end

-- Ends the stream with a failure. Every later read returns the same reason.
local function spoil(it, what, hint)
  it.failed = it.failure_text(what, hint)
  host.http.close(it.handle)
  return nil, it.failed
end

-- Reads the next bytes; nil at the end; nil, why on failure.
local function piece(it)
  if it.failed then return nil, it.failed end
  if it.is_over then return nil end
  local bytes, what, hint, kind = host.http.read(it.handle, it.idle)
  if bytes then return bytes end
  if bytes == false then
    it.is_over = true
    return nil
  end
  if kind == "late" then what = ("no bytes arrived for %g s"):format(it.idle) end
  return spoil(it, what, hint)
end

--- Returns the next bytes of the body; nil at its end; or nil, why.
function flowing:read()
  local it = own(self, "read")
  if it.rest ~= "" and not it.failed then
    local rest = it.rest
    it.rest = ""
    return rest
  end
  return piece(it)
end

--- Returns the unread part of the body as one string; or nil, why.
function flowing:text()
  local it, parts, size = own(self, "text"), {}, 0
  while true do
    local bytes, why = self:read()
    if not bytes then
      if why then return nil, why end
      return table.concat(parts)
    end
    parts[#parts + 1], size = bytes, size + #bytes
    if size > host.limits.http.body then return spoil(it, "the answer's body is larger than " .. host.limits.http.body .. " bytes", "limits.http.body") end
  end
end

function flowing:json(options)
  local text, why = self:text()
  if not text then return nil, why end
  return decode(text, options)
end

--- Closes the stream, and cancels the request if the body is not complete.
function flowing:close()
  local it = own(self, "close")
  it.failed = it.failed or it.failure_text("the stream is closed", "")
  host.http.close(it.handle)
end
flowing_mt.__close = flowing.close

-- A `for` loop cannot see a second return value, so a failure inside an iterator ends the call as `fail` does.
local function must(bytes, why)
  if why then failure.fail(why) end
  return bytes
end

--- An iterator over the bytes of the body, in pieces as they arrive. The end of the loop closes the stream.
function flowing:chunks()
  own(self, "chunks")
  return function() return must(self:read()) end, nil, nil, self
end

local function next_line(self, it)
  local from = 1
  while true do
    local at = it.rest:find("\n", from, true)
    if at then
      local line = it.rest:sub(1, at - 1):gsub("\r$", "")
      it.rest = it.rest:sub(at + 1)
      return line
    end
    if #it.rest > it.most_event then failure.fail(select(2, spoil(it, "a line is longer than " .. it.most_event .. " bytes", "'max_event' in the options"))) end
    from = #it.rest + 1
    local bytes = must(piece(it))
    if not bytes then
      local last = self:read()
      return last and (last:gsub("\r$", ""))
    end
    it.rest = it.rest .. bytes
  end
end

--- An iterator over the lines of the body, without line ends.
function flowing:lines()
  local it = own(self, "lines")
  return function() return next_line(self, it) end, nil, nil, self
end

local function next_event(self, it, parser, found)
  while not found[found.at] do
    local bytes = must(self:read())
    if not bytes then return nil end
    local list, what = parser:feed(bytes)
    if not list then failure.fail(select(2, spoil(it, what, "'max_event' in the options"))) end
    for i = 1, #list do found[i] = list[i] end
    for i = #list + 1, #found do found[i] = nil end
    found.at = 1
    self.last_event_id, self.retry = parser:last_id(), parser:retry()
  end
  found.at = found.at + 1
  return found[found.at - 1]
end

--- An iterator over the events of an event stream, each { event, data, id }.
function flowing:events()
  local it, found = own(self, "events"), { at = 1 }
  local parser = events.new(it.most_event)
  return function() return next_event(self, it, parser, found) end, nil, nil, self
end

return answer
