-- Hides secrets in values that are kept or shown: members whose names or schemas say that they are secret, and every further text in which such a value
-- occurs. The audit hides by the same names.

local host = require "moonpool.host"
local json = require "moonpool.json"

local redact = {}

local HIDDEN <const> = "***"
local MAX_DEPTH <const> = 64
local MAX_VALUES <const> = 256       -- secret values that are looked for in texts
local MAX_BASE64 <const> = 64 << 10  -- bytes of a secret whose encoded forms are looked for, too
local MAX_SHOWN <const> = 32         -- places that a redactor names

-- Words in the names of secret members. They are compared without case, '_' and '-'.
local secret_words = { "password", "passwd", "passphrase", "secret", "token", "apikey", "authorization", "credential", "privatekey", "cookie", "bearer" }

--- True if a member of this name, or with this schema, is secret.
function redact.is_secret(name, schema)
  if schema and (schema.writeOnly == true or schema.format == "password") then return true end
  local plain = tostring(name):lower():gsub("[_-]", "")
  for _, word in ipairs(secret_words) do
    if plain:find(word, 1, true) then return true end
  end
  return false
end

local is_secret = redact.is_secret

local function encoded_in_url(text)
  return (text:gsub("[^%w%-_.~]", function(c) return ("%%%02X"):format(c:byte()) end))
end

local function replaced(text, value)
  local at = text:find(value, 1, true)
  if not at then return text end
  local parts, from = {}, 1
  while at do
    parts[#parts + 1] = text:sub(from, at - 1)
    from = at + #value
    at = text:find(value, from, true)
  end
  parts[#parts + 1] = text:sub(from)
  return table.concat(parts, HIDDEN)
end

local methods = {}
methods.__index = methods

--- A redactor: its methods hide secrets, and collect in `hidden` where they hid some. Texts that it has hidden are hidden everywhere else, too.
function redact.new() return setmetatable({ values = {}, known = {}, hidden = {} }, methods) end

--- The place `path` has lost a value.
function methods:note(path)
  if #self.hidden < MAX_SHOWN and not self.known["\0" .. path] then
    self.known["\0" .. path] = true
    self.hidden[#self.hidden + 1] = path
  end
end

local function add(self, text)
  if text == "" or text == HIDDEN or self.known[text] or #self.values >= MAX_VALUES then return end
  self.known[text] = true
  self.values[#self.values + 1] = text
end

--- From now on this secret is hidden wherever it occurs, as it is and as URLs, JSON and base64 write it.
function methods:hide(value)
  if type(value) == "table" then
    for _, part in pairs(value) do self:hide(part) end
    return
  end
  if type(value) ~= "string" and type(value) ~= "number" then return end
  local text = tostring(value)
  add(self, text)
  if #text < 3 or #text > MAX_BASE64 then return end
  add(self, encoded_in_url(text))
  if utf8.len(text) then add(self, json.encode(text):sub(2, -2)) end
  add(self, (host.base64.encode(text):gsub("=+$", "")))
end

-- Hides the known values in a text.
local function scrubbed(self, text, path)
  local made = text
  for _, value in ipairs(self.values) do made = replaced(made, value) end
  if made ~= text then self:note(path) end
  return made
end

-- `name=value` of forms and queries, and user:password@ of URLs.
local function without_pairs(self, text, path)
  text = text:gsub("([%w_.%-%%%[%]]+)=([^&%s;#\"']+)", function(name, value)
    if value == HIDDEN or not is_secret(name) then return nil end
    self:hide(value)
    self:note(path)
    return name .. "=" .. HIDDEN
  end)
  return (text:gsub("(://)([^/@%s:]*):([^/@%s]+)@", function(head, user, word)
    self:hide(word)
    self:note(path)
    return head .. user .. ":" .. HIDDEN .. "@"
  end))
end

--- A text without secrets: if it is JSON, without its secret members.
function methods:text(text, path, depth)
  if text:find "^%s*[{%[]" then
    local value = json.decode(text)
    if type(value) == "table" then
      local was_changed = self.is_changed
      self.is_changed = false
      local made = self:value(value, nil, path, (depth or 1) + 1)
      local is_changed = self.is_changed
      self.is_changed = was_changed
      return is_changed and json.encode(made) or text
    end
  end
  return scrubbed(self, without_pairs(self, text, path), path)
end

--- A line of a header, "name: value".
function methods:line(line, path)
  local name, value = line:match "^%s*([%w%-_]+):%s*(.*)$"
  if name and is_secret(name) and value ~= HIDDEN then
    self:hide(value)
    self:hide(value:match "^%a+%s+(%S+)$")
    self:note(path .. "." .. name:lower())
    return name .. ": " .. HIDDEN
  end
  return self:text(line, path)
end

--- Words of a command: the value of an option whose name is secret is hidden.
function methods:words(words, path)
  local made, is_next = json.array {}, false
  for i, word in ipairs(words) do
    if is_next then
      self:hide(word)
      self:note(path)
      made[i] = HIDDEN
    else
      made[i] = self:text(word, path)
    end
    is_next = not is_next and word:find "^%-" ~= nil and not word:find("=", 1, true) and is_secret(word)
  end
  return made
end

--- A copy of a value of JSON without its secrets, as far as 64 levels. `schema`: that of the value, if it is known.
function methods:value(value, schema, path, depth)
  depth = depth or 1
  if type(value) == "string" then
    if depth > MAX_DEPTH then return HIDDEN end
    local made = self:text(value, path, depth)
    if made ~= value then self.is_changed = true end
    return made
  end
  if type(value) ~= "table" then return value end
  if depth > MAX_DEPTH then
    self:note(path)
    self.is_changed = true
    return HIDDEN
  end
  local properties, made = type(schema) == "table" and type(schema.properties) == "table" and schema.properties or {}, {}
  for name, part in next, value do
    local is_name = type(name) == "string"
    local inner = is_name and properties[name] or not is_name and type(schema) == "table" and schema.items or nil
    if type(inner) ~= "table" then inner = nil end
    local place = is_name and path .. "." .. name or path
    if is_name and is_secret(name, inner) and part ~= HIDDEN and part ~= json.null then
      self:hide(part)
      self:note(place)
      self.is_changed = true
      made[name] = HIDDEN
    elseif is_name then
      made[scrubbed(self, name, path)] = self:value(part, inner, place, depth + 1)
    else
      made[name] = self:value(part, inner, place, depth + 1)
    end
  end
  return setmetatable(made, debug.getmetatable(value))
end

return redact
