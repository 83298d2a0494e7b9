-- SIGTERM ends the process within limits.drain plus one second, whatever the scripts do.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local SANITIZED <const> = os.getenv "ASAN_OPTIONS" or os.getenv "TSAN_OPTIONS"
local SLACK <const> = 10 -- seconds by which a busy machine may delay the end
local TRIES <const> = 8 -- most are needed where many other processes want the processors

-- What a handler of a <close> variable does. None of them ends by itself.
local closers = {
  computes = "while true do end",
  catches = "while true do pcall(function() while true do end end) end",
  sleeps = "while true do pcall(sleep, 60) end",
  reads = "while true do try(fs.write('data/file', 'x')) try(fs.read 'data/file') end",
  fetches = "while true do http.get(PLACE) end",
  runs = "while true do exec { 'sleep', '60' } end",
  queries = [[local db = try(sqlite.open ':memory:')
    while true do pcall(db.query, db, 'with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n') end]],
  nests = [[local inner <close> = closing(function() while true do pcall(sleep, 60) end end)
    coroutine.wrap(function() local c <close> = closing(function() while true do end end) sleep(60) end)()]],
}

-- Bodies of handlers that go on for long after they are cancelled.
local bodies = {
  loops = "while true do end",
  loops_caught = "while true do pcall(function() while true do end end) end",
  metamethod = "return tostring(setmetatable({}, { __tostring = function() while true do end end }))",
  matches = "return tostring(regex.match(('a'):rep(1e6), '^(a|a?)+$')) .. ('a'):rep(1e6):find(('a?'):rep(1e4) .. 'b')",
}

local function scripts(place)
  local made = {}
  for name, body in pairs(closers) do
    made["tools/" .. name .. ".lua"] = ([[local PLACE <const> = %q
      return tool { "Never cleans up.", function()
        local guard <close> = closing(function() log.info "closes" %s end)
        log.info "waits"
        sleep(3600)
      end }]]):format(place, body)
  end
  for name, body in pairs(bodies) do
    made["tools/" .. name .. ".lua"] = ('return tool { "Never ends.", function() log.info "waits" %s end }'):format(body)
  end
  return made
end

-- A server that takes connections and never answers.
local function silent_server()
  local server = uv.new_tcp()
  assert(server:bind("127.0.0.1", 0))
  assert(server:listen(128, function() end))
  return setmetatable({ address = "127.0.0.1:" .. server:getsockname().port }, { __close = function() server:close() end })
end

local function start(server, drain)
  return gateway.start { scripts = scripts("http://" .. server.address .. "/"), workers = 2, files = { ["data/kept"] = "kept" },
    constants = { cleanup_ms = 3600000 }, config = {
    limits = { drain = drain, call = { time = "1h", cpu = "1h" } },
    scripts = { path = "scripts", allow = { write = { "data" }, read = { "data" }, run = { "sleep" }, net = { server.address } } },
  } }
end

