-- `moonpool stdio` for a spec: the real binary with the spec as its client.
--   local s <close> = stdio.start { scripts = { ["tools/add.lua"] = "…" } }
--   s:send { jsonrpc = "2.0", id = 1, method = "ping" } ; local answer = s:expect(1)
-- `s:client(revision)` speaks a revision correctly, with the functions of spec.helpers.eras: call, result, open,
-- notify, post.
local uv = require "luv"
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local stdio = {}

local PATIENCE = 20 -- seconds; a fact ends the wait at once, so this is for a machine that stands still

local INFO = { name = "spec", version = "1" }

local process = setmetatable({}, { __index = gateway.running })
process.__index = process

-- -- messages received ---------------------------------------------------------------------------------------------------

local function take_lines(self, bytes)
  local from = 1
  for stop in bytes:gmatch "()\n" do
    table.insert(self.pieces, bytes:sub(from, stop - 1))
    local line = table.concat(self.pieces)
    self.pieces, from = {}, stop + 1
    local message = cjson.decode(line)
    table.insert(self.messages, { json = message, line = line })
  end
  if from <= #bytes then
    table.insert(self.pieces, bytes:sub(from))
  end
end

function process:resume()
  self.out:read_start(function(fault, bytes)
    if bytes then
      take_lines(self, bytes)
    else
      self.eof = fault or true
    end
  end)
  return self
end

-- From now on reads nothing, so that the other side's output piles up.
function process:pause()
  self.out:read_stop()
  return self
end

-- `what` is a method's name, a JSON-RPC id, or a function of the message.
local function matches(json, what)
  if type(what) == "function" then
    return what(json)
  elseif type(json) ~= "table" or #json > 0 then
    return false
  end
  return json.method == what or (json.id == what and not json.method)
end

-- Waits for the first unread message that matches `what`. Other messages stay for later calls.
function process:expect(what, seconds)
  local function named()
    local came = {}
    for i, message in ipairs(self.messages) do
      came[i] = message.line:sub(1, 160)
    end
    return ("the message %s; what came:\n  %s\nits log:\n%s"):format(tostring(what), table.concat(came, "\n  "):sub(-4000), self:log():sub(-4000))
  end
  return wait.for_fact(named, seconds or PATIENCE, function()
    for _, message in ipairs(self.messages) do
      if not message.given and matches(message.json, what) then
        message.given = true
        return message.json, message.line
      end
    end
    if self.eof then
      error("its output ended without " .. named(), 0)
    end
  end)
end

-- True for an error that names no request.
function process:expect_error(seconds)
  return self:expect(function(json)
    return type(json) == "table" and json.error and json.id == nil
  end, seconds).error
end

