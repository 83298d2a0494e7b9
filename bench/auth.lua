-- auth.lua: what it costs to know who calls: tools/call with a token that was met before (auth.jwt), and with a secret
-- (auth.bearer), against the same without auth, by turns in one run. `./dev bench auth [ROUNDS]` calls it; ends with 1
-- when a token costs more than 10 %.
local gateway = require "spec.helpers.gateway"
local under = require "bench.load"

local ROUNDS, SECONDS, CONNECTIONS, WORKERS = tonumber(arg[1]) or 15, 1, 64, 2
local MOST = 1.10 -- the middle of rounds
local ISSUER, AUDIENCE = "https://login.example.com", "https://mcp.example.com/mcp"

gateway.binary = os.getenv "MOONPOOL" or "build/release/moonpool"

local function moonpool(...)
  local code, out, err = gateway.exec { ... }
  assert(code == 0, err)
  return (out:gsub("%s+$", ""))
end

local function make_token(dir)
  local public = moonpool("key", "pair", dir .. "/signing.pem")
  local token = moonpool("token", "--key", dir .. "/signing.pem", "iss=" .. ISSUER, "aud=" .. AUDIENCE, "sub=robot", "client_id=bench")
  return public, token
end

local function start(auth, public)
  return gateway.start {
    workers = WORKERS, scripts = { ["tools/add.lua"] = under.add, ["auth/main.lua"] = auth }, files = { ["public.pem"] = public },
    config = { scripts = { path = "scripts", grants = { ["auth/"] = { read = { "public.pem" } } } } },
  }
end

-- Middle and quartiles of `list` over `base`, round by round.
local function spread(list, base)
  local ratios = {}
  for i = 1, #list do ratios[i] = list[i] / base[i] end
  local middle = under.middle(ratios)
  return middle, ratios[(#ratios + 3) // 4], ratios[(#ratios * 3 + 3) // 4]
end

local dir = os.tmpname()
os.remove(dir)
assert(os.execute("mkdir " .. dir))
local public, token = make_token(dir)
os.remove(dir .. "/signing.pem")
os.remove(dir)

print(("tools/call, %d workers, wrk with %d connections, %d rounds of %d s each, by turns; CPU of the gateway per call"):format(
  WORKERS, CONNECTIONS, ROUNDS, SECONDS))
local secret = ("0123456789abcdef"):rep(3)
local open <close> = start()
local jwt <close> = start(("return auth.jwt { issuer = %q, audience = %q, key_file = \"public.pem\" }"):format(ISSUER, AUDIENCE), public)
local bearer <close> = start(("return auth.bearer { secret = %q }"):format(secret))
local failed = false
for _, kind in ipairs(under.kinds) do
  local kinds = {
    { name = "nobody asks", g = open }, { name = "auth.jwt", g = jwt, token = token }, { name = "auth.bearer", g = bearer, token = secret },
  }
  for _, one in ipairs(kinds) do one.request, one.rates, one.costs = under.request(one.g, kind, one.token), {}, {} end
  for round = 1, ROUNDS do
    for i = 1, #kinds do
      local one = kinds[(i + round) % #kinds + 1]
      one.rates[round], one.costs[round] = under.run(one.g.port, one.g.pid, one.request, CONNECTIONS, SECONDS)
    end
  end
  local base = kinds[1]
  for _, one in ipairs(kinds) do
    local cost, least, most = spread(one.costs, base.costs)
    local rate, slowest, fastest = spread(one.rates, base.rates)
    local costs, rates = table.move(one.costs, 1, ROUNDS, 1, {}), table.move(one.rates, 1, ROUNDS, 1, {})
    print(("  %s  %-12s %6.0f/s %5.1f CPU-µs   CPU × %.3f (%.3f to %.3f)   calls/s × %.3f (%.3f to %.3f)"):format(
      kind.name, one.name, under.middle(rates), under.middle(costs), cost, least, most, rate, slowest, fastest))
    failed = failed or (one.name == "auth.jwt" and cost > MOST)
  end
end
print(failed and "a known token costs more than 10 %" or "a known token costs at most 10 %")
os.exit(not failed)
