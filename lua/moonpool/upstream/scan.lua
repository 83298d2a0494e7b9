-- Looks in the definitions of upstreams for texts that mislead models or people. Some findings are certain: such a
-- definition is not served. The others are doubts, which /status and `moonpool check --connect` show. No definition is
-- rewritten.

local characters = require "moonpool.runtime.characters"
local host = require "moonpool.host"
local json = require "moonpool.json"

local scan = {}

local MAX_LEVELS <const> = 64
local LONG_DESCRIPTION_BYTES <const> = 4 << 10
local LONG_DEFAULT_BYTES <const> = 256
local PIECE_BYTES <const> = 1 << 20 -- of a page that is searched at once
local LONGEST_WORD <const> = 64     -- bytes of the longest word in the lists `orders` and `places`

local function is_list(value) return debug.getmetatable(value) == json.array_mt end

-- -- what is certain ---------------------------------------------------------------------------------------------------

-- The first hidden character in the texts and names of a value, and where it is.
local function hidden_in(value, place, level)
  if type(value) == "string" then
    local found = characters.hidden(value)
    return found and ("%s has the invisible character %s"):format(place, found)
  end
  if type(value) ~= "table" or level > MAX_LEVELS then return nil end
  local is_array = is_list(value)
  for name, inner in pairs(value) do
    local found = type(name) == "string" and characters.hidden(name)
    if found then return ("a name in %s has the invisible character %s"):format(place, found) end
    found = hidden_in(inner, level == 1 and not is_array and "its " .. tostring(name) or place, level + 1)
    if found then return found end
  end
end

-- Members of a schema whose values are data, not schemas.
local data_members <const> = { const = true, enum = true, default = true, examples = true, example = true }
-- Members of a schema whose values are schemas by name.
local named_members <const> = { properties = true, patternProperties = true, ["$defs"] = true, definitions = true, dependentSchemas = true }

-- Describes the fault of a schema: a reference to another document, a name that imitates another, or too many levels.
local function wrong_in_schema(schema, level)
  if type(schema) ~= "table" then return nil end
  if level > MAX_LEVELS then return ("its schema has more than %d levels"):format(MAX_LEVELS) end
  for name, value in pairs(schema) do
    local wrong
    if (name == "$ref" or name == "$dynamicRef") and type(value) == "string" and value:sub(1, 1) ~= "#" then
      wrong = "its schema refers to another document"
    elseif named_members[name] and type(value) == "table" then
      for key, inner in pairs(value) do
        local letter = name == "properties" and type(key) == "string" and characters.imitation(key)
        wrong = letter and ("the name of an argument has the letter %s, which looks like another one"):format(letter) or wrong_in_schema(inner, level + 2)
        if wrong then break end
      end
    elseif not data_members[name] then
      wrong = wrong_in_schema(value, level + 1)
    end
    if wrong then return wrong end
  end
end

-- -- doubts --------------------------------------------------------------------------------------------------------------

-- Lua patterns of orders to a model, in lower case, with a description of each.
local orders <const> = {
  "<important>", "<system>", "</system>", "<instructions>", "<secret>", "<|im_start|>", "[system]", "[inst]", "do not tell", "don't tell", "do not mention",
  "don't mention", "do not inform", "without telling", "without informing", "not reveal", "before using", "before calling", "before you use",
  "before any other tool", "ignore previous", "ignore all previous", "ignore the previous", "disregard", "override the", "you must always", "always call this",
  "system prompt", "keep this secret", "hide this from", "user must not", "the user should not know", "sidenote",
}
local places <const> = {
  "~/.ssh", ".ssh/", "id_rsa", "id_ed25519", ".aws/credentials", "/etc/passwd", "/etc/shadow", "mcp.json", "moonpool.yaml", ".kube/config", ".netrc",
  ".git-credentials", "private key", "api_key=", "wallet.dat",
}

local function word_of(list, text)
  for _, word in ipairs(list) do
    if text:find(word, 1, true) then return word end
  end
end

local all_words <const> = { orders = orders, places = places }

