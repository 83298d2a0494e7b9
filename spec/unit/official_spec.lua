-- The check against the official schemas finds wrong messages, and accepts right ones.
local official, why = require "spec.helpers.official"()

local function message(text) return assert(official.json.decode(text)) end

local function refused(date, text, method, part)
  local complaint = official.complaint(date, message(text), method)
  assert.truthy(complaint, date .. " lets this pass: " .. text)
  assert.truthy(complaint:find(part, 1, true), complaint)
end

local function fits(date, text, method) assert.is_nil(official.complaint(date, message(text), method)) end

local legacy = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25" }

describe("a message that is not as its revision says", function()
  if not official then return pending("is not told: " .. why) end

  it("is refused for a result without its type", function()
    local whole = '{"jsonrpc":"2.0","id":1,"result":{"content":[]%s}}'
    refused("2026-07-28", whole:format "", "tools/call", "resultType")
    refused("2026-07-28", whole:format ',"resultType":"done"', "tools/call", "resultType")
    fits("2026-07-28", whole:format ',"resultType":"complete"', "tools/call")
    for _, date in ipairs(legacy) do fits(date, whole:format "", "tools/call") end
  end)

  it("is refused for an id that is null", function()
    for _, date in ipairs { "2024-11-05", "2025-06-18", "2025-11-25", "2026-07-28" } do
      refused(date, '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no JSON"}}', nil, "/id")
      refused(date, '{"jsonrpc":"2.0","id":null,"result":{"content":[]}}', "tools/call", "/id")
      fits(date, '{"jsonrpc":"2.0","error":{"code":-32700,"message":"no JSON"}}')
    end
  end)

  it("is refused for a tool without inputSchema", function()
    for _, date in ipairs(legacy) do
      refused(date, '{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"add"}]}}', "tools/list", "inputSchema")
      fits(date, '{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"add","inputSchema":{"type":"object"}}]}}', "tools/list")
    end
    local modern = '{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"public","tools":[{"name":"add"%s}]}}'
    refused("2026-07-28", modern:format "", "tools/list", "inputSchema")
    refused("2026-07-28", modern:format ',"inputSchema":{"type":"string"}', "tools/list", "inputSchema")
    fits("2026-07-28", modern:format ',"inputSchema":{"type":"object"}', "tools/list")
  end)

  it("is refused for a list that does not say how long it keeps", function()
    refused("2026-07-28", '{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","cacheScope":"public","prompts":[]}}', "prompts/list", "ttlMs")
  end)

  it("is refused for content, errors and notifications of another make", function()
    local audio = '{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"audio","data":"AA==","mimeType":"audio/wav"}]}}'
    refused("2024-11-05", audio, "tools/call", "/content/0")
    fits("2025-03-26", audio, "tools/call")
    refused("2025-11-25", '{"jsonrpc":"2.0","id":1,"error":{"message":"no code"}}', nil, "code")
    refused("2026-07-28", '{"jsonrpc":"2.0","id":1,"error":{"code":-32050,"message":"invented"}}', nil, "-32050")
    refused("2026-07-28", '{"jsonrpc":"2.0","id":1,"error":{"code":-32021,"message":"no data"}}', nil, "data")
    refused("2025-11-25", '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}', nil, "progressToken")
    refused("2025-11-25", '{"jsonrpc":"2.0","method":"notifications/nothing"}', nil, "notifications/nothing")
    refused("2025-03-26", '{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}', nil, "elicitation/create")
    refused("2026-07-28", '{"jsonrpc":"2.0","id":1,"method":"roots/list"}', nil, "roots/list")
    refused("2025-11-25", '{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}', nil, "both")
    refused("2025-11-25", '{"jsonrpc":"2.0","id":1,"result":{}}', nil, "nothing that was asked")
  end)

  it("is refused for a question that asks for nothing, or wrongly", function()
    local asked = '{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required"%s}}'
    refused("2026-07-28", asked:format "", "tools/call", "asks for nothing")
    refused("2026-07-28", asked:format ',"inputRequests":{"a":{"method":"ping"}}', "tools/call", "inputRequests")
    fits("2026-07-28", asked:format ',"inputRequests":{"a":{"method":"roots/list"}}', "tools/call")
  end)

  it("may have bounds that are no integers, although a schema forbids it by mistake", function()
    local form = '{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"m","requestedSchema":'
      .. '{"type":"object","properties":{"n":{"type":"number","minimum":0.5}}}}}'
    for _, date in ipairs { "2025-06-18", "2025-11-25" } do fits(date, form) end
  end)
end)
