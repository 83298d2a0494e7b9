-- A child process of the command line: a gateway that serves its parent on stdio. One request is in flight at a time. A
-- link has
--   exchange(message, on_message)   sends a request; messages before its answer go to on_message, whose result, if any, is sent back.
--                                   Returns the answer; or nil, why
--   send(message)                   sends a message that has no answer
--   close()                         closes the link; returns the exit code of the child

local era = require "moonpool.protocol.era"
local json = require "moonpool.json"
local stderr = require "moonpool.workbench.format.stderr"
local wire = require "moonpool.wire"

local link = {}

local READ_TIMEOUT_S = 3600
local BAD_CONFIG, INTERRUPTED = 78, 130

--- The capabilities that a command declares if it answers every question of scripts.
link.able = {
  elicitation = { form = json.object {}, url = json.object {} }, roots = json.object {},
  sampling = { tools = json.object {}, context = json.object {} },
}

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

--- A function that sends the requests of a command to a child: ask(method, params) returns the result; or nil, why,
--- true if the child has ended, and the code of the error. `able`: the capabilities of the command (optional);
--- `log_level`: the least level of the messages that it gets (optional).
function link.asker(child, command, able, log_level)
  local id = 0
  return function(method, params)
    id = id + 1
    params._meta = {
      ["io.modelcontextprotocol/protocolVersion"] = era.newest_stateless, ["io.modelcontextprotocol/clientCapabilities"] = able or json.object {},
      ["io.modelcontextprotocol/clientInfo"] = { name = "moonpool " .. command, version = "1" },
      ["io.modelcontextprotocol/logLevel"] = log_level,
    }
    local got, why = child.exchange({ jsonrpc = "2.0", id = id, method = method, params = params }, function() end)
    if not got then return nil, why, true end
    if got.error then return nil, got.error.message, false, got.error.code end
    return got.result
  end
end

--- Closes a child that gave no result, and prints why. Returns the exit code of the command.
function link.lost(child, why)
  local code = child.close()
  if code == BAD_CONFIG then return code end               -- the child has printed the reason
  if why == "interrupted" then return stderr.wrong("interrupted", nil, INTERRUPTED) end
  return stderr.wrong(why)
end

return link
