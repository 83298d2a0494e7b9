-- The quick way of calls to upstreams, for specs that compare it with the general one: two gateways before the same
-- upstreams, one with the quick way and one without it.
--   local both <close> = quick_way.gateways { one = u }     -- both.on, both.off
local cjson = require "cjson.safe"
local raw = require "spec.helpers.upstream.raw"
local upstream = require "spec.helpers.upstream"

local quick_way = {}

--- Calls that took the quick way to their end, and those that Lua went on with.
function quick_way.counters(g)
  local all = g:status().counters
  return all.calls_forwarded or 0, all.calls_taken_over or 0
end

--- Calls that took the quick way while `f` ran: how many, and how many of them Lua took over.
function quick_way.took(g, f)
  local forwarded, taken = quick_way.counters(g)
  f()
  local now, then_taken = quick_way.counters(g)
  return now - forwarded, then_taken - taken
end

--- Calls a tool.
function quick_way.call(c, name, arguments, meta) return c:call("tools/call", { name = name, arguments = arguments or {}, _meta = meta }) end

--- What an upstream received of a call: the message without what each hop makes anew, and the headers about it
--- and those named in `more`.
function quick_way.seen_by(entry, more)
  local json = cjson.decode(entry.text)
  local meta = json.params._meta
  if meta and meta.progressToken then
    assert(json.id == meta.progressToken, entry.text)
    meta.progressToken = "token"
  end
  json.id = nil
  local headers = {}
  for _, name in ipairs { "mcp-method", "mcp-name", "mcp-protocol-version", "traceparent", "tracestate", "content-type", "accept" } do
    headers[name] = (entry.headers or {})[name]
  end
  for _, name in ipairs(more or {}) do headers[name] = (entry.headers or {})[name] end
  return { json = json, arguments = raw.at(entry.text, "params", "arguments"), headers = headers }
end

--- The two gateways, which are closed together. `options`: those of upstream.gateway.
function quick_way.gateways(stubs, options)
  local list = {}
  for _, mode in ipairs { "on", "off" } do
    local made = { env = { MOONPOOL_PLANS = mode }, workers = 1 }
    for name, value in pairs(options or {}) do made[name] = value end
    list[mode] = upstream.gateway(stubs, made)
  end
  return setmetatable(list, { __close = function()
    for _, g in ipairs { list.on, list.off } do
      local _ <close> = g -- luacheck: ignore 211
    end
  end })
end

return quick_way
