-- postgres of scripts with a server that lies: values that no PostgreSQL sends, words at the wrong time, connections that
-- are closed.
local code = require "spec.helpers.code"
local uv = require "luv"

local READY <const> = "Z" .. (">I4"):pack(5) .. "I"
local BOOLS <const>, INTS <const> = 1000, 1007

local function message(tag, bytes) return tag .. (">I4"):pack(#bytes + 4) .. bytes end

local function notice(tag, text) return message(tag, "SFATAL\0C28000\0M" .. text .. "\0\0") end

-- One row with one column of this type.
local function row(oid, text)
  return message("2", "") .. message("T", (">I2"):pack(1) .. "v\0" .. (">I4I2I4I2I4I2"):pack(0, 0, oid, 65535, 0xffffffff, 0))
    .. message("D", (">I2I4"):pack(1, #text) .. text) .. message("C", "SELECT 1\0")
end

local servers = {}

-- A server that lets everyone in with the bytes of `greeting`, and answers what comes until each Sync by `answer(tags)`;
-- nil closes the connection. { port, logins }
local function start(greeting, answer)
  local tcp, self = uv.new_tcp(), { logins = 0 }
  servers[#servers + 1] = tcp
  assert(tcp:bind("127.0.0.1", 0))
  self.port = tcp:getsockname().port
  assert(tcp:listen(64, function()
    local peer, input, has_begun, tags = uv.new_tcp(), "", false, ""
    tcp:accept(peer)
    local function reply(bytes)
      if bytes then return peer:write(bytes) end
      if not peer:is_closing() then peer:close() end
    end
    peer:read_start(function(_, bytes)
      if not bytes then return peer:is_closing() or peer:close() end
      input = input .. bytes
      while not peer:is_closing() do
        local head = has_begun and 1 or 0
        if #input < head + 4 then return end
        local size = (">I4"):unpack(input, head + 1)
        if #input < head + size then return end
        local tag = input:sub(1, head)
        input = input:sub(head + size + 1)
        tags = tags .. tag
        if not has_begun then
          has_begun, self.logins = true, self.logins + 1
          reply(greeting)
        elseif tag == "S" then
          reply(answer(tags))
          tags = ""
        end
      end
    end)
  end))
  return self
end

-- Answers each statement with a row.
local function with_row(oid, text)
  return function(tags)
    local parsed = tags:find("P", 1, true) and message("1", "") or ""
    return parsed .. (tags:find("E", 1, true) and row(oid, text) or "") .. READY
  end
end

local LET_IN <const> = message("R", (">I4"):pack(0)) .. READY

describe("postgres with a server that lies", function()
  if not uv.fs_stat "/usr/lib/x86_64-linux-gnu/libpq.so.5" and not uv.fs_stat "/usr/lib/aarch64-linux-gnu/libpq.so.5" then
    return pending "libpq5 is not installed"
  end
  local g, me
  lazy_setup(function()
    g = code.start { workers = 1, constants = { postgres_idle_ms = 200 }, config = { scripts = { allow = { net = { "127.0.0.1:*" } } } } }
    me = g:client "2026-07-28"
  end)
  lazy_teardown(function()
    me:close()
    assert.has_nothing_left(g)
    g:stop()
    for _, tcp in ipairs(servers) do tcp:close() end
  end)

  local function run(server, text, options)
    local open = ('local db = try(postgres.open { "postgres://app@127.0.0.1:%d/shop" %s }) '):format(server.port, options or "")
    return code.run(me, open .. text)
  end
  local ROW <const> = 'return try(db:row "select 1").v'

  it("reads lists in lists to six levels, and deeper ones as texts", function()
    assert.same({ { { { { { 1 } } } } } }, run(start(LET_IN, with_row(INTS, "{{{{{{1}}}}}}")), ROW))
    for _, text in ipairs { ("{"):rep(1000000), ("{1,"):rep(200000), ("{"):rep(500000) .. ("}"):rep(500000) } do
      assert.equal("read", run(start(LET_IN, with_row(INTS, text)), 'db:row "select 1" return "read"'))
    end
    assert.same({ false, true }, run(start(LET_IN, with_row(BOOLS, '{"",t}')), ROW))
  end)

  it("shows nothing of what it says while a connection logs in, nor a password that it repeats", function()
    local loud = start(message("R", (">I4"):pack(0)) .. notice("N", "a line of the server") .. READY, with_row(INTS, "{1}"))
    assert.same({ 1 }, run(loud, ROW))
    local telling = start(notice("E", "no entry with s3cret-word"), with_row(INTS, "{}"))
    local _, why = run(telling, ROW, ', password = "s3cret-word"')
    assert.truthy(why:find("the server refused the connection", 1, true), why)
    g:wait_log "postgres unavailable"
    assert.is_nil(g:log():find("a line of the server", 1, true))
    assert.is_nil(g:log():find("s3cret", 1, true))
  end)

  it("gives a statement up whose connections are closed before it is sent", function()
    local closing = start(LET_IN, function() return nil end)
    local _, why = run(closing, ROW, ", pool = 1")
    assert.truthy(why:find("^unavailable: "), why)
    assert.is_true(closing.logins >= 2 and closing.logins <= 4, closing.logins)
  end)
end)
