-- A process that replays recorded calls reaches nothing outside: uses of its libraries are answered from the record of
-- the call that is replayed, or refused. Load this module before all others that keep functions of moonpool.host.

local hooks = require "moonpool.replay.hooks"
local host = require "moonpool.host"
local json = require "moonpool.json"
local outside_hooks = require "moonpool.runtime.outside_hooks"

local outside = {}

local WHY <const> = "the record has no answer for it, and a replay reaches nothing outside"

--- What answers the uses of libraries: { mark, through(kind, args), value(kind, real, ...), variable(word, name),
--- slept(seconds) } of the call that is replayed; or nil.
outside.playing = nil

--- True if replayed calls write no log lines. Set for the replay that checks a reload: its report is read by more
--- people than the recorded calls.
outside.is_quiet = false

local function playing()
  local now = outside.playing
  local call = now and host.call.current()
  return call and host.call.mark(call) == now.mark and now or nil
end

--- The results of a use that the record has no answer for, as the library expects them.
function outside.refused(kind)
  if kind:find "^store" or kind == "http read" then error(kind .. ": " .. WHY, 0) end
  if kind == "question" then return nil, { message = WHY } end
  return nil, WHY, ""
end

local function through(kind, args)
  local now = playing()
  if now then return now.through(kind, args) end
  return outside.refused(kind)
end

local function value(kind, real, ...)
  local now = playing()
  if now then return now.value(kind, real, ...) end
  return real(...)
end

local function refusing(kind)
  return function() return outside.refused(kind) end
end

-- Replaces the functions that reach outside, so that even code which does not pass a hook has only those that refuse.
local function close_all()
  local http, program, sqlite, time = host.http, host.program, host.sqlite, host.time
  http.send, http.read, http.close = refusing "http", refusing "http", function() end
  program.run, program.find = refusing "exec", function(name) return name end
  host.fs.run = refusing "fs"
  sqlite.open, sqlite.run, sqlite.undo, sqlite.leave = refusing "sqlite", refusing "sqlite", function() end, function() end
  host.redis.send, host.postgres.run = refusing "redis", refusing "postgres"
  for _, name in ipairs { "channel", "open_channel", "take_up" } do host.upstream[name] = refusing "upstream" end
  host.call.ask = refusing "question"
  host.log.audit, host.call.audit_begin = function() end, function() end
  local write = host.log.write
  function host.log.write(...)
    if not outside.is_quiet then return write(...) end
  end
  local cas = host.store.cas
  function host.store.cas(key, ...)
    if hooks.is_lock(key) and playing() then return true end     -- the lock is held as the record says
    return cas(key, ...)
  end
  local sleep = time.sleep
  function time.sleep(seconds, is_real)
    if is_real then return sleep(seconds) end
    local now = type(seconds) == "number" and playing()
    if not now then return sleep(seconds) end
    now.slept(seconds)
    return sleep(0)
  end
  outside.set_deadline = host.call.set_deadline
  function host.call.set_deadline(call, seconds)
    if not playing() then outside.set_deadline(call, seconds) end      -- the player compares the time itself
  end
end

--- Called once, before scripts are loaded.
function outside.close()
  close_all()
  hooks.install(through, value)
  function outside_hooks.env(word, name, real)
    if word == "secret" then return "***" end
    local now = playing()
    local known = now and now.variables[name]
    if known == json.null then return nil end
    return type(known) == "string" and known or real()
  end
  function outside_hooks.denied(kind, path)
    local now = playing()
    if now then now.denies(kind, path) end
  end
  if host.script.is_confined then
    outside_hooks.confine = require "moonpool.replay.confined"(function()
      local now = playing()
      if now then now.lacks() end
    end)
  end
  local names = require "moonpool.upstream.script_handle".names
  for _, name in ipairs(host.config.upstream_names) do names[name] = true end
end

return outside
