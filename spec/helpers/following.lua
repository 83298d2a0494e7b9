-- Who follows what, and what goes on without a request, in a host that specs make.
--   vm.published           { { topic, plain, before, after }, … }
--   vm.follows[topic]      true once a session follows it
--   vm.jobs                { { call, seconds, stopped = why }, … }; a job runs when it is spawned, until it waits
local following = {}

function following.add(vm)
  local host = vm.host
  vm.published, vm.follows, vm.jobs, vm.listens = {}, {}, {}, {}

  function host.id(call) return call.id or "1" end
  function host.session(call) return call.has_session and (call.session_id or "s1") or nil end
  function host.name_task(call, id) call.task = id end
  function host.unhurried(call) call.is_unhurried = true end
  host.limits = { task_seconds = 3600 }

  function host.follow(call, topic)
    if call.no_room then return nil, "too many" end
    vm.follows[topic] = true
    return true
  end

  function host.unfollow(_, topic) vm.follows[topic] = nil end

  function host.publish(topic, plain, before, after)
    vm.published[#vm.published + 1] = { topic = topic, plain = plain, before = before, after = after }
  end

  function host.listen(call, topics)
    if call.no_room then return nil, "too many" end
    vm.listens[#vm.listens + 1] = topics
    return true
  end

  function host.spawn(call, f, seconds)
    if call.no_room then return nil, "too many" end
    local job_call = vm:new_call(call.method, nil, {
      revision = call.revision, principal = call.principal, capabilities = call.capabilities, has_session = call.has_session,
    })
    job_call.sent = call.sent
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

return following
