-- Answers of an upstream that come late, out of order, twice, or for no request: each client gets its own, and the
-- others are dropped.
-- pairs: answers to the right client; clients 2026-07-28; upstreams 2024-11-05 sse
-- pairs: answers to the right client; clients 2026-07-28; upstreams 2025-11-25.. http
-- pairs: answers to the right client; clients 2026-07-28; upstreams 2025-06-18 stdio
-- pairs: answers to the right client; clients 2026-07-28; upstreams 2026-07-28 stdio
local eras = require "spec.helpers.eras"
local upstream = require "spec.helpers.upstream"

local faults = upstream.faults
local CLIENTS <const> = 200

for _, row in ipairs(upstream.kinds()) do
  describe(("200 clients, all with the id 1, before %s over %s"):format(row[1], row[2]), function()
    it("get their own answers, however the upstream answers", function()
      local u <close> = upstream.start { revision = row[1], transport = row[2] }
      local g <close> = upstream.gateway({ one = u }, { entries = { one = { prefix = "", calls = 256, waiting = 256 } } })
      local first <close> = g:client "2026-07-28"
      assert.is_true(#first:result("tools/list", {}).tools > 0)
      local late, twice, order = faults.late(30), faults.twice(), faults.out_of_order(5)
      local foreign = faults.foreign { "1000000", '"1"', "-1", '"x"' }
      u:when("tools/call echo", function(x)
        local n = x.arguments.n
        local fault = n % 5 == 0 and late or n % 5 == 1 and twice or n % 5 == 2 and order or n % 5 == 3 and foreign
        if not fault then return x:serve() end
        fault(x)
      end)
      local streams = {}
      for n = 1, CLIENTS do
        local c = eras.client(g, "2026-07-28")
        streams[n] = { c = c, stream = c:open("tools/call", { name = "echo", arguments = { n = n } }) }
      end
      for n, one in ipairs(streams) do
        local answer = one.stream:answer()
        assert.equal(1, answer.id)
        assert.equal(('{"n":%d}'):format(n), upstream.text(answer))
        one.c:close()
      end
      assert.equal(CLIENTS, u:ran "echo")
    end)
  end)
end
