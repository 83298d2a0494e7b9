-- listen { cache, "channel", function(message, channel, call) … end } in scripts/jobs/: a job that runs for each message
-- of a channel, on one worker, one run after another. The metatable of an object that can be listened to has
--   __listen(object, channel, options)   a source for host.job.listen, and what it listens to, for people; or nil, why, hint

local host = require "moonpool.host"
local copied = require "moonpool.runtime.copied"
local suggest = require "moonpool.runtime.suggest"

local listening = {}

local options <const> = { "pattern", "timeout", "enabled" }
local kinds <const> = { pattern = "boolean", timeout = "number", enabled = "boolean" }
local form <const> = 'as in listen { cache, "orders", function(message) … end }'

-- The method of an object that can be listened to; nil for any other value.
local function method_of(value)
  local mt = type(value) == "table" and debug.getmetatable(value)
  return type(mt) == "table" and rawget(mt, "__listen") or nil
end

--- Prepares the listening job that a file returned; its functions are those of job.build.
function listening.build(name, given, complain, check_time)
  if type(given) ~= "table" then return complain("listen", "listen needs a table", form) end
  local spec = copied(given)
  local source_of = method_of(spec[1])
  if not source_of then
    return complain("listen", "the first item of listen must be what can be listened to, not " .. (spec[1] == nil and "nil" or "a " .. type(spec[1])),
      form .. ', where cache = try(redis.open { "redis://…" })')
  end
  if type(spec[2]) ~= "string" or spec[2] == "" then complain("listen", "the second item of listen must be the name of a channel", form) end
  if type(spec[3]) ~= "function" then complain("listen", "the third item of listen must be its function", form) end
  for option, value in next, spec do
    local want = kinds[option]
    if want and type(value) ~= want then
      complain(option, ("'%s' must be a %s, not a %s"):format(option, want, type(value)))
    elseif not want and option ~= 1 and option ~= 2 and option ~= 3 then
      complain(tostring(option), "listen has no option '" .. tostring(option) .. "'", suggest.listed(tostring(option), options, "options"))
    end
  end
  check_time(spec, "timeout", complain)
  if type(spec[2]) ~= "string" or type(spec[3]) ~= "function" then return end
  local source, words, hint = source_of(spec[1], spec[2], { pattern = spec.pattern })
  if not source then return complain("listen", words, hint) end
  return {
    name = name, description = "Listens to " .. words, handler = spec[3], source = source, words = "listens to " .. words,
    timeout = spec.timeout, off = spec.enabled == false,
  }
end

--- Begins with the job once the VM serves.
function listening.start(one) host.job.listen(one.name, one.source, one.words, one.timeout) end

return listening
