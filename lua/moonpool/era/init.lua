-- The eras, composed once at load. Inside, the house speaks the newest revision; an era's file lists only what it lacks:
--   newer         the era it is told from
--   methods       { name = true | false }: what it has beyond the newer one, or lacks
--   result_down   { method | "*" = function(result) }: our result, told to an older client, in place
--   params_up     { method = function(params) }: its params, told to us, in place
--   asks_down     { method = function(params) | false }: what we ask a client, told to an older one: other params, or nil
--                 where it cannot be said; false where that era cannot be asked
--   anything else a fact, inherited by older eras

local era = { newest = "2026-07-28", newest_legacy = "2025-11-25" }

local dates = { "2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05" }

-- What an older era does not inherit.
local own = { date = true, newer = true, methods = true, result_down = true, params_up = true, asks_down = true }

local function chain(steps)
  if #steps <= 1 then return steps[1] end
  return function(value)
    for i = 1, #steps do steps[i](value) end
  end
end

--- The params of a request of ours as a client of `date` understands them; nil when it cannot.
function era.asked(date, method, params)
  for _, step in ipairs(dates) do
    local down = require("moonpool.era." .. step).asks_down
    local tell = down and down[method]
    if tell == false then return nil end
    if tell then params = tell(params) end
    if not params or step == date then return params end
  end
end

--- All eras for a table of method functions: date -> { facts, methods = { name -> { run, up, down } } }.
function era.compose(methods)
  local files, eras = {}, {}
  for i, date in ipairs(dates) do
    local file = require("moonpool.era." .. date)
    files[i] = file
    local made = { date = date, methods = {} }
    for j = 1, i do
      for fact, value in pairs(files[j]) do
        if not own[fact] then made[fact] = value end
      end
    end
    for name, run in pairs(methods) do
      local has, down, up = false, {}, {}
      for j = 1, i do
        local said = files[j].methods and files[j].methods[name]
        if said ~= nil then has = said end
        local result_down = files[j].result_down or {}
        down[#down + 1] = result_down["*"]
        down[#down + 1] = result_down[name]
      end
      for j = i, 1, -1 do up[#up + 1] = files[j].params_up and files[j].params_up[name] end
      if has then made.methods[name] = { run = run, up = chain(up), down = chain(down) } end
    end
    eras[date] = made
  end
  return eras
end

return era
