-- The names under which clients see the things of an upstream. A name is found again by a table, never by splitting it.

local host = require "moonpool.host"

local served_names = {}

local function hex(bytes) return (bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end

local HASH_DIGITS = 8

-- A name within `longest` bytes: the beginning, '_' and the first hexadecimal digits of the SHA-256 of the whole name.
local function shortened(name, longest)
  if #name <= longest then return name end
  local keep = math.max(longest - HASH_DIGITS - 1, 1)
  local at = utf8.len(name) and utf8.offset(name, 0, keep + 1) or keep + 1      -- the first byte of the character that would be cut
  return name:sub(1, at - 1) .. "_" .. hex(host.digest.sum("sha256", name)):sub(1, HASH_DIGITS)
end

--- The name of a tool or prompt for clients, from the upstream's own.
function served_names.shown(record, original) return shortened(record.prefix .. (record.rename[original] or original), record.longest) end

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