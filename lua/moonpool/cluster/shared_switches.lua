-- What operators switch off and on holds on all nodes of a cluster: the hash mp:NAME:w of the server has the switches,
-- "VERSION on|off NOTE" for each "KIND:NAME". A higher version wins, and off wins over on of the same version.
-- Each node keeps the switches itself, too: they hold there while the server is away, and what it has forgotten, or was
-- switched meanwhile, is written there once it is back. Switches of scripts hold on their node.

local cluster_operation = require "moonpool.lib.cluster_operation"
local fanout = require "moonpool.cluster.fanout"
local host = require "moonpool.host"
local json = require "moonpool.json"
local registry = require "moonpool.registry.registry"
local server = require "moonpool.lib.cluster_server"
local switches = require "moonpool.registry.switches"

local now <const> = host.time.now
local KEY <const> = cluster_operation.PREFIX .. "w"
local EVERY_S <const> = 10                   -- seconds between two looks at the hash, beside the messages of other nodes
local ON_DAYS <const> = 30                   -- days for which it is known that something was switched on
local ON_KEYS <const> = "kept:on:"           -- the store's file has keys that begin with "kept:"

-- The switch that wins, of the one in the hash and the one in ARGV; with "next" in ARGV[5] that one in a version above both.
local PUT <const> = [[
local has = redis.call("HGET", KEYS[1], ARGV[1]) or "0 on "
local version, state = string.match(has, "^(%d+) (%a+)")
local mine = tonumber(ARGV[2])
version = tonumber(version) or 0
if ARGV[5] == "next" then mine = math.max(mine, version) + 1
elseif mine < version or (mine == version and (state == "off" or ARGV[3] == "on")) then return has end
local text = string.format("%.0f", mine) .. " " .. ARGV[3] .. " " .. ARGV[4]
redis.call("HSET", KEYS[1], ARGV[1], text)
return text
]]

local DROP <const> = [[if redis.call("HGET", KEYS[1], ARGV[1]) == ARGV[2] then return redis.call("HDEL", KEYS[1], ARGV[1]) end return 0]]

local function ask(...)
  local ends = server.deadline()
  if not server.is_ready(ends) then return nil end
  local done, reply = cluster_operation.send({ ... }, ends)
  return done and reply or nil
end

-- -- one switch -----------------------------------------------------------------------------------------------------------

local function parse(text)
  local version, state, note = text:match "^(%d+) (%a+) (.*)$"
  return version and { version = math.tointeger(tonumber(version)) or 0, on = state == "on", note = note } or nil
end

local function decoded(note)
  local is_json, made = pcall(json.decode, note)
  return is_json and type(made) == "table" and made or {}
end

local function text_of(one) return ("%d %s %s"):format(one.version, one.on and "on" or "off", one.note) end

local function wins(one, other)
  if not other or one.version ~= other.version then return not other or one.version > other.version end
  return other.on and not one.on
end

-- What this node keeps of a switch: off is the note with its version, on is an entry of its own.
local function kept(word, name)
  local note = host.store.get(registry.off_key(word, name))
  if note then return { version = math.tointeger(decoded(note).version) or 1, on = false, note = note } end
  return parse(host.store.get(ON_KEYS .. word .. ":" .. name) or "")
end

local function keep(word, name, one)
  local key = ON_KEYS .. word .. ":" .. name
  if one.on then return host.store.set(key, text_of(one), ON_DAYS * 86400) end
  host.store.delete(key)
  host.store.set(registry.off_key(word, name), one.note)
end

local function in_version(note, version)
  local made = decoded(note)
  made.version = version
  return json.encode(made)
end

local kinds <const> = { tool = true, prompt = true, resource = true, upstream = true }

local function take(field, text)
  local word, name = field:match "^(%a+):(.+)$"
  local one = parse(text)
  if not (kinds[word] and one) or not wins(one, kept(word, name)) then return end
  one.note = in_version(one.note, one.version)
  if switches.operate(word, name, one.on, one.note, true) then keep(word, name, one) end
end

fanout.on("switch", function(body)
  local field, text = body:match "^(.-)\n(.*)$"
  if field and host.job.is_allowed() then take(field, text) end      -- older processes have the store of this one
end)

-- -- an operator switches -------------------------------------------------------------------------------------------------

--- An operator has switched something on this node: switches it on all others. False if they cannot be reached now.
function switches.operate_at_nodes(word, name, on, note, before)
  if not host.job.is_allowed() then return true end      -- the newest process of this node does it
  local version = before and before.version or 0
  local field = word .. ":" .. name
  local text = ask("EVAL", PUT, "1", KEY, field, ("%d"):format(version), on and "on" or "off", note, "next")
  local one = text and parse(text) or { version = version + 1, on = on, note = note }
  one.note = in_version(note, one.version)
  keep(word, name, one)
  if not text then return false end
  fanout.publish("switch", field .. "\n" .. text, field)
  return true
end

--- The switch as this node has it before it is changed, for operate_at_nodes.
switches.kept = kept

-- -- all switches ---------------------------------------------------------------------------------------------------------

-- Writes what this node has, and the server has not, into the hash.
local function give(word, name, all)
  local one, field = kept(word, name), word .. ":" .. name
  local other = all[field] and parse(all[field])
  if not (one and wins(one, other)) then return end
  local text = ask("EVAL", PUT, "1", KEY, field, ("%d"):format(one.version), one.on and "on" or "off", one.note, "")
  if text then fanout.publish("switch", field .. "\n" .. text, field) end
end

local function is_over(text)
  local one = parse(text)
  local note = one and one.on and decoded(one.note)
  return note and type(note.since) == "number" and note.since < host.time.clock() - ON_DAYS * 86400
end

local function compare()
  local list = ask("HGETALL", KEY)
  if not list then return false end
  local all = {}
  for i = 1, #list, 2 do
    all[list[i]] = list[i + 1]
    if is_over(list[i + 1]) then ask("EVAL", DROP, "1", KEY, list[i], list[i + 1]) else take(list[i], list[i + 1]) end
  end
  for _, held in ipairs(registry.held_off()) do give(held[1], held[2], all) end
  for _, key in ipairs(host.store.keys(ON_KEYS, 2 * registry.MAX_OFF)) do
    local word, name = key:match("^(%a+):(.+)$", #ON_KEYS + 1)
    give(word, name, all)
  end
  return true
end

local due = -math.huge

fanout.at_tick(function()
  if now() >= due and compare() then due = now() + EVERY_S end
end)

fanout.at_gap(function() due = -math.huge end)
