-- Background tasks in a host that specs make: each is a coroutine that runs at once, up to its first wait.
--   vm.jobs   { { call =, seconds =, co =, stopped = why, failed = error }, … };  vm.most_jobs: above this number "too many" is returned
local jobs = {}

local function unheard() return false end

local function is_over(job) return coroutine.status(job.co) == "dead" end

function jobs.add(vm)
  vm.jobs, vm.most_jobs = {}, math.huge
  vm.host.job.schedule, vm.host.job.listen = function() end, function() end
  vm.host.job.note = function() end
  vm.host.limits.task_seconds = 3600
  function vm.host.call.over_output() return nil end

  function vm.host.job.spawn(call, f, seconds)
    local running = 0
    for _, job in ipairs(vm.jobs) do
      if not is_over(job) then running = running + 1 end
    end
    if running >= vm.most_jobs then return nil, "too many" end
    local job = { seconds = seconds }
    job.call = setmetatable({ send = unheard, progress = unheard }, { __index = call })
    job.co = coroutine.create(function()
      local ok, why = xpcall(f, debug.traceback, job.call)
      if not ok then job.failed = why end
    end)
    vm.jobs[#vm.jobs + 1] = job
    assert(coroutine.resume(job.co))
    return job
  end

  function vm.host.job.begin(f, seconds)
    local job, why = vm.host.job.spawn({}, f, seconds)
    return job and true, why
  end

  vm.host.job.begin_own = function(...) return vm.host.job.begin(...) end

  function vm.host.job.stop(job, why)
    if is_over(job) then return end
    job.stopped, job.call.cancelled = why or "stopped", true
    if coroutine.status(job.co) == "suspended" then coroutine.close(job.co) end
  end
end

return jobs
