-- The definitions that a person has approved (`upstream_lock`): their hashes, by upstream, kind and key. An upstream
-- with a line in the file serves only approved definitions. An upstream without a line serves every definition, except
-- those that `scan` refuses.

local canonical_definition = require "moonpool.upstream.canonical_definition"
local host = require "moonpool.host"
local json = require "moonpool.json"

local pins = {}

--- The words in the file for the kinds of a catalogue's entries, and for the instructions of the upstream.
pins.kinds = { tools = "tool", prompts = "prompt", resources = "resource", templates = "template", instructions = "instructions" }

local approved = {}           -- upstream -> kind .. "\t" .. key -> hash
local old_count = 0           -- lines with a hash of the older form (canonical_definition)
local old_hashes = setmetatable({}, { __mode = "k" })      -- facts of an entry -> its hash of the older form

for name, kind, key, hash in (host.config.upstream_lock or ""):gmatch "([^\t\n]*)\t([^\t\n]*)\t([^\t\n]*)\t([^\t\n]*)\n" do
  local plain = key:sub(1, 1) == '"' and json.decode(key) or key
  approved[name] = approved[name] or {}
  if type(plain) == "string" then approved[name][kind .. "\t" .. plain] = hash end
  if canonical_definition.is_old(hash) then old_count = old_count + 1 end
end

--- True if only approved definitions of this upstream are served.
function pins.has(name) return approved[name] ~= nil end

--- The approved hash of a definition, by the list that it is in; nil if there is none.
function pins.hash(name, list, key)
  local of = approved[name]
  return of and of[pins.kinds[list] .. "\t" .. key]
end

--- How many lines of the file have a hash of the older form, which left out `_meta`. They hold until `moonpool lock`
--- writes them anew.
function pins.old_count() return old_count end

-- True if `hash`, of a line of the file, is that of the entry. The form of the line decides which hash of the entry it
-- is compared with.
local function is_of(hash, entry)
  if hash == entry.facts.hash then return true end
  if not hash or not canonical_definition.is_old(hash) then return false end
  old_hashes[entry.facts] = old_hashes[entry.facts] or canonical_definition.old_hash(entry.definition)
  return hash == old_hashes[entry.facts]
end

--- Why an entry of a catalogue is not served, and what to do about it; nil if it is served.
function pins.why(name, entry)
  if entry.facts.bad then return entry.facts.bad, "tell the people who run this server; `hide` keeps it out of this list" end
  local of = approved[name]
  if not of then return nil end
  local hash = of[pins.kinds[entry.kind] .. "\t" .. entry.key]
  if is_of(hash, entry) then return nil end
  return hash and "its definition differs from the approved one" or "it is not approved", "moonpool lock " .. name
end

return pins
