-- What goes on without a request, in a host that specs make.
--   vm.jobs                { { call, seconds, stopped = why }, … }; a job runs when it is spawned, until it waits
local jobs = {}

function jobs.add(vm)
  local host = vm.host
  vm.jobs = {}
  host.limits = { task_seconds = 3600 }

  function host.session(call) return call.has_session and (call.session_id or "s1") or nil end
  function host.name_task(call, id) call.task = id end
  function host.unhurried(call) call.is_unhurried = true end

  function host.spawn(call, f, seconds)
    if call.no_room then return nil, "too many" end
    local job_call = vm:new_call(call.method, nil, {
      revision = call.revision, principal = call.principal, capabilities = call.capabilities, has_session = call.has_session,
      session_id = call.session_id,
    })
    local job = { call = job_call, seconds = seconds }
    vm.jobs[#vm.jobs + 1] = job
    job.co = coroutine.create(function() f(job_call) end)
    assert(coroutine.resume(job.co))
    return job
  end

  function host.stop(job, why)
    job.stopped = why
    if coroutine.status(job.co) == "suspended" then coroutine.close(job.co) end
  end
end

return jobs
