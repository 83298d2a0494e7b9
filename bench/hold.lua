-- hold.lua: the clients of one kind of quiet stream, in a process of their own, so that a stream takes one descriptor
-- here and one in the gateway. bench/streams.lua starts it: `lua5.4 bench/hold.lua PORT KIND [STREAMS]`; STREAMS is the
-- port of another node, by way of which the streams are opened. It reads commands from stdin, a line each, and answers
-- each with its first word when it has been done:
--   open COUNT     opens so many streams more
--   heard TEXT     waits until each stream has brought an event that contains TEXT
--   leave close    closes all connections, which sends FIN; `leave reset` sends RST
--   end            deletes the sessions that the streams of this kind belong to
local uv = require "luv"

local port, kind_name, stream_port = tonumber(arg[1]), arg[2], tonumber(arg[3])
-- streams that are being opened at the same time: between two nodes each takes a connection, and a handshake of TLS
local AT_ONCE <const> = stream_port and 16 or 64

local META = '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}'
local BOTH = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"

local function post(body, headers)
  return ("POST /mcp HTTP/1.1\r\nHost: localhost\r\n%s%sContent-Length: %d\r\n\r\n%s"):format(BOTH, headers, #body, body)
end

local function stateless(method, params, more)
  return post(('{"jsonrpc":"2.0","id":1,"method":"%s","params":{%s,%s}}'):format(method, params, META),
    ("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: %s\r\n%s"):format(method, more or ""))
end

local INITIALIZE = post('{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},' ..
  '"clientInfo":{"name":"bench","version":"1"}}}', "")
local INITIALIZED = '{"jsonrpc":"2.0","method":"notifications/initialized"}'

local sessions = {}

-- What a stream of each kind sends, one after the other: a text, or a function of the answer to the text before. The
-- stream is open when the last one was answered, or sent where `has_no_answer`.
local kinds = {
  ["HTTP+SSE"] = { "GET /sse HTTP/1.1\r\nHost: localhost\r\n\r\n" },
  GET = {
    INITIALIZE,
    function(answer)
      local id = assert(answer:match "[Mm]cp%-[Ss]ession%-[Ii]d: *(%S+)", answer)
      sessions[#sessions + 1] = id
      local headers = ("Mcp-Session-Id: %s\r\nMCP-Protocol-Version: 2025-11-25\r\n"):format(id)
      return post(INITIALIZED, headers), headers
    end,
    function(_, headers) return "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n" .. headers .. "\r\n" end,
  },
  ["subscriptions/listen"] = { stateless("subscriptions/listen", '"notifications":{"toolsListChanged":true}') },
  ["waiting calls"] = { stateless("tools/call", '"name":"wait","arguments":{}', "Mcp-Name: wait\r\n"), has_no_answer = true },
}
local kind = assert(kinds[kind_name], kind_name)

local function say(text)
  io.write(text, "\n")
  io.flush()
end

local function run_until(fact)
  while not fact() do uv.run "once" end
end

local streams, wanted, heard = {}, nil, 0

-- Opens one stream; `done` is called when it is open.
local function open(done)
  local tcp, at, kept = nil, 0, nil
  local connect
  local function step(answer)
    at = at + 1
    local text = kind[at]
    if type(text) == "function" then text, kept = text(answer, kept) end
    if at == #kind and stream_port and at > 1 then
      tcp:close()
      connect(stream_port, function() tcp:write(text) end)
    else
      tcp:write(text)
    end
    if at == #kind and kind.has_no_answer then done() end
  end
  local function begin(one, on_open)
    one:read_start(function(failure, bytes)
      if one:is_closing() then return end
      assert(bytes, failure or "the gateway closed a stream")
      if at < #kind then
        step(bytes)
      elseif at == #kind and not kind.has_no_answer then
        assert(bytes:find "^HTTP/1%.1 200 ", bytes)
        at = at + 1
        done()
      end
      if wanted and bytes:find(wanted, 1, true) then heard = heard + 1 end
    end)
    on_open()
  end
  local place = #streams + 1
  streams[place] = false
  function connect(to, on_open)
    local one = assert(uv.new_tcp())
    tcp, streams[place] = one, one
    one:connect("127.0.0.1", to, function(why)
      assert(not why, why)
      begin(one, on_open)
    end)
  end
  connect(#kind == 1 and stream_port or port, step)
end

local commands = {}

function commands.open(count)
  local left, opening = tonumber(count), 0
  local function more()
    while left > 0 and opening < AT_ONCE do
      left, opening = left - 1, opening + 1
      open(function()
        opening = opening - 1
        more()
      end)
    end
  end
  more()
  run_until(function() return left == 0 and opening == 0 end)
end

function commands.wanted(text) wanted, heard = text, 0 end

function commands.heard()
  run_until(function() return heard >= #streams end)
end

function commands.leave(how)
  for _, tcp in ipairs(streams) do
    if how == "reset" then tcp:close_reset() else tcp:close() end
  end
  streams = {}
  uv.run "nowait"
end

commands["end"] = function()
  local tcp, at = assert(uv.new_tcp()), 0
  local function step()
    at = at + 1
    if not sessions[at] then return end
    tcp:write(("DELETE /mcp HTTP/1.1\r\nHost: localhost\r\nMcp-Session-Id: %s\r\nMCP-Protocol-Version: 2025-11-25\r\n\r\n"):format(sessions[at]))
  end
  tcp:connect("127.0.0.1", port, function(why)
    assert(not why, why)
    tcp:read_start(function(_, bytes)
      assert(bytes, "the gateway closed the connection")
      step()
    end)
    step()
  end)
  run_until(function() return at > #sessions end)
  tcp:close()
  sessions = {}
end

for line in io.lines() do
  local command, word = line:match "^(%S+) ?(.*)$"
  commands[command](word)
  say(command)
end
