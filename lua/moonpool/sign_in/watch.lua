-- Ends the sign-ins of people who may not sign in any more: when the file of users has changed, and after a reload or a
-- start with other rules. One worker of the process looks a few times in a second; a token is judged at each use anyway.
--   rules   a hash of what decides who may sign in; the store has that of the sign-ins that were judged last

local host = require "moonpool.host"
local families = require "moonpool.sign_in.families"
local people = require "moonpool.sign_in.people"
local records = require "moonpool.sign_in.records"

local watch = {}

watch.job = "moonpool/sign-ins"

local EVERY_S <const>, LOOK_S <const> = 0.4, 5
local STEADY_S <const> = 0.3                             -- a file that is being written is looked at once more: an ending is for good
local JUDGE_S <const>, JUDGE_CPU_S <const> = 300, 60     -- for all sign-ins
local KEEP_S <const> = 400 * 86400
local judged                                             -- the rules by which all were judged
local is_judging = false

-- True if the person of a family may still sign in, or that is not known.
local function may(family)
  local is_allowed, _, is_unknown = people.judge(family.user, family.mark)
  return is_allowed or is_unknown
end

-- Judges all sign-ins: the number of those that have ended.
local function judge_all()
  local ended = 0
  for _, id in ipairs(records.ids "family" or {}) do
    local family = records.get("family", id)
    if family and not may(family) then
      families.finish(id, true)
      ended = ended + 1
    end
  end
  return ended
end

local function judge(rules)
  local _ <close> = setmetatable({}, { __close = function() is_judging = false end })
  if records.get("rules", "judged") ~= rules then
    local ended = judge_all()
    records.put("rules", "judged", rules, KEEP_S)
    records.settle()
    if ended > 0 then host.log.write("info", "sign-ins ended", { count = ended, why = "their people may not sign in any more" }) end
  end
  judged = rules
end

local function look()
  local rules = people.rules()
  if not rules or rules == judged or is_judging then return end
  host.time.sleep(STEADY_S)
  if people.rules() ~= rules then return end
  is_judging = host.job.begin(function() pcall(judge, rules) end, JUDGE_S, JUDGE_CPU_S) == true
end

--- One look. What the store does not take is tried again by the next one.
function watch.run()
  local _ <close> = setmetatable({}, { __close = function() host.store.delete("job:running:" .. watch.job) end })
  look()
end

--- Called while scripts load.
function watch.start()
  if not host.script.has_specs then host.job.schedule(watch.job, EVERY_S, LOOK_S) end
end

return watch
