-- postgres of scripts with a real server: statements, values of each type both ways, transactions, pipelines, rows one
-- after another, grants, passwords, TLS, and mistakes.
local beside = require "spec.helpers.beside"
local code = require "spec.helpers.code"
local postgres = require "spec.helpers.postgres"
local wait = require "spec.helpers.wait"
local cjson = require "cjson.safe"

local it_real = postgres.it(it, pending)

-- Runs code with `db` open at the URL.
local function run(me, url, text, options) return code.run(me, postgres.open(url, options) .. text) end

describe("postgres", function()
  local server, g, me
  beside(postgres, lazy_setup, lazy_teardown, function(...) server, g, me = ... end)
  local function here(text, options)
    local value, why = run(me, server.url, text, options)
    if why and why:find "^internal error" then
      for _, line in ipairs(g:log_lines()) do
        if line.fields.id == why:match "%x+$" then why = line.text end
      end
    end
    return value, why
  end

  it_real("runs statements with parameters", function()
    assert.same({ 0, 2, { id = 1, name = "Ann" }, cjson.null, { { id = 2 } }, 2 }, here [[
      local made = try(db:exec "create table people (id int primary key, name text)")
      local count = try(db:exec("insert into people values ($1, $2), ($3, $4)", { 1, "Ann", 2, json.null }))
      local one, none = try(db:row("select * from people where id = $1", { 1 })), db:row("select * from people where id = $1", { 9 })
      return { made, count, one, none or json.null, try(db:query("select * from people where name is null")), #try(db:query "select id from people") }]])
    assert.equal("1", server:sql "select count(*) from people where name = 'Ann'")
  end)

  it_real("prepares a statement for the types of its parameters", function()
    assert.same({ [=[{"a": 1}]=], "abc", [=[{"a": 1}]=], "abc" }, here([[
      local got = {}
      for i = 1, 2 do
        got[#got + 1] = try(db:row("select $1::text as v", { { a = 1 } })).v
        got[#got + 1] = try(db:row("select $1::text as v", { "abc" })).v
      end
      return got]], ", pool = 1"))
  end)

  it_real("gives nobody a connection in which a statement has left something", function()
    assert.same({ "", false, "public", 0 }, here([[
      try(db:row "select set_config('app.tenant', 'one', false)")
      try(db:exec "create temporary table left_over (id int)")
      try(db:row "select pg_advisory_lock(7)")
      try(db:exec "do $do$ begin execute 'set search_path = pg_catalog'; end $do$")
      return { try(db:row "select coalesce(current_setting('app.tenant', true), '') as v").v,
        try(db:row "select to_regclass('left_over') is not null as v").v,
        try(db:row "select regexp_replace(current_setting('search_path'), '.*, ', '') as v").v,
        try(db:row "select count(*) as v from pg_locks where locktype = 'advisory'").v }]], ", pool = 1"))
    for _, sql in ipairs { "/* /* */ */ set search_path = x", "-- x\rset search_path = x", "/**/ /*/**/*/ (set role x", "; -- y\n begin" } do
      local _, why = here(("return pcall(db.exec, db, %q) and 'it ran' or fail 'refused'"):format(sql))
      assert.equal("refused", why, sql)
    end
    assert.equal(1, here "return try(db:row '/* of /* two */ kinds */ select 1 as n').n")
  end)

  it_real("keeps a transaction whose statement has failed usable up to its savepoint", function()
    assert.same({ 1 }, here([[
      for i = 1, 70 do try(db:row("select " .. i .. " as n")) end
      return { try(db:transaction(function(tx)
        try(tx:exec "savepoint a")
        local failed = tx:row "select 1 / 0"
        try(tx:exec "rollback to savepoint a")
        return try(tx:row "select 1 as n").n
      end)) }]], ", pool = 1"))
  end)

  it_real("has errors with their state", function()
    local got = here [[
      local value, why = db:query "select 1 / 0"
      local _, unique = db:exec "insert into people values (1, 'x')"
      local _, syntax = db:query "selec"
      return { value == nil, tostring(why), why.state, why.reason, unique.state, syntax.state, "it is " .. why, try(db:row "select 1 as n").n }]]
    assert.same({ true, "division by zero", "22012", "error", "23505", "42601", "it is division by zero", 1 }, got)
    local _, why = here [[try(db:exec "insert into nowhere values (1)")]]
    assert.equal('relation "nowhere" does not exist', why)
    _, why = here [[return db:query "select 1/0"]]
    assert.equal("division by zero", why)
  end)

  it_real("has values of each type, exactly", function()
    local got = assert(here [==[
      local row = try(db:row "select (-32768)::int2 as i2, 2147483647::int4 as i4, (-9223372036854775808)::int8 as i8, 0.1::float8 as f8, \z
        1e38::float4 as f4, \z
        'nan'::float8 as nan, '-inf'::float8 as inf, 123456789012345678901234567890.123456789::numeric as n, true as t, false as f, 'ü' as s, \z
        'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid as u, '\\x00ff10'::bytea as b, '{\"a\": [1, null]}'::jsonb as j, \z
        '{\"a\": 12345678901234567890.5}'::json as big, \z
        '2024-02-29 23:59:59.123456+05:30'::timestamptz as at, '0044-03-15 12:00:00+00 BC'::timestamptz as bc, 'infinity'::timestamptz as never, \z
        '2024-02-29'::date as d, '1 day 02:03:04'::interval as p, '10.0.0.1/8'::inet as net, null::int as none, \z
        row(1, 'x') as r, '[0:1]={7,8}'::int[] as low, \z
        array[[1,2],[3,null]] as a, array['x', 'NULL', null, 'a,b{}\"\\', ''] as texts, array[true, false] as bools, array['\\x6162'::bytea] as blobs, \z
        '{}'::int[] as empty, array['{\"k\":1}'::jsonb] as docs, array['2024-01-01 00:00:00+00'::timestamptz] as ats, 'x'::name as name, 42::oid as o")
      return { row.i2, row.i4, row.i8 == math.mininteger, row.f8, row.f4 == 1e38, row.nan ~= row.nan, row.inf == -math.huge, row.n, row.t, row.f, row.s,
        row.u,
        row.b == "\x00\xff\x10", row.j, json.encode(row.big), row.at, row.bc, row.never, row.d, row.p, row.net, row.none == nil, row.r, row.low,
        row.a, row.texts,
        row.bools, row.blobs, row.empty, row.docs, row.ats, row.name, row.o }]==])
    assert.same({ -32768, 2147483647, true, 0.1, true, true, true, "123456789012345678901234567890.123456789", true, false, "ü",
      "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", true, { a = { 1, cjson.null } }, '{"a": 12345678901234567890.5}', "2024-02-29T18:29:59.123456Z",
      "0044-03-15 12:00:00+00 BC", "infinity", "2024-02-29", "1 day 02:03:04", "10.0.0.1/8", true, "(1,x)", { 7, 8 }, { { 1, 2 }, { 3, cjson.null } },
      { "x", "NULL", cjson.null, 'a,b{}"\\', "" }, { true, false }, { "ab" }, {}, { { k = 1 } }, { "2024-01-01T00:00:00Z" }, "x", 42 }, got)
  end)

  it_real("takes values of each type as parameters", function()
    local got = assert(here [[
      local bytes = ""
      for i = 0, 255 do bytes = bytes .. string.char(i) end
      local row = try(db:row("select $1::int8 as i, $2::float8 as f, $3::float8 as inf, $4::bool as t, $5::text as s, $6::bytea as b, $7::int[] as a, \z
        $8::text[] as ts, $9::jsonb as j, $10::jsonb as raw, $11::numeric as n, $12::int as none, \z
        $13::int[][] as deep, $14::bytea[] as bs, $15::float8[] as fs", {
        math.mininteger, 0.1, -math.huge, true, "q'\\\"ü", postgres.bytes(bytes), postgres.array { 1, json.null, 3 },
        postgres.array { "a", 'x"y\\z', "", "NULL", json.null }, { a = { 1, json.null } }, "{\"z\": 1.50}", "12.50", json.null,
        postgres.array { { 1, 2 }, { 3, 4 } }, postgres.array { postgres.bytes "\0\255" }, postgres.array { 0/0, math.huge, 1.5 } }))
      return { row.i == math.mininteger, row.f, row.inf == -math.huge, row.t, row.s, row.b == bytes, row.a, row.ts, row.j, row.raw.z, row.n,
        row.none == nil, row.deep, row.bs[1] == "\0\255", row.fs[1] ~= row.fs[1] and row.fs[2] == math.huge and row.fs[3] }]])
    assert.same({ true, 0.1, true, true, "q'\\\"ü", true, { 1, cjson.null, 3 }, { "a", 'x"y\\z', "", "NULL", cjson.null }, { a = { 1, cjson.null } },
      1.5, "12.50", true, { { 1, 2 }, { 3, 4 } }, true, 1.5 }, got)
    assert.same({ { 2, 3 }, 1 }, here [[
      local ids = {}
      local rows = try(db:query("select n from generate_series(1, 5) n where n = any($1)", { postgres.array { 2, 3 } }))
      for i, row in ipairs(rows) do ids[i] = row.n end
      return { ids, #try(db:query("select 1 as one limit $1", { 1 })) }]])
  end)

  it_real("agrees with the server about numbers of all sizes", function()
    assert.equal(0, here [[
      local wrong, state = 0, 12345
      local function draw(n) state = (state * 1103515245 + 12345) % 2147483648 return state % n end
      for _ = 1, 200 do
        local i, f = draw(1 << 30) << draw(34) , (draw(1 << 30) - (1 << 29)) * 10.0 ^ (draw(600) - 300)
        local row = try(db:row("select $1::int8 as i, ($1::int8)::text as it, $2::float8 as f, \z
          ($2::float8)::text as ft, $3::text as s, length($3::text) as len",
          { i, f, utf8.char(draw(0xd7ff) + 1, draw(0x1000) + 0x10000) }))
        if tostring(row.i) ~= row.it or row.i ~= i or row.f ~= f or tonumber(row.ft) ~= f or row.len ~= 2 or utf8.len(row.s) ~= 2 then wrong = wrong + 1 end
      end
      return wrong]])
  end)

  it_real("prepares what is repeated, and forgets the oldest", function()
    assert.same({ 300, 64, 2, 1 }, here([[
      local sum = 0
      for i = 1, 100 do sum = sum + try(db:row("select $1::int as n, " .. i .. " as i", { 1 })).n end
      for _ = 1, 200 do sum = sum + try(db:row("select $1::int as again", { 1 })).again end
      local prepared = try(db:row "select count(*)::int as n from pg_prepared_statements").n
      try(db:exec "create table shape (a int)") try(db:exec "insert into shape values (1)")
      local before = try(db:row "select * from shape")
      try(db:exec "alter table shape add b int default 2")
      local _, why = db:row "select * from shape"
      return { sum, prepared, (try(db:row "select * from shape")).b, before.a }]], ", pool = 1"))
    assert.equal(0, here([[return try(db:row "select count(*)::int as n from pg_prepared_statements").n]], ", prepare = false"))
  end)

  it_real("commits a transaction, or rolls it back", function()
    assert.same({ "made", 1, "wanted", 1, 1, "25P02", 1, 2 }, here [[
      local function count() return try(db:row "select count(*)::int as n from work").n end
      try(db:exec "create table work (id int)")
      local out = { try(db:transaction(function(tx) try(tx:exec "insert into work values (1)") return "made" end)), count() }
      out[3] = select(2, db:transaction(function(tx) try(tx:exec "insert into work values (2)") return nil, "wanted" end))
      out[4] = count()
      pcall(function() db:transaction(function(tx) try(tx:exec "insert into work values (2)") error "broken" end) end)
      out[5] = count()
      local _, why = db:transaction(function(tx) tx:exec "select 1/0" return select(2, tx:exec "select 1").state end)
      local state
      db:transaction(function(tx) tx:exec "select 1/0" state = select(2, tx:exec "select 1").state return nil, "x" end)
      out[6], out[7] = state, count()
      try(db:transaction(function(tx)
        try(tx:exec "savepoint s") tx:exec "select 1/0" try(tx:exec "rollback to s") try(tx:exec "set local work_mem = '1MB'")
        return tx:exec "insert into work values (3)"
      end))
      out[8] = count()
      return out]])
    assert.same({ true, "the transaction was rolled back: a statement of it had failed", "this transaction has ended" }, here [[
      local kept
      local value, why = db:transaction(function(tx) kept = tx tx:exec "select 1/0" return 1 end)
      local _, late = pcall(kept.exec, kept, "select 1")
      return { value == nil, tostring(why), tostring(late):match "this transaction has ended" }]])
  end)

  it_real("repeats a transaction that the server could not order among others", function()
    assert.same({ 2, 2, "40001" }, here [[
      try(db:exec "create table counter (n int)") try(db:exec "insert into counter values (0)")
      local runs = 0
      local function once(tx)
        runs = runs + 1
        local n = try(tx:row "select n from counter").n
        if runs == 1 then try(db:exec "update counter set n = n + 1") end
        try(tx:exec("update counter set n = $1", { n + 1 }))
        return true
      end
      try(db:transaction(once, { isolation = "serializable", retry = 3 }))
      local n, first = try(db:row "select n from counter").n, true
      local _, why = db:transaction(function(tx)
        try(tx:row "select n from counter")
        try(db:exec "update counter set n = n + 1")
        return tx:exec("update counter set n = 0")
      end, { isolation = "repeatable read" })
      return { runs, n, why.state }]])
  end)

  it_real("has no transaction any more for who has kept `tx`, in the next attempt neither", function()
    assert.same({ 3, "this transaction has ended", "this transaction has ended", "this transaction has ended", 0 }, here [[
      try(db:exec "create table kept (n int)")
      local first, said, runs = nil, {}, 0
      local function used(tx) return tostring(select(2, pcall(tx.exec, tx, "insert into kept values (1)"))):match "this transaction has ended" end
      db:transaction(function(tx)
        runs = runs + 1
        if first then said[#said + 1] = used(first) else first = tx end
        tx:exec "do $$ begin raise serialization_failure; end $$"
        if runs == 2 then error "in the middle" end
        return nil, "no"
      end, { retry = 2 })
      said[#said + 1] = used(first)
      return { runs, said[1], said[2], said[3], try(db:row "select count(*)::int as n from kept").n }]])
  end)

  it_real("sends a pipeline at once, as one transaction", function()
    assert.same({ { 1, { { id = 1 } }, { n = 1 } }, "22012", 1, {} }, here [[
      try(db:exec "create table pipe (id int)")
      local done = try(db:pipeline(function(p)
        p:exec("insert into pipe values ($1)", { 1 }) p:query "select id from pipe" p:row "select count(*)::int as n from pipe"
      end))
      local _, why = db:pipeline(function(p) p:exec "insert into pipe values (2)" p:exec "select 1/0" p:exec "insert into pipe values (3)" end)
      return { done, why.state, try(db:row "select count(*)::int as n from pipe").n, try(db:pipeline(function() end)) }]])
  end)

  it_real("gives rows one after another, in bounded memory", function()
    assert.same({ 200000, 20000100000, 3, 100, "division by zero" }, here [[
      local count, sum = 0, 0
      for row in db:each("select n from generate_series(1, $1::int) n", { 200000 }, { fetch = 1000 }) do count, sum = count + 1, sum + row.n end
      local first = 0
      for row in db:each "select n from generate_series(1, 1000000) n" do first = first + 1 if first == 3 then break end end
      local large = 0
      for row in db:each "select repeat('x', 500000) as s from generate_series(1, 100)" do large = large + 1 end
      local ok, why = pcall(function() for _ in db:each "select 1/(n - 5) as x from generate_series(1, 10) n" do end end)
      return { count, sum, first, large, tostring(why) }]])
  end)

  it_real("gives rows one after another in a transaction, which goes on behind them", function()
    assert.same({ 3000, 3, "this transaction runs another statement", 5, "22012" }, here [[
      local count, first, busy, state = 0, 0, nil, nil
      local n = try(db:transaction(function(tx)
        for _ in tx:each("select n from generate_series(1, 3000) n", {}, { fetch = 100 }) do count = count + 1 end
        for _ in tx:each("select n from generate_series(1, 3000) n", {}, { fetch = 100 }) do
          first = first + 1
          busy = busy or tostring(select(2, tx:row "select 1")):match "this transaction runs another statement"
          if first == 3 then break end
        end
        return try(tx:row "select 5 as n").n
      end))
      db:transaction(function(tx)
        pcall(function() for _ in tx:each "select 1 / (n - 5) from generate_series(1, 10) n" do end end)
        state = select(2, tx:row "select 1").state == "25P02" and "22012"
        return nil, "no"
      end)
      return { count, first, busy, n, state }]])
  end)

  it_real("refuses results that are too large, and goes on", function()
    local got = here [[
      local _, rows = db:query "select n from generate_series(1, 10001) n"
      local _, bytes = db:query "select repeat('x', 1000000) as s from generate_series(1, 20)"
      local _, row = db:query "select repeat('x', 200000000) as s"
      return { #try(db:query "select n from generate_series(1, 10000) n"), rows.reason, tostring(rows), tostring(bytes), tostring(row),
        #try(db:row "select repeat('x', 16000000) as s").s }]]
    assert.equal(10000, got[1])
    assert.equal("unknown", got[2])
    assert.truthy(got[3]:find("more than 10,000 rows: add 'limit'", 1, true), got[3])
    assert.truthy(got[4]:find("larger than 16 MiB", 1, true), got[4])
    assert.truthy(got[5]:find("larger than 16 MiB", 1, true), got[5])
    assert.equal(16000000, got[6])
  end)

  it_real("sends large parameters while the server sends", function()
    assert.equal(15000000, here [[return #try(db:row("select $1::text as s", { ("x"):rep(15000000) })).s]])
    local _, why = here [[local half = ("x"):rep(9000000) return db:row("select $1::text as s, $2::text as t", { half, half })]]
    assert.truthy(why:find("the parameters are larger than 16 MiB", 1, true), why)
  end)

  it_real("explains mistakes", function()
    for text, parts in pairs {
      ['db:query(1)'] = { "query needs SQL, got a number" },
      ['db:query("select $1", { f = 1 })'] = { "parameters are a list", "$1 is the first" },
      ['db:query("select $1", { nil, 1 })'] = { "parameter 1 is nil", "json.null" },
      ['db:query("select $1", { print })'] = { "parameter 1 is a function", "jsonb" },
      ['db:query("select $1", { "a\\0b" })'] = { "NUL byte", "postgres.bytes" },
      ['db:exec " -- x\\n begin"'] = { "BEGIN is refused", "db:transaction" },
      ['db:exec "/* x */ Set timezone = 1"'] = { "SET is refused", "set local" },
      ['db:exec "copy x to stdout"'] = { "COPY is refused", "insert" },
      ['db:exec "listen x"'] = { "LISTEN is refused", "next" },
      ['db.query("select 1")'] = { "query is a method of a database", "db:query" },
      ['db:transaction(1)'] = { "transaction needs a function" },
      ['db:transaction(print, { isolaton = "serializable" })'] = { "no option 'isolaton'", "isolation" },
      ['db:each("select 1", {}, { fetch = 0 })'] = { "'fetch' must be" },
      ['postgres.open { "postgres://a:b@c/d" }'] = { "must not have a password", "secret" },
      ['postgres.open { "mysql://a@c/d" }'] = { "must begin with postgres://" },
      ['postgres.open { "postgres://a@c" }'] = { "no database" },
      ['postgres.open { "postgres://a@c/d", pasword = "x" }'] = { "no option 'pasword'", "did you mean 'password'?" },
      ['postgres.open { "postgres://a@/d" }'] = { "the URL has no host", "socket" },
      ['postgres.open { "postgres://a@/d", socket = "data/x,127.0.0.1/.s.PGSQL.5432" }'] = { "must be the path of a server's socket" },
    } do
      local value = here("return " .. text)
      assert.is_nil(value)
      local line
      wait.for_fact(parts[1], 10, function()
        for _, one in ipairs(g:log_lines()) do
          if one.fields.why and one.fields.why:find(parts[1], 1, true) then line = one end
        end
        return line
      end)
      if parts[2] then assert.truthy(((line.fields.hint or "") .. line.fields.why):find(parts[2], 1, true), line.text) end
    end
  end)
end)

describe("the databases of a worker", function()
  it("are shared by its scripts: of the last eighth each has as many as it leaves to others", function()
    local tool = [[
      local dbs = {}
      for i = 1, %d do dbs[i] = try(postgres.open { "postgres://app@127.0.0.1:1/%s" .. i }) end
      return tool { "Asks.", function()
        local refused = 0
        for _, db in ipairs(dbs) do
          local _, why = db:row "select 1"
          if tostring(why):find("as many as this script may have", 1, true) then refused = refused + 1 end
        end
        return tostring(refused)
      end }]]
    local g <close> = postgres.gateway("127.0.0.1:1", { scripts = {
      ["tools/many.lua"] = tool:format(20, "many"), ["tools/other.lua"] = tool:format(2, "other"), ["tools/third.lua"] = tool:format(1, "third") } })
    local me = g:client "2026-07-28"
    local function refused(name) return me:result("tools/call", { name = name, arguments = {} }).content[1].text end
    assert.equal("6", refused "many")
    assert.equal("1", refused "other")
    assert.equal("0", refused "third")
    assert.equal(7, g:status().counters.refused.postgres_databases)
    me:close()
    g:stop()
  end)
end)
