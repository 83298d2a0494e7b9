-- which servers postgres of scripts reaches: grants, Unix sockets, passwords, TLS; and what it does not take from the
-- environment or from files of the user.
--   "the environment", "a server without a grant", "a server elsewhere"; over an upgrade: postgres_listen_spec
--   "a system without libpq"
local certificates = require "spec.helpers.certificates"
local code = require "spec.helpers.code"
local errand = require "spec.helpers.errand"
local postgres = require "spec.helpers.postgres"
local shell = require "spec.helpers.shell"
local uv = require "luv"

local it_real = postgres.it(it, pending)

local function start(allow, more)
  local options = { workers = 1, constants = { postgres_idle_ms = 50 }, config = { scripts = { allow = allow } } }
  for name, value in pairs(more or {}) do options[name] = value end
  return code.start(options)
end

local function row(me, url, options)
  return code.run(me, ("local db, why = postgres.open { %q %s } if not db then return why end "):format(url, options or "") .. [[
    local row, failure = db:row "select current_user::text as user, inet_client_addr() is null as is_unix, current_setting('application_name') as app"
    return row or tostring(failure)]])
end

describe("a server without a grant", function()
  it_real("is not connected to, and its address decides", function()
    local server <close> = postgres.start()
    local port = server.port
    local g <close> = start({ net = { "db.test:" .. port, "inside.test:" .. port .. " private", "localhost:" .. port } },
      { env = errand.names "db.test=127.0.0.1;inside.test=127.0.0.1" })
    local me = g:client "2026-07-28"
    local why = row(me, server.url)
    assert.truthy(why:find("no grant allows it", 1, true), why)
    g:wait_log("postgres refused", { host = server.at })
    why = row(me, ("postgres://app@db.test:%d/postgres"):format(port), ", tls = 'off'")
    assert.truthy(why:find("an address that no grant allows", 1, true), why)
    assert.same({ user = "app", is_unix = false, app = "moonpool" }, row(me, ("postgres://app@inside.test:%d/postgres"):format(port), ", tls = 'off'"))
    assert.equal("app", row(me, ("postgres://app@localhost:%d/postgres"):format(port)).user)
    me:close()
    assert.has_nothing_left(g)
  end)

  it_real("may be a Unix socket that may be written", function()
    local server <close> = postgres.start()
    local other <close> = start { read = { server.socket } }
    local me = other:client "2026-07-28"
    local why = row(me, "postgres://app@/postgres", (", socket = %q"):format(server.socket))
    assert.truthy(why:find("may not write", 1, true), why)
    me:close()
    local g <close> = start { write = { server.socket } }
    me = g:client "2026-07-28"
    assert.same({ user = "app", is_unix = true, app = "moonpool" }, row(me, "postgres://app@/postgres", (", socket = %q"):format(server.socket)))
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a Unix socket below a granted folder", function()
  it_real("may be reached over links inside of it, and over none that leads out", function()
    local server <close> = postgres.start()
    local folder = assert(uv.fs_mkdtemp "/tmp/pglinks.XXXXXX")
    uv.fs_mkdir(folder .. "/granted", 493)
    uv.fs_mkdir(folder .. "/granted/in", 493)
    local name = server.socket:match "[^/]+$"
    assert(uv.fs_symlink(server.folder, folder .. "/granted/out"))
    assert(uv.fs_symlink(server.socket, folder .. "/granted/in/" .. name))
    assert(uv.fs_symlink("granted", folder .. "/way"))
    assert(uv.fs_symlink(server.folder, folder .. "/whole"))
    local g <close> = start { write = { folder .. "/granted", folder .. "/way", folder .. "/whole" } }
    local me = g:client "2026-07-28"
    local function try(path) return row(me, "postgres://app@/postgres", (", socket = %q"):format(folder .. path .. "/" .. name)) end
    for _, path in ipairs { "/granted/out", "/way/out", "/granted/in" } do
      local why = try(path)
      assert.truthy(why:find("a link leads out of what the script may write", 1, true), why)
    end
    assert.same({ user = "app", is_unix = true, app = "moonpool" }, try "/whole") -- what is granted may be a link itself
    local why = try "/granted/none"
    assert.truthy(why:find("there is no such socket", 1, true), why)
    me:close()
    assert.has_nothing_left(g)
    for _, path in ipairs { "/granted/out", "/granted/in/" .. name, "/way", "/whole" } do os.remove(folder .. path) end
    for _, path in ipairs { "/granted/in", "/granted", "" } do uv.fs_rmdir(folder .. path) end
  end)
end)

describe("a password", function()
  it_real("is a secret that appears nowhere; and a missing or wrong one says so", function()
    local server <close> = postgres.start { hba = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n" }
    server:sql "create role reader login password 'tiger-93'"
    local g <close> = start({ net = { server.at }, env = { "PGPASSWORD", "WRONG" } }, { env = { PGPASSWORD = "tiger-93", WRONG = "leopard-17" } })
    local me = g:client "2026-07-28"
    local url = server.url:gsub("app@", "reader@")
    assert.equal("reader", row(me, url, ", password = secret 'PGPASSWORD'").user)
    local why = row(me, url, ", password = secret 'WRONG'")
    assert.equal(('unavailable: %s/postgres: FATAL:  password authentication failed for user "reader"'):format(server.at), why)
    why = row(me, url)
    assert.equal(("unavailable: %s/postgres: the server wants a password: postgres.open takes 'password'"):format(server.at), why)
    for _, word in ipairs { "tiger", "leopard" } do assert.is_nil(g:log():find(word, 1, true)) end
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("the environment", function()
  it_real("changes nothing: not by its variables, nor by files of the user; but scripts have what they are granted", function()
    local server <close> = postgres.start { hba = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n" }
    server:sql "create role reader login password 'tiger-93'"
    local home = assert(uv.fs_mkdtemp "/tmp/pghome.XXXXXX")
    uv.fs_mkdir(home .. "/.postgresql", 448)
    local pair = certificates.here()
    shell.write(home .. "/.pgpass", "*:*:*:*:tiger-93\n")
    uv.fs_chmod(home .. "/.pgpass", 384)
    shell.write(home .. "/service.conf", "[other]\nuser=app\nport=1\n")
    shell.write(home .. "/.postgresql/postgresql.crt", pair.own)
    shell.write(home .. "/.postgresql/postgresql.key", pair.key)
    uv.fs_chmod(home .. "/.postgresql/postgresql.key", 511)      -- libpq refuses a key that everybody may read
    local g <close> = start({ net = { server.at }, write = { server.socket }, env = { "PGHOST", "PGPASSWORD" }, run = { "printenv" } }, { env = {
      HOME = home, PGHOST = "nowhere.test", PGHOSTADDR = "192.0.2.1", PGPORT = "1", PGUSER = "nobody", PGDATABASE = "none", PGPASSWORD = "tiger-93",
      PGPASSFILE = home .. "/.pgpass", PGSERVICE = "other", PGSERVICEFILE = home .. "/service.conf", PGOPTIONS = "-c default_transaction_read_only=on",
      PGSSLMODE = "require", PGAPPNAME = "other", PGCLIENTENCODING = "LATIN1", PGTZ = "Asia/Tokyo", PGDATESTYLE = "German", PGREQUIREPEER = "nobody",
      PGTARGETSESSIONATTRS = "standby" } })
    local me = g:client "2026-07-28"
    local why = row(me, (server.url:gsub("app@", "reader@")))
    assert.equal(("unavailable: %s/postgres: the server wants a password: postgres.open takes 'password'"):format(server.at), why)
    local open = ("local db = try(postgres.open { 'postgres://app@/postgres', socket = %q }) "):format(server.socket)
    assert.same({ "moonpool", "off", "UTC", "ISO", "ü" }, code.run(me, open .. [[
      local function setting(name) return try(db:row("select current_setting($1) as s", { name })).s end
      return { setting "application_name", setting "default_transaction_read_only", setting "TimeZone", setting "DateStyle":match "%a+",
        try(db:row "select 'ü' as s").s }]]))
    assert.same({ "nowhere.test", "tiger-93\n" }, code.run(me, [[
      return { env "PGHOST", try(exec({ "printenv", "PGPASSWORD" }, { env = { PGPASSWORD = secret "PGPASSWORD" } })).stdout }]]))
    me:close()
    assert.has_nothing_left(g)
    for _, name in ipairs { ".postgresql/postgresql.crt", ".postgresql/postgresql.key", ".pgpass", "service.conf" } do os.remove(home .. "/" .. name) end
    uv.fs_rmdir(home .. "/.postgresql")
    uv.fs_rmdir(home)
  end)
end)

describe("a system without libpq", function()
  it("serves, and statements say which package is missing", function()
    local dir = assert(uv.fs_mkdtemp "/tmp/nolibpq.XXXXXX")
    shell.write(dir .. "/libpq.so.5", "this is no library")
    local listener = uv.new_tcp()
    listener:bind("127.0.0.1", 0)
    listener:listen(8, function()
      local peer = uv.new_tcp()
      listener:accept(peer)
      peer:read_start(function(_, bytes) if not bytes then peer:close() end end)
    end)
    local at = "127.0.0.1:" .. listener:getsockname().port
    local g <close> = start({ net = { at } }, { env = { LD_LIBRARY_PATH = dir } })
    local me = g:client "2026-07-28"
    assert.equal(("unavailable: %s/x: libpq.so.5 is not installed (Debian: apt install libpq5)"):format(at), row(me, "postgres://app@" .. at .. "/x"))
    me:close()
    listener:close()
    os.remove(dir .. "/libpq.so.5")
    uv.fs_rmdir(dir)
  end)
end)

describe("a server elsewhere", function()
  it_real("has TLS, whose certificate must be for its name, unless that is turned off", function()
    local authority = certificates.make { subject = "/CN=ca", is_authority = true, sans = false }
    local certificate = certificates.make({ sans = "DNS:db.test" }, authority)
    local server <close> = postgres.start { tls = certificate }
    local net = {}
    for i, name in ipairs { "db.test", "other.test" } do net[i] = name .. ":" .. server.port .. " private" end
    local function gateway_with(ca)
      return start({ net = net }, { files = { ["ca.pem"] = ca }, env = errand.names "db.test=127.0.0.1;other.test=127.0.0.1",
        config = { scripts = { allow = { net = net } }, http = { ca = "ca.pem" } } })
    end
    local function is_tls(me, name, options)
      return code.run(me, ("local db = try(postgres.open { 'postgres://app@%s:%d/postgres' %s }) "):format(name, server.port, options or "") .. [[
        local row, why = db:row "select ssl from pg_stat_ssl where pid = pg_backend_pid()"
        if not row then return tostring(why) end
        return { row.ssl, #try(db:row "select repeat('x', 3000000) as s").s,
          #try(db:query "select n, repeat('y', 300) as s from generate_series(1, 9999) n") }]])
    end
    local g <close> = gateway_with(authority.own)
    local me = g:client "2026-07-28"
    assert.same({ true, 3000000, 9999 }, is_tls(me, "db.test"))
    assert.same({ false, 3000000, 9999 }, is_tls(me, "db.test", ", tls = 'off'"))
    local why = is_tls(me, "other.test")
    assert.truthy(why:find('does not match host name "other.test"', 1, true), why)
    me:close()
    assert.has_nothing_left(g)
    local other <close> = gateway_with(certificates.here().own)
    me = other:client "2026-07-28"
    why = is_tls(me, "db.test")
    assert.truthy(why:find("certificate verify failed", 1, true), why)
    me:close()
  end)
end)
