-- Following, listening and publishing in a host that specs make: all is kept for a look.
--   vm.followed     topic -> true         vm.published    { { topic =, plain =, before =, after = }, … }
--   vm.listening    the topics of the last host.listen, and vm.closing what ends it
local topics = {}

function topics.add(vm)
  vm.followed, vm.published = {}, {}

  function vm.host.id(call) return call.id or "1" end

  function vm.host.follow(call, topic)
    if not call.has_session then return nil, "no session" end
    if call.no_room then return nil, "too many" end
    vm.followed[topic] = true
    return true
  end

  function vm.host.unfollow(_, topic) vm.followed[topic] = nil end

  function vm.host.publish(topic, plain, before, after)
    vm.published[#vm.published + 1] = { topic = topic, plain = plain, before = before, after = after }
  end

  function vm.host.listen(call, wanted, closing)
    if call.no_room then return nil, "too many" end
    vm.listening, vm.closing = wanted, closing
    return true
  end
end

return topics
