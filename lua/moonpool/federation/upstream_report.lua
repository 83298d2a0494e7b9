-- The method "moonpool/upstreams", for `moonpool add` and `moonpool check --connect`: connects to one upstream, reads
-- its lists and reports what clients would see of it.

local auth = require "moonpool.upstream.auth"
local canonical_definition = require "moonpool.upstream.canonical_definition"
local catalogue = require "moonpool.upstream.catalogue"
local config = require "moonpool.upstream.config"
local host = require "moonpool.host"
local json = require "moonpool.json"
local lists = require "moonpool.upstream.lists"
local pins = require "moonpool.upstream.pins"
local server_instructions = require "moonpool.federation.server_instructions"
local served_names = require "moonpool.upstream.served_names"
local registry = require "moonpool.registry.registry"
local scripts = require "moonpool.upstream.scripts"
local scan = require "moonpool.upstream.scan"
local make_things = require "moonpool.upstream.make_things"

local upstream_report = {}

local LONG_NAME_BYTES <const> = 64       -- some clients refuse longer names of tools
local WORDS <const> = { tools = "tool", prompts = "prompt", resources = "resource", templates = "resource" }

local taken = {}                         -- kind -> key -> the upstream that has it, among the upstreams reported before

-- What to do where no connection to a URL was made: `why` has the words of TLS, or those of the system.
local function connection_hint(why)
  if why:find "wrong version number" or why:find "packet length too long" then
    return "the server speaks plain HTTP at this port: its URL begins with http://"
  end
  if why:find "SSL" or why:find "TLS" or why:find "certificate" then
    return "tls: {ca: FILE} trusts the certificates of a file; the name in the URL must be one of the certificate"
  end
  return "check the address; is the server running?"
end

