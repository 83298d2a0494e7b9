-- For specs of host.upstream itself, below lua/moonpool/upstream: a gateway whose tool has functions that open a
-- channel and send requests, and a server that answers as the spec says.
--   kept.open(name, key, options)              channel, state; opens the channel with one `initialize` if it is claimed
--   kept.request(channel, method, options)     the answer's event; options: those of send, params, on_event(event, exchange)
--   kept.call(name, key, method, options)      both
local cjson = require "cjson.safe"
local stub = require "spec.helpers.stub"
local trusted = require "spec.helpers.trusted"

local low = {}

-- Code of the gateway's tool: opens the channel of a key like lua/moonpool/upstream does, and sends one request.
low.library = [[
local json = require "moonpool.json"
function kept.open(name, key, options)
  local channel, state = host.upstream.channel(name, key, options)
  if not channel then return nil, state end
  if state == "claimed" then
    local id = channel:next_id()
    local bytes = json.encode { jsonrpc = "2.0", id = id, method = "initialize", params = { key = key } }
    local exchange, failure = channel:send(bytes, { id = id, is_opening = true })
    local event
    if exchange then event, failure = exchange:next() end
    if not event then channel:failed(failure) return nil, failure end
    local result = json.decode(event.result)
    channel:opened { revision = result.protocolVersion, session = event.session }
  end
  return channel, state
end
function kept.request(channel, method, options)
  local id = channel:next_id()
  options = options or {}
  options.id = id
  local exchange, failure = channel:send(json.encode { jsonrpc = "2.0", id = id, method = method, params = options.params }, options)
  if not exchange then return nil, failure end
  while true do
    local event, why = exchange:next()
    if not event then return nil, why end
    if event.kind == "answer" then return event end
    if options.on_event then options.on_event(event, exchange) end
  end
end
function kept.call(name, key, method, options)
  local channel, failure = kept.open(name, key)
  if not channel then return nil, failure end
  return kept.request(channel, method, options)
end
return true
]]

-- A script after which lua/moonpool reads no lists by itself: only the spec calls the upstreams.
local quiet = [[
package.loaded["moonpool.upstream.lists"].read = function() return nil, { reason = "off" } end
return tool { "Does nothing.", function() end }]]

--- Starts a gateway with these upstreams, which does not read their lists.
function low.start(upstreams, options)
  options = options or {}
  options.scripts = { ["tools/quiet.lua"] = quiet }
  options.config = options.config or {}
  options.config.upstreams = upstreams
  return trusted.start(options)
end

--- Answers a request with this result.
function low.answer(request, reply, result)
  reply:json { jsonrpc = "2.0", id = cjson.decode(request.body).id, result = result }
end

--- A server whose `initialize` works. Other requests than `initialize` and DELETE are answered by `others(message,
--- request, reply)`.
function low.server(others)
  return stub.start(function(request, reply)
    if request.method ~= "POST" then return reply:send(request.method == "DELETE" and 200 or 405) end
    local message = cjson.decode(request.body)
    if message.method == "initialize" then
      local body = cjson.encode { jsonrpc = "2.0", id = message.id, result = { protocolVersion = "2025-11-25" } }
      return reply:send(200, { ["content-type"] = "application/json", ["mcp-session-id"] = "s-" .. message.params.key }, body)
    end
    others(message, request, reply)
  end)
end

--- The methods of all requests, in order; GET and DELETE for those without a body.
function low.methods(upstream)
  local list = {}
  for i, request in ipairs(upstream.requests) do
    list[i] = (cjson.decode(request.body) or {}).method or request.method
  end
  return list
end

--- How often the value is in the list.
function low.count(list, value)
  local n = 0
  for _, one in ipairs(list) do
    if one == value then n = n + 1 end
  end
  return n
end

--- A client for each of `n` workers, whose tool has the functions above.
function low.workers(g, n)
  local list = table.pack(trusted.workers(g, n))
  for _, me in ipairs(list) do trusted.run(me, low.library) end
  return table.unpack(list)
end

return low
