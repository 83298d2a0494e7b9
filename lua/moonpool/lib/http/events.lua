-- A parser of event streams, which arrive in pieces of any size (G-11): lines end with LF, CR or CRLF, a byte order mark may be first,
-- `data` may have several lines, comments and unknown fields are ignored. The sizes of lines and events are limited.

local events = {}
events.__index = events

local BOM = "\xef\xbb\xbf"

--- Makes a parser; `most` is the limit of a line, and of the data of an event, in bytes.
function events.new(most)
  return setmetatable({ most = most, rest = "", at_start = true, after_cr = false, data = {}, size = 0, last_id = "" }, events)
end

local function dispatch(self, found)
  local data, kind = self.data, self.kind
  self.data, self.size, self.kind = {}, 0, nil
  self.last_id = self.id or self.last_id
  if data[1] == nil then return end
  found[#found + 1] = { event = kind or "message", data = table.concat(data, "\n"), id = self.last_id ~= "" and self.last_id or nil }
end

-- Handles one line; nil, why if the event is too large.
local function take(self, line, found)
  if line == "" then
    dispatch(self, found)
    return true
  end
  local name, value = line:match "^([^:]*):? ?(.*)$"
  if name == "data" then
    self.size = self.size + #value + 1
    if self.size > self.most + 1 then return nil, "an event is larger than " .. self.most .. " bytes" end
    self.data[#self.data + 1] = value
  elseif name == "event" then
    self.kind = value ~= "" and value or nil
  elseif name == "id" and not value:find("\0", 1, true) then
    self.id = value
  elseif name == "retry" and value:find "^%d+$" and #value <= 9 then
    self.retry = tonumber(value)
  end
  return true
end

-- Skips a byte order mark; false until enough bytes have arrived to decide.
local function begin(self)
  if #self.rest < #BOM and BOM:sub(1, #self.rest) == self.rest then return false end
  if self.rest:sub(1, #BOM) == BOM then self.rest = self.rest:sub(#BOM + 1) end
  self.at_start = false
  return true
end

--- Parses the next bytes and returns the events that they complete, as a list of { event, data, id }; or nil, why.
function events:feed(bytes)
  local found, seen = {}, #self.rest
  if self.after_cr and bytes ~= "" then
    if bytes:byte() == 10 then bytes = bytes:sub(2) end
    self.after_cr = false
  end
  self.rest = self.rest .. bytes
  if self.at_start then
    if not begin(self) then return found end
    seen = 0
  end
  local rest, from, search = self.rest, 1, seen + 1
  while true do
    local at = rest:find("[\r\n]", search)
    if not at then break end
    if at - from > self.most then return nil, "a line is longer than " .. self.most .. " bytes" end
    local fine, why = take(self, rest:sub(from, at - 1), found)
    if not fine then return nil, why end
    from = at + 1
    if rest:byte(at) == 13 then
      if rest:byte(from) == 10 then
        from = from + 1
      elseif from > #rest then
        self.after_cr = true
      end
    end
    search = from
  end
  self.rest = rest:sub(from)
  if #self.rest > self.most then return nil, "a line is longer than " .. self.most .. " bytes" end
  return found
end

return events
