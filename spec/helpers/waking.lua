-- Signals and semaphore turns of tasks in the host of spec/helpers/host.lua. A task that waits must be a coroutine:
-- `set` resumes it, and so does `expire`, which ends its time. Outside of a coroutine, a wait returns at once. Turns
-- are always free.
local waking = {}

local signal = {}
signal.__index = signal

function signal:wait(seconds)
  if self.is_set or (seconds and seconds <= 0) or not coroutine.isyieldable() then return self.is_set end
  self.waiters[#self.waiters + 1] = coroutine.running()
  return coroutine.yield()
end

local function wake(self, answer)
  local waiters = self.waiters
  self.waiters = {}
  for _, co in ipairs(waiters) do
    if coroutine.status(co) == "suspended" then assert(coroutine.resume(co, answer)) end
  end
end

function signal:set()
  self.is_set = true
  wake(self, true)
end

function signal:clear() self.is_set = false end

--- Ends the time of all waiting tasks.
function signal:expire() wake(self, false) end

--- Calls `vm.moonpool.deliver` at once with each message; vm.broadcasts is the list of all messages.
function waking.add(vm)
  vm.broadcasts = {}

  function vm.host.task.event() return setmetatable({ is_set = false, waiters = {} }, signal) end

  function vm.host.semaphore.take() return setmetatable({}, { __close = function() end }) end

  function vm.host.bus.broadcast(topic, text)
    vm.broadcasts[#vm.broadcasts + 1] = { topic = topic, text = text }
    vm.moonpool.deliver(topic, text)
    return true
  end
end

return waking