-- Checks that no message has come that `expect` did not take, and that every line was JSON.
function process:assert_nothing_left()
  uv.run "nowait"
  for _, message in ipairs(self.messages) do
    assert(message.json ~= nil, "no JSON on stdout: " .. message.line)
    assert(message.given, "unexpected on stdout: " .. message.line)
  end
  assert(#self.pieces == 0, "half a line on stdout: " .. table.concat(self.pieces))
end

-- -- messages sent -----------------------------------------------------------------------------------------------------

function process:send_raw(bytes)
  self.input:write(bytes, function() end)
  return self
end

-- Sends a message given as a table, or a line given as text.
function process:send(message)
  return self:send_raw((type(message) == "table" and assert(cjson.encode(message)) or message) .. "\n")
end

local function shut(pipe)
  if pipe and not pipe:is_closing() then
    pipe:close()
    uv.run "nowait"
  end
end

-- Closes the process's stdin.
function process:finish()
  if self.input and not self.input:is_closing() then
    self.input:shutdown(function()
      shut(self.input)
    end)
    uv.run "nowait"
  end
  return self
end

-- Closes the read end of the process's stdout.
function process:close_output()
  shut(self.out)
  return self
end

-- Closes the process's stdin and waits until the process ends; fails unless it exits with 0 and printed nothing
-- unexpected.
function process:leave(seconds)
  self:finish()
  wait.for_fact("the end of its output", seconds or 20, function()
    return self.eof
  end)
  self:wait_exit(seconds)
  self:assert_nothing_left()
  return self:stop()
end

function process:__close()
  self:finish()
  gateway.running.__close(self)
  shut(self.input)
  shut(self.out)
end

-- -- clients ----------------------------------------------------------------------------------------------------------

local call = {}
call.__index = call

function call:wait_event(what, seconds)
  return { json = self.process:expect(what, seconds) }
end

function call:wait(what, seconds)
  self.last = self:wait_event(what, seconds)
  return self
end

function call:answer(seconds)
  return self.process:expect(self.id, seconds)
end

local client = {}
client.__index = client

function client:message(method, params)
  self.ids = self.ids + 1
  local message = { jsonrpc = "2.0", id = self.ids, method = method, params = params }
  if self.revision == "2026-07-28" then
    message.params = {}
    for name, value in pairs(params or {}) do
      message.params[name] = value
    end
    message.params._meta = {
      ["io.modelcontextprotocol/protocolVersion"] = self.revision,
      ["io.modelcontextprotocol/clientCapabilities"] = self.capabilities,
      ["io.modelcontextprotocol/clientInfo"] = self.client_info,
    }
    for name, value in pairs((params or {})._meta or {}) do
      message.params._meta[name] = value
    end
  end
  return message
end

-- Sends one message without changes.
function client:post(message)
  self.process:send(message)
end

function client:open(method, params)
  local message = self:message(method, params)
  self:post(message)
  return setmetatable({ id = message.id, process = self.process }, call)
end

function client:call(method, params, seconds)
  return self:open(method, params):answer(seconds)
end

function client:result(method, params, seconds)
  local answer = self:call(method, params, seconds)
  return answer.result or error(("%s gave %s"):format(method, cjson.encode(answer)), 2)
end

function client:notify(method, params)
  self:post { jsonrpc = "2.0", method = method, params = params }
end

-- `options`: initialize = false skips the handshake; capabilities, client_info.
function process:client(revision, options)
  options = options or {}
  local it = setmetatable({
    process = self, revision = revision, ids = 0, capabilities = options.capabilities or {}, client_info = options.client_info or INFO,
  }, client)
  if revision ~= "2026-07-28" and options.initialize ~= false then
    it.server = it:result("initialize", { protocolVersion = revision, capabilities = it.capabilities, clientInfo = it.client_info })
    it:notify "notifications/initialized"
  end
  return it
end

-- -- public functions ---------------------------------------------------------------------------------------------------------

-- Makes a pipe for a descriptor of the process, and our end of it. Clients use both kinds: node's are sockets, Python's
-- are not.
local function connect(kind, is_input)
  local ours = uv.new_pipe(false)
  if kind == "socket" then
    return ours, ours
  end
  local ends = assert(uv.pipe({ nonblock = false }, { nonblock = false }))
  ours:open(is_input and ends.write or ends.read)
  return ours, is_input and ends.read or ends.write
end

-- Takes `options` like gateway.start, with `dir`, and: kind ("pipe", or "socket").
function stdio.start(options)
  options = options or {}
  local dir = options.dir or gateway.prepare(options)
  local self = setmetatable({ dir = dir, messages = {}, pieces = {} }, process)
  local ready = uv.new_pipe(false)
  local our_input, input = connect(options.kind, true)
  local our_out, out = connect(options.kind, false)
  self.input, self.out = our_input, our_out
  local args = { "stdio", "moonpool.yaml", "--ready-fd", "3" }
  table.move(options.args or {}, 1, #(options.args or {}), #args + 1, args)
  self.process = gateway.spawn(uv.fs_realpath(gateway.binary), args, dir, { env = gateway.variables(options), cwd = dir, stdin = input, stdout = out }, ready)
  self.pid = self.process.pid
  for _, fd in ipairs { input, out } do
    if type(fd) == "number" then
      uv.fs_close(fd)
    end
  end
  self:resume()
  ready:read_start(function(_, bytes)
    self.ready = (self.ready or "") .. (bytes or "")
    if not bytes then
      ready:close()
    end
  end)
  wait.for_fact("moonpool stdio to be ready", 20, function()
    return ready:is_closing()
  end)
  assert(self.ready:find "^ready stdio pid=", "it is not ready: " .. self.ready .. self:log())
  return self
end

return stdio
