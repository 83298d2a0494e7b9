-- What operators switch off and on holds on all nodes of a cluster: the hash mp:NAME:w of the server has the switches,
-- "VERSION on|off NOTE" for each "KIND:NAME". A higher version wins, and off wins over on of the same version.
-- Each node notes the newest version of each switch that it has seen, in the same form, and its lists follow that note:
-- so a comparison that is under way undoes nothing. What a node has noted holds there while the server is away; the other
-- nodes are asked by way of their listeners then, and the server gets it once it is back. Switches of scripts hold on
-- their node.

local bus = require "moonpool.runtime.bus"
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
local ON_DAYS <const>, OFF_DAYS <const> = 30, 3650      -- days for which it is known that something was switched on, or off
local NOTES <const> = "kept:noted:"          -- the store's file has keys that begin with "kept:"
local TAKING_S <const> = 10                  -- seconds for what another node has switched

-- The switch that wins, of the one in the hash and the one in ARGV; with "next" in ARGV[5] that one, in a version above that
-- in the hash.
local PUT <const> = [[
local has = redis.call("HGET", KEYS[1], ARGV[1]) or "0 on "
local version, state = string.match(has, "^(%d+) (%a+)")
local mine = tonumber(ARGV[2])
version = tonumber(version) or 0
if ARGV[5] == "next" then mine = math.max(mine, version + 1)
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

local function key_of(word, name) return NOTES .. word .. ":" .. name end

-- The newest switch that this node has noted, and the text of that. One without a text was switched off before there was
-- a cluster.
local function noted(word, name)
  local text = host.store.get(key_of(word, name))
  if text then return parse(text), text end
  local note = host.store.get(registry.off_key(word, name))
  return note and { version = 1, on = false, note = note } or nil
end

-- Notes a switch, if it is newer than what is noted: made(that) gives it, or nil. True if it is noted; false if not; or nil
-- and why.
local function note_switch(word, name, made)
  local has, text, one, done, why
  repeat
    has, text = noted(word, name)
    one = made(has)
    if not one then return false end
    done, why = host.store.cas(key_of(word, name), text or false, text_of(one), (one.on and ON_DAYS or OFF_DAYS) * 86400)
  until done ~= false
  return done, why
end

-- Makes the lists of this node follow what is noted of a switch, however many change it at once.
local function follow(word, name)
  local one, text = noted(word, name)
  while text do
    local is_followed = host.store.get(registry.off_key(word, name)) == (not one.on and one.note or nil)
    if not is_followed and not switches.operate(word, name, one.on, one.note, true) then return end
    local before = text
    one, text = noted(word, name)
    if text == before then return end
  end
end

local kinds <const> = { tool = true, prompt = true, resource = true, upstream = true }

local function take(field, text)
  local word, name = field:match "^(%a+):(.+)$"
  local one = parse(text)
  if not (kinds[word] and one) then return end
  if note_switch(word, name, function(has) return wins(one, has) and one or nil end) then follow(word, name) end
end

-- What another node has switched. `body`: the field of the hash, a newline, and its text. True if it holds here then, and
-- not what was noted of it before.
local function take_message(body)
  local field, text = body:match "^(.-)\n(.*)$"
  if not (field and host.job.is_allowed()) then return false end      -- older processes have the store of this one
  take(field, text)
  local one, now_noted = parse(text), noted(field:match "^(%a+):(.+)$")
  return one ~= nil and now_noted ~= nil and now_noted.on == one.on
end

fanout.on("switch", take_message)

-- A node that does not reach the server has asked this one, and waits for what comes of it.
bus.on("node_message", function(text)
  local id, body = text:match "^(%d+)\n(.*)$"
  local decided = math.tointeger(tonumber(id))
  if not decided then return end
  local begun = host.job.begin_own(function() host.nodes.decide(decided, take_message(body)) end, TAKING_S)
  if not begun then host.nodes.decide(decided, false) end
end)

-- -- an operator switches -------------------------------------------------------------------------------------------------

--- An operator switches something here: notes that before it is done, as the newest version. False and why if it cannot be.
function switches.note(word, name, on, note)
  if not host.job.is_allowed() then return true end      -- the newest process of this node does it
  local at = os.time() * 1000
  return note_switch(word, name, function(has)
    -- above the version that this node knows; and, by the clock, above those of others that it could not hear of
    return { version = math.max((has and has.version or 0) + 1, at), on = on, note = note }
  end)
end

-- Asks the other nodes themselves. { node, is_taken } of each, by their names; empty if none is known.
local function ask_nodes(message)
  local answers, by_name = {}, {}
  for _, one in ipairs(host.nodes.tell(message)) do
    local answer = by_name[one.node] or { node = one.node, address = one.address, is_taken = false }
    if not by_name[one.node] then answers[#answers + 1] = answer end
    by_name[one.node], answer.is_taken = answer, answer.is_taken or one.is_taken
  end
  table.sort(answers, function(a, b) return a.node < b.node end)
  return answers
end

--- An operator has switched something on this node: switches it on all others. Nil if the server has it; else what the
--- other nodes have answered, as of ask_nodes.
function switches.operate_at_nodes(word, name)
  local one, noted_text = noted(word, name)
  if not (noted_text and host.job.is_allowed()) then return nil end
  local field = word .. ":" .. name
  local text = ask("EVAL", PUT, "1", KEY, field, ("%d"):format(one.version), one.on and "on" or "off", one.note, "next")
  follow(word, name)
  if not text then return ask_nodes(field .. "\n" .. noted_text) end
  take(field, text)
  fanout.publish("switch", field .. "\n" .. text, field)
end

-- -- all switches ---------------------------------------------------------------------------------------------------------

-- Writes what this node has, and the server has not, into the hash.
local function give(word, name, all)
  local one, field = noted(word, name), word .. ":" .. name
  follow(word, name)
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
  for _, held in ipairs(registry.held_off()) do
    if not host.store.get(key_of(held[1], held[2])) then give(held[1], held[2], all) end
  end
  for _, key in ipairs(host.store.keys(NOTES, 2 * registry.MAX_OFF)) do
    local word, name = key:match("^(%a+):(.+)$", #NOTES + 1)
    give(word, name, all)
  end
  return true
end

local due = -math.huge

fanout.at_tick(function()
  if now() >= due and compare() then due = now() + EVERY_S end
end)

fanout.at_gap(function() due = -math.huge end)
