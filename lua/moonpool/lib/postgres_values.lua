-- Values of Lua as parameters of PostgreSQL statements: texts, whose type the server finds out by where they stand. Bytes
-- and JSON have their types with them.

local host = require "moonpool.host"
local json = require "moonpool.json"
local problem = require "moonpool.runtime.diagnostic"

local values = {}

local BYTEA <const>, JSONB <const> = 17, 3802  -- OIDs
local MAX_DEPTH <const> = 6                    -- of arrays, as in the server

local bytes_mt = { __metatable = false, __name = "postgres.bytes" }
local array_mt = { __metatable = false, __name = "postgres.array" }

function values.bytes(bytes)
  if type(bytes) ~= "string" then problem.raise(2, "postgres.bytes takes bytes, not a " .. type(bytes)) end
  return setmetatable({ bytes }, bytes_mt)
end

function values.array(list)
  if type(list) ~= "table" then problem.raise(2, "postgres.array takes a list, not a " .. type(list), "as in postgres.array { 1, 2 }") end
  return setmetatable({ list }, array_mt)
end

-- A number, boolean or text as PostgreSQL reads it; nil for other values.
local function plain(value)
  local kind = math.type(value) or type(value)
  if kind == "integer" or kind == "boolean" then return tostring(value) end
  if kind == "string" then return value end
  if kind ~= "float" then return nil end
  if value ~= value then return "NaN" end
  if value == math.huge then return "Infinity" end
  if value == -math.huge then return "-Infinity" end
  return ("%.17g"):format(value)
end

-- `wrong(what, hint)` raises the error.
local function element(value, depth, wrong)
  if value == json.null then return "NULL" end
  local mt = debug.getmetatable(value)
  if mt == bytes_mt then return '"\\\\x' .. value[1]:gsub(".", function(c) return ("%02x"):format(c:byte()) end) .. '"' end
  if mt == array_mt or type(value) == "table" then
    if depth == MAX_DEPTH then wrong("has more than 6 lists in lists") end
    local list, out = mt == array_mt and value[1] or value, {}
    for i = 1, rawlen(list) do out[i] = element(rawget(list, i), depth + 1, wrong) end
    return "{" .. table.concat(out, ",") .. "}"
  end
  local text = plain(value)
  if not text then wrong("has a " .. type(value), "elements are numbers, texts, booleans, json.null, postgres.bytes(bytes) and lists of them") end
  if type(value) ~= "string" then return text end
  if text:find("\0", 1, true) then wrong("has a text with a NUL byte", "use postgres.bytes(bytes)") end
  return '"' .. text:gsub('[\\"]', "\\%0") .. '"'
end

--- The parameter as C takes it: a text, json.null, or { text, OID }.
function values.parameter(value, wrong)
  if value == json.null then return value end
  local text = plain(value)
  if text then
    if type(value) == "string" and text:find("\0", 1, true) then wrong("is a text with a NUL byte", "use postgres.bytes(bytes)") end
    return text
  end
  local mt = debug.getmetatable(value)
  if mt == bytes_mt then return { value[1], BYTEA } end
  if mt == array_mt then return (element(value, 0, wrong)) end
  if host.secret.reveal(value) then wrong("is a secret", "a statement may be recorded: secrets are for logging in, as in password = secret \"…\"") end
  if type(value) ~= "table" then
    wrong("is a " .. type(value), "numbers, texts, booleans, json.null, postgres.bytes(bytes), postgres.array {…} and tables for jsonb are values")
  end
  local ok, encoded = pcall(json.encode, value)
  if not ok then wrong("cannot become JSON: " .. tostring(encoded), "a table becomes jsonb; postgres.array {…} is an array") end
  return { encoded, JSONB }
end

return values
