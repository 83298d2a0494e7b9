-- Measures the longest turn of a worker, in processor time: a call that runs once per turn notes the processor time
-- since the previous turn.
--   local g <close> = beat.start()
--   local ms, got = beat.within(20, "upper", function() return beat.longest(g, "local s = ('x'):rep(1 << 20)", "return s:upper()") end)
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local memory = require "spec.helpers.memory"

local beat = {}

local TRIES <const> = 3

local scripts = {
  ["lib/beat.lua"] = "return { longest = 0, runs = false }",
  -- Runs once per turn until the spec ends it.
  ["tools/beat.lua"] = [[local beat = require "beat"
    return tool { "Beats.", timeout = 300, function()
      beat.runs = true
      local last = os.clock()
      while beat.runs do
        sleep(0)
        local now = os.clock()
        beat.longest, last = math.max(beat.longest, now - last), now
      end
      return "ended"
    end }]],
  ["tools/offend.lua"] = [[local beat = require "beat"
    return tool { "Offends.", timeout = 300, input = { prepare = t.string, code = t.string }, function(args, call)
      _G.call = call
      local prepare = assert(load(args.prepare .. "\nreturn function() " .. args.code .. "\nend", "=offend"))
      local run = prepare()
      while not beat.runs do sleep(0) end
      for _ = 1, 3 do sleep(0) end
      beat.longest = 0
      local began = os.clock()
      local ok, value, why = pcall(run)
      local took = os.clock() - began
      for _ = 1, 3 do sleep(0) end
      return { longest = beat.longest * 1000, took = took * 1000, ok = ok, value = value ~= nil and tostring(value):sub(1, 200) or nil,
        why = why ~= nil and tostring(why):sub(1, 200) or nil }
    end }]],
  ["tools/stop.lua"] = [[local beat = require "beat" return tool { "Stops.", function() beat.runs = false return tostring(beat.longest * 1000) end }]],
}

--- Starts a gateway with one worker. Takes `options` like gateway.start.
function beat.start(options)
  options = options or {}
  options.scripts = options.scripts or {}
  for path, text in pairs(scripts) do options.scripts[path] = text end
  options.workers, options.env = 1, options.env or memory.environment()
  return gateway.start(options)
end

--- The longest turn, in ms of processor time, while `code` ran; and its result: { ok, value, why, took }, or { error }.
function beat.longest(g, prepare, code)
  local me, other = g:client "2026-07-28", g:client "2026-07-28"
  local beating = other:open("tools/call", { name = "beat", arguments = {} })
  local answer = me:call("tools/call", { name = "offend", arguments = { prepare = prepare, code = code } }, 300)
  assert(me:call("tools/call", { name = "stop", arguments = {} }, 30).result)
  assert(beating:answer())
  me:close()
  other:close()
  if not answer.result or answer.result.isError then return nil, cjson.encode(answer) .. "\n" .. g:log():sub(-1000) end
  local got = answer.result.structuredContent
  return got.longest, got
end

--- The longest turn, in ms of processor time, while `run` ran, and what that returned.
function beat.during(g, run)
  local me, other = g:client "2026-07-28", g:client "2026-07-28"
  local beating = other:open("tools/call", { name = "beat", arguments = {} })
  assert(me:result("tools/call", { name = "offend", arguments = { prepare = "", code = "" } }).structuredContent.ok)
  local got = table.pack(run())
  local longest = tonumber(me:result("tools/call", { name = "stop", arguments = {} }).content[1].text)
  assert(beating:answer())
  me:close()
  other:close()
  return longest, table.unpack(got)
end

--- True if this build has a sanitizer, which makes it several times slower.
function beat.is_sanitized()
  return (gateway.binary:find "asan" or gateway.binary:find "tsan") ~= nil
end

--- The factor by which this build may be slower than a plain build.
function beat.factor() return gateway.binary:find "tsan" and 40 or gateway.binary:find "asan" and 20 or 3 end

--- Fails unless one of three calls of `measure` returns a turn of at most `most` ms, times the factor of this build.
--- Returns what that call returned. A step that is too long is so each time. Other work of the machine makes a turn
--- longer now and then, in processor time too: caches are shared, and the first use of a page of memory takes several
--- times as long.
function beat.within(most, name, measure)
  local least = math.huge
  for _ = 1, TRIES do
    local got = table.pack(measure())
    assert(got[1], ("%s: %s"):format(name, got[2]))
    least = math.min(least, got[1])
    if least <= most * beat.factor() then return table.unpack(got, 1, got.n) end
  end
  error(("%s: a turn of %.1f ms of processor time, which may have %g ms"):format(name, least, most * beat.factor()), 2)
end

return beat
