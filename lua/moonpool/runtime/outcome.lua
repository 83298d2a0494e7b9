-- The ways to fail: expected (`fail`, `try`, `nil, why`), refused (`fail_request`), a missing capability, and a fault.
-- A fault is logged with its details under a short id; the client gets only the id.

local frozen = require "moonpool.runtime.frozen"
local host = require "moonpool.host"
local problem = require "moonpool.runtime.diagnostic"
local rpc_error = require "moonpool.runtime.rpc_error"
local show = require "moonpool.runtime.show"

local failure = {}

-- Error values are frozen: a policy that catches an error and raises it again cannot change it. Scripts can read its
-- field `why`.
local function why_of(content) return content.why end

local expected = { name = "moonpool.runtime.outcome", what = "an error", tostring = why_of }
local missing = { name = "moonpool.missing", what = "an error", tostring = why_of }
local refused = { name = "moonpool.refused", what = "an error", tostring = why_of }
local input = { name = "moonpool.input", what = "an error" }
local task = { name = "moonpool.task", what = "an error" }
local fault = { name = "moonpool.fault", what = "an error", tostring = why_of }

local function new(kind, content) return frozen.new(kind, { why = content.why }, content) end
failure.input = input

local function words(why, otherwise)
  if why == nil then return otherwise end
  return show(why)
end
failure.words = words

--- Ends the call with an expected error. The model reads `why`.
function failure.fail(why)
  error(new(expected, { why = words(why, "the tool failed") }), 0)
end

--- Returns its arguments unless `value` is nil or false; then fails with the reason `why`.
function failure.try(value, why, ...)
  if value == nil or value == false then failure.fail(why) end
  return value, why, ...
end

--- Ends the call with a JSON-RPC error.
function failure.refuse(err) error(new(refused, { why = err.message, error = err }), 0) end

--- The JSON-RPC error of a value that failure.refuse raised.
function failure.refusal(value) return frozen.content(value).error end

-- The reserved JSON-RPC codes that a script may use, in addition to codes of its own (G-1).
local allowed = { [rpc_error.invalid_params] = true, [rpc_error.internal] = true }
local codes_hint = ("%d (invalid params), %d (internal error), or one of your own outside %s"):format(
  rpc_error.invalid_params, rpc_error.internal, rpc_error.reserved)

--- fail_request(code, message [, data]): ends the call with a JSON-RPC error, which the client's program reads, not its
--- model.
function failure.fail_request(code, message, data)
  if math.type(code) ~= "integer" or (rpc_error.is_reserved(code) and not allowed[code]) then
    problem.raise(2, "fail_request needs a code", codes_hint)
  end
  failure.refuse { code = code, message = words(message, "the request failed"), data = data }
end

--- Ends the call because the client lacks the capabilities that `tree` names.
function failure.missing(tree, names)
  local list = table.concat(names, ", ")
  error(new(missing, { tree = tree, why = "the client lacks a capability that this needs: " .. list }), 0)
end

--- The capabilities that a value which failure.missing raised names, as a tree.
function failure.lacking(value) return frozen.content(value).tree end

--- Ends this run of the handler: it needs the client's answers to questions and runs again when they arrive (V-10).
function failure.ask(questions)
  error(new(input, { questions = questions }), 0)
end

--- The questions of a value that failure.ask raised.
function failure.questions(value) return frozen.content(value).questions end

--- Ends this run of the handler: an upstream has made an MCP task of the call. The handler runs again as the body of a
--- task of this gateway.
function failure.become_task(made) error(new(task, { task = made }), 0) end

--- The value that failure.become_task was called with.
function failure.task(value) return frozen.content(value).task end

function failure.is_task(value) return frozen.is(value, task) end
function failure.is_input(value) return frozen.is(value, input) end
function failure.is_expected(value) return frozen.is(value, expected) end
function failure.is_refused(value) return frozen.is(value, refused) end
function failure.is_missing(value) return frozen.is(value, missing) end
local function is_fault(value) return frozen.is(value, fault) end

local kinds = { [expected] = true, [missing] = true, [input] = true, [refused] = true, [task] = true, [fault] = true }

-- The stack of the error, innermost first, only the lines of scripts: "scripts/tools/a.lua:3 < scripts/lib/b.lua:9".
local function trace()
  local frames = {}
  for level = 3, 60 do
    local info = debug.getinfo(level, "Sl")
    if not info then break end
    if info.currentline > 0 and problem.is_of_script(info.source) then
      frames[#frames + 1] = info.source:sub(2) .. ":" .. info.currentline
      if #frames == 16 then break end
    end
  end
  return table.concat(frames, " < ")
end

--- The message handler of xpcall: returns expected errors unchanged, and makes a fault with a trace of any other error.
function failure.handler(value)
  local mt = debug.getmetatable(value)
  if (type(mt) == "table" and kinds[rawget(mt, "kind")]) or host.task.is_ending(value) then return value end
  local ok, why = pcall(show, value)
  if not ok or type(why) ~= "string" then why = "an error that is a " .. type(value) end
  local hint = problem.is_trouble(value) and value.hint or problem.hint(why)
  return new(fault, { why = why, hint = hint, trace = trace() })
end

--- The text of an error value, for the log.
function failure.reason(value)
  if failure.is_missing(value) or failure.is_expected(value) or failure.is_refused(value) or is_fault(value) then return value.why end
  if failure.is_input(value) then return "it asks the client a question" end
  if failure.is_task(value) then return "the call becomes an MCP task" end
  return words(value, "nil")
end

--- Logs a fault and returns the text that the client gets. `place` is "path:line" or a path for a fault without a trace, or nil.
function failure.report(value, what, name, place)
  local id = ("%02x%02x"):format(host.random.bytes(2):byte(1, 2))
  local fields = { id = id, name = name, at = place }
  if is_fault(value) then
    local logged = frozen.content(value)
    fields.why, fields.hint = logged.why, logged.hint
    if logged.trace ~= "" then fields.trace, fields.at = logged.trace, nil end
  else
    fields.why = words(value, "nil")        -- out of memory and errors of the handler itself come without a trace
  end
  host.log.write("error", what, fields)
  host.call.count_fault()
  return "internal error " .. id
end

return failure
