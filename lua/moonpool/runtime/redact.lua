-- Hides secrets in values that are kept or shown: members whose names or schemas say that they are secret, and every
-- further text in which such a value occurs. The audit hides by the same names.

local host = require "moonpool.host"
local json = require "moonpool.json"
local secret_schema = require "moonpool.runtime.secret_schema"
local uris = require "moonpool.runtime.uris"

local redact = {}

local HIDDEN <const> = "***"
local MAX_DEPTH <const> = 64
local MAX_VALUES <const> = 256       -- secret values that are looked for in texts
local MAX_BASE64 <const> = 64 << 10  -- bytes of a secret whose encoded forms are looked for, too
local MAX_NAME <const> = 128         -- bytes of a name before '=' that are looked at
local MAX_SHOWN <const> = 32         -- places that a redactor names
-- digits that a secret number must have for equal numbers elsewhere to be hidden: small numbers are everywhere
local LEAST_DIGITS <const> = 4

-- Words in the names of secret members. They are compared without case, '_' and '-'.
local secret_words = { "password", "passwd", "passphrase", "secret", "token", "apikey", "authorization", "credential", "privatekey", "cookie", "bearer" }

-- The modes of log.audit_arguments whose lines have no values of arguments.
local without_values = { none = true, names = true }

--- True if lines of the audit show values of arguments: Lua writes these.
function redact.audits_values()
  local mode = host.config.audit
  return mode ~= nil and mode ~= false and not without_values[mode]
end

--- True if a member of this name, or at this place of a schema (secret_schema.lua), is secret.
function redact.is_secret(name, place)
  if place and place.is_secret then return true end
  local plain = tostring(name):lower():gsub("[_-]", "")
  for _, word in ipairs(secret_words) do
    if plain:find(word, 1, true) then return true end
  end
  return false
end

local is_secret = redact.is_secret

local methods = {}
methods.__index = methods

--- A redactor: its methods hide secrets, and list in `hidden` the places. Texts that it has hidden once are hidden
--- everywhere; not with `is_full`: there were more texts than it can look for.
function redact.new() return setmetatable({ values = {}, known = {}, hidden = {} }, methods) end

--- The place `path` has lost a value.
function methods:note(path)
  if #self.hidden < MAX_SHOWN and not self.known["\0" .. path] then
    self.known["\0" .. path] = true
    self.hidden[#self.hidden + 1] = path
  end
end

local function add(self, text)
  if text == "" or text == HIDDEN or self.known[text] then return end
  if #self.values >= MAX_VALUES then
    self.is_full = true
    return
  end
  self.known[text] = true
  self.values[#self.values + 1] = text
end

--- Hides this secret from now on wherever it occurs, as it is and as URLs, JSON and base64 encode it.
function methods:hide(value)
  if type(value) == "table" then
    for _, part in pairs(value) do self:hide(part) end
    return
  end
  if type(value) ~= "string" and type(value) ~= "number" then return end
  local text = tostring(value)
  add(self, text)
  if #text < 3 or #text > MAX_BASE64 then return end
  add(self, uris.escape(text))
  if utf8.len(text) then add(self, json.encode(text):sub(2, -2)) end
  add(self, (host.base64.encode(text):gsub("=+$", "")))
end

-- Hides the known values in a text.
local function scrubbed(self, text, path)
  local made = text
  for _, value in ipairs(self.values) do made = host.record.replace(made, value, HIDDEN) end
  if made ~= text then self:note(path) end
  return made
end

-- The name that ends before a place of a text.
local function name_before(text, at)
  local before = text:sub(math.max(1, at - MAX_NAME), at - 1):reverse()
  return before:match "^[%w_.%-%%%[%]]+" or ""
end

-- `name=value` of forms and queries. Looks from each '=' to both sides: a pattern that begins with the name takes a
-- time square in the length of a long word.
local function without_pairs(self, text, path)
  local parts, from, at = {}, 1, text:find("=", 1, true)
  while at do
    local name = name_before(text, at):reverse()
    local value = name ~= "" and is_secret(name) and text:match("^[^&%s;#\"']+", at + 1)
    if value and value ~= HIDDEN then
      self:hide(value)
      self:note(path)
      parts[#parts + 1] = text:sub(from, at) .. HIDDEN
      from = at + 1 + #value
      at = from - 1
    end
    at = text:find("=", at + 1, true)
  end
  return from == 1 and text or table.concat(parts) .. text:sub(from)
end

-- Hides the user and the password in URLs of the form "scheme://user:password@host".
local function without_passwords(self, text, path)
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
  return scrubbed(self, without_passwords(self, without_pairs(self, text, path), path), path)
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

-- True for a number that is a secret one.
local function is_known_number(self, value)
  return math.type(value) ~= nil and self.known[tostring(value)] and #tostring(value) >= LEAST_DIGITS
end

-- Hides secrets in a value: a member with the name `name`, an item of a list (nil), or the whole value. `at` is its
-- schema.
local function without_secrets(self, name, value, at, path, depth)
  if (name and is_secret(name, at) or not name and at and at.is_secret) and value ~= HIDDEN and value ~= json.null then
    self:hide(value)
    self:note(path)
    self.is_changed = true
    return HIDDEN
  end
  return self:value(value, at, path, depth)
end

--- A copy of a value of JSON without its secrets, as far as 64 levels. `at`: its place in its schema
--- (secret_schema.lua), if that has secrets.
function methods:value(value, at, path, depth)
  depth = depth or 1
  if type(value) == "string" then
    if depth > MAX_DEPTH then return HIDDEN end
    local made = self:text(value, path, depth)
    if made ~= value then self.is_changed = true end
    return made
  end
  if type(value) ~= "table" then
    if not is_known_number(self, value) then return value end
    self:note(path)
    self.is_changed = true
    return HIDDEN
  end
  if depth > MAX_DEPTH then
    self:note(path)
    self.is_changed = true
    return HIDDEN
  end
  local made = {}
  for name, part in next, value do
    if type(name) == "string" then
      local inner = at and secret_schema.member(at, name)
      made[scrubbed(self, name, path)] = without_secrets(self, name, part, inner, path .. "." .. name, depth + 1)
    else
      made[name] = without_secrets(self, nil, part, at and secret_schema.item(at, name), path, depth + 1)
    end
  end
  return setmetatable(made, debug.getmetatable(value))
end

return redact
