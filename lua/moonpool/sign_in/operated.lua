-- What operators see of sign-ins, and how they end some. A sign-in is named by a mark, from which no token follows.

local families = require "moonpool.sign_in.families"
local host = require "moonpool.host"
local json = require "moonpool.json"
local records = require "moonpool.sign_in.records"

local operated = {}

local PAGE <const> = 200
local MARK <const> = 8

local function mark_of(id) return records.hash(id):sub(1, MARK) end

local function fits(family, search)
  return search == "" or family.user:lower():find(search, 1, true) or (family.name or ""):lower():find(search, 1, true) or family.client:find(search, 1, true)
end

-- Calls f(id, family) for each sign-in that has not ended. False: the store does not answer.
local function each(f)
  local ids = records.ids "family"
  for _, id in ipairs(ids or {}) do
    local family = records.get("family", id)
    if family then f(id, family) end
  end
  return ids ~= nil
end

--- One page of the sign-ins, those used last first; nil: the store does not answer. `params`: page, search.
function operated.list(params)
  local search, all = (params.search or ""):lower(), {}
  local is_there = each(function(id, family)
    if fits(family, search) then
      all[#all + 1] = { sign_in = mark_of(id), user = family.user, client = family.client, name = family.name, scopes = json.array(family.scopes),
        since = family.began, used = family.used or family.began }
    end
  end)
  if not is_there then return nil end
  table.sort(all, function(a, b) return a.used > b.used or (a.used == b.used and a.sign_in < b.sign_in) end)
  local first = (math.tointeger(params.page) or 0) * PAGE
  local found = json.array { table.unpack(all, first + 1, math.min(first + PAGE, #all)) }
  return { sign_ins = found, total = #all, next = #all > first + PAGE and first // PAGE + 1 or nil, resultType = "complete" }
end

--- Ends the sign-ins of a user, or the one with a mark: { ended = their number }; nil: the store does not answer.
function operated.finish(params)
  local ended = 0
  local is_there = each(function(id, family)
    if params.user and family.user == params.user or params.name and mark_of(id) == params.name then
      families.finish(id, true)
      ended = ended + 1
    end
  end)
  if not is_there then return nil end
  records.settle()
  if ended > 0 then host.log.write("info", "sign-ins ended", { count = ended, why = "by operator" }) end
  return { ended = ended, resultType = "complete" }
end

return operated
