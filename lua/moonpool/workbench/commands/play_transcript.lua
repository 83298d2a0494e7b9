-- moonpool test --play: plays a transcript against the scripts on disk, and prints the answers that differ.

local canonical = require "moonpool.runtime.canonical"
local characters = require "moonpool.runtime.characters"
local connect = require "moonpool.workbench.client.connect"
local stderr = require "moonpool.workbench.format.stderr"
local transcript = require "moonpool.workbench.format.transcript"

-- Nil if the answer is as written; else the wanted one and the one that came.
local function difference(step, result, err, known)
  local wanted = step.error and ("error %d %s"):format(step.error.code, step.error.message) or canonical(step.result)
  if not result then
    local is_same = step.error and step.error.code == err.code and transcript.fits(step.error.message, err.message, known)
    return not is_same and wanted or nil, ("error %s %s"):format(tostring(err.code or ""), tostring(err.message))
  end
  result = transcript.without_usual(result)
  local is_same = step.result and transcript.fits(step.result, result, known)
  return not is_same and wanted or nil, canonical(result)
end

local function play(s, steps, path)
  local failed, known = 0, {}
  for _, step in ipairs(steps) do
    local result, err = s:request(step.method, step.params)
    local wanted, got = difference(step, result, err, known)
    local name = type(step.params.name) == "string" and "  " .. step.params.name or ""
    print(characters.shown(("%s%s:%d  %s%s"):format(wanted and "FAIL  " or "ok    ", path, step.number, step.method, name)))
    if wanted then
      failed = failed + 1
      print(characters.shown("      - " .. wanted))
      print(characters.shown("      + " .. got))
    end
    if err and err.is_gone then return failed + 1 end
  end
  return failed
end

return function(args)
  local steps, why = transcript.read(args.play)
  if not steps then return stderr.wrong(why) end
  if #steps == 0 then return stderr.wrong(args.play .. " has no requests", "moonpool tap --record writes a transcript") end
  return connect.run({ config = args.config, every = {} }, function() return true end, function(s)
    local failed = play(s, steps, args.play)
    print(("%d %s, %s"):format(#steps, #steps == 1 and "request" or "requests", failed == 0 and "all as written" or failed .. " failed"))
    return failed == 0 and 0 or 1
  end)
end
