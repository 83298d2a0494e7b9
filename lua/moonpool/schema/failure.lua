-- The state of one validation, and how a check reports a failure. A check takes (value, run, seen) and returns true or
-- false; `run` has:
--
--   run.left     steps that may still be taken; below 0 the run has ended, and results of checks are ignored
--   run.value    the value that is checked, until the steps have run out for the first time
--   run.depth    nesting of references
--   run.quiet    above 0 the reason of a failure is not needed, so no text is made
--   run.text, run.got, run.keyword       the failure: its text, to whose end `got` is put if it is not nil; its keyword
--   run.levels, run.keys[1 .. run.levels]   where in the value the failure is: the innermost key first, items from 0
--   run.top, run[1 .. run.top]           the resources being evaluated; filled only if the schema has $dynamicRef
local failure = {}

failure.STEPS = 100000
failure.DEPTH = 1024

local PER_PIECE <const> = 10 -- additional steps for each piece of a large value
local PIECES <const> = 90000 -- limit of the pieces that are counted

-- The size of a value in pieces: names, items, 64 bytes of text.
local function pieces_of(value, most)
  if type(value) == "string" then return #value // 64 + 1 end
  if type(value) ~= "table" then return 1 end
  local count = 1
  for _, inner in next, value do
    if count >= most then return most end
    count = count + pieces_of(inner, most - count)
  end
  return count
end

-- Called when the steps have run out. A large value gets additional steps; a schema that uses up the steps on a small
-- value does not.
local function extend(run, left)
  local value = run.value
  run.value = nil
  return value ~= nil and left + PER_PIECE * math.min(pieces_of(value, PIECES), PIECES) or left
end

-- Subtracts `steps` from the remaining steps. False if the run has ended: then every check returns at once.
function failure.spend(run, steps)
  local left = run.left - steps
  if left < 0 then left = extend(run, left) end
  run.left = left
  return left >= 0
end

-- Reports a failure of this check, in a text, to whose end a value may be put.
function failure.refuse(run, keyword, text, got)
  if run.quiet == 0 then run.text, run.got, run.keyword, run.levels = text, got, keyword, 0 end
  return false
end

function failure.message(run) return run.got == nil and run.text or run.text .. run.got end

local escapes = { ["~"] = "~0", ["/"] = "~1" }

function failure.escape(name)
  local text = tostring(name)
  return text:find "[~/]" and text:gsub("[~/]", escapes) or text
end

-- Reports that the failure was in the member `key` of this value; items count from 0.
function failure.under(run, key)
  if run.quiet == 0 then
    local levels = run.levels + 1
    run.levels, run.keys[levels] = levels, key
  end
  return false
end

-- Where the failure is, as a JSON pointer.
function failure.path(run)
  local path = ""
  for i = 1, run.levels do
    local key = run.keys[i]
    path = "/" .. (type(key) == "string" and failure.escape(key) or key) .. path
  end
  return path
end

-- A name from outside, quoted for a message.
function failure.shown(name)
  local text = tostring(name)
  if #text <= 80 then return text end
  return text:sub(1, (utf8.offset(text, 0, 78) or 78) - 1) .. "…"
end

-- Ends the run with no result: even a `not` around the check cannot turn this into a success.
function failure.give_up(run, why)
  run.left, run.value = -1, nil
  run.why = run.why or why
  return false
end

-- The error for a schema that cannot be compiled. `where` is the place in it: "#/properties/a/minLength".
function failure.fault(where, text, ...)
  if select("#", ...) > 0 then text = text:format(...) end
  error({ fault = ("%s (%s)"):format(text, where) }, 0)
end

return failure
