-- An HTTP/1.1 server that answers exactly as a spec says, also as no server should: in any pieces, late, never,
-- incompletely.
--   local server <close> = stub.start(function(request, reply) reply:json { ok = true } end)
local uv = require "luv"
local cjson = require "cjson.safe"
local wait = require "spec.helpers.wait"

local stub = {}

local reply = {}
reply.__index = reply

local reasons = { [200] = "OK", [202] = "Accepted", [302] = "Found", [404] = "Not Found" }

--- Sends raw bytes, or a list of them.
function reply:raw(bytes)
  if not self.tcp:is_closing() then self.tcp:write(bytes, function() end) end
  return self
end

--- Sends the head of an answer. `headers`: a list of { name, value }, or a table.
function reply:head(status, headers)
  local lines = { ("HTTP/1.1 %d %s"):format(status, reasons[status] or "Told") }
  for name, value in pairs(headers or {}) do
    lines[#lines + 1] = type(value) == "table" and value[1] .. ": " .. value[2] or name .. ": " .. value
  end
  return self:raw(table.concat(lines, "\r\n") .. "\r\n\r\n")
end

--- Sends a whole answer.
function reply:send(status, headers, body)
  local all = { { "content-length", #(body or "") } }
  for name, value in pairs(headers or {}) do all[#all + 1] = type(value) == "table" and value or { name, value } end
  return self:head(status, all):raw(self.method ~= "HEAD" and body or "")
end

function reply:json(value) return self:send(200, { ["content-type"] = "application/json" }, cjson.encode(value)) end

--- Runs `f` after a number of milliseconds, if the connection is still open.
function reply:later(ms, f)
  local timer = uv.new_timer()
  timer:start(ms, 0, function()
    timer:close()
    if not self.tcp:is_closing() then f() end
  end)
  return self
end

--- Sends pieces, one per turn of the loop.
function reply:pieces(list, after)
  local i = 0
  local function on()
    i = i + 1
    if list[i] then
      self:raw(list[i]):later(0, on)
    elseif after then
      after()
    end
  end
  on()
  return self
end

function reply:chunk(bytes) return self:raw { ("%x\r\n"):format(#bytes), bytes, "\r\n" } end

function reply:close()
  if not self.tcp:is_closing() then self.tcp:close() end
end

local function read_head(text)
  local method, target = text:match "^(%u+) (%S+) HTTP/1%.1\r\n"
  local headers = {}
  for name, value in text:gmatch "\r\n([^:\r\n]+):[ \t]*([^\r\n]*)" do headers[name:lower()] = value end
  return { method = method, target = target, path = target:match "^[^?]*", query = target:match "%?(.*)$", headers = headers, head = text }
end

local server = {}
server.__index = server

local function pump(self, peer)
  while true do
    local head, after = peer.rest:match "^(.-\r\n)\r\n()"
    if not head then return end
    local request = read_head(head)
    local length = tonumber(request.headers["content-length"] or 0)
    if #peer.rest - after + 1 < length then return end
    request.body = peer.rest:sub(after, after + length - 1)
    peer.rest = peer.rest:sub(after + length)
    request.connection = peer.number
    self.requests[#self.requests + 1] = request
    self.answer(request, setmetatable({ tcp = peer.tcp, method = request.method }, reply))
  end
end

local function accept(self)
  local tcp = uv.new_tcp()
  self.tcp:accept(tcp)
  tcp:nodelay(true) -- an answer in several writes is not held back until the client acknowledges the first
  self.accepted = self.accepted + 1
  local peer = { tcp = tcp, rest = "", number = self.accepted }
  self.peers[peer] = true
  tcp:read_start(function(_, bytes)
    if bytes then
      peer.rest = peer.rest .. bytes
      return pump(self, peer)
    end
    self.peers[peer], self.left = nil, self.left + 1
    if not tcp:is_closing() then tcp:close() end
    if self.on_left then self.on_left(peer.number) end
  end)
end

--- The number of open connections.
function server:open()
  uv.run "nowait"
  local count = 0
  for peer in pairs(self.peers) do
    if not peer.tcp:is_closing() then count = count + 1 end
  end
  return count
end

--- Closes all connections, as a server that waits no longer for a next request.
function server:drop()
  for peer in pairs(self.peers) do
    if not peer.tcp:is_closing() then peer.tcp:close() end
  end
  self.peers = {}
end

function server:wait_request(count)
  return wait.for_fact("request " .. count .. " of the stub", 20, function() return self.requests[count] end)
end

function server:__close()
  self:drop()
  self.tcp:close()
  uv.run "nowait"
end

--- A server on `port`, or a free one, of `host`. `answer(request, reply)` runs for each request. A spec may set
--- `on_left`, a function of the number of a connection that its client has closed.
function stub.start(answer, host, port)
  local self = setmetatable({ answer = answer, requests = {}, peers = {}, accepted = 0, left = 0, tcp = uv.new_tcp() }, server)
  assert(self.tcp:bind(host or "127.0.0.1", port or 0))
  self.port = self.tcp:getsockname().port
  assert(self.tcp:listen(511, function() accept(self) end))
  self.at = (host or "127.0.0.1") .. ":" .. self.port
  self.url = "http://" .. self.at
  return self
end

return stub
