-- job { … } in scripts/jobs/: what runs every so often, on one worker, and never twice at once.

local host = require "moonpool.host"
local failure = require "moonpool.failure"
local suggest = require "moonpool.suggest"

local job = {}

local SHORTEST, LONGEST = 0.1, 30 * 86400

local written = { __name = "moonpool.job", __metatable = false }
local options = { every = "number", timeout = "number", enabled = "boolean" }
local form = "as in job { \"What it does.\", every = 5 * minutes, function(call) … end }"

local jobs = {}

function job.new(spec) return setmetatable({ spec = spec }, written) end

function job.is(value) return debug.getmetatable(value) == written end

local function check_time(spec, name, complain)
  local value = spec[name]
  if type(value) == "number" and not (value >= SHORTEST and value <= LONGEST) then
    complain(name, "'" .. name .. "' must be from 0.1 seconds to 30 days", "as in " .. name .. " = 5 * minutes")
  end
end

--- A job ready to be scheduled, from what a file returned.
function job.build(name, value, _, complain)
  local spec = value.spec
  if type(spec) ~= "table" then return complain("job", "job needs a table", form) end
  if type(spec[1]) ~= "string" then complain("job", "a job begins with its description", form) end
  if type(spec[2]) ~= "function" then complain("job", "a job's function comes after its description", form) end
  if spec.every == nil then complain("job", "a job says how often it runs", form) end
  for option, given in pairs(spec) do
    local want = options[option]
    if want and type(given) ~= want then
      complain(option, "'" .. option .. "' must be a " .. want .. ", not a " .. type(given))
    elseif not want and option ~= 1 and option ~= 2 then
      complain(tostring(option), "job has no option '" .. tostring(option) .. "'",
        suggest.hint(tostring(option), { "every", "timeout", "enabled" }) or "options are every, timeout, enabled")
    end
  end
  check_time(spec, "every", complain)
  check_time(spec, "timeout", complain)
  return { name = name, description = spec[1], handler = spec[2], every = spec.every, timeout = spec.timeout, off = spec.enabled == false }
end

--- All of them, once everything is loaded: { name = job }.
function job.set(made)
  jobs = made
  for name, one in pairs(made) do
    if not one.off then host.schedule(name, one.every, one.timeout) end
  end
end

function job.all() return jobs end

--- What C calls when it is time.
function job.run(call, name)
  local one, ended = jobs[name], false
  local _ <close> = setmetatable({}, { __close = function()
    host.store_delete("job:running:" .. name)
    if not ended then host.log("warn", "job called off", { name = name }) end
  end })
  local ok, value, why = xpcall(one.handler, failure.handler, call)
  ended = true
  if not ok and failure.is_expected(value) then
    value, why, ok = nil, value.why, true
  end
  if not ok then
    failure.report(value, "job failed", name)
  elseif value == nil and why ~= nil then
    host.log("warn", "job failed", { name = name, why = failure.words(why) })
  end
end

return job
