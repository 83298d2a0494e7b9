-- Single requests whose headers and bytes a spec controls completely; clients that speak correctly are in eras.lua.
local client = require "spec.helpers.client"

local wire = {}

wire.both = "application/json, text/event-stream"

local VERSION = "io.modelcontextprotocol/protocolVersion"
local CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"

local function over(usual, given)
  for name, value in pairs(given or {}) do
    usual[name] = value
  end
  return usual
end

-- Sends a POST with a body (a table, or its bytes) on a connection of its own. `headers` override the two default
-- headers; false removes one.
function wire.post(g, body, headers, path)
  local all = over({ Accept = wire.both, ["Content-Type"] = "application/json" }, headers)
  return client.request(g, { method = "POST", path = path or "/mcp", headers = all, body = body })
end

function wire.request(g, method, path, headers)
  return client.request(g, { method = method, path = path, headers = over({}, headers) })
end

function wire.message(id, method, params)
  return { jsonrpc = "2.0", id = id, method = method, params = params }
end

function wire.initialize_message(revision, id)
  return wire.message(id or 0, "initialize", { protocolVersion = revision, capabilities = {}, clientInfo = { name = "spec", version = "1" } })
end

-- Opens a session; returns its id, and the HTTP response of `initialize`.
function wire.initialize(g, revision)
  local response = wire.post(g, wire.initialize_message(revision))
  return response.headers["mcp-session-id"], response
end

-- The _meta of a request of 2026-07-28.
function wire.meta(version, more)
  return over({ [VERSION] = version or "2026-07-28", [CAPABILITIES] = {} }, more)
end

-- The headers that mirror a request of 2026-07-28.
function wire.mirrored(message, more)
  local params = message.params or {}
  return over({
    ["MCP-Protocol-Version"] = "2026-07-28", ["Mcp-Method"] = message.method, ["Mcp-Name"] = params.name or false,
  }, more)
end

return wire
