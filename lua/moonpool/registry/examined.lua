-- The method "moonpool/doctor", for `moonpool doctor`: opens one upstream and reads its lists, and reports how far it came. The command makes the
-- steps of it that people read.

local catalogue = require "moonpool.upstream.catalogue"
local class = require "moonpool.upstream.class"
local config = require "moonpool.upstream.config"
local host = require "moonpool.host"
local json = require "moonpool.json"
local keys = require "moonpool.upstream.keys"
local lists = require "moonpool.upstream.lists"
local open = require "moonpool.upstream.open"
local upstream_report = require "moonpool.registry.upstream_report"

local examined = {}

-- The value of a header in the head of an answer; nil if it is absent.
local function header_of(head, wanted)
  for name, value in (head or ""):gmatch "([^:\n]+):%s*([^\n]*)" do
    if name:lower() == wanted then return value end
  end
end

local function facts_of(record, failure)
  local what, hint = upstream_report.explained(record, failure)
  return {
    what = what, hint = hint, reason = failure.reason, why = failure.why, status = failure.status,
    challenge = header_of(failure.head, "www-authenticate"),
  }
end

-- Opens the channel that reads lists. The card; or nil and a failure.
local function opened(record)
  local channel, state = host.upstream.channel(record.name, keys.shared, {})
  if not channel then return nil, state end
  if state ~= "claimed" then return channel:card() end
  local card, failure = open.establish(record, channel, class.none)
  if not card then
    channel:failed(failure)
    return nil, failure
  end
  channel:opened(card)
  return card
end

local function listed(record)
  local text, failure = lists.read(record)
  if not text then return nil, failure end
  local facts, entries = catalogue.decode(text)
  local counts = {}
  for _, entry in ipairs(entries) do counts[entry.kind] = (counts[entry.kind] or 0) + 1 end
  return { counts = json.object(counts), left_out = facts.left_out, why = facts.left_out_why, is_cut = facts.is_cut }
end

local function text_or_nil(value) return type(value) == "string" and value or nil end

--- Handles the method: { name }; without a name the only upstream.
function examined.answer(params)
  local record = params.name and config.by_name[params.name] or not params.name and config.list[1]
  local names = json.array {}
  for i, one in ipairs(config.list) do names[i] = one.name end
  if not record then return { names = names } end
  local given = host.config.upstreams[record.place]
  local found = { kind = record.kind, url = given.url, ca = given.ca, has_bearer = given.has_bearer, has_headers = given.has_headers, timeout = record.timeout }
  local card, failure = opened(record)
  if not card then
    found.failure = facts_of(record, failure)
    return found
  end
  local server = type(card.server) == "table" and card.server or {}
  found.opened = { revision = card.revision, transport = card.transport, server = text_or_nil(server.name), version = text_or_nil(server.version) }
  found.listed, failure = listed(record)
  if not found.listed then found.list_failure = facts_of(record, failure) end
  return found
end

return examined
