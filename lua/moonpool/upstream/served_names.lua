-- The names under which clients see the things of an upstream. A name is found again by a table, never by splitting it.

local host = require "moonpool.host"

local served_names = {}

local function hex(bytes) return (bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end

local HASH_DIGITS = 8

-- Finds a character that many clients and models refuse in a name, with all its bytes if it is one of UTF-8.
local REFUSED <const> = "[^%w_-][\x80-\xBF]*"

--- True if a tool or prompt with this own name gets another one for its characters. What `rename`
--- and `prefix` give stays: the operator has chosen it.
function served_names.is_unsafe(record, original) return not (record.keeps_names or record.rename[original]) and original:find "[^%w_-]" ~= nil end

-- The beginning of `name`, '_' and the first hexadecimal digits of the SHA-256 of `whole`, within `longest` bytes.
local function with_hash(name, whole, longest)
  local keep = math.max(longest - HASH_DIGITS - 1, 1)
  local at = #name + 1
  if #name > keep then
    at = utf8.len(name) and utf8.offset(name, 0, keep + 1) or keep + 1      -- the first byte of the character that would be cut
  end
  return name:sub(1, at - 1) .. "_" .. hex(host.digest.sum("sha256", whole)):sub(1, HASH_DIGITS)
end

--- The name of a tool or prompt for clients, from the upstream's own.
function served_names.shown(record, original)
  local whole = record.prefix .. (record.rename[original] or original)
  if served_names.is_unsafe(record, original) then
    return with_hash(record.prefix .. original:gsub(REFUSED, "_"), whole, record.longest)
  end
  return #whole <= record.longest and whole or with_hash(whole, whole, record.longest)
end

--- A warning about the name of a tool or prompt that clients see with other characters; nil: it keeps its own.
function served_names.doubt(record, entry)
  if not (entry.kind == "tools" or entry.kind == "prompts") or not served_names.is_unsafe(record, entry.key) then return nil end
  return ("its name has characters that clients refuse: clients see it as '%s'"):format(served_names.shown(record, entry.key))
end

local function fits(list, name)
  for _, matches in ipairs(list) do
    if matches(name) then return true end
  end
  return false
end

--- True if `only` and `hide` let clients see the thing with these own names (a resource has a name and a URI).
function served_names.is_shown(record, ...)
  local is_shown = record.only == nil
  for _, name in ipairs { ... } do
    if record.hide and fits(record.hide, name) then return false end
    is_shown = is_shown or fits(record.only, name)
  end
  return is_shown
end

return served_names