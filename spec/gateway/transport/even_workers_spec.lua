-- Connections are spread evenly over the workers: the kernel chooses by a hash, and a worker with clearly more than
-- another hands new ones over before libh2o has them.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"

-- Each worker has a Lua state of its own, and so an id of its own.
local who = 'local id = uuid() return tool { "Which worker.", function() return id end }'

local function start(options)
  options.scripts = { ["tools/who.lua"] = who }
  options.workers = options.workers or 2
  return gateway.start(options)
end

local function ask(connection)
  local body = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"who","arguments":{},"_meta":' ..
    '{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}'
  return connection:request({ method = "POST", path = "/mcp", body = body, headers = {
    ["content-type"] = "application/json", accept = "application/json, text/event-stream",
    ["mcp-protocol-version"] = "2026-07-28", ["mcp-method"] = "tools/call", ["mcp-name"] = "who",
  } }):json().result.content[1].text
end

-- Opens `count` connections: worker -> its connections.
local function open(g, count, into)
  local by_worker, list = into or {}, {}
  for i = 1, count do list[i] = client.connect(g) end
  for _, connection in ipairs(list) do
    local id = ask(connection)
    by_worker[id] = by_worker[id] or {}
    table.insert(by_worker[id], connection)
  end
  return by_worker
end

local function counts(by_worker)
  local list = {}
  for _, connections in pairs(by_worker) do list[#list + 1] = #connections end
  table.sort(list)
  return list
end

for _, workers in ipairs { 2, 3 } do
  describe(workers .. " workers", function()
    it("get nearly the same number of 60 connections", function()
      local g <close> = start { workers = workers }
      local list = counts(open(g, 60))
      assert.equal(workers, #list)
      assert.truthy(list[#list] - list[1] <= 2 + list[1] // 8 + 1, table.concat(list, " "))
    end)
  end)
end

describe("a worker whose clients have disconnected", function()
  it("gets the next connections, also over TLS", function()
    for _, tls in ipairs { false, true } do
      local g <close> = start { tls = tls }
      local by_worker = open(g, 40)
      local left, other = next(by_worker)
      for _, connection in ipairs(other) do connection:close() end
      by_worker[left] = {}
      g:wait_status(function(status) return status.gauges.connections <= 40 - #other + 1 end)
      open(g, 12, by_worker)
      assert.truthy(#by_worker[left] >= 11, #by_worker[left] .. " of 12")
      assert.truthy(g:status().counters.connections_handed_over > 0)
    end
  end)
end)
