-- The class of a client: which questions it can be asked, and whether it shows pages (MCP Apps), as a small set. A
-- channel has the class of its clients:
-- an upstream is told these capabilities and no others, so it asks nothing that the client lacks (X-2, X-3), and its
-- lists are kept for each class.
--   class   words of `order`, joined by "+", such as "form+url+sampling+roots+ui"; "none" for a client that has none of them

local apps = require "moonpool.protocol.apps"
local call_library = require "moonpool.protocol.call"
local era = require "moonpool.protocol.era"
local json = require "moonpool.json"

local class = { none = "none" }

local PAGES <const> = "ui"          -- the word of a class that is about pages, not a question

local order = { "form", "url", "sampling", "tools", "context", "roots", PAGES }

-- The word of `asks` in the configuration that allows each.
local kind_of = { form = "elicitation", url = "elicitation", sampling = "sampling", tools = "sampling", context = "sampling", roots = "roots" }

-- True if the client shows pages of the one type that MCP Apps has.
local function shows_pages(call)
  local extensions = call.capabilities.extensions
  local settings = type(extensions) == "table" and extensions[apps.extension]
  local types = type(settings) == "table" and settings.mimeTypes
  for _, name in ipairs(type(types) == "table" and types or {}) do
    if name == apps.mime then return true end
  end
  return false
end

-- By the words of a class: true if the call's client declared that capability.
local able = {
  form = function(call, facts)
    return facts.has_elicitation and call_library.able(call, { facts.has_elicitation_modes and "elicitation.form" or "elicitation" })
  end,
  url = function(call, facts) return facts.has_elicitation_modes and call_library.able(call, { "elicitation.url" }) end,
  sampling = function(call) return call_library.able(call, { "sampling" }) end,
  tools = function(call, facts) return facts.has_sampling_context and call_library.able(call, { "sampling.tools" }) end,
  context = function(call, facts) return facts.has_sampling_context and call_library.able(call, { "sampling.context" }) end,
  roots = function(call) return call_library.able(call, { "roots" }) end,
  ui = function(call, facts) return facts.has_extensions and call.capabilities and shows_pages(call) end,
}

local sets = {}       -- class -> word -> true

--- The words of a class, as a set. There are at most 128 classes.
function class.set(text)
  local set = sets[text]
  if not set then
    set = {}
    for word in text:gmatch "%a+" do set[word] = (kind_of[word] or word == PAGES) and true or nil end
    sets[text] = set
  end
  return set
end

local function joined(test)
  local words = {}
  for _, word in ipairs(order) do
    if test(word) then words[#words + 1] = word end
  end
  return words[1] and table.concat(words, "+") or class.none
end

local whole_of = setmetatable({}, { __mode = "k" })        -- call -> the class of its client before an upstream that may ask everything
-- `asks` -> class of a client -> the part of the class that `asks` allows
local allowed = setmetatable({}, { __mode = "k" })

-- The class of the client of a call, cached.
local function of_call(call)
  local text = whole_of[call]
  if not text then
    local facts = era.facts(call.revision)
    text = facts and joined(function(word) return able[word](call, facts) end) or class.none
    whole_of[call] = text
  end
  return text
end

--- True if clients of the class can be asked something.
function class.can_ask(text) return text ~= class.none and text ~= PAGES end

--- The class of the client of a call before an upstream whose configuration allows the kinds `asks`: a set, or nil for
--- all.
function class.of(call, asks)
  local text = of_call(call)
  if text == class.none or asks == nil then return text end
  local made = allowed[asks]
  if not made then
    made = {}
    allowed[asks] = made
  end
  if not made[text] then
    local set = class.set(text)
    made[text] = joined(function(word) return set[word] and (word == PAGES or asks[kind_of[word]]) end)
  end
  return made[text]
end

-- All classes but "none", in any order.
local function every()
  local list = {}
  for bits = 1, (1 << #order) - 1 do
    local chosen = {}
    for i, word in ipairs(order) do chosen[word] = bits & (1 << (i - 1)) ~= 0 end
    if chosen.sampling or not (chosen.tools or chosen.context) then list[#list + 1] = joined(function(word) return chosen[word] end) end
  end
  return list
end

--- All classes but "none".
class.all = every()

--- True if the client of a call notifies when its roots change.
function class.tells_roots(call) return call_library.able(call, { "roots.listChanged" }) end

--- The client's capabilities that an upstream is told for a class. `tells_roots`: the client notifies when its roots
--- change.
function class.capabilities(text, tells_roots)
  local set, made = class.set(text), json.object {}
  if set.form or set.url then
    made.elicitation = { form = set.form and json.object {} or nil, url = set.url and json.object {} or nil }
  end
  if set.sampling then
    made.sampling = json.object { tools = set.tools and json.object {} or nil, context = set.context and json.object {} or nil }
  end
  if set.roots then made.roots = json.object { listChanged = tells_roots or nil } end
  if set[PAGES] then made.extensions = { [apps.extension] = { mimeTypes = json.array { apps.mime } } } end
  return made
end

--- True if a question can be put to a client of the class. `params` are those of the base revision.
function class.allows(text, method, params)
  local set = class.set(text)
  if method == "elicitation/create" then
    if params.mode == "url" then return set.url == true end
    return set.form == true
  elseif method == "sampling/createMessage" then
    return set.sampling == true and (params.tools == nil or set.tools == true)
  end
  return method == "roots/list" and set.roots == true
end

--- The word of `asks` for a method; nil for other methods.
function class.kind(method)
  return method == "elicitation/create" and "elicitation" or method == "sampling/createMessage" and "sampling" or method == "roots/list" and "roots"
    or nil
end

return class
