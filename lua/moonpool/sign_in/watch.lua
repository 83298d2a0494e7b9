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
local JUDGE_S <const>, JUDGE_CPU_S <const> = 300, 5      -- for one round: the next one goes on behind it
local AGAIN_S <const>, MOST_S <const> = 10, 60           -- between two rounds of a worker: it doubles
local TURN_S <const> = 1                                 -- while another worker judges
local KEEP_S <const> = 400 * 86400
local judged                                             -- the rules by which all were judged
local round = {}                                         -- the rounds by the same rules, of which the process runs one at a time:
--   { rules, pause, at }: how long the next one waits, and when it may begin; is_running; is_cut: the last did not come to its end
--   done                  the ids of sign-ins that were judged: true; false where nothing came of it, so that others are judged first

-- The ids of the sign-ins that are to be judged: of those that no round has reached; and of those that one has reached
-- without a result, perhaps because it was cut there.
local function waiting(done)
  local ids, again = {}, {}
  for _, id in ipairs(records.ids "family" or error({ sign_in_unavailable = "the store" }, 0)) do
    local list = done[id] == nil and ids or done[id] == false and again
    if list then list[#list + 1] = id end
  end
  return ids, again
end

-- Judges these sign-ins: the number of those of which it is not known now.
local function judge_each(ids, done)
  local ended, unknown = 0, 0
  for _, id in ipairs(ids) do
    done[id] = false
    local family = records.get("family", id)
    local is_allowed, is_unknown = true, false
    if family then is_allowed, _, is_unknown = people.judge(family.user, family.mark) end
    if not is_allowed and not is_unknown then
      families.finish(id, true)
      ended = ended + 1
    end
    done[id] = not is_unknown
    unknown = unknown + (is_unknown and 1 or 0)
  end
  records.settle()
  if ended > 0 then host.log.write("info", "sign-ins ended", { count = ended, why = "their people may not sign in any more" }) end
  return unknown
end

local function complain(why)
  host.log.write("warn", "sign-in not possible", { why = why, hint = "not all people who are signed in were judged by the new rules yet; that goes on" })
end

local function judge(rules, done)
  if records.get("rules", "judged") == rules then -- by another worker, or before the start
    judged = rules
    return
  end
  local ids, again = waiting(done)
  local unknown = judge_each(ids, done) + judge_each(again, done)
  if unknown > 0 then return complain(("of %d sign-ins it is not known whether they may go on"):format(unknown)) end
  judged = rules
  records.put("rules", "judged", rules, KEEP_S)
  records.settle()
end

local function run_round(it)
  local _ <close> = setmetatable({}, { __close = function() it.is_running = false end })
  it.at = host.time.now() + TURN_S
  local turn <close> = host.semaphore.take("sign_in judging by " .. it.rules, 1, false, 0)
  if not turn then return end          -- another worker judges
  local _ <close> = setmetatable({}, { __close = function() it.at, it.pause = host.time.now() + it.pause, math.min(2 * it.pause, MOST_S) end })
  if it.is_cut then complain "to judge them took too long" end
  it.is_cut = true
  local ok, why = pcall(judge, it.rules, it.done)
  it.is_cut = false
  if not ok then complain(type(why) == "table" and why.sign_in_unavailable or tostring(why)) end
end

local function look()
  local rules = people.rules()
  if not rules or rules == judged or round.is_running then return end
  if round.rules ~= rules then round = { rules = rules, done = {}, pause = AGAIN_S, at = -math.huge } end
  if host.time.now() < round.at then return end
  host.time.sleep(STEADY_S)
  if people.rules() ~= rules or round.is_running then return end
  local it = round
  it.is_running = true
  if not host.job.begin_own(function() run_round(it) end, JUDGE_S, JUDGE_CPU_S) then it.is_running = false end
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
