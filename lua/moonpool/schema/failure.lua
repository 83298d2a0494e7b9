-- How checking fails. A `run` is the state of one validation; a check takes (value, run, seen) and gives true or false.
--
--   run.left     steps that may still be taken; below 0 the run is over, whatever the checks say
--   run.value    what is checked, until steps have run out for the first time
--   run.depth    references inside each other
--   run.quiet    above 0 nobody will read why a check fails, so no text is made
--   run.message, run.keyword, run.path   the failure, its path growing at the front while the checks return
--   run.top, run[1 .. run.top]           the resources being evaluated; kept only where $dynamicRef needs them
local failure = {}

failure.STEPS = 100000
failure.DEPTH = 1024

local PER_PIECE <const> = 10 -- steps for each piece of a large value
local PIECES <const> = 90000 -- that count

-- How much there is of a value, in pieces: names, items, 64 bytes of text.
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

-- Steps have run out. A large value may need more of them; a schema that takes them all for a small one is given no more.
local function extend(run, left)
  local value = run.value
  run.value = nil
  return value ~= nil and left + PER_PIECE * math.min(pieces_of(value, PIECES), PIECES) or left
end

-- Takes `steps` from what is left. False when the run is over: then every check returns at once.
function failure.spend(run, steps)
  local left = run.left - steps
  if left < 0 then left = extend(run, left) end
  run.left = left
  return left >= 0
end

-- The check found a fault here. Arguments are formatted only when somebody will read them.
function failure.refuse(run, keyword, text, ...)
  if run.quiet == 0 then
    run.message = select("#", ...) > 0 and text:format(...) or text
    run.keyword, run.path = keyword, ""
  end
  return false
end

local escapes = { ["~"] = "~0", ["/"] = "~1" }

function failure.escape(name)
  return (tostring(name):gsub("[~/]", escapes))
end

-- The fault was in the member `key` of the value here; items count from 0.
function failure.under(run, key)
  if run.quiet == 0 then run.path = "/" .. failure.escape(key) .. run.path end
  return false
end

-- A name that came from outside, for a message.
function failure.shown(name)
  local text = tostring(name)
  if #text <= 80 then return text end
  return text:sub(1, (utf8.offset(text, 0, 78) or 78) - 1) .. "…"
end

-- Ends the run: it is neither good nor bad, and no `not` may turn it around.
function failure.give_up(run, why)
  run.left, run.value = -1, nil
  run.why = run.why or why
  return false
end

-- A schema that cannot be compiled. `where` is its place: "#/properties/a/minLength".
function failure.fault(where, text, ...)
  if select("#", ...) > 0 then text = text:format(...) end
  error({ fault = ("%s (%s)"):format(text, where) }, 0)
end

return failure
