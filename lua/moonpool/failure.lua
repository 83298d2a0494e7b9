-- The ways to fail: expected (`fail`, `try`, `nil, why`), refused (`fail_request`), a missing capability, and a fault.
-- A fault is logged whole under a short id; the client sees the id alone.

local host = require "moonpool.host"
local json = require "moonpool.json"
local problem = require "moonpool.problem"

local failure = {}

local expected = { __name = "moonpool.failure", __metatable = false }
expected.__tostring = function(self) return self.why end

local missing = { __name = "moonpool.missing", __metatable = false }
missing.__tostring = function(self) return self.why end

local refused = { __name = "moonpool.refused", __metatable = false }
refused.__tostring = function(self) return self.error.message end

local input = { __name = "moonpool.input", __metatable = false }

local fault = { __name = "moonpool.fault", __metatable = false }
fault.__tostring = function(self) return self.why end

local function words(why, otherwise)
  if why == nil then return otherwise end
  if type(why) == "string" then return why end
  return tostring(why)
end
failure.words = words

--- Ends the call; the model reads `why`.
function failure.fail(why)
  error(setmetatable({ why = words(why, "the tool failed") }, expected), 0)
end

--- Passes on what succeeded; fails with the reason of what did not.
function failure.try(value, why, ...)
  if value == nil or value == false then failure.fail(why) end
  return value, why, ...
end

--- Ends the call with this JSON-RPC error.
function failure.refuse(err) error(setmetatable({ error = err }, refused), 0) end

-- What a script may say of a request: that its params are wrong, that something broke, and codes of its own (G-1).
local allowed = { [-32602] = true, [-32603] = true }

--- fail_request(code, message [, data]): ends the call with a JSON-RPC error, which the client's program reads, not its model.
function failure.fail_request(code, message, data)
  if math.type(code) ~= "integer" or (code >= -32768 and code <= -32000 and not allowed[code]) then
    problem.raise(2, "fail_request needs a code", "-32602 (invalid params), -32603 (internal error), or one of your own outside -32768 to -32000")
  end
  failure.refuse { code = code, message = words(message, "the request failed"), data = data }
end

--- Ends the call: the client lacks the capabilities of `tree`.
function failure.missing(tree, names)
  local list = table.concat(names, ", ")
  error(setmetatable({ tree = tree, why = "this needs a client that can do: " .. list }, missing), 0)
end

--- Unwinds the handler: these questions must be answered before it can go on (V-10).
function failure.ask(questions)
  error(setmetatable({ questions = questions }, input), 0)
end

function failure.is_input(value) return debug.getmetatable(value) == input end
function failure.is_expected(value) return debug.getmetatable(value) == expected end
function failure.is_refused(value) return debug.getmetatable(value) == refused end
function failure.is_missing(value) return debug.getmetatable(value) == missing end

-- Where the error came from, innermost first, scripts only: "scripts/tools/a.lua:3 < scripts/lib/b.lua:9".
local function trace()
  local frames = {}
  for level = 3, 60 do
    local info = debug.getinfo(level, "Sl")
    if not info then break end
    if info.currentline > 0 and info.source:sub(2, #host.root + 2) == host.root .. "/" then
      frames[#frames + 1] = info.source:sub(2) .. ":" .. info.currentline
      if #frames == 16 then break end
    end
  end
  return table.concat(frames, " < ")
end

--- The message handler of xpcall: expected values pass, anything else becomes a fault with its trace.
function failure.handler(value)
  local mt = debug.getmetatable(value)
  if mt == expected or mt == missing or mt == input or mt == refused or mt == fault then return value end
  local tell = type(value) == "table" and not (mt and mt.__tostring) and json.encode or tostring
  local told, why = pcall(tell, value)
  if not told or type(why) ~= "string" then why = "an error that is a " .. type(value) end
  local hint = problem.is_trouble(value) and value.hint or problem.hint(why)
  return setmetatable({ why = why, hint = hint, trace = trace() }, fault)
end

--- What an error value says, for the log.
function failure.reason(value)
  if failure.is_missing(value) or failure.is_expected(value) or debug.getmetatable(value) == fault then return value.why end
  if failure.is_refused(value) then return value.error.message end
  if failure.is_input(value) then return "it asks the client" end
  return words(value, "nil")
end

--- Logs a fault; gives the text that the client sees.
function failure.report(value, what, name)
  local id = ("%02x%02x"):format(host.random(2):byte(1, 2))
  local fields = { id = id, name = name }
  if debug.getmetatable(value) == fault then
    fields.why, fields.hint = value.why, value.hint
    if value.trace ~= "" then fields.trace = value.trace end
  else
    fields.why = words(value, "nil")        -- out of memory and errors of the handler itself come without a trace
  end
  host.log("error", what, fields)
  host.fault()
  return "internal error " .. id
end

return failure
