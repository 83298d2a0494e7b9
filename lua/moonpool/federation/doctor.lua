-- The method "moonpool/doctor", for `moonpool doctor`: opens one upstream and reads its lists, and reports how far it
-- came. The command turns the report into the steps that people read.

local auth = require "moonpool.upstream.auth"
local catalogue = require "moonpool.upstream.catalogue"
local class = require "moonpool.upstream.class"
local config = require "moonpool.upstream.config"
local host = require "moonpool.host"
local json = require "moonpool.json"
local channel_key = require "moonpool.upstream.channel_key"
local lists = require "moonpool.upstream.lists"
local pins = require "moonpool.upstream.pins"
local served_names = require "moonpool.upstream.served_names"
local open = require "moonpool.upstream.open"
local server = require "moonpool.upstream.auth.server"
local upstream_report = require "moonpool.federation.upstream_report"

local doctor = {}

local MAX_SAID <const> = 200           -- bytes of what a server says about its refusal

-- Why the server forbids it: the first line of the body of a 403.
local function said(failure)
  return failure.status == 403 and failure.body and failure.body:match "%S[^\r\n]*" or nil
end

local function facts_of(record, failure)
  local line = said(failure)
  local what, hint = upstream_report.explained(record, failure)
  return {
    what = what, hint = hint, said = line and line:sub(1, MAX_SAID), reason = failure.reason, why = failure.why, status = failure.status,
    challenge = (failure.status == 401 or failure.status == 403) and server.header_of(failure.head or "", "www-authenticate") or nil,
  }
end

local OWNER <const> = ("0"):rep(32)        -- stands for the only caller whose token is exchanged here

-- How the upstream is reached: { key of the channel, options, token, failure }. `subject`: a caller's token, for an
-- upstream that gets a token of each caller.
local function way_of(record, subject)
  local way = { key = channel_key.shared, options = {} }
  if auth.is_personal(record) then
    if not subject then return way end
    way.key, way.options.identity, way.class = channel_key.of_lists(OWNER), { owner = OWNER, subject = subject }, class.none
  end
  if not record.auth then return way end
  local token, failure = auth.token(record, way.options.identity)
  if token then
    way.token = token
  else
    way.failure = failure
  end
  return way
end

-- Opens the channel that reads lists. The server info; or nil and a failure.
local opened
function opened(record, way)
  local channel, state = host.upstream.channel(record.name, way.key, {})
  if not channel then return nil, state end
  if way.token then channel:authorize(way.token) end
  if state ~= "claimed" then return channel:server_info() end
  local server_info, failure = open.establish(record, channel, class.none)
  if not server_info then
    channel:failed(failure)
    if failure.ended_by_probe then return opened(record, way) end
    return nil, failure
  end
  channel:opened(server_info)
  return server_info
end

local function listed(record, way)
  local text, failure = lists.read(record, way)
  if not text then return nil, failure end
  local facts, entries = catalogue.decode(text)
  local counts, withheld, doubts = {}, {}, {}
  for _, entry in ipairs(entries) do
    local function add(list, why) list[#list + 1] = ("%s '%s': %s"):format(pins.kinds[entry.kind], entry.key, why) end
    local why = pins.why(record.name, entry)
    if why then add(withheld, why) else counts[entry.kind] = (counts[entry.kind] or 0) + 1 end
    local renamed = served_names.doubt(record, entry)
    if renamed then add(doubts, renamed) end
    for _, doubt in ipairs(entry.facts.doubts or {}) do add(doubts, doubt) end
  end
  return { counts = json.object(counts), withheld = #withheld, withheld_why = withheld[1], doubts = #doubts, doubts_why = doubts[1], left_out = facts.left_out,
    why = facts.left_out_why, is_cut = facts.is_cut, missing = lists.missing_text(facts) }
end

-- Describes for a person how tokens are requested: the name of the method, the reason that there is no token, and
-- whether a caller's token is missing.
local function token_of(record, way)
  return {
    kind = "auth." .. record.auth.kind, why = way.failure and (way.failure.why or way.failure.reason), is_ours = way.failure and way.failure.reason == "barred",
    needs_caller = auth.is_personal(record) and not way.options.identity or nil,
  }
end

local function text_or_nil(value) return type(value) == "string" and value or nil end

--- Handles the method: { name, subject }; without a name the only upstream. `subject`: the token of a caller, for an
--- upstream with auth.exchange.
function doctor.answer(params)
  local record = params.name and config.by_name[params.name] or not params.name and config.list[1]
  local names = json.array {}
  for i, one in ipairs(config.list) do names[i] = one.name end
  if not record then return { names = names } end
  local given = host.config.upstreams[record.place]
  local found = { kind = record.kind, url = given.url, ca = given.ca, credential = given.credential, has_headers = given.has_headers, timeout = record.timeout }
  if params.subject and not auth.is_personal(record) then return { is_misuse = true } end
  local way = way_of(record, params.subject)
  found.token = record.auth and token_of(record, way)
  local server_info, failure = opened(record, way)
  if not server_info then
    found.failure = facts_of(record, failure)
    return found
  end
  local about = type(server_info.server) == "table" and server_info.server or {}
  found.opened = { revision = server_info.revision, transport = server_info.transport, server = text_or_nil(about.name), version = text_or_nil(about.version) }
  if found.token and not way.token then return found end                    -- without a token no list is read
  found.listed, failure = listed(record, way)
  if not found.listed then found.list_failure = facts_of(record, failure) end
  return found
end

return doctor
