-- The YAML of one entry of `upstreams:`, as `moonpool add` and `moonpool import` write it.
--   entry   { name, url? | command? (list), env?, headers? (lists of { name, value }), cwd?, bearer?, revision?, prefix?, is_disabled? }

local words = { ["null"] = true, ["true"] = true, ["false"] = true, ["yes"] = true, ["no"] = true, ["on"] = true, ["off"] = true, ["~"] = true }

local escapes = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }

-- Characters that YAML does not allow as they are: controls, and the line breaks that libyaml knows.
local function escaped(text)
  text = text:gsub('["\\\n\r\t]', escapes):gsub("[%z\1-\31\127]", function(c) return ("\\x%02x"):format(c:byte()) end)
  return (text:gsub("\194([\128-\159])", function(c) return ("\\x%02x"):format(c:byte()) end):gsub("\226\128\168", "\\L"):gsub("\226\128\169", "\\P"))
end

-- A scalar: plain where YAML reads it as this text, also in braces and brackets; else in quotes.
local function scalar(text)
  local is_plain = text:find "^%-?%-?[%a_/][%w_/@.-]*$" and not words[text:lower()]
  return is_plain and text or '"' .. escaped(text) .. '"'
end

local function list(items)
  local made = {}
  for i, item in ipairs(items) do made[i] = scalar(item) end
  return "[" .. table.concat(made, ", ") .. "]"
end

local function map(pairs_of)
  local made = {}
  for i, pair in ipairs(pairs_of) do made[i] = scalar(pair[1]) .. ": " .. scalar(pair[2]) end
  return "{" .. table.concat(made, ", ") .. "}"
end

-- A URL, which needs no quotes outside of braces.
local function address(url) return url:find "^https?://[%w._~/:%%-]+$" and not url:find ":$" and url or scalar(url) end

local function has(items) return items and items[1] ~= nil end

local function keys_of(entry)
  local keys = {}
  local function put(name, value) keys[#keys + 1] = name .. ": " .. value end
  if entry.url then put("url", address(entry.url)) end
  if entry.command then put("command", list(entry.command)) end
  if entry.bearer then put("auth", map { { "bearer", entry.bearer } }) end
  if entry.authorization then put("auth", map { { "header", entry.authorization } }) end
  if has(entry.headers) then put("headers", map(entry.headers)) end
  if entry.revision then put("revision", entry.revision) end
  if entry.prefix then put("prefix", scalar(entry.prefix)) end
  local process = {}
  if has(entry.env) then process[#process + 1] = "env: " .. map(entry.env) end
  if entry.cwd then process[#process + 1] = "cwd: " .. scalar(entry.cwd) end
  if process[1] then put("process", "{" .. table.concat(process, ", ") .. "}") end
  return keys
end

--- Returns the lines of the entry, each with a line break. The lines of a disabled entry are comments.
return function(entry)
  local keys = keys_of(entry)
  local lines = { scalar(entry.name) .. ":" }
  if entry.url and #keys == 1 then
    lines[1] = lines[1] .. " " .. address(entry.url)
  else
    for i, key in ipairs(keys) do lines[i + 1] = "  " .. key end
  end
  local mark = entry.is_disabled and "# " or ""
  return mark .. table.concat(lines, "\n" .. mark) .. "\n"
end
