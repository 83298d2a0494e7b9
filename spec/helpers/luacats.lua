-- The grammar of LuaLS annotations that this repository uses: finds errors in the lines of a text, and the names that
-- it declares and uses.
local luacats = {}

local parser = {}
parser.__index = parser

function parser:skip() self.at = self.text:match("^[ \t]*()", self.at) end

function parser:take(pattern)
  self:skip()
  local found, after = self.text:match("^(" .. pattern .. ")()", self.at)
  if found then self.at = after end
  return found
end

function parser:need(pattern, what)
  return self:take(pattern) or error({ "expected " .. what .. " at '" .. self.text:sub(self.at) .. "'" }, 0)
end

function parser:done()
  self:skip()
  if self.at <= #self.text then error({ "nothing may follow: '" .. self.text:sub(self.at) .. "'" }, 0) end
end

-- parses name: type, name?: type, ... until `close`
function parser:list(close, item)
  if self:take(close) then return end
  repeat item() until not self:take ","
  self:need(close, "'" .. close:gsub("%%", "") .. "'")
end

function parser:returns()
  repeat self:type() until not self:take ","
end

function parser:fun()
  self:need("%(", "'('")
  self:list("%)", function()
    if not self:take "%.%.%." then self:need("[%a_][%w_]*%??", "a parameter") end
    if self:take ":" then self:type() end
  end)
  if self:take ":" then
    if not self:take "%.%.%." then self:returns() end
  end
end

function parser:table()
  self:list("}", function()
    if self:take "%[" then
      self:type()
      self:need("%]", "']'")
      self:take "%?"
    else
      self:need("[%a_][%w_]*%??", "a field")
    end
    self:need(":", "':'")
    self:type()
  end)
end

function parser:one()
  if self:take '"[^"\\]*"' or self:take "%-?%d+" then return end
  if self:take "%.%.%." then return end
  if self:take "%(" then
    self:type()
    self:need("%)", "')'")
  elseif self:take "{" then
    self:table()
  else
    local name = self:need("[%a_][%w_.]*", "a type")
    if name == "fun" then return self:fun() end
    self.used[name] = true
    if self:take "<" then self:list(">", function() self:type() end) end
  end
end

function parser:type()
  repeat
    self:one()
    while self:take "%[%]" or self:take "%?" do end
  until not self:take "|"
end

local tags = {}
local scopes = { private = true, protected = true, package = true, public = true }

function tags.meta() end
function tags.class(p)
  p.declared[p:need("[%a_][%w_.]*", "a name")] = true
  if p:take ":" then p:returns() end
  p:done()
end
function tags.field(p)
  if p:take "%[%a[%w_.]*%]" then -- [string] any: the type of every other key
    p.used[p.text:match "^%[([%w_.]+)%]"] = true
  elseif not (p:take "%[%d+%]%??" or p:take '%["[^"%]]+"%]%??') then
    local name = p:need("[%a_][%w_]*", "a name")
    if scopes[name] then p:need("[%a_][%w_]*", "a name behind '" .. name .. "', which is a scope here,") end -- `?` may follow the type
    p:take "%?"
  end
  p:type()
end
function tags.param(p)
  if not p:take "%.%.%." then p:need("[%a_][%w_]*%??", "a name") end
  p:type()
end
tags["return"] = function(p)
  repeat
    p:type()
    p:take "[%a_][%w_]*"
  until not p:take ","
end
function tags.alias(p)
  p.declared[p:need("[%a_][%w_.]*", "a name")] = true
  p:skip()
  if p.at <= #p.text then p:type() end
end
function tags.overload(p)
  p:need("fun", "'fun'")
  if p:take "<" then p:list(">", function() p.declared[p:need("%a%w*", "a name")] = true end) end
  p:fun()
  p:done()
end
function tags.generic(p)
  p.declared[p:need("%u%w*", "a name")] = true
  if p:take ":" then p:type() end
end
function tags.type(p) p:type() end
function tags.operator(p)
  p:need("%l+", "an operator")
  p:need("%(", "'('")
  p:list("%)", function() p:type() end)
  p:need(":", "':'")
  p:type()
end

local builtin = {
  any = true, string = true, number = true, integer = true, boolean = true, table = true, userdata = true, ["true"] = true,
  ["false"] = true, ["nil"] = true, ["function"] = true, self = true,
}

--- The errors in `texts`, which are read together: { "name:line: what", … }. `texts` is a list of { name, text }.
function luacats.complaints(texts)
  local list, declared, used = {}, {}, {}
  for _, file in ipairs(texts) do
    local n = 0
    for line in file[2]:gmatch "([^\n]*)\n?" do
      n = n + 1
      local here = {}
      local p = setmetatable({ at = 1, declared = declared, used = here }, parser)
      local tag, rest = line:match "%-%-%-@(%a+)%s*(.*)$"
      local member = line:match "^%-%-%-|%s*(.*)$"
      local fine, why = true, nil
      if tag then
        p.text = rest
        fine, why = pcall(tags[tag] or function() error({ "unknown tag @" .. tag }, 0) end, p)
      elseif member then
        p.text = member
        fine, why = pcall(function() p:type() end)
      end
      if not fine then list[#list + 1] = ("%s:%d: %s"):format(file[1], n, type(why) == "table" and why[1] or why) end
      for name in pairs(here) do used[name] = used[name] or file[1] .. ":" .. n end
    end
    local compiled, wrong = load(file[2], "=" .. file[1], "t", {})
    if not compiled then list[#list + 1] = wrong end
  end
  for name, where in pairs(used) do
    if not builtin[name] and not declared[name] then list[#list + 1] = where .. ": there is no type " .. name end
  end
  table.sort(list)
  return list, declared
end

return luacats