--- Explains a failure, and suggests what to do about it.
function upstream_report.explained(record, failure)
  local reason = failure.reason == "timeout" and failure.after and "open" or failure.reason
  local status = failure.status and (" (status %d)"):format(failure.status) or ""
  local texts = {
    refused = record.kind == "command" and { "the program did not start", "install it, or write its whole path: command: [/usr/local/bin/some-server]" }
      or { "no connection", connection_hint(failure.why or "") },
    address = { "the name leads to an address that is not public", "private: true allows it" },
    barred = record.auth and not failure.status and { "there is no token for it", ("look at auth.%s of the entry"):format(record.auth.kind) }
      or { "it refuses the credentials" .. status, "auth: {bearer: \"${TOKEN}\"} or headers send credentials" },
    closed = { record.kind == "command" and "the program ended before it answered" or "it closed the connection before it answered", nil },
    timeout = { "it did not answer within `timeout`", nil },
    total = { "it did not answer within `timeout_total`", nil },
    open = { "it did not answer within `open`", nil },
    status = { "it answered with an HTTP error" .. status, failure.status == 404 and "the path of its endpoint is part of the URL: /mcp, or /sse"
      or (failure.status or 0) // 100 == 3 and "it is at another URL: write the one of Location" or nil },
    unreadable = { "its answer is not MCP", record.kind == "url" and "the path of its endpoint is part of the URL: /mcp, or /sse" or nil },
    too_large = { "its answer is larger than limits.upstreams.answer", nil },
    revision = { "it speaks none of the revisions that this gateway speaks", nil },
    down = { "it failed a moment ago", nil },
    caller = { "it lists for each caller alone (auth.exchange)",
      ("`moonpool doctor %s --bearer-env NAME` tries it with the token in a variable"):format(record.name) },
    credential = { "there is no token for it", nil },
  }
  local text = texts[reason] or { reason, nil }
  return text[1] .. (failure.why and ": " .. failure.why or failure.says and ": " .. failure.says or ""), text[2]
end

-- The upstream or the script that has this key already; nil if it is free.
local function owner_of(kind, key)
  if registry.own(kind)[key] then return "a script" end
  local by_kind = taken[kind] or {}
  taken[kind] = by_kind
  return by_kind[key] and "upstream '" .. by_kind[key] .. "'"
end

local function text_or_nil(value) return type(value) == "string" and value or nil end

local function view_of(record, entries)
  local shown, doubts, hidden, withheld = json.array {}, json.array {}, 0, 0
  local script = scripts.of(record.name)
  for _, entry in ipairs(entries) do
    local thing, key = make_things.of(record, entry, script)
    local owner = thing and owner_of(entry.kind, key)
    local why, hint = pins.why(record.name, entry)
    if not thing then
      hidden = hidden + 1
    elseif why then
      withheld = withheld + 1
      doubts[#doubts + 1] = ("%s '%s' is withheld: %s: %s"):format(WORDS[entry.kind], entry.key, why, hint)
    elseif owner then
      withheld = withheld + 1
      doubts[#doubts + 1] = ("%s '%s' is withheld: %s has this name%s"):format(WORDS[entry.kind], thing.name, owner,
        (entry.kind == "resources" or entry.kind == "templates") and "; `uris: wrap` keeps both" or "")
    else
      taken[entry.kind][key] = record.name
      shown[#shown + 1] = { kind = entry.kind, name = thing.name, about = thing.description or "" }
      if entry.kind == "tools" and #thing.name > LONG_NAME_BYTES then
        doubts[#doubts + 1] = ("tool '%s' has a name of %d bytes, which some clients refuse"):format(thing.name, #thing.name)
      end
      local renamed = served_names.doubt(record, entry)
      if renamed then doubts[#doubts + 1] = ("%s '%s': %s"):format(WORDS[entry.kind], entry.key, renamed) end
      for _, doubt in ipairs(entry.facts.doubts or {}) do doubts[#doubts + 1] = ("%s '%s': %s"):format(WORDS[entry.kind], entry.key, doubt) end
    end
  end
  return shown, doubts, hidden, withheld
end

-- The definitions of an upstream for `moonpool lock`: { kind, key, hash, text, why?, doubts? }; `text` is the canonical
-- form.
local function definitions_of(record, facts, entries)
  local list = json.array {}
  for _, entry in ipairs(entries) do
    if make_things.of(record, entry, nil) then
      list[#list + 1] = { kind = pins.kinds[entry.kind], key = entry.key, hash = entry.facts.hash,
        old_hash = canonical_definition.old_hash(entry.definition),
        text = canonical_definition.text(json.decode(entry.definition)),
        why = entry.facts.bad, doubts = entry.facts.doubts }
    end
  end
  local function whole(kind, value, why, doubts)
    local text = canonical_definition.text(value)
    list[#list + 1] = { kind = kind, key = "-", hash = canonical_definition.hash(text), old_hash = canonical_definition.old_hash(text),
      text = text, why = why, doubts = doubts }
  end
  if type(facts.instructions) == "string" then whole("instructions", { instructions = facts.instructions }, scan.instructions(facts.instructions)) end
  local server = type(facts.server) == "table" and facts.server or {}
  whole("server", { name = text_or_nil(server.name), version = text_or_nil(server.version), revision = facts.revision })
  return list
end

--- Handles the method: { name } connects to one upstream; without a name lists the names. An upstream whose lists
--- belong to callers gives { note, hint }.
function upstream_report.answer(params)
  if not params.name then
    local names = json.array {}
    for i, record in ipairs(config.list) do names[i] = record.name end
    return { names = names, lock = host.config.upstream_lock_path }
  end
  local record = config.by_name[params.name]
  if not record then return { what = "there is no upstream '" .. tostring(params.name) .. "'" } end
  if auth.is_personal(record) then
    local what, hint = upstream_report.explained(record, { reason = "caller" })
    return { note = what .. ": nothing is read here", hint = hint }
  end
  local text, failure = lists.read(record)
  if not text then
    local what, hint = upstream_report.explained(record, failure)
    return { what = what, hint = hint }
  end
  local facts, entries = catalogue.decode(text)
  if params.definitions then return { definitions = definitions_of(record, facts, entries) } end
  local shown, doubts, hidden, withheld = view_of(record, entries)
  local instructions = server_instructions.entry(record, facts)
  if instructions then
    local why, hint = server_instructions.why(record, instructions)
    if why then doubts[#doubts + 1] = ("its instructions are withheld: %s: %s"):format(why, hint) end
    for _, doubt in ipairs(instructions.facts.doubts or {}) do doubts[#doubts + 1] = "its instructions: " .. doubt end
  end
  if facts.left_out then
    doubts[#doubts + 1] = ("%d of its definitions cannot be served, the first because %s"):format(facts.left_out, facts.left_out_why or "it is not valid")
  end
  doubts[#doubts + 1] = lists.missing_text(facts)
  if facts.is_cut then doubts[#doubts + 1] = "its lists have more than 10,000 entries, 32 MiB or 100 pages" end
  local server = type(facts.server) == "table" and facts.server or {}
  return {
    revision = facts.revision, transport = facts.transport, server = type(server.name) == "string" and server.name or nil,
    version = type(server.version) == "string" and server.version or nil, shown = shown, doubts = doubts, hidden = hidden, withheld = withheld,
  }
end

return upstream_report
