-- postgres of scripts with a server that lies: values that no PostgreSQL sends, words at the wrong time, connections that
-- are closed.
local code = require "spec.helpers.code"
local postgres = require "spec.helpers.postgres"

local BOOLS <const>, INTS <const> = 1000, 1007
local LET_IN <const> = postgres.welcome
local message, with_row = postgres.message, postgres.with_row

local function notice(tag, text) return message(tag, "SFATAL\0C28000\0M" .. text .. "\0\0") end

local servers = {}

local function start(greeting, answer)
  servers[#servers + 1] = postgres.told(greeting, answer)
  return servers[#servers]
end

describe("postgres with a server that lies", function()
  if not postgres.has_libpq() then return pending "libpq5 is not installed" end
  local g, me
  lazy_setup(function()
    g = postgres.gateway "127.0.0.1:*"
    me = g:client "2026-07-28"
  end)
  lazy_teardown(function()
    me:close()
    assert.has_nothing_left(g)
    g:stop()
    for _, server in ipairs(servers) do server:__close() end
  end)

  local function run(server, text, options) return code.run(me, postgres.open(server.url, options) .. text) end
  local ROW <const> = 'return try(db:row "select 1").v'

  it("reads lists in lists to six levels, and deeper ones as texts", function()
    assert.same({ { { { { { 1 } } } } } }, run(start(LET_IN, with_row(INTS, "{{{{{{1}}}}}}")), ROW))
    for _, text in ipairs { ("{"):rep(1000000), ("{1,"):rep(200000), ("{"):rep(500000) .. ("}"):rep(500000) } do
      assert.equal("read", run(start(LET_IN, with_row(INTS, text)), 'db:row "select 1" return "read"'))
    end
    assert.same({ false, true }, run(start(LET_IN, with_row(BOOLS, '{"",t}')), ROW))
  end)

  it("shows nothing of what it says while a connection logs in, nor a password that it repeats", function()
    local loud = start(message("R", (">I4"):pack(0)) .. notice("N", "a line of the server") .. postgres.ready, with_row(INTS, "{1}"))
    assert.same({ 1 }, run(loud, ROW))
    local telling = start(notice("E", "no entry with s3cret-word"), with_row(INTS, "{}"))
    local _, why = run(telling, ROW, ', password = "s3cret-word"')
    assert.truthy(why:find("the server refused the connection", 1, true), why)
    g:wait_log "postgres unavailable"
    assert.is_nil(g:log():find("a line of the server", 1, true))
    assert.is_nil(g:log():find("s3cret", 1, true))
  end)

  it("asks nobody else where it wants Kerberos", function()
    for _, method in ipairs { 7, 8, 9 } do
      local wanting = start(message("R", (">I4"):pack(method)), with_row(INTS, "{}"))
      local _, why = run(wanting, ROW)
      assert.truthy(why:find("^unavailable: "), why)
    end
  end)

  it("gives a statement up whose connections are closed before it is sent", function()
    local closing = start(LET_IN, function() return nil end)
    local _, why = run(closing, ROW, ", pool = 1")
    assert.truthy(why:find("^unavailable: "), why)
    assert.is_true(closing.logins >= 2 and closing.logins <= 4, closing.logins)
  end)
end)
