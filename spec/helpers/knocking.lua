-- Clients that connect again and again, each with one request, while a gateway is restarted: counts what becomes of
-- each connection.
--   local k <close> = knocking.start(port, 8) ; k:wait(100) ; assert.equal(0, k.refused)
local uv = require "luv"
local wait = require "spec.helpers.wait"

local knocking = {}
knocking.__index = knocking

local REQUEST = "GET /nothing HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"

-- Milliseconds from an answer to the same client's next connection. Without them, clients would take a processor of
-- their own, and leave ten thousands of connections in TIME-WAIT, which all that reads /proc/net/tcp has to pass.
local PAUSE <const> = 1

local function knock(self, pause)
  if self.is_over then
    self.under_way = self.under_way - 1
    pause:close()
    return
  end
  local socket = type(self.where) == "string" and uv.new_pipe(false) or uv.new_tcp()
  local text = ""
  local function over(kind, why)
    self[kind] = self[kind] + 1
    if kind ~= "answered" then self.last = why end
    socket:close(function()
      pause:start(PAUSE, 0, function() knock(self, pause) end)
    end)
  end
  local function connected(err)
    if err then return over("refused", err) end
    socket:read_start(function(failed, bytes)
      text = text .. (bytes or "")
      if text:find("^HTTP/1.1 404 ") then
        socket:read_stop()
        over "answered"
      elseif failed or not bytes then
        over("lost", failed or "end of file")
      end
    end)
    socket:write(REQUEST)
  end
  if type(self.where) == "string" then
    socket:connect(self.where, connected)
  else
    socket:connect("127.0.0.1", self.where, connected)
  end
end

-- `where`: a port, or the path of a Unix socket. `count`: clients at once.
function knocking.start(where, count)
  local self = setmetatable({ where = where, under_way = count, refused = 0, lost = 0, answered = 0 }, knocking)
  for _ = 1, count do knock(self, uv.new_timer()) end
  return self
end

-- Waits until `more` further connections were answered.
function knocking:wait(more)
  local from = self.answered
  wait.for_fact(function() return ("%d more answers; answered %d, refused %d, lost %d (%s)"):format(more, self.answered - from, self.refused, self.lost,
    tostring(self.last)) end, 20, function() return self.answered >= from + more end)
end

function knocking:stop()
  self.is_over = true
  wait.for_fact("the last clients", 20, function() return self.under_way == 0 end)
end

knocking.__close = knocking.stop

return knocking
