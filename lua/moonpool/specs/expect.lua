-- `assert` of specs: callable like Lua's assert, with functions such as assert.equal.

local habits = require "moonpool.specs.habits"
local json = require "moonpool.json"
local problem = require "moonpool.runtime.diagnostic"
local sorted = require "moonpool.runtime.sorted_keys"

local expect = {}

local function show(value, depth)
  depth = depth or 0
  if type(value) == "string" then return #value > 400 and ("%q…"):format(value:sub(1, 400)) or ("%q"):format(value) end
  if type(value) ~= "table" then return value == json.null and "json.null" or tostring(value) end
  if depth > 6 then return "{ … }" end
  local parts, names = {}, {}
  while value[#parts + 1] ~= nil or value[#parts + 2] ~= nil do parts[#parts + 1] = show(value[#parts + 1], depth + 1) end -- as in { nil, "why" }
  local last = #parts
  for name in pairs(value) do
    if not (math.type(name) == "integer" and name >= 1 and name <= last) then names[#names + 1] = name end
  end
  table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
  for _, name in ipairs(names) do
    local key = type(name) == "string" and name:find "^[%a_][%w_]*$" and name or "[" .. show(name) .. "]"
    parts[#parts + 1] = key .. " = " .. show(value[name], depth + 1)
  end
  return parts[1] and "{ " .. table.concat(parts, ", ") .. " }" or "{}"
end

local function same(a, b, depth)
  if a == b then return true end
  if type(a) ~= "table" or type(b) ~= "table" or depth > 64 then return false end
  for name, value in pairs(a) do
    if not same(value, b[name], depth + 1) then return false end
  end
  for name in pairs(b) do
    if a[name] == nil then return false end
  end
  return true
end

local function complain(what, message)
  problem.raise(3, (message and tostring(message) .. ": " or "") .. what)
end

function expect.equal(wanted, got, message)
  if wanted ~= got then complain("expected " .. show(wanted) .. ", got " .. show(got), message) end
end

function expect.same(wanted, got, message)
  if not same(wanted, got, 0) then complain("expected " .. show(wanted) .. ", got " .. show(got), message) end
end

function expect.truthy(got, message)
  if not got then complain("expected something true, got " .. show(got), message) end
end

function expect.falsy(got, message)
  if got then complain("expected false or nil, got " .. show(got), message) end
end

function expect.is_nil(got, message)
  if got ~= nil then complain("expected nil, got " .. show(got), message) end
end

--- Fails unless `text` contains `part` literally.
function expect.contains(part, text, message)
  if type(text) ~= "string" or not text:find(part, 1, true) then complain("expected " .. show(part) .. " in " .. show(text), message) end
end

--- Fails unless f raises an error. With `part`, the error text must contain it.
function expect.error(f, part)
  local ok, why = pcall(f)
  if ok then complain "expected an error, got none" end
  why = type(why) == "table" and why.why or tostring(why)
  if part and not tostring(why):find(part, 1, true) then complain("expected an error with " .. show(part) .. ", got " .. show(why)) end
end

return setmetatable(expect, {
  __call = function(_, value, why, ...)
    if not value then complain(tostring(why or "assertion failed")) end
    return value, why, ...
  end,
  __index = function(_, name) habits.no_assertion(name, sorted(expect)) end,
})
