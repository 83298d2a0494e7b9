-- Upstreams whose lists are not known: they were never read, or the upstream is gone for longer than `keep`. A name
-- that may be one of theirs is not unknown: the client gets the state of the upstream.
--   things   for each list, key -> the thing that an absent upstream had when its lists were known

local auth = require "moonpool.upstream.auth"
local config = require "moonpool.upstream.config"
local errors = require "moonpool.upstream.errors"
local host = require "moonpool.host"
local json = require "moonpool.json"
local registry = require "moonpool.registry.registry"
local template = require "moonpool.things.template"
local uris = require "moonpool.runtime.uris"
local wrapping = require "moonpool.upstream.wrapping"

local absent = {}

-- Why the lists of an upstream could not be read last, for all workers.
local function why_key(record) return "upstream:why:" .. record.name end

--- Notes why the lists of an upstream could not be read; nil: they were read. While it is not tried again, the reason of the
--- last try stays.
function absent.note(record, failure)
  if not failure then return host.store.delete(why_key(record)) end
  if failure.reason == "down" and host.store.get(why_key(record)) then return end
  host.store.set(why_key(record), json.encode { reason = failure.reason, status = failure.status })
end

--- The things of absent upstreams, after those in `before` were made anew as `made`. Both are as `now` of federated.lua:
--- { things, facts, absent }.
function absent.carry(before, made)
  local kept = {}
  for kind, things in pairs(made.things) do
    kept[kind] = {}
    for _, known in ipairs { before.absent[kind] or {}, before.things[kind] } do
      for key, thing in pairs(known) do
        local facts = made.facts[thing.upstream]
        if facts and not facts.revision and not things[key] then kept[kind][key] = thing end
      end
    end
  end
  return kept
end

local function of_uri(known, uri)
  local normal = uris.normal(uri)
  local thing = known.resources[normal]
  if thing then return thing.upstream end
  for _, one in pairs(known.templates) do
    if template.match(one.template, normal) then return one.upstream end
  end
  for _, record in ipairs(config.list) do
    if record.wraps_uris and wrapping.inward(record, uri) then return record.name end
  end
end

-- The upstream whose prefix a name begins with, the longest one of several.
local function of_prefix(name)
  local found
  for _, record in ipairs(config.list) do
    if record.prefix ~= "" and name:sub(1, #record.prefix) == record.prefix and (not found or #record.prefix > #found.prefix) then found = record end
  end
  return found
end

-- True if the lists of an upstream are not known. Those that belong to callers alone are not looked for here.
local function is_absent(facts, record) return not (facts[record.name] or {}).revision and not auth.is_personal(record) end

-- An absent upstream without a prefix, which may have any name.
local function without_prefix(facts)
  for _, record in ipairs(config.list) do
    if record.prefix == "" and is_absent(facts, record) then return record end
  end
end

local list_of_method = { ["tools/call"] = "tools", ["prompts/get"] = "prompts" }

--- The error for a request about a name or URI that nothing has which is served, if an absent upstream may have it; else
--- nil. `now`: { facts, absent } of federated.lua.
function absent.refusal(now, method, params)
  local ref = method == "completion/complete" and type(params.ref) == "table" and params.ref or params
  local kind, key, record = list_of_method[method] or "prompts", ref.name, nil
  if type(ref.uri) == "string" then
    record = not registry.serves(ref.uri) and config.by_name[of_uri(now.absent, ref.uri) or false]
  elseif type(key) == "string" and not registry.everything(kind)[key] then
    local had = now.absent[kind][key]
    record = config.by_name[had and had.upstream or false] or of_prefix(key) or without_prefix(now.facts)
  end
  if not record or not is_absent(now.facts, record) then return nil end
  local failure = json.decode(host.store.get(why_key(record)) or "null")
  if type(failure) ~= "table" then failure = { reason = "timeout", after = record.list_wait } end
  failure.outcome = "not_run"
  return errors.of(record, failure)
end

return absent
