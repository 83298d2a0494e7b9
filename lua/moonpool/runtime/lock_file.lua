-- The file of approved definitions. Each line is one definition: the upstream, the kind, the name or URI, the hash, the
-- day of the approval, and the canonical JSON, which shows in a review the approved text. Lines are sorted.
--   entry   { upstream, kind, key, hash, date, text? }

local json = require "moonpool.json"

local lock_file = {}

local HEADER <const> = "# Definitions of upstreams that were approved. Written by `moonpool lock`, which shows what has changed.\n"

local function id_of(entry) return entry.upstream .. "\t" .. entry.kind .. "\t" .. entry.key end

-- The field of a name: as it is, or as a JSON string.
local function key_text(key)
  if key:find "^[%w_./:{}%-+?=&,;@%%~!$()*#|^]+$" and not key:find "^#" then return key end
  return json.encode(key)
end

-- The next field of `line` from `at`, and where it ends.
local function field(line, at)
  at = line:find("[^ \t]", at) or #line + 1
  if line:sub(at, at) ~= '"' then
    local text = line:match("^[^ \t]*", at)
    return text, at + #text
  end
  local stop = at + 1
  while true do
    stop = line:find('[\\"]', stop)
    if not stop then return "", #line + 1 end
    if line:sub(stop, stop) == '"' then break end
    stop = stop + 2
  end
  local text = json.decode(line:sub(at, stop))
  return type(text) == "string" and text or "", stop + 1
end

local function entry_of(line)
  local entry, at = {}, 1
  for _, name in ipairs { "upstream", "kind", "key", "hash", "date" } do entry[name], at = field(line, at) end
  entry.text = line:match("^%s*({.*})%s*$", at)
  return entry
end

--- The entries of the file with this text, by their upstream, kind and key (lock_file.id).
function lock_file.parse(text)
  local found = {}
  for line in text:gmatch "[^\n]+" do
    if line:find "^%s*[^#%s]" then
      local entry = entry_of(line)
      if entry.kind ~= "" and entry.hash:find "sha256:" then found[id_of(entry)] = entry end
    end
  end
  return found
end

--- The entries of the file at `path`; nothing if there is no such file. For commands: it blocks.
function lock_file.read(path)
  local file <close> = io.open(path, "rb")
  return lock_file.parse(file and file:read "a" or "")
end

lock_file.id = id_of

--- The text of the file with these entries: a table of entries by any key.
function lock_file.text(entries)
  local list = {}
  for _, entry in pairs(entries) do list[#list + 1] = entry end
  table.sort(list, function(a, b)
    if a.upstream ~= b.upstream then return a.upstream < b.upstream end
    if a.kind ~= b.kind then return a.kind < b.kind end
    return a.key < b.key
  end)
  local lines = { HEADER }
  for i, entry in ipairs(list) do
    lines[i + 1] = table.concat({ entry.upstream, entry.kind, key_text(entry.key), entry.hash, entry.date, entry.text }, "  ") .. "\n"
  end
  return table.concat(lines)
end

return lock_file
