-- profile.lua: what a profile at 199 samples a second costs where workers are busy: calls a second of one gateway,
-- alternately with a profile and without. Needs wrk. `./dev bench profile` calls it. The ratio of each pair of rounds
-- tells; its median is the figure (0.98 at least).
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local lfs = require "lfs"
local profile = require "spec.helpers.profile"

local ROUNDS <const>, SECONDS <const>, CONNECTIONS <const> = 11, 4, 32
local TOKEN <const> = ("o"):rep(32)

local add = 'return tool { "Add.", input = { a = t.number, b = t.number }, function(args) return args.a + args.b end }'
local body = cjson.encode { jsonrpc = "2.0", id = 1, method = "tools/call", params = { name = "add", arguments = { a = 1, b = 2 }, _meta = {
  ["io.modelcontextprotocol/protocolVersion"] = "2026-07-28", ["io.modelcontextprotocol/clientCapabilities"] = { [" "] = 1 },
} } }
local headers = "content-type: application/json\naccept: application/json, text/event-stream\nmcp-protocol-version: 2026-07-28\n" ..
  "mcp-method: tools/call\nmcp-name: add"

-- Calls in a second.
local function load(g)
  local script = ("wrk -t1 -c%d -d%ds -s %s/bench/post.lua http://127.0.0.1:%d/mcp"):format(CONNECTIONS, SECONDS, lfs.currentdir(), g.port)
  local code, out, err = gateway.run_program("/bin/sh", { "-euc", script }, { env = { BENCH_BODY = body, BENCH_HEADERS = headers }, seconds = SECONDS + 20 })
  assert(code == 0 and not out:find "Non%-2xx", err .. out)
  return tonumber(out:match "Requests/sec:%s+([%d.]+)")
end

-- Calls in a second while a profile runs, and its samples.
local function load_profiled(g)
  local run <close> = profile.begin(g, TOKEN, { seconds = 300, hz = 199 })
  local calls = load(g)
  local _, ended = run:stacks()
  return calls, ended.samples
end

local function middle(list)
  table.sort(list)
  return list[#list // 2 + 1], list[1], list[#list]
end

local function measure()
  gateway.binary = "build/release/moonpool"
  local g <close> = gateway.start {
    workers = 1, scripts = { ["tools/add.lua"] = add }, config = { admin = { listen = "127.0.0.1:0", tokens = { operate = { me = TOKEN } } } },
  }
  print(("tools/call of add, one worker, wrk with %d connections; %d rounds of %d s each, alternately"):format(CONNECTIONS, ROUNDS, SECONDS))
  load(g)
  local ratios, noise, last = {}, {}, nil
  for round = 1, ROUNDS do
    local off = load(g)
    local on, samples = load_profiled(g)
    ratios[round] = on / off
    if last then noise[#noise + 1] = off / last end
    last = off
    print(("  without %8.0f calls/s   with %8.0f calls/s, %4d samples   ratio %.3f"):format(off, on, samples, on / off))
  end
  print(("  ratio: median %.3f (%.3f … %.3f)"):format(middle(ratios)))
  print(("  of two rounds without: median %.3f (%.3f … %.3f)"):format(middle(noise)))
end

measure()
os.exit(true, false) -- not by way of the end of luv, which trips over processes that have just ended
