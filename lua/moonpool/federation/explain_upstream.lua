-- The part of `moonpool explain` about upstreams: their lists are read once, as a gateway that runs does, and each rule
-- of the configuration that decides about a thing is a line.

local auth = require "moonpool.upstream.auth"
local catalogue = require "moonpool.upstream.catalogue"
local config = require "moonpool.upstream.config"
local era = require "moonpool.protocol.era"
local federated = require "moonpool.federation.federated"
local host = require "moonpool.host"
local open = require "moonpool.upstream.open"
local served_names = require "moonpool.upstream.served_names"
local pins = require "moonpool.upstream.pins"
local wrapping = require "moonpool.upstream.wrapping"

-- STATE: the first character of a line that has nothing but the name of an upstream after it. The command that prints
-- the lines replaces such a line with the state of the circuit in a running gateway.
local explain_upstream = { STATE = "\1" }

-- Who shares the session or program, in words, by `per`.
local SHARED <const> = {
  principal = "one for each principal (per: principal)", session = "one for each session of a client (per: session)", call = "one for each call (per: call)",
  gateway = "one for all clients (per: gateway)",
}

local REPEATED <const> = {
  read_only = "once, if it is not known whether it ran and it reads only (retry: read_only)",
  hinted = "once, if it is not known whether it ran and the tool has readOnlyHint or idempotentHint (retry: hinted)", never = "never (retry: never)",
}

--- Reads the lists of all upstreams, so that their things are in the registry. Adds a line for each upstream whose
--- lists could not be read.
function explain_upstream.read(put)
  for _, record in ipairs(config.list) do
    federated.read(record)
    if auth.is_personal(record) then
      put("upstream", record.name .. " lists for each caller alone (auth.exchange): nothing of it is known here")
    elseif catalogue.of(record.name, catalogue.class).hash == "" then
      put("upstream", record.name .. " does not answer: `moonpool check --connect` says why")
    end
  end
end

-- How the gateway authenticates itself; never the credential itself.
local function credential_of(record)
  local given = host.config.upstreams[record.place]
  if record.kind == "command" then return "what process.env gives the program" end
  if record.auth then return ("a token that the gateway gets (auth.%s)"):format(record.auth.kind) end
  if given.credential then return ("a credential (%s)"):format(given.credential) .. (given.has_headers and ", and `headers`" or "") end
  return given.has_headers and "what `headers` send" or "none"
end

-- How a request and its result are converted on their way.
local function steps_of(revision)
  if revision == era.newest then return ("requests as of %s, results as they are; then to that of the client"):format(revision) end
  return ("requests from the client's to %s, results up to %s and then to that of the client"):format(revision, era.newest)
end

local function seconds(ms) return ("%g s"):format(ms / 1000) end

-- Describes the circuit breaker of the upstream: after how many failures, and for how long, calls are refused.
local function circuit_of(record)
  local given = host.config.upstreams[record.place]
  return ("opens after %d failures in a row, for %s to %s"):format(given.circuit_failures, seconds(given.circuit_open_min_ms),
    seconds(given.circuit_open_max_ms))
end

-- What is said of clients that get sessions of an older revision at a stateless upstream.
local function own_sessions(record)
  if next(record.asks) == nil or not open.may_have_sessions(record) then return "" end
  return "; if it speaks an older revision, too, one for each client of such a revision that can be asked"
end

--- Adds the lines about the upstream of a thing.
function explain_upstream.describe(thing, put)
  local record = config.by_name[thing.upstream]
  local facts = catalogue.of(record.name, catalogue.class).facts
  local is_named = thing.kind == "tools" or thing.kind == "prompts"
  put("upstream", ("%s, line %d: %s over %s"):format(record.name, record.line, facts.revision or "an unknown revision", facts.transport or record.kind))
  put("its name", thing.original)
  if is_named then
    local renamed = record.rename[thing.original]
    put("renamed", renamed and ("'%s' by `rename`"):format(renamed) or "no")
    put("prefix", record.prefix == "" and "none" or ("'%s'"):format(record.prefix))
    local whole = record.prefix .. (renamed or thing.original)
    if served_names.is_unsafe(record, thing.original) then
      put("changed", ("from '%s': it has characters that clients refuse (`names: as_is` keeps them)"):format(whole))
    elseif whole ~= thing.name then put("shortened", ("to %d bytes, from '%s'"):format(record.longest, whole)) end
  end
  if not is_named then put("URI", record.wraps_uris and ("'%s' by `uris: wrap`"):format(thing.name) or "as it is there") end
  put("filter", record.only and "`only` lets it through" or record.hide and "`hide` does not name it" or "none")
  local hash, approved = thing.facts.hash, pins.hash(record.name, thing.kind, thing.original)
  put("definition", (hash or "unknown") .. (approved and ", approved" or ", not pinned (moonpool lock)"))
  put("shared", SHARED[record.per] or facts.is_modern and "one for all clients: the server keeps nothing between calls" .. own_sessions(record)
    or not facts.has_session and facts.transport == "http" and "one for all clients: the server has no sessions" or "none between principals")
  if facts.revision then put("revisions", steps_of(facts.revision)) end
  put("circuit", circuit_of(record))
  put(explain_upstream.STATE, record.name)
  put("credential", credential_of(record))
  put("repeated", REPEATED[record.retry])
end

--- The name of an upstream that may have a thing of this name, but whose lists could not be read; else nil.
function explain_upstream.unread(name)
  for _, record in ipairs(config.list) do
    local may_have = record.prefix ~= "" and name:sub(1, #record.prefix) == record.prefix or record.prefix == ""
    if may_have and not auth.is_personal(record) and catalogue.of(record.name, catalogue.class).hash == "" then return record.name end
  end
end

--- An error text and a hint if an upstream has a thing of this name that its filter hides; else nil.
function explain_upstream.hidden(name)
  for _, record in ipairs(config.list) do
    for _, entry in ipairs(catalogue.of(record.name, catalogue.class).entries) do
      local shown = (entry.kind == "tools" or entry.kind == "prompts") and served_names.shown(record, entry.key)
        or wrapping.outward(record, entry.key)
      local why, hint = pins.why(record.name, entry)
      if why and (shown == name or entry.key == name) then
        return ("'%s' of upstream '%s' is withheld: %s"):format(entry.key, record.name, why), hint
      end
      if (shown == name or entry.key == name) and not served_names.is_shown(record, entry.key) then
        return ("upstream '%s' has '%s', but `only` or `hide` leaves it out"):format(record.name, entry.key),
          ("see line %d of the configuration"):format(record.line)
      end
      if entry.key == name and shown ~= name then
        return ("clients see '%s' of upstream '%s' under another name"):format(name, record.name), "moonpool explain … " .. shown
      end
    end
  end
end

return explain_upstream
