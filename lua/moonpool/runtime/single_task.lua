-- Background work of the gateway itself of which a Lua state does one piece after the other, in a task of its own: so it takes
-- one place, however much comes.

local host = require "moonpool.host"

local single_task = {}

--- Returns a function that begins a task which runs f(), unless one runs, for at most `seconds`, with `cpu` seconds of
--- processor time beyond limits.call.cpu. When it has ended, in whatever way, another one begins if is_due().
function single_task.new(f, is_due, seconds, cpu)
  local is_running, begin = false, nil
  local function run()
    local _ <close> = setmetatable({}, { __close = function()
      is_running = false
      if is_due() then begin() end
    end })
    f()
  end
  function begin()
    if is_running then return end
    is_running = true
    if not host.job.begin_own(run, seconds, cpu) then is_running = false end      -- the next one tries again
  end
  return begin
end

--- Returns a function that takes a text; a task runs f(text) for each that was taken, once for those that are equal by then.
function single_task.each(f, seconds, cpu)
  local waiting = {}
  local begin = single_task.new(function()
    local text = next(waiting)
    while text do
      waiting[text] = nil
      f(text)
      text = next(waiting)
    end
  end, function() return next(waiting) ~= nil end, seconds, cpu)
  return function(text)
    waiting[text] = true
    begin()
  end
end

return single_task
