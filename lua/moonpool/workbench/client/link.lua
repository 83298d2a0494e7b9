-- A child process of the command line: a gateway that serves its parent on stdio. One request is in flight at a time. A
-- link has
--   exchange(message, on_message)   sends a request; messages before its answer go to on_message, whose result, if any, is sent back.
--                                   Returns the answer; or nil, why
--   send(message)                   sends a message that has no answer
--   close()                         closes the link; returns the exit code of the child

local json = require "moonpool.json"
local wire = require "moonpool.wire"

local link = {}

local READ_TIMEOUT_S = 3600

-- Cancels the request `message`, because the user interrupted the command.
local function cancelled(message)
  return { jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = message.id, reason = "interrupted by the user" } }
end

-- Reads messages with `read()` until the answer to `message` and returns the answer. If `read()` fails, returns its
-- results.
local function answer_to(message, self, on_message, read)
  while true do
    local text, why = read()
    if why == "interrupted" then self.send(cancelled(message)) end
    if not text then return nil, why end
    local got = json.decode(text)
    if got and got.id == message.id and not got.method then return got end
    local back = got and got.method and on_message(got)
    if back then self.send(back) end
  end
end

--- Starts a child process. `arguments` are those of its command line; it can read the texts that follow as
--- /proc/self/fd/10 and 11.
function link.child(arguments, ...)
  wire.catch_interrupts()
  local w, why = wire.spawn({ "stdio", "--apart", table.unpack(arguments) }, ...)
  if not w then return nil, "cannot start moonpool stdio: " .. why end
  local self, rest = {}, ""
  function self.send(message) return w:write(json.encode(message) .. "\n") end
  local function line()
    local first, after = rest:match "^([^\n]*)\n(.*)$"
    local pieces = { rest }
    while not first do
      local bytes, wrong = w:read(READ_TIMEOUT_S)
      if not bytes or bytes == "" then return nil, wrong or "moonpool stdio ended" end
      local head, tail = bytes:match "^([^\n]*)\n(.*)$"
      pieces[#pieces + 1] = head or bytes
      if head then first, after = table.concat(pieces), tail end
    end
    rest = after
    return first
  end
  function self.exchange(message, on_message)
    if not self.send(message) then return nil, "moonpool stdio ended" end
    return answer_to(message, self, on_message, line)
  end
  function self.close() return w:close() end
  return self
end

return link