-- The words of a list that a page has. The search takes turns; a word of up to LONGEST_WORD bytes may be in two pieces.
local function words_of(page, list)
  local found, left, words = {}, table.move(list, 1, #list, 1, {}), {}
  for at = 1, #page, PIECE_BYTES do
    for _, word in ipairs(host.upstream.words(page:sub(at, at + PIECE_BYTES + LONGEST_WORD - 2), left)) do found[word] = true end
    for i = #left, 1, -1 do
      if found[left[i]] then table.remove(left, i) end
    end
    if #left == 0 then break end
  end
  for _, word in ipairs(list) do
    if found[word] then words[#words + 1] = word end
  end
  return words
end

--- Of the words of orders and places, those that the definitions in a page of a list may have: one search of the page
--- costs a tenth of a search of each definition. `page` is JSON text. Escapes that could hide a word are \u and \/.
function scan.words(page)
  if page:find("\\u", 1, true) or page:find("\\/", 1, true) then return all_words end
  return { orders = words_of(page, orders), places = words_of(page, places) }
end

-- Calls f(text) for each description and title of a definition, also of arguments.
local function each_text(value, level, f)
  if type(value) ~= "table" or level > MAX_LEVELS then return end
  for name, inner in pairs(value) do
    if type(inner) == "string" and (name == "description" or name == "title") then f(inner) end
    each_text(inner, level + 1, f)
  end
end

-- True if a schema has a default that is long enough to hold data.
local function has_long_default(value, level)
  if type(value) ~= "table" or level > MAX_LEVELS then return false end
  local default = value.default
  if type(default) == "string" and #default > LONG_DEFAULT_BYTES then return true end
  for _, inner in pairs(value) do
    if has_long_default(inner, level + 1) then return true end
  end
  return false
end

-- `may_have_defaults`: false if no schema in the definition has a default. `words`: of scan.words. `has_plain_texts`:
-- true if no text is long, or has a character for private use.
local function doubts_of(definition, may_have_defaults, words, has_plain_texts)
  local found = {}
  local function doubt(text)
    for _, one in ipairs(found) do
      if one == text then return end
    end
    found[#found + 1] = text
  end
  if words.orders[1] or words.places[1] or not has_plain_texts then
    each_text(definition, 1, function(text)
      local lower = text:lower()
      local order, place = word_of(words.orders, lower), word_of(words.places, lower)
      if order then doubt(("a description gives orders to the model: '%s'"):format(order)) end
      if place then doubt(("a description names a place of secrets: '%s'"):format(place)) end
      if #text > LONG_DESCRIPTION_BYTES then doubt(("a description has more than %d bytes"):format(LONG_DESCRIPTION_BYTES)) end
      if text:find("\238[\128-\163]") then doubt "a description has characters without a meaning (private use)" end
    end)
  end
  if may_have_defaults and has_long_default(definition, 1) then doubt(("a default has more than %d bytes"):format(LONG_DEFAULT_BYTES)) end
  local title = type(definition.title) == "string" and characters.imitation(definition.title)
  if title then doubt(("its title has the letter %s, which looks like another one"):format(title)) end
  return found[1] and found or nil
end

-- -- the whole -----------------------------------------------------------------------------------------------------------

-- The schemas of a definition.
local schemas <const> = { "inputSchema", "outputSchema" }

-- What is wrong with the name of one of a prompt's arguments; nil: nothing.
local function wrong_argument(definition)
  local list = definition.arguments
  for _, argument in ipairs(type(list) == "table" and list or {}) do
    local letter = type(argument) == "table" and type(argument.name) == "string" and characters.imitation(argument.name)
    if letter then return ("the name of an argument has the letter %s, which looks like another one"):format(letter) end
  end
end

--- Judges a definition, given decoded and as JSON text: the reason that it is not served, or nil; and a list of doubts,
--- or nil. `words`: the words that scan.words found in its page; nil: the definition may have all. `traits`:
--- host.upstream.traits of the text.
function scan.definition(definition, text, words, traits)
  local why
  if traits.has_high or traits.has_escaped then
    why = hidden_in(definition, "it", 1)
    local letter = not why and type(definition.name) == "string" and characters.imitation(definition.name)
    why = why or letter and ("its name has the letter %s, which looks like another one"):format(letter) or wrong_argument(definition)
  end
  if traits.has_unicode or traits.has_high or traits.has_reference or traits.opened > MAX_LEVELS then    -- \u: a name of a member in another spelling
    for _, member in ipairs(schemas) do why = why or wrong_in_schema(definition[member], 1) end
  end
  local has_plain_texts = not traits.has_unicode and #text <= LONG_DESCRIPTION_BYTES and not traits.has_private
  return why, doubts_of(definition, traits.has_unicode or traits.has_default, words or all_words, has_plain_texts)
end

--- Scans the instructions of an upstream, as a definition is scanned.
function scan.instructions(text)
  local found = characters.hidden(text)
  return found and ("they have the invisible character %s"):format(found), doubts_of({ description = text }, false, all_words, false)
end

return scan