local function names_of(list)
  local names = {}
  for name in pairs(list) do names[#names + 1] = name end
  table.sort(names)
  return names
end

-- Begins `count` calls of each of these tools, on connections of their own, so that both workers have some.
local function begin(g, names, count)
  local open = {}
  for _ = 1, count do
    for _, name in ipairs(names) do
      local me = g:client "2026-07-28"
      open[#open + 1] = me
      me:open("tools/call", { name = name })
    end
  end
  wait.for_fact("every call to run", 30, function()
    local _, waiting = g:log():gsub("info  waits", "")
    return waiting >= #open
  end)
  return setmetatable(open, { __close = function()
    for _, me in ipairs(open) do me:close() end
  end })
end

-- Waits for the end of the process: its exit code. 1: the watchdog has ended it by force, in time.
local function seconds_to_exit(g, limit)
  local took, code = wait.timed(g.wait_exit, g, 30)
  assert.is_true(took < limit + SLACK, ("it took %.1f s of at most %.1f s; its log ends with\n%s"):format(took, limit, g:log():sub(-2000)))
  g.accepted_code = 1
  return code
end

-- Calls f(), which returns an exit code and the log, until the process has ended by itself and its log contains
-- `words`. On a busy machine the process, or the thread that writes its log, may have no time for that once or twice;
-- with a sanitizer it never has.
local function ends_by_itself(words, f)
  local code, log
  for _ = 1, TRIES do
    code, log = f()
    if code == 0 and log:find(words) or SANITIZED then return end
    assert.truthy(code == 0 or log:find("ended by force", 1, true), log)
  end
  error(("exit code %d, or nothing said of '%s', each time\n%s"):format(code, words, log), 2)
end

describe("SIGTERM, within limits.drain and one second,", function()
  for _, name in ipairs(names_of(closers)) do
    it("ends calls whose <close> handlers never end: one that " .. name, function()
      ends_by_itself("cleanup over its limit", function()
        local server <close> = silent_server()
        local g <close> = start(server, "200ms")
        local calls <close> = begin(g, { name }, 6) -- luacheck: ignore 211
        g:signal "sigterm"
        local code = seconds_to_exit(g, 1.2)
        assert.truthy(g:log():find("closes", 1, true))
        return code, g:log()
      end)
    end)
  end

  it("ends forty calls of each kind at once, and logs a few of them and the number of the others", function()
    local function end_forty()
      local server <close> = silent_server()
      local g <close> = start(server, "200ms")
      local calls <close> = begin(g, names_of(closers), 5) -- luacheck: ignore 211
      g:signal "sigterm"
      -- exit code 1: on a busy machine some handlers miss their last instruction, and the watchdog ends the process by
      -- force, in time.
      return seconds_to_exit(g, 1.2) == 1 or g:log():match "cleanups over their limit count=%d+" ~= nil, g:log()
    end
    local is_told, log
    for _ = 1, TRIES do -- the thread that writes the log may have had no time for its last lines
      is_told, log = end_forty()
      if is_told then break end
    end
    assert.is_true(is_told, log)
  end)

  it("ends handlers of tools that never end", function()
    ends_by_itself("", function()
      local server <close> = silent_server()
      local g <close> = start(server, "200ms")
      local calls <close> = begin(g, names_of(bodies), 3) -- luacheck: ignore 211
      g:signal "sigterm"
      return seconds_to_exit(g, 1.2), g:log()
    end)
  end)

  it("ends calls where limits.drain is 0", function()
    ends_by_itself("", function()
      local server <close> = silent_server()
      local g <close> = start(server, "0s")
      local calls <close> = begin(g, { "computes", "sleeps", "queries" }, 4) -- luacheck: ignore 211
      g:signal "sigterm"
      return seconds_to_exit(g, 1), g:log()
    end)
  end)

  it("ends calls within one second after a second SIGTERM", function()
    ends_by_itself("", function()
      local server <close> = silent_server()
      local g <close> = start(server, "1h")
      local calls <close> = begin(g, names_of(closers), 4) -- luacheck: ignore 211
      g:signal "sigterm"
      g:wait_log "draining"
      g:signal "sigterm"
      return seconds_to_exit(g, 1), g:log()
    end)
  end)

  it("leaves <close> handlers that need less all the time they need", function()
    local cleaned = 0
    for _ = 1, TRIES do
      local g <close> = gateway.start { workers = 2, config = { limits = { drain = "200ms" } }, scripts = {
        ["tools/brief.lua"] = [[return tool { "Cleans up.", function()
          local guard <close> = closing(function() sleep(0.1) log.info "cleaned" end)
          log.info "waits"
          sleep(3600)
        end }]],
      } }
      local calls <close> = begin(g, { "brief" }, 3) -- luacheck: ignore 211
      g:signal "sigterm"
      seconds_to_exit(g, 1.2)
      cleaned = select(2, g:log():gsub("info  cleaned", ""))
      -- otherwise the machine was busy for half a second: try again
      if cleaned == 3 and not g:log():find("over its limit", 1, true) then return end
    end
    error(cleaned .. " of 3 handlers have ended")
  end)
end)
