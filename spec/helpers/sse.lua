-- An event stream, parsed as its bytes arrive: https://html.spec.whatwg.org/multipage/server-sent-events.html
local cjson = require "cjson.safe"

local sse = {}
sse.__index = sse

-- Calls `on_event` with { event =, id =, data =, retry =, json = } for each event, and { comment = } for each comment.
function sse.new(on_event)
  return setmetatable({ pieces = {}, fields = {}, on_event = on_event }, sse)
end

local function dispatch(self)
  local fields = self.fields
  self.fields = {}
  if next(fields) == nil then
    return
  end
  if fields.data then
    fields.data = #fields.data == 1 and fields.data[1] or table.concat(fields.data, "\n")
    fields.json = cjson.decode(fields.data)
  end
  fields.event = fields.event or "message"
  self.on_event(fields)
end

-- Takes the line of a text from one position to another; a long one is copied once.
local function take(self, text, from, stop)
  if stop < from then
    return dispatch(self)
  end
  local colon = text:find(":", from, true)
  if not colon or colon > stop then
    colon = stop + 1
  end
  local name = text:sub(from, colon - 1)
  local value = text:sub(text:byte(colon + 1) == 32 and colon + 2 or colon + 1, stop)
  if name == "" then
    self.on_event { comment = value }
  elseif name == "data" then
    self.fields.data = self.fields.data or {}
    table.insert(self.fields.data, value)
  else
    self.fields[name] = value
  end
end

function sse:feed(bytes)
  local pieces = self.pieces
  pieces[#pieces + 1] = bytes
  if not bytes:find("\n", 1, true) then return end -- a long line comes in many pieces
  local text = table.concat(pieces)
  local from = 1
  while true do
    local at = text:find("\n", from, true)
    if not at then
      break
    end
    take(self, text, from, text:byte(at - 1) == 13 and at - 2 or at - 1)
    from = at + 1
  end
  self.pieces = { text:sub(from) }
end

return sse
