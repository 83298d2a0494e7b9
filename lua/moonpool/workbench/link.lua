-- A client's end of MCP, one request at a time: over the stdio of a child that serves the scripts, or over HTTP. A link has
--   exchange(message, on_message)   sends a request; what comes before its answer goes to on_message, whose value, if any, is sent back
--   tell(message)                   sends what nobody answers
--   close()                         gives the exit code of the child

local http = require "moonpool.workbench.http"
local json = require "moonpool.json"
local wire = require "moonpool.wire"

local link = {}

local PATIENCE = 3600

-- -- a child -----------------------------------------------------------------------------------------------------------

--- The gateway itself, serving these scripts on stdio: arguments as of the command line.
function link.child(arguments)
  local w, why = wire.spawn { "stdio", "--apart", table.unpack(arguments) }
  if not w then return nil, "cannot start moonpool stdio: " .. why end
  local self, rest = {}, ""
  function self.tell(message) return w:write(json.encode(message) .. "\n") end
  local function line()
    while not rest:find("\n", 1, true) do
      local bytes, wrong = w:read(PATIENCE)
      if not bytes or bytes == "" then return nil, wrong or "it ended" end
      rest = rest .. bytes
    end
    local told
    told, rest = rest:match "^([^\n]*)\n(.*)$"
    return told
  end
  function self.exchange(message, on_message)
    if not self.tell(message) then return nil, "it ended" end
    while true do
      local text, wrong = line()
      if not text then return nil, wrong end
      local got = json.decode(text)
      if got and got.id == message.id and not got.method then return got end
      local back = got and got.method and on_message(got)
      if back then self.tell(back) end
    end
  end
  function self.close() return w:close() end
  return self
end

-- -- HTTP --------------------------------------------------------------------------------------------------------------

-- Events of a stream, whatever pieces it comes in: the data of each goes to `on_data`.
local function events(on_data)
  local rest, data = "", {}
  return function(bytes)
    rest = rest .. bytes
    while true do
      local line, behind = rest:match "^([^\n]*)\n(.*)$"
      if not line then return false end
      rest, line = behind, line:gsub("\r$", "")
      if line == "" then
        local whole = table.concat(data, "\n")
        data = {}
        if whole ~= "" and on_data(whole) then return true end
      else
        local value = line:match "^data: ?(.*)$"
        if value then data[#data + 1] = value end
      end
    end
  end
end

--- A gateway at a URL. `headers(message)` gives what each request carries.
function link.url(address, headers)
  local place, what, hint = http.place(address)
  if not place then return nil, what, hint end
  local self, session = {}, nil

  local function post(message, on_head)
    local sent = headers(message)
    sent["content-type"], sent.accept, sent["mcp-session-id"] = "application/json", "application/json, text/event-stream", session
    local status, got, body = http.ask { method = "POST", place = place, headers = sent, body = json.encode(message), on_head = on_head }
    if status then session = got["mcp-session-id"] or session end
    return status, got, body
  end

  function self.tell(message) return post(message) end
  function self.exchange(message, on_message)
    local answer
    local function take(text)
      local got = json.decode(text)
      if got and got.id == message.id and not got.method then
        answer = got
        return true
      end
      local back = got and got.method and on_message(got)
      if back then self.tell(back) end
    end
    local status, got, body = post(message, function(_, of)
      session = of["mcp-session-id"] or session
      return (of["content-type"] or ""):find "^text/event%-stream" and events(take) or nil
    end)
    if not status then return nil, got end
    if not answer and body ~= "" then answer = json.decode(body) end
    if type(answer) ~= "table" then return nil, "it answered with status " .. status end
    return answer
  end
  function self.close()
    if session then http.ask { method = "DELETE", place = place, headers = { ["mcp-session-id"] = session } } end
  end
  return self
end

return link
