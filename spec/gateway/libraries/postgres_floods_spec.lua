-- postgres of scripts with a server that sends without end: rows, notices, notifications, settings, words of a login. The
-- memory of the gateway and its turns stay bounded, and the connection is closed with a reason and a counter.
--   one row of 1 GB, COPY in, out and both; 16 MiB sent while the server sends: postgres_spec; variables and keys
--          of the user: postgres_reach_spec
local beat = require "spec.helpers.beat"
local code = require "spec.helpers.code"
local memory = require "spec.helpers.memory"
local postgres = require "spec.helpers.postgres"
local wait = require "spec.helpers.wait"

local MIB <const> = 1 << 20
local INT4 <const> = 23
local message = postgres.message

-- Most MiB that a gateway may have more at any moment: a row of 17 MiB, and what allocators keep.
local MOST <const> = 40

local function assert_bounded(g, run)
  local mib, got = memory.peak(g, run)
  if not beat.is_sanitized() then assert.is_true(mib <= MOST, ("%.1f MiB more"):format(mib)) end
  return got
end

-- Settings with names that differ, as many as go into `bytes`.
local function settings(bytes, value)
  local n = 0
  return function()
    local list, size = {}, 0
    while size < bytes do
      n = n + 1
      list[#list + 1] = message("S", ("%x\0%s\0"):format(n, value or ""))
      size = size + #list[#list]
    end
    return table.concat(list)
  end
end

local function always(text) return function() return text end end

local ROW_OF_1_GB <const> = message("2", "") .. message("T", (">I2"):pack(1) .. "v\0" .. (">I4I2I4I2I4I2"):pack(0, 0, 25, 65535, 0xffffffff, 0))
  .. "D" .. (">I4I2I4"):pack((1 << 30) + 10, 1, 1 << 30)
local NOTICE <const> = message("N", "SNOTICE\0C00000\0M" .. ("n"):rep(1000) .. "\0\0"):rep(60)
local NOTIFICATION <const> = message("A", (">I4"):pack(1) .. "news\0" .. ("p"):rep(7000) .. "\0"):rep(9)

-- An answer of postgres.told: a row for the first statement of a connection, then `pour(peer)`.
local function after_a_row(pour)
  local row = postgres.with_row(INT4, "1")
  local seen = {}
  return function(tags, peer)
    if not tags:find("E", 1, true) or seen[peer] then return row(tags) end
    seen[peer] = true
    peer:write(row(tags))
    pour(peer)
    return false
  end
end

describe("postgres with a server that sends without end", function()
  if not postgres.has_libpq() then return pending "libpq5 is not installed" end
  local g, me
  lazy_setup(function()
    g = postgres.gateway("127.0.0.1:*", { constants = { postgres_idle_ms = 60000 }, env = memory.environment() })
    me = g:client "2026-07-28"
    code.run(me, "return 1")
  end)
  lazy_teardown(function()
    me:close()
    g:stop()
  end)

  local function closed() return g:status().counters.refused.postgres_input or 0 end
  local function run(server, text, options) return code.run(me, postgres.open(server.url, options) .. text, 60) end
  local WHY <const> = 'local row, why = db:row "select 1" return why and { why.reason, tostring(why) } or row.v'

  it("takes 17 MiB of a row of 1 GB", function()
    local sent
    local server <close> = postgres.told(postgres.welcome, function(tags, peer)
      if tags:find("P", 1, true) then peer:write(message("1", "")) end
      if not tags:find("E", 1, true) then return postgres.ready end
      peer:write(ROW_OF_1_GB)
      sent = postgres.pour(peer, always(("x"):rep(MIB)))
      return false
    end)
    local before = closed()
    local got = assert_bounded(g, function() return run(server, WHY, ", prepare = false") end)
    assert.equal("unknown", got[1])
    assert.truthy(got[2]:find("a row is larger than 16 MiB", 1, true), got[2])
    assert.equal(before + 1, closed())
    assert.is_true(sent.bytes < 100 * MIB, sent.bytes)
  end)

  it("closes a connection over which settings come while nothing runs", function()
    for _, value in ipairs { "", ("v"):rep(20000) } do
      local server <close> = postgres.told(postgres.welcome, after_a_row(function(peer) postgres.pour(peer, settings(65536, value)) end))
      local before = closed()
      assert_bounded(g, function()
        assert.equal(1, run(server, WHY, ", prepare = false"))
        wait.for_fact("the connection to be closed", 20, function() return closed() > before end)
      end)
    end
  end)

  it("closes a connection over which settings come instead of rows", function()
    for _, value in ipairs { "", ("v"):rep(20000) } do
      local server <close> = postgres.told(postgres.welcome, function(tags, peer)
        if not tags:find("E", 1, true) then return postgres.ready end
        postgres.pour(peer, settings(65536, value))
        return false
      end)
      local before = closed()
      local got = assert_bounded(g, function() return run(server, WHY, ", prepare = false") end)
      assert.equal("unknown", got[1])
      assert.truthy(got[2]:find("a row is larger", 1, true) or got[2]:find("too long to read", 1, true), got[2])
      assert.equal(before + 1, closed())
    end
  end)

  it("drops notices, for as long as the statement has time", function()
    local sent
    local server <close> = postgres.told(postgres.welcome, function(tags, peer)
      if not tags:find("E", 1, true) then return postgres.ready end
      sent = postgres.pour(peer, always(NOTICE))
      return false
    end)
    local got = assert_bounded(g, function() return run(server, WHY, ", prepare = false, timeout = 0.5") end)
    assert.same({ "unknown", ("unknown: %s/shop: no answer within 1.5 s"):format(server.at) }, got)
    assert.is_true(sent.bytes > 20 * MIB, sent.bytes)
  end)

  it("drops notifications that nobody has asked for", function()
    local sent
    local server <close> = postgres.told(postgres.welcome, after_a_row(function(peer) sent = postgres.pour(peer, always(NOTIFICATION)) end))
    assert_bounded(g, function()
      assert.equal(1, run(server, WHY, ", prepare = false"))
      wait.for_fact("200 MiB of notifications to be taken", 60, function() return sent.bytes > 200 * MIB end)
    end)
  end)

  it("gives up a login that has no end", function()
    for _, text in ipairs { NOTICE, message("S", "a\0b\0"):rep(6000) } do
      local server <close> = postgres.told(function(peer)
        peer:write(message("R", (">I4"):pack(0)))
        postgres.pour(peer, always(text))
      end, always(nil))
      local got = assert_bounded(g, function() return run(server, WHY) end)
      assert.same({ "unavailable", ("unavailable: %s/shop: the server says too much while a connection logs in"):format(server.at) }, got)
    end
  end)

  it("leaves a connection that begins to copy", function()
    for _, tag in ipairs { "G", "H", "W" } do
      local copies = true
      local row = postgres.with_row(INT4, "1")
      local server <close> = postgres.told(postgres.welcome, function(tags, peer)
        if not tags:find("E", 1, true) or not copies then return row(tags) end
        copies = false
        peer:write(message("2", "") .. message(tag, "\0\0\0"))
        postgres.pour(peer, always(message("d", ("x"):rep(60000))))
        return false
      end)
      local got = assert_bounded(g, function() return run(server, WHY, ", prepare = false, pool = 1") end)
      assert.equal("unknown", got[1], tag)
      assert.truthy(got[2]:find("COPY is not for scripts", 1, true), got[2])
      assert.equal(1, run(server, WHY, ", prepare = false, pool = 1"))
    end
  end)
end)

describe("postgres with a server that sends without end", function()
  if not postgres.has_libpq() then return pending "libpq5 is not installed" end
  it("holds no other call up", function()
    local g <close> = beat.start { config = { scripts = { allow = { net = { "127.0.0.1:*" } } } } }
    for name, pour in pairs {
      ["a row of 1 GB"] = function(peer) peer:write(ROW_OF_1_GB) postgres.pour(peer, always(("x"):rep(MIB))) end,
      ["settings"] = function(peer) postgres.pour(peer, settings(65536)) end,
      ["notices"] = function(peer) postgres.pour(peer, always(NOTICE)) end,
      ["notifications"] = function(peer) postgres.pour(peer, always(NOTIFICATION)) end,
    } do
      local server <close> = postgres.told(postgres.welcome, function(tags, peer)
        if not tags:find("E", 1, true) then return postgres.ready end
        pour(peer)
        return false
      end)
      beat.within(50, name, function()
        return beat.longest(g, postgres.open(server.url, ", prepare = false, timeout = 0.5"), 'return db:row "select 1" or 1')
      end)
    end
  end)
end)
