-- A client of a stub upstream over stdio, without a gateway between them; with the functions of spec.helpers.eras that
-- specs of the stub use.
local cjson = require "cjson.safe"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local direct = {}
direct.__index = direct

local PATIENCE <const> = 20 -- seconds; a fact ends the wait at once
local META <const> = "io.modelcontextprotocol/"

local call = {}
call.__index = call

function call:wait_event(method)
  return wait.for_fact("the message " .. method, PATIENCE, function()
    for _, message in ipairs(self.client.messages) do
      if message.method == method and not message.is_taken then
        message.is_taken = true
        return { json = message }
      end
    end
  end)
end

function call:answer()
  return wait.for_fact("the answer " .. self.id, PATIENCE, function()
    for _, message in ipairs(self.client.messages) do
      if message.id == self.id and not message.method then return message end
    end
  end)
end

function direct:post(message) self.input:write((type(message) == "table" and cjson.encode(message) or message) .. "\n") end

function direct:open(method, params)
  self.ids = self.ids + 1
  local message = { jsonrpc = "2.0", id = self.ids, method = method, params = params or {} }
  if self.revision == "2026-07-28" then
    message.params._meta = message.params._meta or {}
    for name, value in pairs { protocolVersion = self.revision, clientCapabilities = {}, clientInfo = { name = "spec", version = "1" } } do
      message.params._meta[META .. name] = value
    end
  end
  self:post(message)
  return setmetatable({ id = self.ids, client = self }, call)
end

function direct:call(method, params) return self:open(method, params):answer() end

function direct:result(method, params)
  local answer = self:call(method, params)
  return answer.result or error(method .. " gave " .. cjson.encode(answer), 2)
end

function direct:notify(method, params) self:post { jsonrpc = "2.0", method = method, params = params } end

function direct:wait_exit()
  return wait.for_fact("the process to end", PATIENCE, function() return self.code end)
end

function direct:close()
  if not self.input:is_closing() then self.input:close() end
  self:wait_exit()
  if not self.output:is_closing() then self.output:close() end
end

direct.__close = direct.close

function direct.start(u, revision)
  local self = setmetatable({ revision = revision, ids = 0, messages = {}, noise = 0, rest = "" }, direct)
  self.input, self.output = uv.new_pipe(false), uv.new_pipe(false)
  local words = u.entry.command
  self.handle, self.pid = assert(uv.spawn(words[1], { args = { table.unpack(words, 2) }, stdio = { self.input, self.output, 2 } }, function(code)
    self.code = code
    self.handle:close()
  end))
  self.output:read_start(function(_, bytes)
    if not bytes then return end
    self.rest = (self.rest .. bytes):gsub("([^\n]*)\n", function(line)
      local message = cjson.decode(line)
      if type(message) == "table" then
        table.insert(self.messages, message)
      else
        self.noise = self.noise + 1
      end
      return ""
    end)
  end)
  if revision ~= "2026-07-28" then
    self.server = self:result("initialize", { protocolVersion = revision, capabilities = {}, clientInfo = { name = "spec", version = "1" } })
    self:notify "notifications/initialized"
  end
  return self
end

return direct
