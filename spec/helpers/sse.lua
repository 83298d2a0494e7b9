-- An event stream, parsed as its bytes arrive: https://html.spec.whatwg.org/multipage/server-sent-events.html
local cjson = require "cjson.safe"

local sse = {}
sse.__index = sse

-- Calls `on_event` with { event =, id =, data =, retry =, json = } for each event, and { comment = } for each comment.
function sse.new(on_event)
  return setmetatable({ rest = "", fields = {}, on_event = on_event }, sse)
end

local function dispatch(self)
  local fields = self.fields
  self.fields = {}
  if next(fields) == nil then
    return
  end
  if fields.data then
    fields.data = table.concat(fields.data, "\n")
    fields.json = cjson.decode(fields.data)
  end
  fields.event = fields.event or "message"
  self.on_event(fields)
end

local function take(self, line)
  if line == "" then
    return dispatch(self)
  end
  local name, value = line:match("^([^:]*):? ?(.*)$")
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
  self.rest = self.rest .. bytes
  local from = 1
  while true do
    local at, stop = self.rest:find("\r?\n", from)
    if not at then
      break
    end
    take(self, self.rest:sub(from, at - 1))
    from = stop + 1
  end
  self.rest = self.rest:sub(from)
end

return sse
