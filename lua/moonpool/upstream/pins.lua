-- The definitions that a person has approved (`upstream_lock`): their hashes, by upstream, kind and key. An upstream
-- with a line in the file serves only approved definitions. An upstream without a line serves every definition, except
-- those that `scan` refuses.

local host = require "moonpool.host"
local json = require "moonpool.json"

local pins = {}

--- The words in the file for the kinds of a catalogue's entries.
pins.kinds = { tools = "tool", prompts = "prompt", resources = "resource", templates = "template" }

local approved = {}           -- upstream -> kind .. "\t" .. key -> hash

for name, kind, key, hash in (host.config.upstream_lock or ""):gmatch "([^\t\n]*)\t([^\t\n]*)\t([^\t\n]*)\t([^\t\n]*)\n" do
  local plain = key:sub(1, 1) == '"' and json.decode(key) or key
  approved[name] = approved[name] or {}
  if type(plain) == "string" then approved[name][kind .. "\t" .. plain] = hash end
end

--- True if only approved definitions of this upstream are served.
function pins.has(name) return approved[name] ~= nil end

--- The approved hash of a definition, by the list that it is in; nil if there is none.
function pins.hash(name, list, key)
  local of = approved[name]
  return of and of[pins.kinds[list] .. "\t" .. key]
end

--- Why an entry of a catalogue is not served, and what to do about it; nil if it is served.
function pins.why(name, entry)
  if entry.facts.bad then return entry.facts.bad, "tell the people who run this server; `hide` keeps it out of this list" end
  local of = approved[name]
  if not of then return nil end
  local hash = of[pins.kinds[entry.kind] .. "\t" .. entry.key]
  if hash == entry.facts.hash then return nil end
  return hash and "its definition differs from the approved one" or "it is not approved", "moonpool lock " .. name
end

return pins
