-- The question "approve" of the Upstreams page: shows a withheld definition of an upstream beside the approved one, and
-- approves it, as `moonpool lock` does: by a line in the file of `upstream_lock`, which a reload reads.

local canonical_definition = require "moonpool.upstream.canonical_definition"
local catalogue = require "moonpool.upstream.catalogue"
local errors = require "moonpool.runtime.rpc_error"
local host = require "moonpool.host"
local json = require "moonpool.json"
local lock_file = require "moonpool.runtime.lock_file"
local paths = require "moonpool.runtime.paths"
local pins = require "moonpool.upstream.pins"

local MAX_WRITE_S <const> = 20 -- seconds after which an approval that was cancelled holds up no other one

local function invalid(message) return nil, errors.new("invalid_params", message) end

-- The entry of the newest catalogue with this name, which is withheld because it is not approved; or nil, why.
local function find(params)
  if params.kind == "instructions" then return nil, "instructions are approved by `moonpool lock`" end
  for _, entry in ipairs(catalogue.of(params.upstream, catalogue.class).entries) do
    if pins.kinds[entry.kind] == params.kind and entry.key == params.name then
      if entry.facts.bad then return nil, "the definition cannot be approved: " .. entry.facts.bad end
      if not pins.why(params.upstream, entry) then return nil, "the definition is served already" end
      return entry
    end
  end
  return nil, "the upstream has no such definition any more"
end

-- What to do when the lock file cannot be written: another user may be allowed to, but on a full disk nobody can.
local function advice(why)
  why = why:lower()
  if why:find "space" or why:find "quota" then return "make room there, and approve it again" end
  return "`moonpool lock`, as its owner, can"
end

-- Reads the file, or writes `text` into it. Returns what host.fs.run returns; or nil, why.
local function with_file(action, text)
  local path = paths.absolute(host.config.upstream_lock_path)
  local folder, name = path:match "^(.*)/([^/]+)$"
  local done, why = host.fs.run(action, folder == "" and "/" or folder, name, text)
  if not done then return nil, ("cannot %s %s: %s; %s"):format(action, paths.shown(path), why, advice(why)) end
  return done
end

--- `params`: upstream, kind, name; and `hash`, that of the definition that a person has seen and approves.
return function(params)
  local entry, why = find(params)
  if not entry then return invalid(why) end
  local made = { upstream = params.upstream, kind = params.kind, key = entry.key, hash = entry.facts.hash, date = os.date "!%Y-%m-%d" }
  made.text = canonical_definition.text(json.decode(entry.definition))
  if params.hash and params.hash ~= made.hash then return invalid "the definition has changed since it was shown: look at it again" end
  if params.hash and host.store.add("upstream:approving", "", MAX_WRITE_S) == false then return invalid "another definition is being approved: try again" end
  local _ <close> = params.hash and setmetatable({}, { __close = function() host.store.delete "upstream:approving" end })
  local text, wrong = with_file "read"
  if not text then return invalid(wrong) end
  local entries = lock_file.parse(text)
  local before = entries[lock_file.id(made)]
  entries[lock_file.id(made)] = made
  if params.hash then
    text, wrong = with_file("write", lock_file.text(entries))
    if not text then return invalid(wrong) end
  end
  return { hash = made.hash, is = made.text, was = before and before.text, approved = params.hash ~= nil, resultType = "complete" }
end
