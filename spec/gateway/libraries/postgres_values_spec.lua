-- postgres of scripts: values of each type at random and at their extremes, as the server itself writes them; and
-- any number of rows in little memory.
local code = require "spec.helpers.code"
local beat = require "spec.helpers.beat"
local memory = require "spec.helpers.memory"
local postgres = require "spec.helpers.postgres"

local it_real = postgres.it(it, pending)

-- Of each type: SQL of a value at random, extremes, and how Lua says what the server's text says.
local TYPES <const> = [==[
  local function hex(bytes) return "\\x" .. bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end) end
  local function same(value) return value end
  local function is_number(value, text)
    local number = tonumber(text) or ({ NaN = 0/0, Infinity = math.huge, ["-Infinity"] = -math.huge })[text]
    return value == number and math.type(value) == "float" or value ~= value and number ~= number
  end
  local types = {
    { "int2", "(random() * 65535 - 32768)::int2", { "-32768", "32767", "0" }, tostring },
    { "int4", "(random() * 4294967295 - 2147483648)::int4", { "-2147483648", "2147483647" }, tostring },
    { "int8", "('x' || md5(random()::text))::bit(64)::int8", { "-9223372036854775808", "9223372036854775807" }, tostring },
    { "oid", "(random() * 2147483647)::int8::oid", { "0", "4294967295" }, tostring },
    { "float8", "(random() - 0.5) * 10::float8 ^ (random() * 600 - 300)::int",
      { "1.7976931348623157e308", "5e-324", "NaN", "Infinity", "-Infinity", "0.1" }, nil, is_number },
    { "float4", "((random() - 0.5) * 10::float8 ^ (random() * 70 - 35)::int)::float4", { "3.4028235e38", "1e-45", "NaN", "-Infinity" }, nil, is_number },
    { "numeric", "((random() - 0.5)::numeric * 10::numeric ^ (random() * 100 - 50)::int)",
      { "NaN", "Infinity", ("9"):rep(500) .. "." .. ("1"):rep(500), "0.00" }, same },
    { "bool", "random() < 0.5", { "true", "false" }, tostring },
    { "text", "(select string_agg(chr(1 + (random() * 55000)::int), '') from generate_series(1, 20) where n is not null)",
      { "", "\1\u{10ffff}", "null", " a\\\"'{},%\n" }, same },
    { "uuid", "gen_random_uuid()", { "ffffffff-ffff-ffff-ffff-ffffffffffff" }, same },
    { "date", "'2000-01-01'::date + (random() * 2000000 - 700000)::int", { "infinity", "-infinity", "5874897-12-31", "4714-11-24 BC" }, same },
    { "time", "time '00:00' + random() * interval '24 hours'", { "24:00:00", "23:59:59.999999" }, same },
    { "interval", "(random() - 0.5) * interval '100000 days 00:00:00.000001'", { "-178000000 years", "178000000 years -1 mon +1 day -00:00:00.000001" }, same },
    { "timestamp", "timestamp '2000-01-01' + random() * interval '7000 years'", { "infinity", "294276-12-31 23:59:59", "4714-11-24 00:00:00 BC" }, same },
    { "timestamptz", "timestamptz '1000-01-01 00:00:00Z' + random() * interval '8000 years'",
      { "9999-12-31 23:59:59.999999+00", "0001-01-01 00:00:00+00" }, function(value) return (value:gsub("T", " "):gsub("Z$", "+00")) end },
    { "bytea", "decode(md5(random()::text), 'hex')", { "\\x", "\\x00ff", "\\x5c27" }, hex },
    { "inet", "'10.0.0.0'::inet + (random() * 16777215)::int", { "::1", "255.255.255.255/0" },
      function(value) return value:find "/" and value or value .. (value:find ":" and "/128" or "/32") end },
  }]==]

describe("values of PostgreSQL", function()
  it_real("are what the server's own texts say, from it and to it", function()
    local server <close> = postgres.start()
    local g <close> = postgres.gateway(server.at)
    local me = g:client "2026-07-28"
    assert.same({}, code.run(me, postgres.open(server.url) .. TYPES .. [==[
      local wrong = json.array {}
      for _, one in ipairs(types) do
        local name, random, extremes, as_text, is_same = table.unpack(one)
        local rows = try(db:query(("select v, v::text as t from (select (%s)::%s as v from generate_series(1, 60) n) x \z
          union all select x::%s, (x::%s)::text from unnest($1::text[]) x"):format(random, name, name, name), { postgres.array(extremes) }))
        if #rows ~= 60 + #extremes then wrong[#wrong + 1] = name .. ": " .. #rows .. " rows" end
        for _, row in ipairs(rows) do
          local agrees
          if is_same then agrees = is_same(row.v, row.t) else agrees = as_text(row.v) == row.t end
          local given = name == "bytea" and postgres.bytes(row.v) or row.v
          local back = try(db:row(("select ($1::%s)::text as t, ($2::%s[])[1]::text as a"):format(name, name), { given, postgres.array { given } }))
          if not agrees or back.t ~= row.t or back.a ~= row.t then
            wrong[#wrong + 1] = ("%s %s: %s, %s, %s"):format(name, row.t, tostring(row.v), back.t, back.a)
          end
        end
      end
      return wrong]==]))
    me:close()
    g:stop()
  end)

  it_real("come row by row, a million in 16 MiB", function()
    local server <close> = postgres.start()
    local g <close> = postgres.gateway(server.at, { env = memory.environment(), config = {
      scripts = { allow = { net = { server.at } } }, limits = { call = { cpu = "600s", time = "600s" } } } })
    local me = g:client "2026-07-28"
    local text = postgres.open(server.url, ", timeout = 300") .. [[
      local count, sum = 0, 0
      for row in db:each("select n, repeat('x', 100) as s from generate_series(1, $1::int) n", { %d }, { fetch = 1000 }) do
        count, sum = count + #row.s, sum + row.n
      end
      return { count, sum }]]
    code.run(me, text:format(5000))
    local mib, got = memory.peak(g, function() return code.run(me, text:format(1000000), 600) end)
    assert.same({ 100000000, 500000500000 }, got)
    if not beat.is_sanitized() then assert.is_true(mib <= 16, mib .. " MiB") end
    me:close()
    g:stop()
  end)
end)
