-- An upstream that goes on about calls that have ended: 10,000 questions, reports of progress, log lines, answers or
-- cancellations in a second. What waits is bounded, the rest is counted and dropped; other calls go on.
local beat = require "spec.helpers.beat"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local COUNT <const>, ROUNDS <const> = 10000, 10
local LONGEST_US <const> = 100    -- microseconds of processor time for each message, and for the calls beside them
local WAITING <const> = 1 << 20   -- bytes of messages that belong to no call, for each of the two workers

local FORM <const> = '{"message":"Name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}'

-- Kind -> the message number `i` about the call `x`, and what must have become of them; is_counted_so: each is counted as
-- one about no request.
local kinds = {
  questions = {
    function(i) return ('{"jsonrpc":"2.0","id":"q%d","method":"elicitation/create","params":%s}'):format(i, FORM) end,
    function(counters) return counters.dropped.upstream_questions > 0 end, -- those that come while one request runs belong to that one
  },
  progress = {
    function(i, x) return ('{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}'):format(x.id, i) end,
    function() return true end, is_counted_so = true,
  },
  answers = {
    function(_, x) return ('{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}'):format(x.id) end,
    function() return true end, is_counted_so = true,
  },
  ["log lines"] = {
    function(i) return ('{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"line %d"}}'):format(i) end,
    function(counters) return counters.upstream_observed + counters.dropped.upstream_observed > 0 end,
  },
  cancellations = {
    function(i) return ('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q%d"}}'):format(i) end,
    function() return true end,
  },
}

-- Each process, or each standalone stream, gets all messages at once. Returns their number.
local function push(u, texts)
  u:push(table.concat(texts, u.kind == "http" and "\n\nevent: message\ndata: " or "\n"))
  if u.kind ~= "http" then return #u:alive() end
  local streams = 0
  for _, session in pairs(u.sessions) do streams = streams + (session.stream and 1 or 0) end
  return streams
end

local function flood(u, g, kind, x)
  local other <close> = g:client "2026-07-28"
  local before, number, sent = g:cpu(), 0, 0
  for _ = 1, ROUNDS do
    local texts = {}
    for i = 1, COUNT // ROUNDS do
      number = number + 1
      texts[i] = kind[1](number, x)
    end
    sent = sent + push(u, texts) * #texts
    assert.is_table(other:call("tools/call", { name = "two_echo", arguments = {} }).result)
    assert.is_true(g:status().gauges.upstream_observed_bytes <= 2 * WAITING)
  end
  -- Once an answer to no request is read behind them, all are read: no later call gets questions of the flood.
  local strays = kind.is_counted_so and sent or g:status().counters.dropped.upstream_id
  local last = push(u, { '{"jsonrpc":"2.0","id":999999,"result":{}}' })
  local status = g:wait_status(function(now)
    local gauges = now.gauges
    return now.counters.dropped.upstream_id >= strays + last and kind[2](now.counters) and gauges.upstream_observed_bytes == 0
      and gauges.upstream_event_bytes == 0
  end)
  local took = (g:cpu() - before) * 1e6 / sent
  assert.is_true(took <= LONGEST_US * beat.factor(), ("%.0f us for each"):format(took))
  return status
end

describe("an upstream that goes on about a call that has ended", function()
  for _, transport in ipairs { "stdio", "http" } do
    for name, kind in pairs(kinds) do
      it(("by 10,000 %s over %s, takes little time and memory, and no call fails"):format(name, transport), function()
        local u <close> = upstream.start { revision = "2025-11-25", transport = transport }
        local two <close> = upstream.start { revision = "2025-11-25", transport = "http" }
        local g <close> = upstream.gateway({ one = u, two = two }, { workers = 2 })
        local c <close> = g:client("2025-11-25", { capabilities = { elicitation = { form = {} } } })
        local call = c:open("tools/call", { name = "one_hold", arguments = {} })
        local x = u:wait_held(1)[1]
        c:post { jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = call.id } }
        u:wait { method = "notifications/cancelled" }
        if transport == "http" then u:wait { kind = "http", method = "GET" } end
        u.strict = name ~= "questions" -- its client answers questions that the stub has not noted
        local status = flood(u, g, kind, x)
        if name == "questions" then
          assert.matches("asks endlessly outside of calls", status.upstreams.one.error)
          wait.for_fact("a refusal", 20, function() return #u:all { kind = "response" } > 0 end)
          assert.matches('"error"', u:all({ kind = "response" })[1].text, 1, true)
        end
        assert.is_table(c:call("tools/call", { name = "one_echo", arguments = {} }).result)
      end)
    end
  end
end)
