-- A client of any kind, for the matrix: whatever its transport is, `call` gives the answer, `open` a call's stream, and
-- `notes` all that came which is no answer, in the order in which it came on each stream.
local stdio = require "spec.helpers.stdio"

local peer = {}
peer.__index = peer

local peers = {}

function peer:open(method, params) return self.c:open(method, params) end

function peer:call(method, params, seconds)
  local stream = self.c:open(method, params)
  local answer = stream:answer(seconds)
  if self.kind.transport == "http" then stream:close() end
  return answer
end

function peer:result(method, params, seconds)
  local answer = self:call(method, params, seconds)
  return answer.result or error(method .. " gave " .. require "cjson".encode(answer), 2)
end

-- Messages of one connection, or of the process.
local function each_message(self, f)
  if self.process then
    for _, message in ipairs(self.process.messages) do f(message.json) end
    return
  end
  for _, connection in ipairs(self.c.connections) do
    for _, message in ipairs(connection:messages()) do f(message) end
  end
end

--- Requests and notifications that have come, but those that `mark` has seen.
function peer:notes()
  require "luv".run "nowait"
  local list = {}
  each_message(self, function(message)
    if message.method and not self.marked[message] then list[#list + 1] = message end
  end)
  return list
end

--- The answer to a request that has come on an event stream or a pipe, or nil.
function peer:answer_to(id)
  local found
  each_message(self, function(message)
    if message.id == id and not message.method then found = message end
  end)
  return found
end

--- From now on `notes` has what comes later.
function peer:mark()
  for _, message in ipairs(self:notes()) do self.marked[message] = true end
end

--- Answers a question.
function peer:answer(question, result, fault) self.c:post { jsonrpc = "2.0", id = question.id, result = result, error = fault } end

--- Opens the way for messages that belong to no request.
function peer:listen(filter)
  if self.kind.revision == "2026-07-28" then
    self.own = self.c:open("subscriptions/listen", { notifications = filter })
    self.acknowledged = self.own:wait_event("notifications/subscriptions/acknowledged", 20).json
  elseif self.kind.transport == "http" then
    self.own = self.c:get_stream()
  end
end

function peer:close()
  if self.process then
    local _ <close> = self.process -- luacheck: ignore 211
  else
    self.c:close()
  end
end

--- `m`: what matrix.start gave; `token`: of the principal.
function peers.start(m, kind, token, capabilities, constants)
  local self = setmetatable({ kind = kind, token = token, marked = setmetatable({}, { __mode = "k" }) }, peer)
  if kind.transport == "stdio" then
    self.process = stdio.start { config = m.config, constants = constants }
    self.c = self.process:client(kind.revision, { capabilities = capabilities })
  else
    self.c = m.g:client(kind.revision, { transport = kind.transport, token = token, capabilities = capabilities })
  end
  return self
end

return peers
